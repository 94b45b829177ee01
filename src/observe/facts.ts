/** What can be told of a database file, a node's or a hub's, beside its health: sizes, counts, and what runs it. */

import { statSync } from 'node:fs';
import type { Connection } from '../sqlite/connection.ts';
import { VERSION } from './version.ts';

export interface Facts {
  /** Which database this is: the same node id may stand for another one after a loss; see the header `x-rowcast`. */
  inc: string;
  build: { version: string; runtime: string; sqlite: string };
  /** Dead letters by direction and code. */
  letters: { direction: 'in' | 'out'; code: string; count: number }[];
  /** The database file and its write-ahead log, in bytes. */
  file: { bytes: number; wal_bytes: number };
}

export function factsOf(db: Connection): Facts {
  return {
    inc: String(db.get('SELECT inc FROM main._nodes WHERE self = 1')?.inc ?? ''),
    build: { version: VERSION, runtime: runtime(), sqlite: String(db.get('SELECT sqlite_version() AS v')?.v) },
    letters: lettersByCode(db),
    file: fileOf(db),
  };
}

/** What a peer refused, and what cannot leave; everything else was received. */
const OUTGOING = new Set(['refused', 'no-id', 'forbidden']);

/** By the index on the code, however long the letters are. */
function lettersByCode(db: Connection): Facts['letters'] {
  const described = db.all<{ code: string; n: number }>(
    'SELECT code, count(*) AS n FROM main._dead_letter_info WHERE code IS NOT NULL GROUP BY code ORDER BY code',
  );
  return described.map(({ code, n }) => ({ direction: OUTGOING.has(code) ? 'out' : 'in', code, count: Number(n) }));
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
