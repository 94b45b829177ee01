/**
 * Changes that could not be delivered (`out`: a peer refused them) or applied (`in`: received and impossible here). They are kept
 * until a person retries or discards them, or until what they need is there: a table, a column, or a free UNIQUE value.
 *
 * `_dead_letter` has the specification's six columns and no more; `_dead_letter_info` beside it holds the rest.
 */
import type { Clock } from '../clock.ts';
import { checkOptions, named, RowcastError } from '../errors.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import type { Counted, RowCounter } from '../sqlite/row-counter.ts';
import type { RejectionCode } from '../wire/protocol.ts';
import { keep } from './keep.ts';
import { countLetters, LetterRoom, REASON_MAX } from './letter-room.ts';
import { LETTER_CHANGE, type LetterContent } from './spelling.ts';
import type { TimeLimit } from './time-limit.ts';
import { lastLetterId, UnknownColumnLetters } from './unknown-columns.ts';

export { LETTER_CHANGE, type LetterContent, spelling } from './spelling.ts';

export interface DeadLetter {
  id: number;
  /** `out`: refused by a peer. `in`: received and not applicable here. */
  direction: 'in' | 'out';
  op: string | null;
  table: string | null;
  rowId: string | null;
  /** The row as JSON text. */
  row: string | null;
  /** The peer's URL for `out`, the sender's node id for `in`, where known. */
  peer: string | null;
  code: string | null;
  reason: string | null;
  failedAt: number;
  retryCount: number;
  /** Of a change whose time is too far ahead (`future-stamp`): when it is applied by itself. Null for all others. */
  dueAt: number | null;
}

/** A received letter that is to be tried again. */
export interface Waiting {
  id: number;
  code: string;
  table: string | null;
  rowId: string | null;
  /** Null where the letter does not hold a whole change any more. */
  change: string | null;
  /** JSON array of the keys of its row for which there is no column. */
  unknownColumns: string | null;
  peer: string | null;
  /** Of a change whose time was too far ahead: its version. */
  version: number | null;
}

/** Why a received change is kept, and from whom it came. */
export interface Kept {
  code: RejectionCode;
  reason: string;
  from: string | undefined;
  /** Its version, where it waits for its time. */
  version?: number | undefined;
}

export class DeadLetters {
  readonly #db: Connection;
  readonly #clock: Clock;
  /** How far ahead of the clock a change may be that is not kept. */
  readonly timeLimit: TimeLimit;
  /** Whether more of them may be received. */
  readonly room: LetterRoom;
  readonly unknownColumns: UnknownColumnLetters;

  constructor(db: Connection, clock: Clock, timeLimit: TimeLimit) {
    this.#db = db;
    this.#clock = clock;
    this.timeLimit = timeLimit;
    this.room = new LetterRoom(countLetters(db), clock);
    this.unknownColumns = new UnknownColumnLetters(db, clock);
  }

  list(page: { limit?: number; after?: number } = {}): DeadLetter[] {
    checkOptions('deadLetters.list()', page, ['after', 'limit']);
    const { after = 0, limit = 100 } = page;
    for (const [name, value] of Object.entries({ after, limit })) {
      if (Number.isSafeInteger(value)) continue;
      throw new RowcastError('INVALID_OPTION', `"${name}" must be a whole number, not ${named(value)}`);
    }
    const found = this.#db.all<Listed>(`${SELECT} WHERE d.dead_id > ? ORDER BY d.dead_id LIMIT ?`, after, limit);
    return found.map((letter) => this.#described(letter));
  }

  get(id: number): DeadLetter {
    const letter = this.#db.get<Listed>(`${SELECT} WHERE d.dead_id = ?`, id);
    if (!letter) throw new RowcastError('NO_SUCH_LETTER', `there is no dead letter ${id}`);
    return this.#described(letter);
  }

  /** The latest letters of one row, the oldest first; the table by all its names, the id as it travels. */
  ofRow(tables: string[], rowId: string, limit: number): DeadLetter[] {
    const found = this.#db.all<Listed>(
      `${SELECT} WHERE d.row_id = ? AND i.table_name COLLATE NOCASE IN (SELECT value FROM json_each(?)) ` +
        'ORDER BY d.dead_id DESC LIMIT ?',
      rowId,
      JSON.stringify(tables),
      limit,
    );
    return found.reverse().map((letter) => this.#described(letter));
  }

  has(id: number): boolean {
    return this.#db.get('SELECT 1 AS n FROM main._dead_letter WHERE dead_id = ?', id) !== undefined;
  }

  /** Was there a letter of this number that has gone by itself, or by another hand? */
  isGone(id: number): boolean {
    const last = this.#db.get<{ seq: number }>("SELECT seq FROM main.sqlite_sequence WHERE name = '_dead_letter'");
    return id > 0 && id <= (last?.seq ?? 0) && !this.has(id);
  }

  count(counter: RowCounter, uncommitted = false): Counted {
    return counter.count({ name: '_dead_letter', id: 'dead_id' }, uncommitted);
  }

  discard(id: number): void {
    if (this.get(id).code === 'unique') {
      throw new RowcastError('ROW_HIDDEN', `dead letter ${id} lists a row that another one hides; it is kept`, {
        hint: 'change or delete one of the two rows; the letter goes by itself',
      });
    }
    this.#db.transaction(() => this.remove(id));
  }

  /** Keeps a received change that cannot be applied; the same one again is the same letter. Inside a transaction. */
  keepReceived(received: LetterContent, { code, reason, from, version }: Kept): void {
    keep(this.#db, this.#clock, 'in', received, {
      code,
      reason: reason.slice(0, REASON_MAX),
      peer: from ?? null,
      version,
    });
  }

  /** Keeps changes that a peer has refused. Inside a transaction. */
  keepRefused(
    refused: LetterContent,
    { peer, reason, attempts, code }: { peer: string; reason: string; attempts: number; code: 'refused' | 'forbidden' },
  ): void {
    keep(this.#db, this.#clock, 'out', refused, { code, reason: reason.slice(0, REASON_MAX), peer, attempts });
  }

  /**
   * Lists the rows of these tables whose id is NULL, and no others: one that has got an id, or is gone, needs no letter
   * any more. Inside a transaction.
   */
  listNameless(tables: string[], rows: LetterContent[], reason: string): void {
    for (const row of rows) keep(this.#db, this.#clock, 'out', row, { code: 'no-id', reason, peer: '' });
    const kept = rows.map((row) => [row.table, row.row]);
    this.#db.run(
      `DELETE FROM main._dead_letter WHERE dead_id IN (SELECT i.dead_id ${NAMELESS} ` +
        'AND i.table_name IN (SELECT value FROM json_each(?)) AND NOT EXISTS (SELECT 1 FROM json_each(?) AS k ' +
        "JOIN main._dead_letter AS d ON d.dead_id = i.dead_id AND d.row_data = k.value ->> '$[1]' " +
        "WHERE k.value ->> '$[0]' = i.table_name))",
      JSON.stringify(tables),
      JSON.stringify(kept),
    );
    this.#db.run(
      `DELETE FROM main._dead_letter_info AS i WHERE dead_id IN (SELECT i.dead_id ${NAMELESS}) ` +
        'AND NOT EXISTS (SELECT 1 FROM main._dead_letter AS d WHERE d.dead_id = i.dead_id)',
    );
  }

  hasNameless(): boolean {
    return this.#db.get(`SELECT 1 AS n ${NAMELESS} LIMIT 1`) !== undefined;
  }

  /** Lists a row that a stronger one hides; it is kept elsewhere, and the letter goes when it does. Inside a transaction. */
  keepHidden({ table, rowId, row }: { table: string; rowId: string; row: string }, reason: string): number {
    const values = "VALUES ('UPDATE', ?, ?, CAST(? AS INTEGER), 0)";
    const sql = `INSERT INTO main._dead_letter (op, row_id, row_data, failed_at, retry_count) ${values}`;
    this.#db.run(sql, rowId, row, this.#clock.now());
    this.#db.run(
      'INSERT INTO main._dead_letter_info (dead_id, direction, table_name, code, reason) ' +
        "VALUES (last_insert_rowid(), 'in', ?, 'unique', ?)",
      table,
      reason,
    );
    return lastLetterId(this.#db);
  }

  /** What is listed is what is hidden now, and why. Inside a transaction. */
  relistHidden(id: number, { row, reason }: { row?: string; reason?: string }): void {
    const [letter, info] = ['main._dead_letter', 'main._dead_letter_info'];
    if (row !== undefined) this.#db.run(`UPDATE ${letter} SET row_data = ? WHERE dead_id = ?`, row, id);
    if (reason !== undefined) this.#db.run(`UPDATE ${info} SET reason = ? WHERE dead_id = ?`, reason, id);
  }

  /** Received letters of one code, oldest first, within bounds. */
  waiting(code: RejectionCode, page: Page & { after: number }): Waiting[] {
    const where = "i.code = ? AND i.dead_id > ? AND i.direction = 'in' ORDER BY i.dead_id";
    return this.#page(where, [code, page.after], page);
  }

  /** The least version of a change that waits for its time: one look-up in an index that is mostly empty. */
  nextVersion(): number | undefined {
    const sql = "SELECT min(version) AS next FROM main._dead_letter_info WHERE code = 'future-stamp'";
    return this.#db.get<{ next: number | null }>(sql)?.next ?? undefined;
  }

  /** Was that too far ahead, and is not any more? */
  isDue(version: number | undefined): boolean {
    return version !== undefined && version <= this.timeLimit.latest;
  }

  /** The next of these, the earliest first, within bounds. */
  due(page: Page): Waiting[] {
    return this.#page(`${DUE} ORDER BY i.version, i.dead_id`, [this.timeLimit.latest], page);
  }

  /** At least one, however large it is. */
  #page(where: string, params: Value[], { limit, characters: most }: Page): Waiting[] {
    const found = this.#db.all<Waiting & { size: number }>(
      `SELECT ${WAITING}, length(d.row_data) AS size FROM main._dead_letter_info AS i ` +
        `JOIN main._dead_letter AS d USING (dead_id) WHERE ${where} LIMIT ?`,
      ...params,
      limit,
    );
    let characters = 0;
    return found.filter(({ size }, i) => {
      characters += size ?? 0;
      return i === 0 || characters <= most;
    });
  }

  #described({ version, ...letter }: Listed): DeadLetter {
    const dueAt = letter.code === 'future-stamp' && version !== null ? this.timeLimit.dueAt(version) : null;
    return { ...letter, dueAt };
  }

  /**
   * The ids of the next letters that wait for a table or a column that is there now: of these tables, and for one of these
   * columns, in lower case. It looks at `limit` letters; `upTo` is the last of them, null where there are no more. Compared by NOCASE:
   * lower() may be one of the application's, which knows other alphabets.
   */
  nowPossible(
    tables: { name: string; columns: string[] }[],
    page: { after: number; limit: number },
  ): { ids: number[]; upTo: number | null } {
    // Mostly there is none at all, and every attach asks.
    if (!this.#db.get('SELECT 1 AS n FROM main._dead_letter_info WHERE dead_id > ? LIMIT 1', page.after))
      return { ids: [], upTo: null };
    const looked =
      'SELECT dead_id, code, table_name AS name, unknown_columns FROM main._dead_letter_info ' +
      "WHERE code IN ('unknown-table', 'unknown-column') AND direction = 'in' AND dead_id > ? ORDER BY dead_id LIMIT ?";
    const found = this.#db.all<{ id: number; ready: number }>(
      "SELECT l.dead_id AS id, EXISTS (SELECT 1 FROM json_each(?) AS t WHERE l.name = (t.value ->> '$.name') COLLATE NOCASE AND (l.code = 'unknown-table' " +
        "OR EXISTS (SELECT 1 FROM json_each(iif(json_valid(l.unknown_columns), l.unknown_columns, json_array())) AS u JOIN json_each(t.value, '$.columns') AS c ON u.value = c.value COLLATE NOCASE))) " +
        `AS ready FROM (${looked}) AS l`,
      JSON.stringify(tables),
      page.after,
      page.limit,
    );
    return {
      ids: found.filter(({ ready }) => ready === 1).map(({ id }) => id),
      upTo: found.length < page.limit ? null : (found.at(-1)?.id ?? null),
    };
  }

  /** What a retry needs to know of a letter; `change` is null for one that nobody has described. */
  waitingOf(id: number): Waiting | undefined {
    return this.#db.get(
      `SELECT ${WAITING} FROM main._dead_letter AS d LEFT JOIN main._dead_letter_info AS i ON i.dead_id = d.dead_id WHERE d.dead_id = ?`,
      id,
    );
  }

  /** The change as it came; undefined for a letter that nobody described. */
  changeOf(id: number): { change: string } | undefined {
    const change = this.waitingOf(id)?.change;
    return change == null ? undefined : { change };
  }

  /** Some of its columns are there now and filled in; it goes on waiting for these. Inside a transaction. */
  stillUnknown(id: number, columns: string[], reason: string): void {
    this.#db.run(
      'UPDATE main._dead_letter_info SET unknown_columns = ?, reason = ? WHERE dead_id = ?',
      JSON.stringify(columns),
      reason,
      id,
    );
  }

  /** Inside a transaction. */
  remove(id: number): void {
    this.#db.run('DELETE FROM main._dead_letter WHERE dead_id = ?', id);
    this.#db.run('DELETE FROM main._dead_letter_info WHERE dead_id = ?', id);
  }

  /** Inside a transaction. */
  countRetry(id: number, code: string, reason: string): void {
    this.#db.run('UPDATE main._dead_letter SET retry_count = retry_count + 1 WHERE dead_id = ?', id);
    this.#db.run('UPDATE main._dead_letter_info SET code = ?, reason = ? WHERE dead_id = ?', code, reason, id);
  }
}

/** How many letters are read at a time. */
interface Page {
  limit: number;
  characters: number;
}

type Listed = Omit<DeadLetter, 'dueAt'> & { version: number | null };

/** As it comes from a caller, who may have given anything. */
export function checkLetterNumber(id: unknown): number {
  if (typeof id === 'number') return id;
  throw new RowcastError('INVALID_OPTION', `the number of a dead letter must be a number, not ${named(id)}`, {
    hint: 'list() has it as "id"',
  });
}

/** Changes that wait for their time and are not too far ahead any more; bound is the greatest time that is taken. */
const DUE = "i.code = 'future-stamp' AND i.version <= ?";

/** The letters of rows without an id; found by an index. */
const NAMELESS = "FROM main._dead_letter_info AS i WHERE i.code = 'no-id'";

const WAITING =
  'd.dead_id AS id, i.code AS code, i.table_name AS "table", d.row_id AS rowId, ' +
  `${LETTER_CHANGE} AS change, i.unknown_columns AS unknownColumns, i.peer AS peer, i.version AS version`;

const SELECT =
  'SELECT d.dead_id AS id, coalesce(i.direction, \'out\') AS direction, d.op AS op, i.table_name AS "table", d.row_id AS rowId, ' +
  'd.row_data AS "row", i.peer AS peer, i.code AS code, i.reason AS reason, d.failed_at AS failedAt, d.retry_count AS retryCount, i.version AS version ' +
  'FROM main._dead_letter AS d LEFT JOIN main._dead_letter_info AS i ON i.dead_id = d.dead_id';

/** Exactly the specification's six columns, and beside them what they have no room for: which way, to or from whom, why, the whole change. */
export const LETTER_TABLES = {
  _dead_letter:
    '(dead_id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, row_id TEXT, row_data TEXT, failed_at INTEGER, retry_count INTEGER DEFAULT 0)',
  // The second UNIQUE is an index by which letters of one code are found.
  _dead_letter_info:
    '(dead_id INTEGER PRIMARY KEY, direction TEXT, table_name TEXT, peer TEXT, code TEXT, reason TEXT, change TEXT, ' +
    'unknown_columns TEXT, fingerprint TEXT UNIQUE, version INTEGER, UNIQUE (code, dead_id))',
};

/**
 * By which the changes are found whose time has come, nearly always empty; and the letters of a row, of which a comparison
 * asks for every row that differs: without it each question would read all letters, as often as it is answered in turns.
 */
export const LETTER_INDEXES: Record<string, string> = {
  _dead_letter_due: "ON _dead_letter_info (version, dead_id) WHERE code = 'future-stamp'",
  _dead_letter_row: 'ON _dead_letter (row_id)',
};
