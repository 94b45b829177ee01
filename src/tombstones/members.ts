/**
 * Who may still send what is older than a tombstone: every database that holds an id at present, and the peers that have
 * never said who they are. When each was last heard outlives a restart, to within an hour; what it said of itself does
 * not, and is waited for.
 */
import type { Clock } from '../clock.ts';
import { named, RowcastError } from '../errors.ts';
import type { Other } from '../identity/identity.ts';
import { forgetHeardBut, note, noted, noteForgotten, noteUnawaited, type What } from '../identity/last-heard.ts';
import { leftDatabases } from '../send/company.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Member } from './horizon.ts';

export interface MembersOptions {
  id: string;
  company: { low(): number | undefined; others(): Other[] };
  /** Those that are configured at the moment. */
  peers: () => string[];
  clock: Clock;
}

const NOTED_EVERY_MS = 3_600_000;

/**
 * Noted by a clock that was ahead, and set right since. Until that time came, nobody could be forgotten who was heard then, and
 * nobody who was forgotten then would count again.
 */
const isAhead = (at: number | undefined, now: number): boolean => at !== undefined && at > now;

export class Members {
  readonly #db: Connection;
  readonly #o: MembersOptions;
  #began: number;

  constructor(db: Connection, options: MembersOptions) {
    this.#db = db;
    this.#o = options;
    this.#began = options.clock.now();
  }

  list(): Member[] {
    const { id, company } = this.#o;
    const now = this.#o.clock.now();
    const own: Member = { id, low: company.low(), lastHeard: now, retired: false, left: false, plain: false };
    const left = leftDatabases(this.#db);
    this.#began = Math.min(this.#began, now);
    const others = company.others().map((other): Member => {
      const lastHeard = other.heardAt ?? noted(this.#db, 'heard', other.id) ?? this.#began;
      const retired = (noted(this.#db, 'forgotten', other.id) ?? Number.NEGATIVE_INFINITY) >= lastHeard;
      return { id: other.id, low: other.low, lastHeard, retired, left: left.has(other.inc), plain: false };
    });
    return [own, ...others, ...this.#strangers(now)];
  }

  /** When the others were last heard, for the next process. */
  note(): void {
    const now = this.#o.clock.now();
    const notes: [What, string, number][] = [];
    const others = this.#o.company.others();
    for (const { id, heardAt } of others) {
      const heard = noted(this.#db, 'heard', id);
      const isDue = heardAt !== undefined && heardAt - (heard ?? Number.NEGATIVE_INFINITY) >= NOTED_EVERY_MS;
      if (isDue || isAhead(heard, now)) notes.push(['heard', id, Math.min(heardAt ?? now, now)]);
      for (const what of ['forgotten', 'unawaited'] as const)
        if (isAhead(noted(this.#db, what, id), now)) notes.push([what, id, now]);
    }
    if (notes.length === 0) return;
    this.#db.transaction(() => {
      for (const [what, id, at] of notes) note(this.#db, what, id, at);
      const names = others.map(({ id }) => id);
      forgetHeardBut(this.#db, names);
    });
  }

  /** Tombstones are collected without these: what they have from before now may be below the floor, and never have come here. */
  noteUnawaited(ids: string[]): void {
    const now = this.#o.clock.now();
    if (ids.length === 0) return;
    const incs = new Map(this.#o.company.others().map(({ id, inc }) => [id, inc]));
    this.#db.transaction(() => {
      for (const id of ids) noteUnawaited(this.#db, id, incs.get(id), now);
    });
  }

  /** Nobody waits for it any more, until it is heard again. */
  forget(id: string): void {
    const known = this.list().filter((member) => member.id !== this.#o.id);
    if (!known.some((member) => member.id === id)) {
      const names = known.map((member) => JSON.stringify(member.id)).join(', ');
      throw new RowcastError('NO_SUCH_NODE', `no node ${named(id)} is known here`, {
        hint: names === '' ? 'none is' : `those that are: ${names}`,
      });
    }
    this.note();
    this.#db.transaction(() => noteForgotten(this.#db, id, this.#o.clock.now()));
  }

  /** Peers that have never said who they are. */
  #strangers(now: number): Member[] {
    const known = 'SELECT 1 AS n FROM main._peer_state WHERE peer_url = ? AND inc IS NOT NULL';
    const unknown = this.#o.peers().filter((peer) => !this.#db.get(known, peer));
    return unknown.map((peer) => ({
      id: peer,
      low: undefined,
      lastHeard: now,
      retired: noted(this.#db, 'forgotten', peer) !== undefined,
      left: false,
      plain: true,
    }));
  }
}
