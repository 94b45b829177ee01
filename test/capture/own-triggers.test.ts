/** The application's own triggers that touch updated_at. */
import { describe, expect, test } from 'vitest';
import { meetings } from '../support/draws.ts';
import { expectSameElsewhere, origin } from '../support/elsewhere.ts';
import { attached, captured, database, ITEMS } from '../support/nodes.ts';

const GUARD = "(SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1";

describe("the application's own triggers that touch updated_at", () => {
  const NOW = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";
  const touch = (when: string, by = 'id = NEW.id'): string =>
    `CREATE TRIGGER touch AFTER UPDATE ON items FOR EACH ROW ${when} BEGIN UPDATE items SET updated_at = ${NOW} WHERE ${by}; END`;
  const TOUCHES: Record<string, string> = {
    'with a WHEN guard': touch('WHEN NEW.updated_at = OLD.updated_at'),
    'with a WHEN guard that minds NULL': touch('WHEN NEW.updated_at IS OLD.updated_at'),
    'without any guard': touch(''),
    'that stands back while changes are applied': touch(`WHEN ${GUARD}`),
    'by rowid': touch('', 'rowid = NEW.rowid'),
    'in seconds, by mistake': touch('').replace(NOW, "CAST(strftime('%s', 'now') AS INTEGER)"),
    'as text, by mistake': touch('').replace(NOW, "datetime('now')"),
    'of certain columns only': touch('').replace('AFTER UPDATE ON', 'AFTER UPDATE OF name, value ON'),
    'on INSERT and UPDATE': `${touch('WHEN NEW.updated_at IS OLD.updated_at')}; CREATE TRIGGER born AFTER INSERT ON items BEGIN UPDATE items SET created_at = ${NOW}, updated_at = ${NOW} WHERE id = NEW.id; END`,
    'on INSERT only where it is missing': `CREATE TRIGGER born AFTER INSERT ON items WHEN NEW.updated_at IS NULL BEGIN UPDATE items SET updated_at = ${NOW} WHERE id = NEW.id; END`,
  };
  const statements = [
    "INSERT INTO items VALUES ('a', 'n', 1, 1, 1000), ('b', 'n', 1, 1, NULL), ('future', 'n', 1, 1, 4102444800000)",
    "UPDATE items SET name = 'forgot' WHERE id = 'a'",
    "UPDATE items SET name = 'forgot'",
    "UPDATE items SET name = 'honest', updated_at = updated_at + 60000",
    "UPDATE items SET name = 'backwards', updated_at = 5",
    "UPDATE items SET name = 'nothing', updated_at = NULL",
    "REPLACE INTO items VALUES ('a', 'replaced', 1, 1, 10), ('future', 'replaced', 1, 1, 10)",
    "UPDATE items SET id = 'renamed' WHERE id = 'b'",
    "DELETE FROM items WHERE id = 'a'",
    "INSERT INTO items VALUES ('a', 'again', 1, 1, 10)",
    "UPDATE items SET value = 9 WHERE id = 'a'",
  ];
  // A trigger made after attach is noticed before changes are next shipped or applied; here, by an empty batch.
  const CASES = meetings(Object.entries(TOUCHES), [
    'before attach',
    'after attach',
    'after attach and noticed late',
  ]).map(([[what, trigger], when]) => ({ what, trigger, when }));
  test.each(CASES)(
    '$what, created $when: every write is captured and each version is above the last',
    async ({ trigger, when }) => {
      const it = await origin(when === 'before attach' ? { schema: `${ITEMS}; ${trigger}` } : {});
      const notice = () => it.manager.receive('{"batch_id":0,"changes":[]}');
      if (when !== 'before attach') it.db.exec(trigger);
      for (const sql of statements) {
        const before = new Map(it.all('SELECT id, updated_at AS at FROM items').map(({ id, at }) => [id, at]));
        it.db.exec(sql);
        if (when === 'after attach and noticed late') continue;
        if (when === 'after attach') notice();
        for (const { id, at, type } of it.all('SELECT id, updated_at AS at, typeof(updated_at) AS type FROM items')) {
          const versions = captured(it.db)
            .filter(({ row_id, op }) => row_id === id && op !== 'DELETE')
            .map(({ row }) => Number(row.updated_at));
          expect(type, `${sql}: ${id}`).toBe('integer');
          expect(Math.max(...versions), `${sql}: the newest captured version of ${id}`).toBe(at);
          if (!before.has(id) || !/^UPDATE(?!.*WHERE id)/.test(sql)) continue;
          expect(Number(at), `${sql}: ${id}`).toBeGreaterThan(Number(before.get(id)));
        }
      }
      notice();
      await expectSameElsewhere(it, { schema: ITEMS });
    },
  );
});

const SETS = 'UPDATE items SET name = NEW.name, updated_at = 5 WHERE id = NEW.id';
test.each([
  ['on every update', `AFTER UPDATE ON items BEGIN ${SETS}; END`, true],
  ['in quotes', 'AFTER UPDATE ON items BEGIN UPDATE items SET "updated_at" = 5; END', true],
  [
    'where the write has brought none',
    `AFTER UPDATE ON items WHEN NEW.updated_at IS OLD.updated_at BEGIN ${SETS}; END`,
    false,
  ],
  ['never', 'AFTER UPDATE ON items BEGIN UPDATE items SET name = 1 WHERE updated_at = 5; END', false],
])('a trigger that sets updated_at %s: the warning says what comes of it', async (_when, trigger, told) => {
  const db = await database(`${ITEMS}; CREATE TRIGGER touch ${trigger}`);
  const manager = attached(db);
  const warnings: string[] = [];
  manager.on('warning', ({ message }) => warnings.push(message));
  await manager.flush();
  expect(warnings).toEqual([expect.stringMatching(/trigger "touch" on "items" also fires while received changes/)]);
  expect(/another version on every node/.test(warnings[0] as string)).toBe(told);
});

test('a temporary trigger is warned of, too: received changes are applied by the connection that has it', async () => {
  const db = await database(`${ITEMS}; CREATE TEMP TRIGGER touch AFTER INSERT ON main.items BEGIN SELECT 1; END`);
  const manager = attached(db);
  const warnings: string[] = [];
  manager.on('warning', ({ message }) => warnings.push(message));
  await manager.flush();
  expect(warnings).toEqual([expect.stringMatching(/trigger "touch" on "items" also fires while received changes/)]);
});

test('of a trigger that is made while the node runs, the warning comes with the next look, once', async () => {
  const warnings: string[] = [];
  const db = await database(`${ITEMS}; CREATE TRIGGER first AFTER INSERT ON items BEGIN SELECT 1; END`);
  const manager = attached(db);
  manager.on('warning', ({ code, message }) => code === 'schema' && warnings.push(message));
  await manager.flush();
  expect(warnings).toEqual([expect.stringContaining('trigger "first" on "items"')]);
  db.exec(`CREATE TRIGGER touch AFTER UPDATE ON items BEGIN ${SETS}; END`);
  await manager.flush();
  db.exec('CREATE TRIGGER quiet BEFORE INSERT ON items BEGIN SELECT RAISE(IGNORE); END');
  manager.migrate('ALTER TABLE items ADD COLUMN more TEXT');
  db.exec('CREATE INDEX items_name ON items (name)');
  await manager.flush();
  expect(warnings.slice(1)).toEqual([
    expect.stringMatching(/trigger "touch" on "items".*another version on every node/),
    expect.stringMatching(/trigger "quiet" on "items".*RAISE\(IGNORE\) are to become dead letters/),
  ]);
});

describe("a trigger of the application's that ends its statement and leaves what it has written", () => {
  const ENDS: Record<string, [body: string, or: string]> = {
    'by RAISE(IGNORE)': ['SELECT RAISE(IGNORE)', ''],
    'by RAISE(FAIL)': ["SELECT RAISE(FAIL, 'no more')", ''],
    'by a constraint under OR FAIL': ['INSERT INTO taken VALUES (1)', 'OR FAIL'],
  };
  const CASES = Object.entries(ENDS).flatMap(([how, [body, or]]) =>
    ['before attach', 'after attach'].map((when) => ({ how, body, or, when })),
  );

  test.each(CASES)('$how, made $when: every write is captured', async ({ body, or, when }) => {
    // With others of the application's there already, Rowcast's own have no other reason to be made anew.
    const others = ['INSERT', 'UPDATE', 'DELETE'].map(
      (event) => `CREATE TRIGGER other_${event} AFTER ${event} ON items BEGIN SELECT 1; END`,
    );
    const schema = `${ITEMS}; ${others.join('; ')}; CREATE TABLE taken (n UNIQUE); INSERT INTO taken VALUES (1)`;
    const on = (event: string): string =>
      `CREATE TRIGGER ends_${event} AFTER ${event} ON items WHEN ${GUARD} BEGIN ${body}; END`;
    const triggers = ['INSERT', 'UPDATE', 'DELETE'].map(on).join('; ');
    const it = await origin({ schema: when === 'before attach' ? `${schema}; ${triggers}` : schema });
    if (when === 'after attach') {
      it.db.exec(triggers);
      it.manager.receive('{"batch_id":0,"changes":[]}');
    }
    const write = (sql: string): void => {
      try {
        it.db.exec(sql);
      } catch {
        // What it says is the application's; the row is there.
      }
    };
    write(`INSERT ${or} INTO items VALUES ('a', 'one', 1, 1, 10), ('b', 'one', 1, 1, 10)`);
    write(`UPDATE ${or} items SET name = 'two', updated_at = 20 WHERE id = 'a'`);
    expect(it.all("SELECT name FROM items WHERE id = 'a'")).toEqual([{ name: 'two' }]);
    await expectSameElsewhere(it);
    write("DELETE FROM items WHERE id = 'a'");
    await expectSameElsewhere(it);
  });
});
