/**
 * The conflict journal: what stood here and was replaced by a change that had not seen it, kept for a person to look at.
 *
 * A change says which version its writer saw (`base`). A row's version never sinks at its writer, so whatever stands here
 * above `base` was not seen by that change: no clock is asked, and there are no false alarms. What is about to be replaced
 * is noted before the merge, in its transaction; what the merge then left as it was is taken out again.
 */
import { type Clock, passedSince, Steadiness } from '../clock.ts';
import type { Emitter, RowcastEvents } from '../events.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { literal, quote } from '../sqlite/sql.ts';
import type { Body } from '../wire/body.ts';
import { exactString } from '../wire/exact-text.ts';
import type { OriginRun } from '../wire/origins.ts';
import { rowJson } from '../wire/row-json.ts';
import { idForWire } from '../wire/values.ts';
import { Arrivals } from './arrivals.ts';
import { trimJournal } from './ring.ts';
import { SELF } from './self.ts';

/** How much is kept; the oldest goes first. */
export interface JournalLimits {
  keep: number;
  bytes: number;
  ageMs: number;
}

const LOOK_MS = 3_600_000;
/** How long stopping may take for it. */
const STOPPING_MS = 1_000;

/** So many of the latest own changes are looked through for whether the lost version was written here. */
const LOOKED_THROUGH = 5_000;

/** The columns of `_conflicts` that a statement of the merge fills; `at` and `won_by` are bound first, in this order. */
export const NOTE_INTO =
  'INSERT INTO main._conflicts (at, won_by, table_name, row_id, lost_version, lost_row, won_version, base)';

interface Around {
  clock: Clock;
  events: Pick<Emitter, 'emit'>;
  /** Undefined: nothing is noted. It may be another at any time. */
  limits: () => JournalLimits | undefined;
}

export class Journal {
  /** Who has brought what, lately. */
  readonly arrivals: Arrivals;
  readonly #db: Connection;
  readonly #clock: Clock;
  readonly #events: Around['events'];
  readonly #limits: Around['limits'];
  /** Bytes of the rows that it holds, as far as is known; undefined before the first look. */
  #bytes: number | undefined;
  #lookedAt = Number.NEGATIVE_INFINITY;
  readonly #steadiness: Steadiness;

  constructor(db: Connection, { clock, events, limits }: Around) {
    this.#db = db;
    this.#clock = clock;
    this.#steadiness = new Steadiness(clock);
    this.#events = events;
    this.#limits = limits;
    this.arrivals = new Arrivals(db, clock);
  }

  /** For a body that says of some change what it has seen, which `sign` tells. Inside the transaction of the batch, or a savepoint of it. */
  begin(text: string, from: string | undefined, sign = '"base"'): Notes | undefined {
    if (!this.#limits() || !text.includes(sign)) return undefined;
    const mark = Number(this.#db.get('SELECT coalesce(max(conflict_id), 0) AS n FROM main._conflicts')?.n);
    return new Notes(this.#db, { mark, at: this.#clock.now(), from });
  }

  /** What has been replaced, once everything is merged; nothing else stays noted. */
  finish(notes: Notes | undefined): RowcastEvents['conflict'][] {
    const limits = this.#limits();
    if (!notes || !limits) return [];
    const found = notes.confirmed();
    if (found.length === 0) return [];
    this.#bytes = trimJournal(this.#db, { limits, bytes: this.#bytes, mark: notes.mark });
    return found;
  }

  /** Once the batch is committed. `text` is its body, one character per byte. */
  committed({ text, from, origins }: Came, conflicts: RowcastEvents['conflict'][]): void {
    if (from !== undefined) this.arrivals.note(text, from, origins);
    for (const one of conflicts) this.#events.emit('conflict', one);
  }

  /** What was written here and goes to the peers, as it travels. */
  left(body: Body): void {
    if (this.#limits()) this.arrivals.note(body, undefined, undefined);
  }

  /** What has become too old goes; looked for once an hour, and by a clock that was set not before it has run for an hour. */
  tick(): void {
    const isBelieved = this.#steadiness.isBelieved();
    const limits = this.#limits();
    if (limits) this.arrivals.tick();
    if (!limits || passedSince(this.#clock, this.#lookedAt) < LOOK_MS || this.#db.isInTransaction || !isBelieved)
      return;
    const now = this.#clock.now();
    this.#lookedAt = now;
    const tooOld = now - limits.ageMs;
    const ends = this.#db.get<Ends>('SELECT min(at) AS first, max(at) AS last FROM main._conflicts');
    if (ends?.first == null || (ends.first >= tooOld && ends.last <= now)) return;
    this.#db.transaction(() => {
      this.#db.run('DELETE FROM main._conflicts WHERE at < ?', tooOld);
      // Noted by a clock that was ahead, and set right since.
      this.#db.run('UPDATE main._conflicts SET at = CAST(? AS INTEGER) WHERE at > ?', now, now);
    });
    this.#bytes = undefined;
  }

  /** When the node stops: what it knows and has not written down yet. */
  stop(): void {
    if (this.#limits()) this.arrivals.keep(STOPPING_MS);
  }
}

/** The times of the oldest and of the newest; null where there is none. */
interface Ends extends Record<string, number | null> {
  first: number | null;
  last: number;
}

/** A batch as it came. */
interface Came {
  text: string;
  from: string | undefined;
  /** Who has made its changes; undefined where the sender has. */
  origins: OriginRun[] | undefined;
}

/** What a batch is about to replace. */
export class Notes {
  readonly mark: number;
  readonly at: number;
  readonly #db: Connection;
  readonly #from: string | undefined;
  readonly #tables = new Set<Table>();

  constructor(db: Connection, { mark, at, from }: { mark: number; at: number; from: string | undefined }) {
    this.#db = db;
    this.mark = mark;
    this.at = at;
    this.#from = from;
  }

  /** Runs a statement that begins with NOTE_INTO; `params` are what its source binds. Before that table is merged. */
  take(table: Table, sql: string, ...params: Value[]): void {
    this.#db.run(sql, this.at, this.#from ?? null, ...params);
    if (this.#db.changes() > 0) this.#tables.add(table);
  }

  confirmed(): RowcastEvents['conflict'][] {
    for (const table of this.#tables) {
      this.#db.run(unchangedSql(table), this.mark);
      this.#db.run(writtenHereSql(table), this.mark, this.mark);
    }
    if (this.#tables.size === 0) return [];
    this.#db.run('UPDATE main._conflicts SET sender = ? WHERE conflict_id > ?', this.#from ?? null, this.mark);
    const found = this.#db.all<Omit<RowcastEvents['conflict'], 'id'> & { id: Uint8Array }>(
      `SELECT conflict_id AS conflictId, table_name AS "table", ${idForWire('row_id')} AS id, ` +
        'lost_version AS lostVersion, won_version AS wonVersion, won_by AS "from" ' +
        'FROM main._conflicts WHERE conflict_id > ? ORDER BY conflict_id',
      this.mark,
    );
    return found.map(({ id, from, ...one }) => ({ ...one, id: exactString(id), from: from ?? undefined }));
  }
}

/** What the merge has left as it was: the change was set aside, or the application would not have it. */
function unchangedSql(table: Table): string {
  const hidden = (and: string): string =>
    `EXISTS (SELECT 1 FROM main._hidden AS h WHERE h.table_name = ${literal(table.name)} ` +
    `AND h.row_id = c.row_id${and})`;
  const live = (and: string): string =>
    `EXISTS (SELECT 1 FROM ${table.target} AS t WHERE t.${quote(table.id)} = c.row_id${and})`;
  const same = ` AND t.${quote(table.updatedAt)} = c.lost_version AND ${rowJson(table, 't')} = c.lost_row`;
  const stands = `${live(same)} OR ${hidden(' AND h.version = c.lost_version')}`;
  const stillDeleted = `NOT ${live('')} AND NOT ${hidden('')}`;
  return (
    `DELETE FROM main._conflicts AS c WHERE c.conflict_id > ? AND c.table_name = ${literal(table.name)} ` +
    `AND iif(c.lost_row IS NULL, ${stillDeleted}, ${stands})`
  );
}

/** The version that lost is among the latest changes of our own. Both binds are the mark. */
function writtenHereSql(table: Table): string {
  const time = table.columns.find(({ name }) => name === table.updatedAt)?.wireName ?? table.updatedAt;
  const latest = `change_id > (SELECT max(change_id) FROM main._changes) - ${LOOKED_THROUGH}`;
  const own =
    `SELECT row_id, row_data ->> ${literal(`$."${time}"`)} FROM main._changes WHERE ${latest} ` +
    `AND table_name = ${literal(table.wireName)} ` +
    'AND row_id IN (SELECT row_id FROM main._conflicts WHERE conflict_id > ?)';
  return (
    `UPDATE main._conflicts SET lost_by = '${SELF}' WHERE conflict_id > ? ` +
    `AND table_name = ${literal(table.name)} AND (row_id, lost_version) IN (${own})`
  );
}
