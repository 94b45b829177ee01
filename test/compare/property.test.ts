/** Two databases of random writes: a comparison with repair makes of them what the version order says, and no more. */
import { expect, test } from 'vitest';
import { createHub } from '../../src/hub/hub.ts';
import { draws } from '../support/draws.ts';
import { Random } from '../support/model.ts';
import { cleanUp, database, node, rowsOf, type TestNode } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { pair, THERE, wayTo } from './pairs.ts';

const T = 4_000_000_000_000;
const SCHEMA = 'CREATE TABLE items (id TEXT PRIMARY KEY, u TEXT UNIQUE, n NUMERIC, b BLOB, updated_at INTEGER)';
const IDS = ['', 'a', 'A', 'b', 'c\u0000', '$text:$blob:x', '$blob:00FF', 'z', '😀'];
const NUMBERS = [null, 0, 1, 1.5, '9007199254740993', 'text'];
const BLOBS = [null, 1, 1.5, '$blob:00', '$int:9223372036854775807', '$text:$int:1', 'x'];

type Change = { op: 'UPDATE' | 'DELETE'; table: string; row: Record<string, unknown>; old_id: string | null };

function randomChange(random: Random): Change {
  const pick = <V>(from: V[]): V => from[Math.floor(random.next() * from.length)] as V;
  const id = pick(IDS);
  const updated_at = T + Math.floor(random.next() * 4);
  if (random.next() < 0.25) return { op: 'DELETE', table: 'items', row: { id, updated_at }, old_id: id };
  const row = { id, u: pick([null, null, 'p', 'q']), n: pick(NUMBERS), b: pick(BLOBS), updated_at };
  return { op: 'UPDATE', table: 'items', row, old_id: null };
}

function stateOf(db: TestNode['db']): unknown {
  return {
    rows: rowsOf(
      db,
      'SELECT quote(id) AS k, quote(u) AS u, quote(n) AS n, quote(b) AS b, updated_at FROM items ORDER BY k',
    ),
    tombstones: rowsOf(
      db,
      'SELECT quote(row_id) AS k, version FROM _tombstones WHERE row_id NOT IN (SELECT id FROM items) ' +
        'AND row_id NOT IN (SELECT row_id FROM _hidden) ORDER BY k',
    ),
    hidden: rowsOf(db, 'SELECT quote(row_id) AS k, version, row_data FROM _hidden ORDER BY k'),
  };
}

const SEEDS = Array.from({ length: draws(20) }, (_, i) => i + 1);

test.each(SEEDS)('between two nodes, seed %i', async (seed) => {
  const random = new Random(seed);
  const mine = Array.from({ length: 15 }, () => randomChange(random));
  const yours = Array.from({ length: 15 }, () => randomChange(random));
  const the = await pair({ here: SCHEMA });
  the.manager.applyChanges(mine);
  the.other.applyChanges(yours);
  the.link.up = true;
  const [found] = await the.manager.verify(THERE);
  const [mended] = await the.manager.verify(THERE, { repair: true });
  expect(mended).toMatchObject({ equal: true, differences: found?.differences, repaired: found?.differences });
  const expected = await node({ schema: SCHEMA });
  expected.manager.applyChanges([...mine, ...yours]);
  expect(stateOf(the.here)).toEqual(stateOf(expected.db));
  expect(stateOf(the.there)).toEqual(stateOf(expected.db));
  expect((await the.manager.verify(THERE))[0]).toMatchObject({ equal: true, differences: 0 });
  expect((await the.other.verify())[0]).toMatchObject({ equal: true, differences: 0 });
});

test.each(SEEDS)('between a node and a hub, asked from either side, seed %i', async (seed) => {
  const random = new Random(seed + 1_000);
  const mine = Array.from({ length: 15 }, () => randomChange(random));
  const yours = Array.from({ length: 15 }, () => randomChange(random));
  const clock = new VirtualClock((ms) => ms < 30_000);
  // Nothing is shipped: what gets across gets there by the comparison.
  const link = { up: false };
  const to = wayTo(link);
  const get = (): Promise<never> => Promise.reject(new Error('nobody'));
  const store = await database('SELECT 1');
  const hub = await createHub(store, {
    id: 'hub',
    edges: ['http://edge'],
    clock,
    maxAheadMs: 0,
    batchMs: 3_600_000,
    fetch: to(() => edge.manager),
    get,
  });
  cleanUp(() => hub.stop());
  const edge = await node({
    schema: SCHEMA,
    id: 'edge',
    peers: ['http://hub'],
    clock,
    batchMs: 3_600_000,
    fetch: to(() => hub),
  });
  edge.manager.applyChanges(mine);
  await hub.receive(JSON.stringify({ batch_id: 1, changes: yours }), { from: 'other', said: 'id=other' });
  link.up = true;
  const asker = seed % 2 === 0 ? hub : edge.manager;
  const [mended] = await asker.verify(undefined, { repair: true });
  expect(mended?.error).toBeUndefined();
  expect(mended).toMatchObject({ equal: true });
  const expected = await node({ schema: SCHEMA });
  expected.manager.applyChanges([...mine, ...yours]);
  expect(stateOf(edge.db)).toEqual(stateOf(expected.db));
  for (const side of [hub, edge.manager]) {
    expect((await side.verify())[0]).toMatchObject({ equal: true, differences: 0 });
  }
});
