/**
 * The number of the triggers' form has to be raised with their texts, and nobody remembers to: the texts of tables of every
 * kind have a hash here, for each form that there was.
 */
import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { TRIGGER_FORM } from '../../src/capture/triggers.ts';
import { attached, database, rowsOf } from '../support/nodes.ts';

/** The latest form last. A line that some build was made with stays as it is. */
const HASHES = ['d14b0705baee1ba2'];

const SCHEMAS = [
  'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER)',
  'CREATE TABLE items (id TEXT PRIMARY KEY, n INTEGER, updated_at INTEGER) WITHOUT ROWID',
  'CREATE TABLE items (id TEXT PRIMARY KEY, k INTEGER UNIQUE, a REAL, b BLOB, updated_at INTEGER)',
  'CREATE TABLE items (id TEXT PRIMARY KEY, email TEXT COLLATE NOCASE UNIQUE, updated_at INTEGER)',
  'CREATE TABLE items (id TEXT PRIMARY KEY, a, b AS (a + 1), updated_at INTEGER); CREATE UNIQUE INDEX u ON items (b)',
  'CREATE TABLE items (id TEXT PRIMARY KEY, a, b, updated_at INTEGER); CREATE UNIQUE INDEX u ON items (lower(a)) WHERE b > 1',
  'CREATE TABLE items (id TEXT PRIMARY KEY, a, updated_at INTEGER); ' +
    'CREATE TRIGGER own AFTER INSERT ON items BEGIN UPDATE items SET a = 1 WHERE id = NEW.id; END',
  `CREATE TABLE items (id TEXT PRIMARY KEY, ${Array.from({ length: 40 }, (_, i) => `c${i}`).join(', ')}, updated_at INTEGER)`,
];

test('who changes the texts of the triggers raises TRIGGER_FORM', async () => {
  const hash = createHash('sha256');
  for (const keep of ['forever', '90d'] as const)
    for (const schema of SCHEMAS) {
      const db = await database(schema);
      attached(db, { tombstones: { keep } });
      const texts = rowsOf(db, "SELECT sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY name");
      expect(texts.length).toBeGreaterThan(8);
      for (const { sql } of texts) hash.update(`${String(sql)}\n`);
    }
  expect(
    [TRIGGER_FORM, hash.digest('hex').slice(0, 16)],
    'The texts are others: raise TRIGGER_FORM (src/capture/triggers.ts), and add a line to HASHES, or two builds fight',
  ).toEqual([HASHES.length, HASHES.at(-1)]);
});
