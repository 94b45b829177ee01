/** A group that is begun anew with an empty database loses old names as a hub does: test/hub/begun-anew.test.ts. */
import { describe, expect, test } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import { groupHub } from '../support/groups.ts';
import { door, edge, quiet } from '../support/hubs.ts';
import { rowsOf, until } from '../support/nodes.ts';
import { hasPostgres, newDatabase, postgresServer, query } from '../support/postgres.ts';

const T = 1_700_000_000_000;

describe.skipIf(!hasPostgres)('a group', () => {
  const server = postgresServer();

  test('is filled by its nodes under the names that they send now', async () => {
    const urls = [await newDatabase(server()), await newDatabase(server())] as const;
    const [atA, atB] = [await door(), await door()];
    const edges = [atA.url, atB.url];
    const first = await groupHub(urls[0], { edges });
    const options = {
      schema: 'CREATE TABLE orders (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)',
      tables: ['orders'],
    };
    const a = await edge('a', [first.door.url], atA, options);
    const b = await edge('b', [first.door.url], atB, options);
    a.db.exec(`INSERT INTO orders VALUES ('kept', 'last year', ${T}), ('erased', 'of a PERSON', ${T})`);
    await until('it is there', () => rowsOf(b.db, 'SELECT 1 FROM orders').length === 2);
    for (const { manager } of [a, b]) {
      manager.migrate('ALTER TABLE orders RENAME TO archive', { renameTable: { orders: 'archive' } });
    }
    await quiet([first.hub], [a, b]);
    for (const { manager } of [a, b]) manager.aliases.drop();
    a.db.exec("DELETE FROM archive WHERE id = 'erased'");
    await until('the deletion is there', () => rowsOf(b.db, 'SELECT 1 FROM archive').length === 1);
    await quiet([first.hub], [a, b]);
    const kept = async (url: string): Promise<unknown[]> =>
      await query(url, 'SELECT table_name, row_id, op FROM rowcast.rows ORDER BY table_name, row_id');
    expect(await kept(urls[0])).toHaveLength(3);

    first.door.close();
    await first.hub.stop();
    const second = await groupHub(urls[1], { edges });
    first.door.open(createListener(second.hub));
    await until('the nodes have filled it', async () => (await kept(urls[1])).length >= 2);
    await quiet([second.hub], [a, b]);
    expect(await kept(urls[1])).toEqual([
      { table_name: 'archive', row_id: 'erased', op: 'DELETE' },
      { table_name: 'archive', row_id: 'kept', op: expect.stringMatching(/INSERT|UPDATE/) },
    ]);
    expect(rowsOf(b.db, 'SELECT id FROM archive')).toEqual([{ id: 'kept' }]);
  });
});
