/** Puts a letter into its two tables, or finds the one that is there for the same. */
import type { Clock } from '../clock.ts';
import type { Connection } from '../sqlite/connection.ts';
import { type LetterContent, spelling } from './spelling.ts';

export interface Why {
  code: string;
  reason: string;
  peer: string | null;
  attempts?: number;
  version?: number | undefined;
}

/** Inside a transaction. */
export function keep(db: Connection, clock: Clock, direction: 'in' | 'out', what: LetterContent, why: Why): void {
  const { op, table, rowId, row } = what;
  const { code, reason, peer, attempts = 0, version = null } = why;
  const { rest, fingerprint, isOfRow } = spelling(db, direction, peer, what);
  if (isOfRow && replace(db, clock, { fingerprint, rest }, what, why)) return;
  if (db.get('SELECT 1 AS n FROM main._dead_letter_info WHERE fingerprint = ?', fingerprint)) {
    // It may have waited for something else until now.
    const sql = 'UPDATE main._dead_letter_info SET version = CAST(? AS INTEGER) WHERE fingerprint = ?';
    if (version !== null) db.run(sql, version, fingerprint);
    return;
  }
  db.run(
    'INSERT INTO main._dead_letter (op, row_id, row_data, failed_at, retry_count) ' +
      'VALUES (?, ?, ?, CAST(? AS INTEGER), CAST(? AS INTEGER))',
    op,
    rowId,
    row,
    clock.now(),
    attempts,
  );
  db.run(
    'INSERT INTO main._dead_letter_info (dead_id, direction, table_name, peer, code, reason, change, fingerprint, ' +
      'version) VALUES (last_insert_rowid(), ?, ?, ?, ?, ?, ?, ?, CAST(? AS INTEGER))',
    direction,
    table,
    peer,
    code,
    reason,
    rest,
    fingerprint,
    version,
  );
}

/** False where there is no letter of the row. The same change once more is the same letter, which failed when it did at first. */
function replace(
  db: Connection,
  clock: Clock,
  { fingerprint, rest }: { fingerprint: string; rest: string | null },
  { op, row }: LetterContent,
  { code, reason, attempts = 0 }: Why,
): boolean {
  const known = db.get<{ id: number; op: string; row: string; rest: string | null }>(
    'SELECT d.dead_id AS id, d.op AS op, d.row_data AS "row", i.change AS rest FROM main._dead_letter_info AS i ' +
      'JOIN main._dead_letter AS d USING (dead_id) WHERE i.fingerprint = ?',
    fingerprint,
  );
  if (!known || (known.op === op && known.row === row && known.rest === rest)) return known !== undefined;
  db.run(
    'UPDATE main._dead_letter SET op = ?, row_data = ?, failed_at = CAST(? AS INTEGER), ' +
      'retry_count = CAST(? AS INTEGER) WHERE dead_id = ?',
    op,
    row,
    clock.now(),
    attempts,
    known.id,
  );
  const describe = 'UPDATE main._dead_letter_info SET code = ?, reason = ?, change = ? WHERE dead_id = ?';
  db.run(describe, code, reason, rest, known.id);
  return true;
}
