/** What the file of a node says of it. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { statusOffline } from '../../src/cli/offline.ts';
import { openDatabase } from '../support/lane.ts';
import { ITEMS, node, scratchFolder } from '../support/nodes.ts';

const THINGS = 'CREATE TABLE Things (id TEXT PRIMARY KEY, updated_at INTEGER)';

test('a table that is not captured any more is a problem, and so is one that is gone', async () => {
  const path = join(scratchFolder(), 'a.db');
  const { db, manager } = await node({ path, schema: `${ITEMS}; ${THINGS}`, tables: ['items', 'Things'] });
  db.exec("INSERT INTO Things VALUES ('x', 1), ('y', 1); DELETE FROM Things WHERE id = 'y'");
  await manager.stop();
  // The program may open the file with another binding than this lane's: two SQLites in one process take no heed of each
  // other's locks.
  db.close();
  expect(statusOffline(path, undefined)).toMatchObject({
    ok: true,
    problems: [],
    tables: [
      { name: 'Things', rows: 1, tombstones: 1 },
      { name: 'items', rows: 0, tombstones: 0 },
    ],
  });
  const again = await openDatabase(path);
  again.exec('CREATE TABLE new_things (id TEXT PRIMARY KEY, updated_at INTEGER)');
  again.exec('INSERT INTO new_things SELECT * FROM Things; DROP TABLE Things; ALTER TABLE new_things RENAME TO Things');
  again.exec('DROP TABLE items');
  again.close();
  expect(statusOffline(path, undefined)).toMatchObject({
    ok: false,
    problems: [
      expect.stringMatching(/"items" is gone/),
      expect.stringMatching(/triggers are missing or changed on "things"/),
    ],
    tables: [{ name: 'Things', rows: 1, tombstones: 1 }],
  });
});
