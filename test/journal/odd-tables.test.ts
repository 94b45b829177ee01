/** The journal of tables of every kind that is synced, of what they are called later, and of what was put back. */
import { describe, expect, test } from 'vitest';
import { Cluster, type Member } from '../support/cluster.ts';
import { rowsOf, until, writeStamps } from '../support/nodes.ts';

const MANY = Array.from({ length: 1_100 }, (_, i) => `c${i}`);

const KINDS: [string, { schema: string; table: string; text: string }][] = [
  ['STRICT', { schema: 'CREATE TABLE t (id TEXT PRIMARY KEY, v TEXT, updated_at INT) STRICT', table: 't', text: 'v' }],
  [
    'WITHOUT ROWID',
    { schema: 'CREATE TABLE t (id TEXT PRIMARY KEY, v TEXT, updated_at INT) WITHOUT ROWID', table: 't', text: 'v' },
  ],
  [
    'with generated columns',
    {
      schema:
        'CREATE TABLE t (id TEXT PRIMARY KEY, v TEXT, up TEXT AS (upper(v)) STORED, updated_at INT, one AS (v || 1), ' +
        'UNIQUE (up, id))',
      table: 't',
      text: 'v',
    },
  ],
  [
    'with odd names',
    {
      schema: `CREATE TABLE "it's ""odd"" [x]" ("ID" TEXT PRIMARY KEY, "a.b$[0]'""" TEXT, "Updated_At" INT, "select" INT)`,
      table: `it's "odd" [x]`,
      text: `a.b$[0]'"`,
    },
  ],
  [
    'with NOT NULL, defaults and a CHECK',
    {
      schema:
        "CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, v TEXT NOT NULL DEFAULT 'd' CHECK (length(v) < 20), " +
        'n REAL NOT NULL DEFAULT 1.5, updated_at INTEGER NOT NULL)',
      table: 't',
      text: 'v',
    },
  ],
  [
    'with more columns than an expression may be deep',
    {
      schema: `CREATE TABLE t (id TEXT PRIMARY KEY, v TEXT, updated_at INT, ${MANY.join(', ')})`,
      table: 't',
      text: 'v',
    },
  ],
];

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;

/** Two nodes, of which a has lost an edit, a has lost a deletion, and both have all rows. */
async function lost({ schema, table, text }: { schema: string; table: string; text: string }) {
  const cluster = new Cluster();
  const given = { schema, tables: [table] };
  const a = await cluster.node('a', ['b'], given);
  const b = await cluster.node('b', ['a'], given);
  const [target, column] = [quoted(table), quoted(text)];
  const insert = `INSERT INTO ${target} (id, ${column}, updated_at) VALUES ('r', 'first', 100), ('gone', 'first', 100)`;
  a.db.exec(insert);
  await until('b has both', () => rowsOf(b.db, `SELECT 1 FROM ${target}`).length === 2);
  cluster.cut.add(cluster.url('a')).add(cluster.url('b'));
  a.db.exec(`UPDATE ${target} SET ${column} = 'of a', updated_at = 200 WHERE id = 'r'`);
  a.db.exec(`DELETE FROM ${target} WHERE id = 'gone'`);
  b.db.exec(`UPDATE ${target} SET ${column} = 'of b', updated_at = 300`);
  // What a has written waits still, so it knows that it was the one.
  cluster.cut.delete(cluster.url('a'));
  await until('a has lost both', () => a.manager.conflicts.list().length === 2);
  cluster.cut.clear();
  return { cluster, a, b, target, column, given };
}

const conflictOf = ({ manager }: Member, id: string) =>
  manager.conflicts.get(manager.conflicts.list({ id })[0]?.conflictId as number);

describe.each(KINDS)('a table %s', (_, kind) => {
  test('what lost is listed, shown and restored, on all nodes', { tags: 'long' }, async () => {
    const { a, b, target, column } = await lost(kind);
    const edit = conflictOf(a, 'r');
    expect(edit).toMatchObject({ lostBy: 'self', wonBy: 'b', columns: [kind.text] });
    expect([edit.lost?.[kind.text], edit.current?.[kind.text]]).toEqual(['of a', 'of b']);
    expect(conflictOf(a, 'gone')).toMatchObject({ lost: null, columns: [] });
    expect(a.manager.why(kind.table, 'r')).toMatchObject({ state: 'live', version: 300, lastFrom: { node: 'b' } });
    expect(a.manager.conflicts.restore(edit.conflictId)).toEqual({ columns: [kind.text] });
    a.manager.conflicts.restore(conflictOf(a, 'gone').conflictId);
    const rows = (member: Member) => rowsOf(member.db, `SELECT id AS id, ${column} AS v FROM ${target}`);
    await until('b has them', () => JSON.stringify(rows(b)) === JSON.stringify([{ id: 'r', v: 'of a' }]));
    expect(rows(a)).toEqual(rows(b));
    expect(b.manager.conflicts.list()).toEqual([]);
  });
});

describe('what lost, later', () => {
  const kind = KINDS[0]?.[1] as (typeof KINDS)[0][1];

  test('of a table and a column that have other names by now', async () => {
    const { a, b } = await lost(kind);
    const renamed = { rename: { t: { v: 'title' } }, renameTable: { t: 'things' } };
    const sql = 'ALTER TABLE t RENAME COLUMN v TO title; ALTER TABLE t RENAME TO things';
    for (const { manager } of [a, b]) manager.migrate(sql, renamed);
    const [listed] = a.manager.conflicts.list({ table: 'things', id: 'r' });
    expect(listed).toMatchObject({ table: 'things', lostVersion: 200 });
    const found = a.manager.conflicts.get(listed?.conflictId as number);
    expect(found).toMatchObject({ columns: ['title'], current: expect.anything() });
    expect(a.manager.why('things', 'r')).toMatchObject({ conflicts: [{ lostVersion: 200 }], lastFrom: { node: 'b' } });
    a.manager.conflicts.restore(found.conflictId);
    await until('b has it', () => rowsOf(b.db, "SELECT title FROM things WHERE id = 'r'")[0]?.title === 'of a');
  });

  test('of a column that is gone, and of one that has come', async () => {
    const { a, b } = await lost({
      ...kind,
      schema: 'CREATE TABLE t (id TEXT PRIMARY KEY, v TEXT, w INT, updated_at INT)',
    });
    for (const { manager } of [a, b]) {
      manager.migrate('ALTER TABLE t DROP COLUMN w; ALTER TABLE t ADD COLUMN n INT DEFAULT 7', { drop: { t: ['w'] } });
    }
    const { conflictId, columns } = conflictOf(a, 'r');
    expect(columns).toEqual(['v']);
    a.manager.conflicts.restore(conflictId);
    expect(rowsOf(a.db, "SELECT v, n FROM t WHERE id = 'r'")).toEqual([{ v: 'of a', n: 7 }]);
  });

  test('in a database that was put back from a backup', async () => {
    const { cluster, a, b, given } = await lost(kind);
    const putBack = cluster.backup(a);
    a.manager.conflicts.dismiss(conflictOf(a, 'gone').conflictId);
    b.db.exec("UPDATE t SET v = 'later', updated_at = 400 WHERE id = 'r'");
    await until('a has it', () => a.manager.why('t', 'r').version === 400);
    await a.stop();
    putBack();
    const again = await cluster.node('a', ['b'], given);
    const ids = (): string[] => again.manager.conflicts.list().map(({ id }) => id);
    expect(ids().sort()).toEqual(['gone', 'r']);
    await until('it has caught up', () => again.manager.why('t', 'r').version === 400);
    // Numbers go on; what was given back is no edit that lost.
    expect(ids().sort()).toEqual(['gone', 'r']);
    again.manager.conflicts.restore(conflictOf(again, 'r').conflictId);
    await until('b has it', () => rowsOf(b.db, "SELECT v FROM t WHERE id = 'r'")[0]?.v === 'of a');
  });

  test('of rows of many megabytes: the journal keeps to its bound, and the newest is there', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', [], {
      ...{ schema: kind.schema, tables: ['t'] },
      conflicts: { bytes: 3_000_000 },
    });
    for (const i of [1, 2, 3]) {
      a.db.prepare('INSERT INTO t VALUES (?, ?, 200)').run(`r${i}`, 'x'.repeat(2_000_000));
      const row = { id: `r${i}`, v: 'theirs', updated_at: 300 };
      const body = { batch_id: i, changes: [{ op: 'UPDATE', table: 't', row, old_id: null, base: 100 }] };
      expect(a.manager.receive(JSON.stringify(body), { from: 'b', said: 'id=b' }).status).toBe(200);
    }
    expect(a.manager.conflicts.list().map(({ id }) => id)).toEqual(['r3']);
    a.manager.conflicts.restore(3);
    expect(rowsOf(a.db, "SELECT length(v) AS n FROM t WHERE id = 'r3'")).toEqual([{ n: 2_000_000 }]);
  });
});

test('a restored edit whose value another row has by now is refused, whatever the constraint says of that itself', async () => {
  const schema =
    'CREATE TABLE t (id TEXT PRIMARY KEY, v TEXT, updated_at INT, UNIQUE (v, id), UNIQUE (v) ON CONFLICT REPLACE)';
  const lostIn = { schema: schema.replace('UNIQUE (v) ON CONFLICT REPLACE', 'CHECK (1)'), table: 't', text: 'v' };
  const { a } = await lost(lostIn);
  const { conflictId } = conflictOf(a, 'r');
  a.db.exec(
    `${schema.replace('TABLE t', 'TABLE made')}; INSERT INTO made SELECT * FROM t WHERE id = 'r'; DROP TABLE t; ` +
      "ALTER TABLE made RENAME TO t; INSERT INTO t VALUES ('other', 'of a', 400)",
  );
  // Which also looks at the schema.
  writeStamps(a.manager);
  expect(() => a.manager.conflicts.restore(conflictId)).toThrow(/the table refuses it: UNIQUE constraint failed: t.v/);
  expect(rowsOf(a.db, "SELECT id FROM t WHERE id = 'other'")).toEqual([{ id: 'other' }]);
});
