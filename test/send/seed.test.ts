/** A seed is a comparison first: what the peer has is not sent again. */
import { expect, test } from 'vitest';
import { beginSeed } from '../../src/send/peers.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { type Pair, pair, silently, THERE } from '../compare/pairs.ts';
import type { TestDatabase } from '../support/lane.ts';
import { exactRows, ITEMS, rowsOf } from '../support/nodes.ts';

const T = 1_600_000_000_000;

function fill(db: TestDatabase, rows: number, from = 0): void {
  db.exec(
    `WITH RECURSIVE n(i) AS (SELECT ${from} UNION ALL SELECT i + 1 FROM n WHERE i < ${from + rows - 1}) ` +
      `INSERT INTO items SELECT printf('row-%06d', i), 'name ' || i, i, 1, ${T} + i FROM n`,
  );
}

/** Both have the same, and each knows that the other is a Rowcast. */
async function acquainted(rows: number, config: NonNullable<Parameters<typeof pair>[0]['config']> = {}): Promise<Pair> {
  const the = await pair({ here: ITEMS, config });
  the.link.up = true;
  the.here.exec("INSERT INTO items VALUES ('first', 'x', 1, 1, NULL)");
  await the.manager.flush();
  silently([the.here, the.there], () => {
    fill(the.here, rows);
    fill(the.there, rows);
  });
  return the;
}

function seed(the: Pair): void {
  const db = new Connection(the.here);
  db.transaction(() => beginSeed(db, THERE, the.clock.now(), 'manual'));
  db.release();
  the.requests.length = 0;
}

const sent = (the: Pair, path: string): number => the.requests.filter((one) => one.path === path).length;
const stateOf = (the: Pair) => rowsOf(the.here, 'SELECT tail_from, snapshot_table FROM _peer_state');

test('a peer that has everything is sent nothing', async () => {
  const the = await acquainted(5_000);
  seed(the);
  expect(the.manager.health().peer_states[0]).toMatchObject({ snapshot: true });
  expect(await the.manager.flush()).toMatchObject({ delivered: [THERE] });
  expect(sent(the, '/sync')).toBe(0);
  expect(sent(the, '/sync/compare')).toBe(2);
  expect(stateOf(the)).toEqual([{ tail_from: null, snapshot_table: null }]);
  expect(the.manager.health().peer_states[0]).toMatchObject({ snapshot: false, pending: 0 });
});

test('only what is newer here is sent, what is newer there is fetched, and then come the changes', {
  tags: 'long',
}, async () => {
  const the = await acquainted(5_000);
  silently([the.there], () => {
    the.there.exec('DELETE FROM items WHERE value IN (17, 3000)');
    the.there.exec("UPDATE items SET name = 'older', updated_at = 5 WHERE id = 'row-002000'");
    the.there.exec("UPDATE items SET name = 'newer', updated_at = updated_at + 1 WHERE id = 'row-004000'");
    the.there.exec(`INSERT INTO items VALUES ('zzz', 'only there', 1, 1, ${T})`);
  });
  silently([the.here], () => the.here.exec(`INSERT INTO _tombstones VALUES ('items', 'deleted', ${T})`));
  seed(the);
  the.here.exec("INSERT INTO items VALUES ('written', 'meanwhile', 1, 1, NULL)");
  const acked: number[] = [];
  the.manager.on('acked', ({ changes }) => acked.push(changes));
  await the.manager.flush();
  expect(acked.reduce((sum, n) => sum + n, 0)).toBeLessThanOrEqual(6);
  expect(exactRows(the.here, 'items')).toEqual(exactRows(the.there, 'items'));
  expect(rowsOf(the.there, "SELECT version FROM _tombstones WHERE row_id = 'deleted'")).toEqual([{ version: T }]);
  expect(rowsOf(the.here, "SELECT name FROM items WHERE id = 'row-004000'")).toEqual([{ name: 'newer' }]);
  expect(rowsOf(the.here, "SELECT name FROM items WHERE id = 'zzz'")).toEqual([{ name: 'only there' }]);
  expect(stateOf(the)).toEqual([{ tail_from: null, snapshot_table: null }]);
});

test('where the peer has nothing more, everything is sent as in a snapshot', async () => {
  const the = await acquainted(3_000, { batchSize: 1_000 });
  silently([the.here], () => fill(the.here, 4_000, 3_000));
  seed(the);
  await the.manager.flush();
  // The first one is the end of the range in which the peer's own rows end.
  expect(sent(the, '/sync')).toBe(5);
  expect(sent(the, '/sync/compare')).toBe(4);
  expect(exactRows(the.here, 'items')).toEqual(exactRows(the.there, 'items'));
});

test('a peer that differs everywhere gets all of it, in batches no larger than any', { tags: 'long' }, async () => {
  const the = await acquainted(3_000, { batchSize: 700 });
  silently([the.there], () => the.there.exec("UPDATE items SET name = 'old', updated_at = updated_at - 1"));
  seed(the);
  const acked: number[] = [];
  the.manager.on('acked', ({ changes }) => acked.push(changes));
  await the.manager.flush();
  expect(Math.max(...acked)).toBeLessThanOrEqual(700);
  expect(acked.reduce((sum, n) => sum + n, 0)).toBe(3_001);
  expect(exactRows(the.here, 'items')).toEqual(exactRows(the.there, 'items'));
});

test('where nearly all differs the rest is given without many questions, and where it no longer does they are asked', {
  tags: 'long',
}, async () => {
  const asked = async (rows: number, which: string): Promise<[number, number]> => {
    const the = await acquainted(rows, { batchSize: 20 });
    silently([the.there], () =>
      the.there.exec(`UPDATE items SET name = 'old', updated_at = updated_at - 1 WHERE ${which}`),
    );
    seed(the);
    let changes = 0;
    the.manager.on('acked', (acked) => {
      changes += acked.changes;
    });
    await the.manager.flush();
    expect(exactRows(the.here, 'items')).toEqual(exactRows(the.there, 'items'));
    return [changes, sent(the, '/sync/compare')];
  };
  const [changes, questions] = await asked(4_000, 'true');
  expect(changes).toBe(4_001);
  // 200 ranges: 16 are asked for, 16 not, 16 asked for, 32 not, 16 asked for, 64 not, 16 asked for, 24 not.
  expect(questions).toBeLessThanOrEqual(1 + 4 * 4 + 2);
  // The first 16 ranges differ, and so many more are given; of all others the peer is asked, and is sent nothing.
  const [few] = await asked(2_000, 'value < 320');
  expect(few).toBeGreaterThan(320);
  expect(few).toBeLessThan(800);
});

test('the position survives the end of the process', { tags: 'long' }, async () => {
  const the = await acquainted(20_000, { batchSize: 250 });
  const missing = 'value IN (100, 6000, 11000, 16000)';
  silently([the.there], () => the.there.exec(`DELETE FROM items WHERE ${missing}`));
  seed(the);
  // The link breaks after the first batch that the comparison has brought about.
  const off = the.manager.on('acked', () => {
    the.link.up = false;
  });
  await the.manager.flush();
  off();
  const arrived = Number(rowsOf(the.there, `SELECT count(*) AS n FROM items WHERE ${missing}`)[0]?.n);
  expect([1, 2]).toContain(arrived);
  const [{ snapshot_table, snapshot_after }] = rowsOf(the.here, 'SELECT * FROM _peer_state') as [
    Record<string, string>,
  ];
  expect(snapshot_table).toBe('compare:items');
  expect(String(snapshot_after) > 'row-000100').toBe(true);
  the.link.up = true;
  the.requests.length = 0;
  await the.manager.flush();
  expect(exactRows(the.here, 'items')).toEqual(exactRows(the.there, 'items'));
});

test('a peer that has no such page is given the snapshot', async () => {
  const the = await acquainted(1_500);
  the.plain = true;
  seed(the);
  await the.manager.flush();
  expect(the.requests.filter(({ path }) => path === '/sync').length).toBe(2);
  expect(stateOf(the)).toEqual([{ tail_from: null, snapshot_table: null }]);
});

test('a peer that fails to answer is given everything that it cannot speak of', async () => {
  const the = await acquainted(1_500);
  the.failing = true;
  silently([the.there], () => the.there.exec('DELETE FROM items WHERE value = 100'));
  seed(the);
  await the.manager.flush();
  expect(exactRows(the.here, 'items')).toEqual(exactRows(the.there, 'items'));
  expect(stateOf(the)).toEqual([{ tail_from: null, snapshot_table: null }]);
});
