/** Rowcast beside an implementation that knows the specification and nothing of ours. */
import { expect, test } from 'vitest';
import { draws } from './support/draws.ts';
import { exactRows, ITEMS, node, serveManager, type TestNode } from './support/nodes.ts';
import { type PlainPeer, plainPeer } from './support/plain-peer.ts';

interface Pair {
  ours: TestNode;
  plain: PlainPeer;
  /** Ships both ways until both are quiet. */
  exchange(): Promise<void>;
  seen: string[];
}

async function pair(): Promise<Pair> {
  const seen: string[] = [];
  const plain = await plainPeer(seen);
  const ours = await node({ id: 'ours', peers: [plain.url], batchMs: 3_600_000 });
  const url = await serveManager(ours.manager);
  const exchange = async (): Promise<void> => {
    expect((await ours.manager.flush()).unreachable).toEqual([]);
    await plain.ship(url);
    expect((await ours.manager.flush()).unreachable).toEqual([]);
  };
  return { ours, plain, exchange, seen };
}

function expectEqual({ ours, plain }: Pair): void {
  expect(exactRows(ours.db, 'items')).toEqual(exactRows(plain.db, 'items'));
  expect(ours.all('SELECT * FROM _changes')).toEqual([]);
  expect(ours.manager.health()).toMatchObject({ ok: true, dead_letter: 0, pending_changes: 0 });
}

test('inserts, updates and deletes made here arrive at a plain peer', async () => {
  const both = await pair();
  const { ours, plain } = both;
  ours.db.exec(
    "INSERT INTO items VALUES ('a', 'first', 1, 10, 1000), ('b', 'second', 2, 10, 1000), ('c', NULL, NULL, 1, 1)",
  );
  await both.exchange();
  expectEqual(both);
  ours.db.exec("UPDATE items SET name = 'changed', updated_at = 2000 WHERE id = 'a'; DELETE FROM items WHERE id = 'b'");
  await both.exchange();
  expectEqual(both);
  expect(exactRows(plain.db, 'items')).toHaveLength(2);
});

test('inserts, updates and deletes made at a plain peer arrive here', async () => {
  const both = await pair();
  const { ours, plain } = both;
  plain.db.exec(
    "INSERT INTO items VALUES ('a', 'first', 1, 10, 1000), ('b', 'second', 2, 10, 1000), ('c', NULL, NULL, 1, 1)",
  );
  await both.exchange();
  expectEqual(both);
  plain.db.exec(
    "UPDATE items SET name = 'changed', updated_at = 2000 WHERE id = 'a'; DELETE FROM items WHERE id = 'b'",
  );
  await both.exchange();
  expectEqual(both);
  expect(exactRows(ours.db, 'items')).toHaveLength(2);
});

test('nothing that was received is sent back', async () => {
  const both = await pair();
  both.plain.db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
  await both.exchange();
  expect(both.seen).toEqual([]);
  both.ours.db.exec("UPDATE items SET name = 'changed', updated_at = 2000");
  await both.exchange();
  expect(both.seen).toHaveLength(1);
});

test('writes on both sides at once: the later updated_at stands on both', async () => {
  const both = await pair();
  const { ours, plain } = both;
  ours.db.exec(
    "INSERT INTO items VALUES ('a', 'x', 1, 10, 1000), ('b', 'x', 1, 10, 1000), ('c', 'x', 1, 10, 1000), ('d', 'x', 1, 10, 1000)",
  );
  await both.exchange();
  ours.db.exec("UPDATE items SET name = 'ours', updated_at = 3000 WHERE id = 'a'");
  plain.db.exec("UPDATE items SET name = 'plain', updated_at = 2000 WHERE id = 'a'");
  ours.db.exec("UPDATE items SET name = 'ours', updated_at = 2000 WHERE id = 'b'");
  plain.db.exec("UPDATE items SET name = 'plain', updated_at = 3000 WHERE id = 'b'");
  // An update beats the deletion of an older version, on whichever side either was made.
  ours.db.exec("DELETE FROM items WHERE id = 'c'");
  plain.db.exec("UPDATE items SET name = 'plain', updated_at = 3000 WHERE id = 'c'");
  ours.db.exec("UPDATE items SET name = 'ours', updated_at = 3000 WHERE id = 'd'");
  plain.db.exec("DELETE FROM items WHERE id = 'd'");
  await both.exchange();
  await both.exchange();
  expectEqual(both);
  expect(ours.all('SELECT id, name FROM items ORDER BY id')).toEqual([
    { id: 'a', name: 'ours' },
    { id: 'b', name: 'plain' },
    { id: 'c', name: 'plain' },
    { id: 'd', name: 'ours' },
  ]);
});

test('a deleted row that is inserted again lives again on both sides', async () => {
  const both = await pair();
  const { ours, plain } = both;
  ours.db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
  await both.exchange();
  plain.db.exec("DELETE FROM items WHERE id = 'a'");
  await both.exchange();
  expect(ours.all('SELECT * FROM items')).toEqual([]);
  ours.db.exec("INSERT INTO items VALUES ('a', 'again', 1, 10, 1000)");
  await both.exchange();
  expectEqual(both);
  expect(exactRows(plain.db, 'items')).toHaveLength(1);
});

test('what a plain peer receives is exactly the specified batch', async () => {
  const both = await pair();
  both.ours.db.exec(
    "INSERT INTO items VALUES ('a', 'first', 1, 10, 1000); UPDATE items SET value = 2, updated_at = 2000; DELETE FROM items",
  );
  await both.exchange();
  const row = { id: 'a', name: 'first', value: 1, created_at: 10, updated_at: 1000 };
  const changed = { ...row, value: 2, updated_at: 2000 };
  expect(both.seen.map((body) => JSON.parse(body))).toEqual([
    {
      batch_id: 3,
      changes: [
        { op: 'INSERT', table: 'items', row, old_id: null },
        { op: 'UPDATE', table: 'items', row: changed, old_id: null },
        { op: 'DELETE', table: 'items', row: changed, old_id: 'a' },
      ],
    },
  ]);
});

test('rows from before the first attach reach a plain peer, with a batch_id it can echo', async () => {
  const seen: string[] = [];
  const plain = await plainPeer(seen);
  const schema = `${ITEMS};
    INSERT INTO items VALUES ('a', 'first', 1, 10, 1000), ('b', 'second', 2, 10, 1000)`;
  const ours = await node({ id: 'ours', schema, peers: [plain.url], batchMs: 3_600_000 });
  expect((await ours.manager.flush()).unreachable).toEqual([]);
  expect(exactRows(plain.db, 'items')).toEqual(exactRows(ours.db, 'items'));
  for (const body of seen) {
    const { batch_id } = JSON.parse(body) as { batch_id: unknown };
    expect(Number.isInteger(batch_id)).toBe(true);
    // Zero is false to many a hand-written check for a missing field.
    expect(batch_id).toBeGreaterThan(0);
  }
});

test('values that JSON cannot carry are stored as something sensible by a plain peer', async () => {
  const both = await pair();
  const { ours, plain } = both;
  ours.db.exec("INSERT INTO items VALUES ('big', 'n', 9007199254740993, 10, 1000), ('text', 'ünï €', 1, 10, 1000)");
  await both.exchange();
  // The column's INTEGER affinity turns the decimal string back into the number.
  expect(exactRows(plain.db, 'items')).toEqual(exactRows(ours.db, 'items'));
});

test('a lost answer of a plain peer costs nothing: the same batch again ends equal', async () => {
  const both = await pair();
  const { ours, plain } = both;
  plain.db.exec(
    "INSERT INTO items VALUES ('a', 'first', 1, 10, 1000), ('b', 'second', 2, 10, 1000); DELETE FROM items WHERE id = 'b'",
  );
  const url = await serveManager(ours.manager);
  const pending = plain.db.prepare('SELECT count(*) AS n FROM _changes').get() as { n: number };
  expect(pending.n).toBe(3);
  plain.db.exec('CREATE TABLE kept AS SELECT * FROM _changes');
  await plain.ship(url);
  plain.db.exec('INSERT INTO _changes SELECT * FROM kept');
  await plain.ship(url);
  await both.exchange();
  expectEqual(both);
});

test('random writes on both sides, shipped now and then, end equal', async () => {
  const both = await pair();
  const { ours, plain } = both;
  let state = 20_240_229;
  const random = (n: number): number => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) % n;
  };
  // Every write has a time of its own: what a plain peer does with ties and with deletions it has forgotten is its own.
  let time = 1_000;
  for (let i = 0; i < draws(1_000); i++) {
    const { db } = random(2) === 0 ? ours : plain;
    time += 1 + random(3);
    const id = `row-${random(40)}`;
    const kind = random(10);
    if (kind < 5)
      db.exec(
        `INSERT INTO items VALUES ('${id}', 'n${i}', ${i}, ${time}, ${time}) ON CONFLICT (id) DO UPDATE SET name = excluded.name, value = excluded.value, updated_at = excluded.updated_at`,
      );
    else if (kind < 8) db.exec(`UPDATE items SET name = 'u${i}', updated_at = ${time} WHERE id = '${id}'`);
    else {
      // A delete carries the row's last time; between nodes that write one row at once it must first be the latest.
      await both.exchange();
      db.exec(`DELETE FROM items WHERE id = '${id}'`);
      await both.exchange();
    }
    if (random(25) === 0) await both.exchange();
  }
  await both.exchange();
  await both.exchange();
  expectEqual(both);
  expect(exactRows(ours.db, 'items').length).toBeGreaterThan(5);
});
