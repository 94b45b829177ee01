/** What can be told of a database file, a node's or a hub's, beside its health: sizes, counts, and what runs it. */

import { statSync } from 'node:fs';
import type { Connection } from '../sqlite/connection.ts';
import { atLeastOf, type RowCounter } from '../sqlite/row-counter.ts';
import { VERSION } from './version.ts';

export interface Facts {
  /** Which database this is: the same node id may stand for another one after a loss; see the header `x-rowcast`. */
  inc: string;
  build: { version: string; runtime: string; sqlite: string };
  /** Dead letters by direction and code; `at_least` as in health. */
  letters: { direction: 'in' | 'out'; code: string; count: number; at_least?: 'count'[] }[];
  /** The database file and its write-ahead log, in bytes. */
  file: { bytes: number; wal_bytes: number };
}

/** Without a counter, all letters are counted in one go. */
export function factsOf(db: Connection, counter?: RowCounter): Facts {
  return {
    inc: String(db.get('SELECT inc FROM main._nodes WHERE self = 1')?.inc ?? ''),
    build: { version: VERSION, runtime: runtime(), sqlite: String(db.get('SELECT sqlite_version() AS v')?.v) },
    letters: lettersByCode(db, counter),
    file: fileOf(db),
  };
}

/** What a peer refused, and what cannot leave; everything else was received. */
const OUTGOING = new Set(['refused', 'no-id', 'forbidden']);

/** By the index on the code, however long the letters are. */
function lettersByCode(db: Connection, counter: RowCounter | undefined): Facts['letters'] {
  const info = { name: '_dead_letter_info', id: 'dead_id' };
  const next = 'SELECT min(code) FROM main._dead_letter_info';
  const codes = db.all<{ code: string }>(
    `WITH RECURSIVE c (code) AS (${next} UNION ALL SELECT (${next} WHERE code > c.code) FROM c WHERE c.code IS NOT NULL) ` +
      'SELECT code FROM c WHERE code IS NOT NULL',
  );
  const all = 'SELECT count(*) AS n FROM main._dead_letter_info WHERE code = ?';
  return codes.map(({ code }) => {
    const direction = OUTGOING.has(code) ? 'out' : 'in';
    const count = counter?.count({ ...info, part: { column: 'code', value: code } });
    if (!count) return { direction, code, count: Number(db.get(all, code)?.n) };
    return { direction, code, count: count.rows, ...atLeastOf({ count }) };
  });
}

function fileOf(db: Connection): Facts['file'] {
  const pragma = (name: string): number => Number(Object.values(db.get(`PRAGMA main.${name}`) ?? {})[0] ?? 0);
  const name = db.get<{ file: string }>("SELECT file FROM pragma_database_list WHERE name = 'main'")?.file;
  return { bytes: pragma('page_count') * pragma('page_size'), wal_bytes: name ? sizeOf(`${name}-wal`) : 0 };
}

function sizeOf(file: string): number {
  try {
    return statSync(file).size;
  } catch {
    // There is no log: another journal mode, or nothing written yet.
    return 0;
  }
}

function runtime(): string {
  const { bun, node } = process.versions;
  return bun === undefined ? `node ${node}` : `bun ${bun}`;
}
