/** The statements by which a batch for the README's table is merged, so that a change to their generator shows what it does. */
import { expect, test } from 'vitest';
import { attach, type Database } from '../../src/index.ts';
import { formatSql } from '../support/format-sql.ts';
import { cleanUp, database } from '../support/nodes.ts';

const ITEMS =
  'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER)';
const row = { id: 'a', name: 'n', value: 1, created_at: 1, updated_at: 1_700_000_000_000 };
const WRITES = [{ op: 'INSERT', table: 'items', row, old_id: null }];
const BOTH = [...WRITES, { op: 'DELETE', table: 'items', row: { ...row, id: 'b' }, old_id: 'b' }];

test.each([
  ['writes', WRITES],
  ['writes-and-deletions', BOTH],
])('a batch of %s is merged by the statements of test/golden', async (name, changes) => {
  const db = await database(ITEMS);
  let prepared: string[] = [];
  const handle: Database = {
    exec: (sql) => db.exec(sql),
    prepare: (sql) => {
      prepared.push(sql);
      return db.prepare(sql);
    },
    transaction: (fn) => db.transaction(fn),
  };
  const manager = attach(handle, { id: 'node', peers: [] }, ['items']);
  cleanUp(() => manager.stop());
  prepared = [];
  const body = JSON.stringify({ batch_id: 1, changes });
  expect(manager.receive(body, { said: 'id=x' }).body).toEqual({ applied: changes.length, ack: 1 });
  const statements = prepared.filter((sql) => /^(INSERT|UPDATE|DELETE)/.test(sql) && sql.includes('$.changes'));
  expect(statements.length).toBeGreaterThan(0);
  for (const sql of statements) {
    expect(formatSql(sql).replace(/\s+/g, ''), 'white space alone is changed').toBe(sql.replace(/\s+/g, ''));
  }
  await expect(
    `${statements.map(formatSql).join(';\n\n')};\n`,
    'If the change is meant: npx vitest run test/receive/golden-merge -u',
  ).toMatchFileSnapshot(`../golden/merge-items-${name}.sql`);
});
