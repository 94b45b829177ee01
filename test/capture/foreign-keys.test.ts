/** What foreign keys do to other rows is captured like any write. */
import { describe, expect, test } from 'vitest';
import { expectSameElsewhere, expectSameWithout, origin } from '../support/elsewhere.ts';
import { captured } from '../support/nodes.ts';

describe('foreign keys', () => {
  const PARENTS = 'CREATE TABLE parents (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';
  const child = (action: string): string =>
    `${PARENTS}; CREATE TABLE children (id TEXT PRIMARY KEY, parent TEXT DEFAULT 'p2' REFERENCES parents (id) ${action}, updated_at INTEGER)`;
  const fill = [
    "INSERT INTO parents VALUES ('p1', 'x', 1000), ('p2', 'y', 1000)",
    "INSERT INTO children VALUES ('c1', 'p1', 1000), ('c2', 'p1', 5000), ('c3', 'p2', 1000)",
  ];
  const ACTIONS: [string, string][] = [
    ['ON DELETE CASCADE', "DELETE FROM parents WHERE id = 'p1'"],
    ['ON DELETE SET NULL', "DELETE FROM parents WHERE id = 'p1'"],
    ['ON DELETE SET DEFAULT', "DELETE FROM parents WHERE id = 'p1'"],
    ['ON UPDATE CASCADE', "UPDATE parents SET id = 'p9', updated_at = 2000 WHERE id = 'p1'"],
    ['ON UPDATE CASCADE ON DELETE CASCADE', "UPDATE parents SET id = 'p9' WHERE id = 'p1'"],
    ['ON DELETE CASCADE', "REPLACE INTO parents VALUES ('p1', 'replaced', 2000)"],
    ['ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED', "REPLACE INTO parents VALUES ('p1', 'replaced', 1)"],
    ['ON DELETE RESTRICT', "DELETE FROM parents WHERE id = 'p1'"],
  ];
  const RECURSIVE = ACTIONS.flatMap(([action, sql]) => ['OFF', 'ON'].map((recursive) => ({ action, sql, recursive })));
  test.each(RECURSIVE)('$action: $sql, recursive_triggers $recursive', async ({ action, sql, recursive }) => {
    const it = await origin({
      schema: `PRAGMA foreign_keys = ON; ${child(action)}`,
      tables: ['parents', 'children'],
    });
    it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
    await expectSameWithout(it, [...fill, sql]);
    await expectSameElsewhere(it);
  });

  test('a cascade is captured as the deletion of every child', async () => {
    const it = await origin({
      schema: `PRAGMA foreign_keys = ON; ${child('ON DELETE CASCADE')}`,
      tables: ['parents', 'children'],
    });
    for (const sql of [...fill, "DELETE FROM parents WHERE id = 'p1'"]) it.db.exec(sql);
    const deleted = captured(it.db).filter(({ op }) => op === 'DELETE');
    expect(deleted.map(({ row_id }) => row_id).sort()).toEqual(['c1', 'c2', 'p1']);
    await expectSameElsewhere(it);
  });

  test('a table that refers to itself', async () => {
    const schema =
      'PRAGMA foreign_keys = ON; CREATE TABLE items (id TEXT PRIMARY KEY, up TEXT REFERENCES items (id) ON DELETE CASCADE ON UPDATE CASCADE, updated_at INTEGER)';
    const it = await origin({ schema });
    await expectSameWithout(it, [
      "INSERT INTO items VALUES ('a', NULL, 1000), ('b', 'a', 1000), ('c', 'b', 1000), ('x', 'x', 1000)",
      "UPDATE items SET id = 'b2' WHERE id = 'b'",
      "DELETE FROM items WHERE id = 'b2'",
    ]);
    await expectSameElsewhere(it);
  });
});
