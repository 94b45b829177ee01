/**
 * Changes that could not be delivered (`out`: a peer refused them) or applied (`in`: received and impossible here). They are kept until a
 * person retries or discards them, or until the schema has caught up with what they need.
 *
 * `_dead_letter` has the specification's six columns and no more; `_dead_letter_info` beside it holds the rest.
 */
import { createHash } from 'node:crypto';
import type { Clock } from './clock.ts';
import { RowcastError } from './errors.ts';
import type { Connection } from './sqlite/connection.ts';
import type { RowCounter } from './sqlite/row-counter.ts';
import type { RejectionCode } from './wire/protocol.ts';

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
}

export interface LetterContent {
  op: string | null;
  table: string | null;
  rowId: string | null;
  row: string | null;
  /** The whole change as JSON text, as it came. */
  change: string;
  /** The keys of its row for which there was no column; they are filled in once there is. */
  unknownColumns?: string[] | undefined;
}

export class DeadLetters {
  readonly #db: Connection;
  readonly #clock: Clock;

  constructor(db: Connection, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  list(options: { limit?: number; after?: number } = {}): DeadLetter[] {
    return this.#db.all<Record<keyof DeadLetter, never>>(
      `${SELECT} WHERE d.dead_id > ? ORDER BY d.dead_id LIMIT ?`,
      options.after ?? 0,
      options.limit ?? 100,
    );
  }

  get(id: number): DeadLetter {
    const letter = this.#db.get<DeadLetter>(`${SELECT} WHERE d.dead_id = ?`, id);
    if (!letter) throw new RowcastError('NO_SUCH_LETTER', `there is no dead letter ${id}`);
    return letter;
  }

  count(counter: RowCounter, uncommitted = false): number {
    return counter.count('_dead_letter', 'dead_id', uncommitted);
  }

  discard(id: number): void {
    this.get(id);
    this.#db.transaction(() => this.remove(id));
  }

  /** Keeps a received change that cannot be applied; the same one again is the same letter. Inside a transaction. */
  keepReceived(received: LetterContent, code: RejectionCode, reason: string, from: string | undefined): void {
    this.#keep('in', received, code, reason, from ?? null, 0);
  }

  /** Keeps changes that a peer has refused. Inside a transaction. */
  keepRefused(refused: LetterContent, peer: string, reason: string, attempts: number): void {
    this.#keep('out', refused, 'refused', reason, peer, attempts);
  }

  /** Received letters of the given codes, oldest first, with the change as it came. */
  received(
    codes: RejectionCode[],
    page: { after: number; limit: number } = { after: 0, limit: -1 },
  ): { id: number; table: string | null; change: string; unknownColumns: string | null }[] {
    return this.#db.all(
      `SELECT dead_id AS id, table_name AS "table", change, unknown_columns AS unknownColumns FROM _dead_letter_info WHERE direction = 'in' ` +
        `AND code IN (${codes.map(() => '?').join(', ')}) AND dead_id > ? ORDER BY dead_id LIMIT ?`,
      ...codes,
      page.after,
      page.limit,
    );
  }

  /** The change as it came, and the columns that were unknown then; undefined for a letter that nobody described. */
  changeOf(id: number): { change: string; unknownColumns: string | null } | undefined {
    return this.#db.get(
      'SELECT change, unknown_columns AS unknownColumns FROM _dead_letter_info WHERE dead_id = ? AND change IS NOT NULL',
      id,
    );
  }

  /** Inside a transaction. */
  remove(id: number): void {
    this.#db.run('DELETE FROM _dead_letter WHERE dead_id = ?', id);
    this.#db.run('DELETE FROM _dead_letter_info WHERE dead_id = ?', id);
  }

  /** Inside a transaction. */
  countRetry(id: number, code: string, reason: string): void {
    this.#db.run('UPDATE _dead_letter SET retry_count = retry_count + 1 WHERE dead_id = ?', id);
    this.#db.run('UPDATE _dead_letter_info SET code = ?, reason = ? WHERE dead_id = ?', code, reason, id);
  }

  #keep(
    direction: 'in' | 'out',
    what: LetterContent,
    code: string,
    reason: string,
    peer: string | null,
    attempts: number,
  ): void {
    const fingerprint = createHash('sha256')
      .update(`${direction}\n${direction === 'out' ? peer : ''}\n${what.change}`)
      .digest('hex');
    if (this.#db.get('SELECT 1 AS n FROM _dead_letter_info WHERE fingerprint = ?', fingerprint)) return;
    this.#db.run(
      'INSERT INTO _dead_letter (op, row_id, row_data, failed_at, retry_count) VALUES (?, ?, ?, CAST(? AS INTEGER), CAST(? AS INTEGER))',
      what.op,
      what.rowId,
      what.row,
      this.#clock.now(),
      attempts,
    );
    this.#db.run(
      'INSERT INTO _dead_letter_info (dead_id, direction, table_name, peer, code, reason, change, unknown_columns, fingerprint) ' +
        'VALUES (last_insert_rowid(), ?, ?, ?, ?, ?, ?, ?, ?)',
      direction,
      what.table,
      peer,
      code,
      reason,
      what.change,
      what.unknownColumns ? JSON.stringify(what.unknownColumns) : null,
      fingerprint,
    );
  }
}

const SELECT =
  'SELECT d.dead_id AS id, coalesce(i.direction, \'out\') AS direction, d.op AS op, i.table_name AS "table", d.row_id AS rowId, ' +
  'd.row_data AS "row", i.peer AS peer, i.code AS code, i.reason AS reason, d.failed_at AS failedAt, d.retry_count AS retryCount ' +
  'FROM _dead_letter AS d LEFT JOIN _dead_letter_info AS i ON i.dead_id = d.dead_id';

/** Exactly the specification's six columns, and beside them what they have no room for: which way, to or from whom, why, the whole change. */
export const LETTER_TABLES = {
  _dead_letter:
    '(dead_id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, row_id TEXT, row_data TEXT, failed_at INTEGER, retry_count INTEGER DEFAULT 0)',
  _dead_letter_info:
    '(dead_id INTEGER PRIMARY KEY, direction TEXT, table_name TEXT, peer TEXT, code TEXT, reason TEXT, change TEXT, unknown_columns TEXT, fingerprint TEXT UNIQUE)',
};
