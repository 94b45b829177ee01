/** Both sides are written to, over real sockets and in real time: what is on its way is no difference. */
import { expect, test } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import { attach, type Manager } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database, ITEMS, serve, until } from '../support/nodes.ts';

const DENSE = 80;

async function meshOfTwo(): Promise<{ dbs: TestDatabase[]; managers: Manager[]; urls: string[] }> {
  const dbs = [await database(ITEMS), await database(ITEMS)];
  const managers: Manager[] = [];
  const urls: string[] = [];
  for (const index of [0, 1]) {
    urls.push(await serve((request, response) => createListener(managers[index] as Manager)(request, response)));
  }
  for (const [index, db] of dbs.entries()) {
    const manager = attach(db, { maxAheadMs: 0, id: `n${index}`, peers: [urls[1 - index] as string], batchMs: 5 }, [
      'items',
    ]);
    cleanUp(() => manager.stop());
    managers.push(manager);
  }
  return { dbs, managers, urls };
}

function fill(db: TestDatabase, rows: number): void {
  db.exec(
    `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${rows}) ` +
      "INSERT INTO items SELECT printf('row-%05d', i), 'x', i, 1, NULL FROM n",
  );
}

/**
 * Writes to both until the promise is settled: hot rows, new ones, deletions. They are dense while all is looked at for the
 * first time, so that some are on their way then, and go on while those are looked at again, after a while.
 */
async function whileWriting<T>(dbs: TestDatabase[], work: Promise<T>): Promise<{ result: T; writes: number }> {
  let over = false;
  let writes = 0;
  const name = `new-${Math.random()}`;
  const done = work.finally(() => {
    over = true;
  });
  while (!over) {
    const db = dbs[writes % 2] as TestDatabase;
    const id = `row-0${String((writes * 37) % 2_900).padStart(4, '0')}`;
    db.exec(`UPDATE items SET value = value + 1 WHERE id IN ('row-00001', '${id}')`);
    db.exec(`INSERT INTO items VALUES ('${name}-${writes}', 'x', 1, 1, NULL)`);
    if (writes % 5 === 0) db.exec(`DELETE FROM items WHERE id = '${name}-${writes - 50}'`);
    writes += 1;
    await new Promise((resolve) => setTimeout(resolve, writes < DENSE ? 5 : 25));
  }
  return { result: await done, writes };
}

test('writes that go on make no difference, and a real one among them is found and repaired', async () => {
  const { dbs, managers, urls } = await meshOfTwo();
  const [db, other] = dbs as [TestDatabase, TestDatabase];
  const manager = managers[0] as Manager;
  fill(db, 3_000);
  await manager.flush();
  const calm = await whileWriting(dbs, manager.verify(urls[1]));
  expect(calm.writes).toBeGreaterThan(20);
  expect(calm.result[0]?.error).toBeUndefined();
  expect(calm.result[0]).toMatchObject({ differences: 0 });
  // Now one that nobody knows of.
  other.exec(
    "BEGIN; UPDATE _meta SET value = 1 WHERE key = 'syncing'; UPDATE items SET name = 'zz' WHERE id = 'row-02999'",
  );
  other.exec("DELETE FROM items WHERE id = 'row-02998'; UPDATE _meta SET value = 0 WHERE key = 'syncing'; COMMIT");
  const found = await whileWriting(dbs.slice(0, 1).concat(db), manager.verify(urls[1], { repair: true }));
  expect(found.result[0]?.error).toBeUndefined();
  const listed = found.result[0]?.tables[0]?.list.map(({ id }) => id);
  expect(listed).toEqual(expect.arrayContaining(['row-02998']));
  expect(found.result[0]).toMatchObject({ repaired: found.result[0]?.differences });
  await Promise.all(managers.map((one) => one.flush()));
  await until('both are drained', () => managers.every((one) => one.health().pending_changes === 0));
  expect((await manager.verify(urls[1]))[0]).toMatchObject({ equal: true, differences: 0 });
});
