/**
 * Since when a peer is behind. A change has no time of capture: a column for it would cost every write of the
 * application. Instead the highest change_id is noted once a second, with the time; a change is as old as the first
 * note that covers it, to within that second. The notes of a lasting backlog are kept in `_meta`, so that its age
 * survives a restart.
 */
import { type Clock, passedSince } from '../clock.ts';
import type { Connection } from '../sqlite/connection.ts';
import { writeIfFree } from '../sqlite/look.ts';
import { snapshotKey } from './resend.ts';

/** How often to note. */
const NOTE_MS = 1_000;
/** A backlog that lasts this long is written down, and from then on this often. */
const SAVE_MS = 10_000;
const NOTES_MAX = 1_000;
const NOTES_SAVED_MAX = 50;
const META_KEY = 'backlog';

/**
 * At that time `upTo` was the highest change_id. What it covers came after the look before, which may be days earlier: machines
 * sleep, and processes die and are started again. 0 where nobody knows.
 */
interface Note {
  upTo: number;
  at: number;
  after: number;
}

export class BacklogAge {
  readonly #db: Connection;
  readonly #clock: Clock;
  #notes: Note[] = [];
  #notedAt = -Infinity;
  #savedAt: number;
  #saved = '';

  constructor(db: Connection, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
    this.#savedAt = clock.now();
    this.#load();
  }

  /** Called often; does something once a second. */
  tick(): void {
    if (passedSince(this.#clock, this.#notedAt) < NOTE_MS) return;
    this.note();
    this.#save();
  }

  /** Looks at what there is. */
  note(): void {
    const now = this.#clock.now();
    const after = Math.max(0, Math.min(this.#notedAt, now));
    this.#notedAt = now;
    const ends = this.#db.get<{ low: number | null; high: number | null }>(
      'SELECT (SELECT min(change_id) FROM main._changes) AS low, (SELECT max(change_id) FROM main._changes) AS high',
    );
    const low = ends?.low ?? 0;
    const high = ends?.high ?? 0;
    // Gone at the lower end: everybody has it. Gone at the upper end: it was rolled back, and its ids are given again.
    const kept = this.#notes.filter(({ upTo }) => upTo >= low && upTo <= high);
    // Noted by a clock that was ahead, and set right since: a backlog would have no age until that time comes again.
    this.#notes = kept.map((one) => (one.at > now ? { ...one, at: now, after: Math.min(one.after, now) } : one));
    if (high > (this.#notes.at(-1)?.upTo ?? 0)) this.#notes.push({ upTo: high, at: now, after });
    if (this.#notes.length > NOTES_MAX) this.#notes = thinned(this.#notes, NOTES_MAX / 2);
  }

  /** Since when there is a change above `watermark`; undefined where there is none. As of the last note. */
  sinceAfter(watermark: number): number | undefined {
    return this.#notes.find(({ upTo }) => upTo > watermark)?.at;
  }

  /**
   * No change above `watermark` was captured before this. It is what others are promised, so it is rather too early than too
   * late, where `sinceAfter` is for people: what is covered by no look yet came after the last one.
   */
  earliestAfter(watermark: number): number {
    if (this.#notedAt === -Infinity) this.note();
    return this.#notes.find(({ upTo }) => upTo > watermark)?.after ?? this.#notedAt;
  }

  /** Writes the notes of a lasting backlog down. What keeps it from that (a lock, a full disk) is not worth an error. */
  #save(): void {
    if (passedSince(this.#clock, this.#savedAt) < SAVE_MS) return;
    const now = this.#clock.now();
    this.#savedAt = now;
    this.#rectify(now);
    const text = JSON.stringify(thinned(this.#notes, NOTES_SAVED_MAX).map(({ upTo, at, after }) => [upTo, at, after]));
    if (now - (this.#notes[0]?.at ?? now) < SAVE_MS || text === this.#saved) return;
    try {
      const sql = 'INSERT INTO main._meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value';
      if (writeIfFree(this.#db, () => this.#db.run(sql, META_KEY, text)) === 'done') this.#saved = text;
    } catch {
      // The next time, then.
    }
  }

  /** The same for the beginnings of walks, which are in `_meta` alone. */
  #rectify(now: number): void {
    const ahead = `key GLOB '${snapshotKey('*')}' AND value > CAST(? AS INTEGER)`;
    if (!this.#db.get(`SELECT 1 AS n FROM main._meta WHERE ${ahead} LIMIT 1`, now)) return;
    try {
      const sql = `UPDATE main._meta SET value = CAST(? AS INTEGER) WHERE ${ahead}`;
      writeIfFree(this.#db, () => this.#db.run(sql, now, now));
    } catch {
      // The next time, then.
    }
  }

  #load(): void {
    const text = this.#db.get('SELECT value FROM main._meta WHERE key = ?', META_KEY)?.value;
    // A clock that was set back must not make anything younger than nothing.
    const now = this.#clock.now();
    const isGood = ({ upTo, at }: Note): boolean => Number.isSafeInteger(upTo) && Number.isSafeInteger(at) && at <= now;
    try {
      const notes = (JSON.parse(String(text)) as number[][]).map(
        // Of builds that did not know it, the third is missing.
        ([upTo, at, after]) => ({ upTo, at, after: Number.isSafeInteger(after) ? after : 0 }) as Note,
      );
      this.#notes = notes.filter(isGood).sort((a, b) => a.upTo - b.upTo);
    } catch {
      // Nothing was written down, or by somebody else: then what is there counts from now on.
    }
  }
}

/** At most `max` notes. Of neighbours the earlier time and the higher id are kept: rather too old than too young. */
function thinned(notes: Note[], max: number): Note[] {
  const size = Math.ceil(notes.length / max);
  if (size <= 1) return notes;
  return Array.from({ length: Math.ceil(notes.length / size) }, (_, i) => {
    const group = notes.slice(i * size, (i + 1) * size);
    return { ...(group[0] as Note), upTo: (group.at(-1) as Note).upTo };
  });
}
