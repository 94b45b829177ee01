/**
 * Declarations as SQLite reads them: what stands in double quotes and is no column is a text there, also where the connection
 * takes it for a name in statements; and what is behind a term of an index is no part of it.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { attached, captured, database, node, rowsOf, scratchFolder } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const COLUMNS = 'id TEXT PRIMARY KEY, name TEXT, state TEXT, updated_at INTEGER';

/** As a program leaves it whose SQLite takes texts in double quotes: few of those that a test may run on do. */
async function madeElsewhere(schema: string) {
  const path = join(scratchFolder(), 'file');
  const maker = await database('SELECT 1', path);
  maker.exec(`PRAGMA journal_mode = DELETE; ${schema}`);
  maker.close();
  const bytes = readFileSync(path).toString('latin1');
  writeFileSync(path, bytes.replaceAll("'open'", '"open"'), 'latin1');
  return database('SELECT 1', path);
}

function row(id: string, name: string, at: number, state: string | null = 'open') {
  return { op: 'INSERT', table: 'items', row: { id, name, state, updated_at: T + at }, old_id: null };
}

describe('a text in double quotes', () => {
  test.each([
    ['in the condition of a partial index', `(${COLUMNS}); CREATE UNIQUE INDEX u ON items (name) WHERE state = 'open'`],
    ['in an expression', `(${COLUMNS}); CREATE UNIQUE INDEX u ON items (name || 'open', "state")`],
    [
      'beside functions and columns in quotes',
      `(${COLUMNS}); CREATE UNIQUE INDEX u ON items ("lower"("name") || 'open')`,
    ],
    ['in a CHECK', `(${COLUMNS.replace('state TEXT', "state TEXT CHECK (state IN ('open', 'shut'))")}, UNIQUE (name))`],
    ['in a generated column', `(${COLUMNS}, g AS (name || 'open') UNIQUE)`],
    ['as a default', `(${COLUMNS.replace('state TEXT', "state TEXT DEFAULT 'open'")}, UNIQUE (name))`],
  ])('%s', async (_, declared) => {
    const db = await madeElsewhere(`CREATE TABLE items ${declared}`);
    expect(JSON.stringify(rowsOf(db, 'SELECT sql FROM sqlite_schema'))).toContain('\\"open\\"');
    const manager = attached(db);
    db.exec("INSERT INTO items (id, name, state, updated_at) VALUES ('a', 'x', 'open', 5), ('b', 'y', 'open', 5)");
    db.exec("UPDATE items SET name = 'z', updated_at = 6 WHERE id = 'a'");
    db.exec("REPLACE INTO items (id, name, state, updated_at) VALUES ('c', 'z', 'open', 7)");
    expect(captured(db).map(({ op, row_id }) => `${op} ${row_id}`)).toContain('DELETE a');
    const changes = [row('d', 'y', 1), row('e', 'z', 2), row('f', 'f', 3)];
    expect(manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=x' }).body).toEqual({
      applied: 3,
      ack: 1,
    });
    expect(rowsOf(db, 'SELECT id FROM items ORDER BY id').map(({ id }) => id)).toEqual(['d', 'e', 'f']);
    expect(rowsOf(db, 'SELECT row_id FROM _hidden ORDER BY row_id').map(({ row_id }) => row_id)).toEqual(['b', 'c']);
  });
});

describe('the order of a term', () => {
  test.each([
    '(lower(name))DESC',
    'lower(name)/* c */DESC/* d, */',
    'lower(name) -- desc\n asc -- and no more\n',
    'lower(name)COLLATE NOCASE DESC -- x\n',
    "(lower(name) || ' -- desc')DESC",
    'lower(name) || "desc"',
    'lower(name) || desc',
  ])('CREATE UNIQUE INDEX u ON items (%s)', async (term) => {
    const one = await node({
      schema: `CREATE TABLE items (${COLUMNS}, desc); CREATE UNIQUE INDEX u ON items (${term})`,
    });
    one.db.exec("INSERT INTO items VALUES ('a', 'x', 'one', 5, 'd'), ('b', 'y', 'one', 5, 'd')");
    one.db.exec("UPDATE items SET name = 'Z', updated_at = 6 WHERE id = 'a'");
    one.db.exec("REPLACE INTO items VALUES ('c', 'z', 'one', 7, 'd')");
    expect(captured(one.db).map(({ op, row_id }) => `${op} ${row_id}`)).toContain('DELETE a');
    const body = { batch_id: 1, changes: [{ ...row('d', 'Y', 1), row: { ...row('d', 'Y', 1).row, desc: 'd' } }] };
    expect(one.manager.receive(JSON.stringify(body), { said: 'id=x' }).body).toEqual({ applied: 1, ack: 1 });
    expect(one.all('SELECT row_id FROM _hidden')).toEqual([{ row_id: 'b' }]);
  });
});
