/** Whether the databases hold the same rows: every column of every row, with its storage class, read from the files. */
import { createHash } from 'node:crypto';

export interface Reader {
  prepare(sql: string): { all(): unknown[] };
  close(): unknown;
}

export type OpenReader = (file: string) => Promise<Reader> | Reader;

export interface Comparison {
  equal: boolean;
  /** Rows per node, by its id. */
  rows: Map<string, Map<string, string>>;
  /** The same content gives the same fingerprint; that of the first node. */
  fingerprint: string;
  /** What differs, in words; empty when equal. */
  differences: string[];
}

const COLUMNS = ['name', 'value', 'created_at', 'updated_at'];
// 1, 1.0 and '1' are three different values, and a 64-bit integer does not pass through a JavaScript number.
const CONTENT = COLUMNS.map((column) => `typeof(${column}) || ' ' || quote(${column})`).join(" || ', ' || ");
const READ = `SELECT id, ${CONTENT} AS content FROM items ORDER BY id`;

/** Differences listed one by one; a number stands for the rest. */
const LISTED_MAX = 10;

export async function compare(files: { id: string; file: string }[], open: OpenReader): Promise<Comparison> {
  const rows = new Map<string, Map<string, string>>();
  for (const { id, file } of files) rows.set(id, await read(file, open));
  const everyId = new Set([...rows.values()].flatMap((content) => [...content.keys()]));
  const differences: string[] = [];
  for (const id of everyId) {
    const versions = [...rows].map(([node, content]) => [node, content.get(id) ?? 'no such row'] as const);
    if (new Set(versions.map(([, content]) => content)).size === 1) continue;
    differences.push(`row ${id}: ${versions.map(([node, content]) => `${node} has ${content}`).join('; ')}`);
  }
  const more = differences.length - LISTED_MAX;
  const listed = more > 0 ? [...differences.slice(0, LISTED_MAX), `and ${more} more rows`] : differences;
  const first = rows.values().next().value ?? new Map();
  return { equal: differences.length === 0, rows, fingerprint: fingerprintOf(first), differences: listed };
}

async function read(file: string, open: OpenReader): Promise<Map<string, string>> {
  const db = await open(file);
  try {
    const found = db.prepare(READ).all() as { id: string; content: string }[];
    return new Map(found.map(({ id, content }) => [id, content]));
  } finally {
    db.close();
  }
}

function fingerprintOf(content: Map<string, string>): string {
  const hash = createHash('sha256');
  for (const [id, row] of content) hash.update(`${id} ${row}\n`);
  return hash.digest('hex').slice(0, 12);
}
