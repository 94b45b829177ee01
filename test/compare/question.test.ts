import { expect, test } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import { createHub } from '../../src/hub/hub.ts';
import { cleanUp, database, ITEMS, node, rowsOf, serve, serveManager } from '../support/nodes.ts';

const COLUMNS = { id: 'TEXT', name: 'TEXT', updated_at: 'INTEGER' };
const asked = (more: object): object => ({
  want: 'hash',
  table: 'items',
  columns: COLUMNS,
  ranges: [[null, null]],
  ...more,
});

const WRONG: [string, string, unknown, number, RegExp][] = [
  ['not JSON', '/sync/compare', '{', 400, /not JSON/],
  ['an array', '/sync/compare', [], 400, /must be a JSON object/],
  ['no want', '/sync/compare', {}, 400, /"want" must be/],
  ['no table', '/sync/compare', asked({ table: undefined }), 400, /"table" must be/],
  ['another table', '/sync/compare', asked({ table: 'nothing' }), 400, /"nothing" is not synced here/],
  ['no columns', '/sync/compare', asked({ columns: undefined }), 400, /"columns" must be/],
  ['an unknown column', '/sync/compare', asked({ columns: { no: 'TEXT' } }), 400, /no column "no"/],
  ['an unknown affinity', '/sync/compare', asked({ columns: { id: 'WORDS' } }), 400, /affinity of column "id"/],
  ['no ranges', '/sync/compare', asked({ ranges: [] }), 400, /1 to 256 pairs/],
  ['too many ranges', '/sync/compare', asked({ ranges: Array(257).fill(['a', 'b']) }), 400, /1 to 256 pairs/],
  ['half a range', '/sync/compare', asked({ ranges: [['a']] }), 400, /range 0 must be a pair/],
  ['a bound that is no id', '/sync/compare', asked({ ranges: [['$blob:zz', null]] }), 400, /range 0 must be a pair/],
  ['a range backwards', '/sync/compare', asked({ ranges: [['b', 'a']] }), 400, /range 0 must begin/],
  [
    'ranges that overlap',
    '/sync/compare',
    asked({
      ranges: [
        ['a', 'c'],
        ['b', 'd'],
      ],
    }),
    400,
    /range 1 must begin/,
  ],
  [
    'ranges after the end',
    '/sync/compare',
    asked({
      ranges: [
        ['a', null],
        ['b', 'c'],
      ],
    }),
    400,
    /range 1 must begin/,
  ],
  ['runs that are none', '/sync/compare', asked({ runs: 'a' }), 400, /"runs" must be/],
  ['a run of one', '/sync/compare', asked({ runs: [['a', 'b'], ['c']] }), 400, /run 1 must be/],
  ['a run that ends in its middle', '/sync/compare', asked({ runs: [['a', null, 'b']] }), 400, /range 1 must begin/],
  [
    'runs that overlap',
    '/sync/compare',
    asked({
      runs: [
        ['a', 'c'],
        ['b', 'd'],
      ],
    }),
    400,
    /range 1 must begin/,
  ],
  ['too many ranges in runs', '/sync/compare', asked({ runs: [Array(258).fill('a')] }), 400, /1 to 256 ranges/],
  ['too many ids', '/sync/fetch', { table: 'items', ids: Array(1_001).fill('a') }, 400, /1 to 1000 ids/],
  ['an id that is none', '/sync/fetch', { table: 'items', ids: ['a', 1] }, 400, /id 1 is not an id as it travels: 1/],
  ['far too much', '/sync/fetch', { table: 'items', ids: ['x'.repeat(4 << 20)] }, 413, /bytes, 4194304 are allowed/],
];

test.each(WRONG)('a question with %s is refused, and says why', async (_, path, body, status, message) => {
  const { manager, db } = await node();
  const before = rowsOf(db, 'SELECT * FROM _meta');
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const answer = await manager.answer(path, text);
  expect(answer.status).toBe(status);
  expect(JSON.parse(answer.body).error).toMatch(message);
  expect(rowsOf(db, 'SELECT * FROM _meta')).toEqual(before);
});

test('the routes are beside /sync, take POST with JSON alone, and are not there where nobody answers', async () => {
  const { manager } = await node();
  const url = await serveManager(manager);
  const ask = (base: string, init: RequestInit): Promise<Response> => fetch(`${base}/sync/compare`, init);
  const post = { method: 'POST', body: '{"want":"tables"}' };
  const json = { 'content-type': 'application/json' };
  expect(await (await ask(url, { ...post, headers: json })).json()).toEqual({
    tables: [
      {
        name: 'items',
        columns: { id: 'TEXT', name: 'TEXT', value: 'INTEGER', created_at: 'INTEGER', updated_at: 'INTEGER' },
        last: null,
      },
    ],
    runs: true,
  });
  expect((await ask(url, { method: 'GET' })).status).toBe(405);
  expect((await ask(url, post)).status).toBe(415);
  const { receive, health, maxBodyBytes } = manager;
  const plain = { receive: receive.bind(manager), health: health.bind(manager), maxBodyBytes };
  expect((await ask(await serve(createListener(plain)), { ...post, headers: json })).status).toBe(404);
  await manager.stop();
  expect((await ask(url, { ...post, headers: json })).status).toBe(503);
});

test('a fetch is an ordinary batch of what is there, flushed before it leaves', async () => {
  const { manager, db } = await node({ schema: ITEMS });
  db.exec(
    "INSERT INTO items VALUES ('a', 'x', 1, 2, 4000000000000), ('b', 'x', 1, 2, 4000000000000); DELETE FROM items WHERE id = 'b'",
  );
  const { status, body } = await manager.answer(
    '/sync/fetch',
    JSON.stringify({ table: 'ITEMS', ids: ['a', 'b', 'c'] }),
  );
  expect(status).toBe(200);
  const receiver = await node({ id: 'receiver' });
  expect(receiver.manager.receive(body)).toMatchObject({ status: 200, body: { applied: 2, ack: 0 } });
  expect(JSON.parse(body).changes.map(({ op }: { op: string }) => op)).toEqual(['INSERT', 'DELETE']);
  expect(Number(rowsOf(db, "SELECT value FROM _meta WHERE key = 'told'")[0]?.value)).toBe(1);
});

test('a range that holds more than any asker has in one is not hashed to the end', async () => {
  const { manager, db } = await node();
  db.exec(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 11000) INSERT INTO items SELECT printf('%05d', i), 'x', i, 1, 4000000000000 FROM n",
  );
  const ranges = [
    [null, '00001'],
    ['00001', '00003'],
    ['00003', null],
  ];
  const { body } = await manager.answer('/sync/compare', JSON.stringify(asked({ ranges })));
  const { hashes } = JSON.parse(body);
  expect(hashes.map((hash: string) => hash.split(':')[0])).toEqual(['1', '2', 'more']);
  // And a list of it is given in parts.
  const listed = JSON.parse(
    (await manager.answer('/sync/compare', JSON.stringify(asked({ want: 'rows', ranges: [[null, null]] })))).body,
  );
  expect(listed.rows.length).toBeGreaterThanOrEqual(1_000);
  expect(listed.rows.length).toBeLessThan(1_500);
  expect(listed.upTo).toBe(listed.rows.at(-1)[0]);
});

test('inside a transaction of the application nothing is told: it may be taken back', async () => {
  const { manager, db } = await node();
  db.exec("BEGIN; INSERT INTO items VALUES ('a', 'x', 1, 2, 4000000000000)");
  let answered = false;
  const answer = manager.answer('/sync/compare', JSON.stringify(asked({}))).finally(() => {
    answered = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 60));
  expect(answered).toBe(false);
  db.exec('ROLLBACK');
  expect(JSON.parse((await answer).body).hashes[0]).toMatch(/^0:/);
});

test('a hub answers as a node does, and any table', async () => {
  const db = await database('SELECT 1');
  const hub = await createHub(db, { maxAheadMs: 0, id: 'hub', edges: [] });
  cleanUp(() => hub.stop());
  const ask = async (body: object): Promise<Record<string, unknown>> => {
    const answer = await hub.answer('/sync/compare', JSON.stringify(body));
    expect(answer.status).toBe(200);
    return JSON.parse(answer.body);
  };
  expect(await ask({ want: 'tables' })).toEqual({ tables: [], runs: true });
  expect(await ask(asked({ table: 'unheard-of' }))).toMatchObject({ hashes: [expect.stringMatching(/^0:/)] });
});

test('many ranges in one question are answered as each by itself, whatever is in them', async () => {
  const { manager, db } = await node();
  db.exec(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) INSERT INTO items SELECT printf('%05d', i), iif(i % 700 = 0, printf('%.*c', 5000, 'x'), 'x'), i, 1, 4000000000000 FROM n",
  );
  db.exec('DELETE FROM items WHERE value % 500 = 1');
  db.exec("INSERT INTO items VALUES ('$text:odd', 'x', 1, 1, 4000000000000)");
  const bounds = [null, '00001', '00002', '00040', '00500', '00532', '00600', '00601', '02000', '02900', 'x', null];
  const ranges = bounds.slice(1).map((upTo, i) => [bounds[i], upTo]);
  const answer = async (more: object): Promise<{ hashes: string[]; rows: unknown[] }> =>
    JSON.parse((await manager.answer('/sync/compare', JSON.stringify(asked(more)))).body);
  const { hashes } = await answer({ ranges });
  expect(hashes).toEqual(await Promise.all(ranges.map(async (range) => (await answer({ ranges: [range] })).hashes[0])));
  expect(hashes.reduce((sum, hash) => sum + Number.parseInt(hash, 10), 0)).toBe(3_001);
  const few = ranges.slice(0, 7);
  const { rows } = await answer({ want: 'rows', ranges: few });
  const each = await Promise.all(few.map(async (range) => (await answer({ want: 'rows', ranges: [range] })).rows));
  expect(rows).toEqual(each.flat());
});
