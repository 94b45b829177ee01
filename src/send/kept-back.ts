/** What a peer keeps of what it acknowledges until its time has come: its operator is told, now and then. */
import { type Clock, passedSince } from '../clock.ts';
import type { Emitter } from '../events.ts';
import { type Early, earlyAt } from './verdict.ts';

const TELL_MS = 3_600_000;

export class KeptBack {
  /** It does so with changes of the batch that it acknowledged last. */
  isSo = false;
  readonly #peer: string;
  readonly #o: { clock: Clock; events: Emitter };
  #toldAt = Number.NEGATIVE_INFINITY;

  constructor(peer: string, options: { clock: Clock; events: Emitter }) {
    this.#peer = peer;
    this.#o = options;
  }

  /** To the peer these are no fault of its own. */
  note(early: Early | undefined): void {
    this.isSo = early !== undefined;
    const { clock, events } = this.#o;
    if (!early || passedSince(clock, this.#toldAt) < TELL_MS) return;
    this.#toldAt = clock.now();
    events.emit('warning', { code: 'future-stamp', message: earlyAt(this.#peer, early) });
  }
}
