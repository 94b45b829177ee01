/** REPLACE, UPSERT, IGNORE and SET id: rows that go or move without a DELETE of their own. */
import { describe, expect, test } from 'vitest';
import { expectAdvanced, insert, LOG, ops } from '../support/capture.ts';
import { expectSameElsewhere, type Origin, origin } from '../support/elsewhere.ts';
import { captured, ITEMS } from '../support/nodes.ts';

describe('REPLACE, UPSERT, IGNORE and SET id', () => {
  for (const recursive of ['OFF', 'ON']) {
    describe(`recursive_triggers ${recursive}`, () => {
      const start = async (schema = ITEMS): Promise<Origin> => {
        const it = await origin({ schema });
        it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
        return it;
      };

      test('INSERT OR REPLACE above the old version is captured as it is', async () => {
        const it = await start();
        it.db.exec(insert('a', 1000));
        it.db.exec("INSERT OR REPLACE INTO items VALUES ('a', 'new', 2, 2, 2000)");
        expect(captured(it.db).at(-1)).toMatchObject({
          op: 'INSERT',
          row_id: 'a',
          row: { name: 'new', updated_at: 2000 },
        });
        expect(it.all('SELECT updated_at FROM items')).toEqual([{ updated_at: 2000 }]);
        await expectSameElsewhere(it);
      });

      for (const at of ['500', '1000', 'NULL', "'soon'", '12.5']) {
        test(`INSERT OR REPLACE with updated_at ${at} still ends above the old version`, async () => {
          const it = await start();
          it.db.exec(insert('a', 1000));
          it.db.exec(`REPLACE INTO items VALUES ('a', 'new', 2, 2, ${at})`);
          expectAdvanced(it, 'a', 1000);
          await expectSameElsewhere(it);
        });
      }

      test('a multi-row REPLACE that hits one id several times ends with the last of them', async () => {
        const it = await start();
        it.db.exec(insert('a', 5000));
        it.db.exec(
          "REPLACE INTO items VALUES ('a', 'one', 1, 1, 4000), ('b', 'b', 1, 1, 1), ('a', 'two', 2, 2, 3000), ('a', 'three', 3, 3, 3000)",
        );
        expect(it.all("SELECT name FROM items WHERE id = 'a'")).toEqual([{ name: 'three' }]);
        expectAdvanced(it, 'a', 5000);
        await expectSameElsewhere(it);
      });

      test('UPSERT is captured as the insert or the update that it became', async () => {
        const it = await start();
        const upsert = (name: string, at: number): void =>
          void it.db.exec(
            `INSERT INTO items VALUES ('a', '${name}', 1, 1, ${at}) ON CONFLICT (id) DO UPDATE SET name = excluded.name, updated_at = excluded.updated_at`,
          );
        upsert('one', 1000);
        upsert('two', 2000);
        expect(captured(it.db).map(({ op, row }) => [op, row.name, row.updated_at])).toEqual([
          ['INSERT', 'one', 1000],
          ['UPDATE', 'two', 2000],
        ]);
        upsert('three', 1500);
        expectAdvanced(it, 'a', 2000);
        it.db.exec("INSERT INTO items VALUES ('a', 'no', 1, 1, 1) ON CONFLICT (id) DO UPDATE SET name = 'forgotten'");
        expectAdvanced(it, 'a', 2001);
        it.db.exec("INSERT INTO items VALUES ('a', 'no', 1, 1, 1) ON CONFLICT DO NOTHING");
        expect(it.all('SELECT name FROM items')).toEqual([{ name: 'forgotten' }]);
        await expectSameElsewhere(it);
      });

      test('INSERT OR IGNORE captures the rows that went in and not those that were there', async () => {
        const it = await start();
        it.db.exec(insert('a', 1000));
        it.db.exec(
          "INSERT OR IGNORE INTO items VALUES ('a', 'ignored', 9, 9, 1), ('b', 'in', 1, 1, 1), ('c', 'in', 1, 1, NULL)",
        );
        expect(new Set(ops(it.db).map((op) => op.slice(-1)))).toEqual(new Set(['a', 'b', 'c']));
        expect(ops(it.db).filter((op) => op.endsWith(' a'))).toHaveLength(1);
        it.db.exec("DELETE FROM items WHERE id = 'a'");
        it.db.exec("INSERT OR IGNORE INTO items VALUES ('a', 'again', 1, 1, 1)");
        expectAdvanced(it, 'a', 1000);
        await expectSameElsewhere(it);
      });

      test('UPDATE OR IGNORE captures only what it did', async () => {
        const it = await start();
        it.db.exec(insert('a'));
        it.db.exec(insert('b'));
        it.db.exec("UPDATE OR IGNORE items SET id = 'b', updated_at = 2000 WHERE id = 'a'");
        expect(ops(it.db)).toEqual(['INSERT a', 'INSERT b']);
        it.db.exec('UPDATE OR IGNORE items SET updated_at = 500');
        expectAdvanced(it, 'a', 1000);
        expectAdvanced(it, 'b', 1000);
        await expectSameElsewhere(it);
      });

      test('SET id is a DELETE of the old id and an UPDATE of the new one', async () => {
        const it = await start();
        it.db.exec(insert('a', 1000));
        it.db.exec("UPDATE items SET id = 'b', updated_at = 2000 WHERE id = 'a'");
        const changes = captured(it.db).slice(1);
        expect(changes).toHaveLength(2);
        expect(changes).toContainEqual({
          op: 'DELETE',
          row_id: 'a',
          row: { id: 'a', name: 'n', value: 1, created_at: 10, updated_at: 1000 },
        });
        expect(changes).toContainEqual({
          op: 'UPDATE',
          row_id: 'b',
          row: { id: 'b', name: 'n', value: 1, created_at: 10, updated_at: 2000 },
        });
        await expectSameElsewhere(it);
      });

      test('SET id without updated_at, with an old one, to the same id and back again', async () => {
        const it = await start();
        it.db.exec(insert('a', 1000));
        it.db.exec("UPDATE items SET id = 'b' WHERE id = 'a'");
        expectAdvanced(it, 'b', 1000);
        it.db.exec("UPDATE items SET id = 'a', updated_at = 1 WHERE id = 'b'");
        expectAdvanced(it, 'a', 1000);
        it.db.exec("UPDATE items SET id = 'a', updated_at = 2 WHERE id = 'a'");
        expect(it.all('SELECT count(*) AS n FROM items')).toEqual([{ n: 1 }]);
        await expectSameElsewhere(it);
      });

      test('SET id of every row at once', async () => {
        const it = await start();
        for (const id of ['a', 'b', 'c', 'd']) it.db.exec(insert(id, 1000));
        it.db.exec("UPDATE items SET id = 'moved-' || id");
        expect(it.all('SELECT id FROM items ORDER BY id').map(({ id }) => id)).toEqual([
          ...['moved-a', 'moved-b', 'moved-c', 'moved-d'],
        ]);
        await expectSameElsewhere(it);
      });

      test('SET id onto an id that was deleted ends above its tombstone', async () => {
        const it = await start();
        it.db.exec(insert('dead', 9000));
        it.db.exec("DELETE FROM items WHERE id = 'dead'");
        it.db.exec(insert('a', 1000));
        it.db.exec("UPDATE items SET id = 'dead', updated_at = 2000 WHERE id = 'a'");
        expectAdvanced(it, 'dead', 9000);
        await expectSameElsewhere(it);
      });

      test('UPDATE OR REPLACE onto a living id removes that row and ends above it', async () => {
        const it = await start();
        it.db.exec(insert('a', 1000, 'from a'));
        it.db.exec(insert('b', 8000, 'from b'));
        it.db.exec("UPDATE OR REPLACE items SET id = 'b', updated_at = 2000 WHERE id = 'a'");
        expect(it.all('SELECT id, name FROM items')).toEqual([{ id: 'b', name: 'from a' }]);
        expectAdvanced(it, 'b', 8000);
        await expectSameElsewhere(it);
      });

      test('a trigger of the application that writes other synced rows is captured with them', async () => {
        const it = await origin({ schema: `${ITEMS}; ${LOG}`, tables: ['items', 'log'] });
        it.db.exec(`PRAGMA recursive_triggers = ${recursive}`);
        it.db.exec(insert('a'));
        it.db.exec("UPDATE items SET name = 'noted', updated_at = 2000");
        it.db.exec("UPDATE items SET name = 'forgotten'");
        expect(it.all('SELECT DISTINCT what FROM log ORDER BY what')).toEqual([
          { what: 'forgotten' },
          { what: 'noted' },
        ]);
        await expectSameElsewhere(it);
      });
    });
  }
});
