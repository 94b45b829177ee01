/** Ids and values that are not UTF-8: JavaScript would make one of several, and what is one is not compared. */
import { expect, test } from 'vitest';
import { createHub } from '../../src/hub/hub.ts';
import type { Manager } from '../../src/index.ts';
import { beginSeed } from '../../src/send/peers.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database, node, rowsOf } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { type Pair, pair, silently, THERE, wayTo } from './pairs.ts';

const T = 1_700_000_000_000;
const SCHEMA = 'CREATE TABLE items (id TEXT PRIMARY KEY, v TEXT, updated_at INTEGER)';
/** As hexadecimal digits: single bytes, halves of characters, overlong ones, with a prefix of the wire's, among others. */
const ODD = ['FF', 'FE', '61FF', '61FE', 'C3', '2180', 'EDA080', 'C0AF', '24626C6F623AFF', '2462797465733AFF', '24FF'];
const PLAIN = ['', '61', '62', 'C3A9', '7A', 'F09F9880', '2462797465733A4646'];
const IDS = [...ODD, ...PLAIN];

const text = (hex: string): string => `CAST(x'${hex}' AS TEXT)`;
const put = (db: TestDatabase, id: string, v: string, at: number): void => {
  db.exec(`INSERT INTO items VALUES (${text(id)}, ${text(v)}, ${at})`);
};
const entomb = (db: TestDatabase, id: string, at: number): void => {
  db.exec(`INSERT INTO _tombstones VALUES ('items', ${text(id)}, ${at})`);
};

function stateOf(db: TestDatabase): unknown {
  return {
    rows: rowsOf(db, 'SELECT hex(id) AS id, hex(v) AS v, updated_at FROM items ORDER BY id'),
    dead: rowsOf(
      db,
      'SELECT hex(row_id) AS id, version FROM _tombstones WHERE row_id NOT IN (SELECT id FROM items) ORDER BY row_id',
    ),
  };
}

/** Of every id one of: the same, newer here, newer there, only here, only there, deleted here, deleted there. */
function fill(here: TestDatabase, there: TestDatabase): number {
  let differences = 0;
  IDS.forEach((id, i) => {
    const kind = i % 7;
    if (kind > 0) differences += 1;
    if (kind !== 4 && kind !== 5) put(here, id, 'FF', T + (kind === 1 ? 1 : 0));
    if (kind !== 3 && kind !== 6) put(there, id, 'FF', T + (kind === 2 ? 1 : 0));
    if (kind === 5) entomb(here, id, T + 5);
    if (kind === 6) entomb(there, id, T + 5);
  });
  return differences;
}

test('ids that are not UTF-8 are told apart, named as they travel, and repaired', async () => {
  let expected = 0;
  const the = await pair({
    here: SCHEMA,
    fill: (here, there) => {
      expected = fill(here, there);
    },
  });
  the.link.up = true;
  const [found] = await the.manager.verify(THERE);
  expect(found).toMatchObject({ equal: false, differences: expected });
  expect(found?.error).toBeUndefined();
  expect(found?.tables[0]?.list.map(({ id }) => id)).toContain('$bytes:FE');
  expect((await the.manager.verify(THERE, { repair: true }))[0]).toMatchObject({ equal: true, repaired: expected });
  expect(stateOf(the.here)).toEqual(stateOf(the.there));
  expect(rowsOf(the.here, 'SELECT count(*) AS n FROM items')).not.toEqual([{ n: 0 }]);
  expect((await the.manager.verify(THERE))[0]).toMatchObject({ equal: true, differences: 0 });
  expect((await the.other.verify())[0]).toMatchObject({ equal: true, differences: 0 });
  // What was fetched was brought by nobody: whoever is removed later had nothing that only this one got.
  expect(rowsOf(the.here, "SELECT key FROM _meta WHERE key = 'plain_brought'")).toEqual([]);
});

test('two values that differ only in bytes that are no characters are two values', async () => {
  const the = await pair({
    here: SCHEMA,
    fill: (here, there) => {
      put(here, '61', 'FF', T);
      put(there, '61', 'FE', T);
    },
  });
  the.link.up = true;
  expect((await the.manager.verify(THERE, { repair: true }))[0]).toMatchObject({ differences: 1, repaired: 1 });
  expect(stateOf(the.here)).toEqual(stateOf(the.there));
});

test('a seed brings them across, and sends nothing that is there already', async () => {
  const the: Pair = await pair({ here: SCHEMA });
  the.link.up = true;
  the.here.exec("INSERT INTO items VALUES ('first', 'x', NULL)");
  await the.manager.flush();
  silently([the.here, the.there], () => fill(the.here, the.there));
  const again = async (): Promise<number> => {
    const db = new Connection(the.here);
    db.transaction(() => beginSeed(db, THERE, the.clock.now(), 'manual'));
    db.release();
    the.requests.length = 0;
    await the.manager.flush();
    return the.requests.filter(({ path }) => path === '/sync').length;
  };
  expect(await again()).toBeGreaterThan(0);
  expect(stateOf(the.here)).toEqual(stateOf(the.there));
  expect(await again()).toBe(0);
});

test.each(['hub', 'edge'])('between a node and a hub, asked by the %s', async (by) => {
  const clock = new VirtualClock((ms) => ms < 30_000);
  const link = { up: false };
  const to = wayTo(link);
  const common = { clock, batchMs: 3_600_000 };
  const hub = await createHub(await database('SELECT 1'), {
    ...common,
    id: 'hub',
    edges: ['http://edge'],
    fetch: to(() => edge.manager),
    get: () => Promise.reject(new Error('nobody')),
  });
  cleanUp(() => hub.stop());
  const edge = await node({ ...common, schema: SCHEMA, id: 'edge', peers: ['http://hub'], fetch: to(() => hub) });
  const other = await node({ schema: SCHEMA, id: 'other' });
  silently([edge.db, other.db], () => fill(edge.db, other.db));
  const wire = (replica: Manager): Promise<string> =>
    replica.answer('/sync/fetch', JSON.stringify({ table: 'items', ids: IDS.map(wireOf) })).then(({ body }) => body);
  await hub.receive(await wire(other.manager), { from: 'other', said: 'id=other' });
  link.up = true;
  const asker = by === 'hub' ? hub : edge.manager;
  const [mended] = await asker.verify(undefined, { repair: true });
  expect(mended?.error).toBeUndefined();
  expect(mended).toMatchObject({ equal: true });
  expect(mended?.differences).toBeGreaterThan(0);
  // What either had, by the version order, and nothing else.
  const expected = await node({ schema: SCHEMA, id: 'expected' });
  silently([expected.db], () => fill(expected.db, nobody()));
  expected.manager.receive(await wire(other.manager), { from: 'x', said: 'id=x' });
  expect(stateOf(edge.db)).toEqual(stateOf(expected.db));
  for (const side of [hub, edge.manager]) {
    expect((await side.verify())[0]).toMatchObject({ equal: true, differences: 0 });
  }
});

/** A database that takes what is meant for the other side. */
function nobody(): TestDatabase {
  return { exec: () => {} } as unknown as TestDatabase;
}

function wireOf(hex: string): string {
  const bytes = Buffer.from(hex, 'hex');
  const decoded = bytes.toString();
  if (!Buffer.from(decoded).equals(bytes)) return `$bytes:${hex}`;
  return decoded.startsWith('$bytes:') ? `$text:${decoded}` : decoded;
}
