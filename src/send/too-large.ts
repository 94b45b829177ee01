/**
 * Rows that a comparison could not bring here, or there, because they are too large. They are left where they are, and whoever
 * runs the node is told: by a warning, and by its health until a whole comparison does not come upon them any more.
 */
import { type Clock, passedSince } from '../clock.ts';
import type { Emitter } from '../events.ts';

interface Row {
  peer: string;
  table: string;
  id: string;
}

/** So many are named; of more it is said how many there are. */
const NAMED_MAX = 3;
/** So many are remembered: the rest is found again when these have gone. */
const KEPT_MAX = 1_000;

export class TooLargeRows {
  readonly #clock: Clock;
  readonly #events: Emitter;
  readonly #found = new Map<string, Row & { at: number }>();

  constructor(clock: Clock, events: Emitter) {
    this.#clock = clock;
    this.#events = events;
  }

  /** A row of the peer's that is too large for this side. */
  found(row: Row): void {
    const key = JSON.stringify([row.peer, row.table, row.id]);
    const isNews = !this.#found.has(key);
    if (isNews && this.#found.size >= KEPT_MAX) return;
    this.#found.set(key, { ...row, at: this.#clock.now() });
    if (isNews) this.#events.emit('warning', { code: 'too-large', message: `${named(row)} at ${row.peer} ${WHY}` });
  }

  /** All was compared with that peer, which took so long: what was not found again is no more. */
  compared(peer: string, ms: number): void {
    for (const [key, one] of this.#found) {
      if (one.peer === peer && passedSince(this.#clock, one.at) > ms) this.#found.delete(key);
    }
  }

  /** Of those that are peers at the moment. */
  problems(peers: string[]): string[] {
    const rows = [...this.#found.values()];
    return peers.flatMap((peer) => {
      const of = rows.filter((row) => row.peer === peer);
      if (of.length === 0) return [];
      const more = of.length > NAMED_MAX ? ` and ${of.length - NAMED_MAX} more` : '';
      return `${of.slice(0, NAMED_MAX).map(named).join(', ')}${more} at ${peer} ${WHY}`;
    });
  }
}

function named({ table, id }: Row): string {
  return `row ${JSON.stringify(id.slice(0, 100))} of "${table}"`;
}

const WHY = 'cannot be brought here: too large for this side. Let it take more, by maxBodyBytes';
