import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { BATCH_ITEMS_MAX, ITEM_BYTES_MAX, NAME_CHARACTERS_MAX } from '../../src/cli/items/input.ts';
import { respondItems } from '../../src/cli/items/routes.ts';
import {
  createItems,
  hasItemColumns,
  ItemStore,
  indexItems,
  LATEST,
  LIST_BYTES_MAX,
  LIST_MAX,
} from '../../src/cli/items/store.ts';
import { uuidv7 } from '../../src/cli/items/uuid.ts';
import { systemClock } from '../../src/clock.ts';
import { toListener } from '../../src/http/bridge.ts';
import { respond } from '../../src/http/respond.ts';
import { captured, cleanUp, database, node, rowsOf, scratchFolder, serve, type TestNode } from '../support/nodes.ts';

const ID = '01890a5d-ac96-774b-bcce-b302099a8057';
const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

interface Items extends TestNode {
  url: string;
  /** How often the routes said that something was written. */
  writes(): number;
  /** A request with a JSON body; `text` is the answer as it came. */
  ask(method: string, path: string, body?: unknown): Promise<{ status: number; text: string; json: Item }>;
  time: { now: number };
}

// biome-ignore lint/suspicious/noExplicitAny: answers are looked at field by field
type Item = any;

/** The routes on a real server, over a captured table, with a clock that the test moves. */
async function items(path?: string): Promise<Items> {
  const made = await node({ schema: await itemsSchema(), ...(path !== undefined && { path }) });
  const time = { now: 1_700_000_000_000 };
  const store = new ItemStore(made.db, 'here', { now: () => time.now, sleep: systemClock.sleep });
  cleanUp(() => store.release());
  let writes = 0;
  const url = await serve(
    toListener(async (incoming) => {
      const item = await respondItems(store, incoming, {
        changed: () => {
          writes += 1;
        },
        refusal: () => undefined,
      });
      return item ?? respond(made.manager, {}, incoming);
    }),
  );
  const ask: Items['ask'] = async (method, path, body) => {
    const response = await fetch(url + path, {
      method,
      ...(body !== undefined && {
        headers: { 'content-type': 'application/json' },
        body: typeof body === 'string' ? body : JSON.stringify(body),
      }),
    });
    const text = await response.text();
    const json = response.headers.get('content-type') === 'application/json' && text !== '' ? JSON.parse(text) : {};
    return { status: response.status, text, json };
  };
  return { ...made, url, writes: () => writes, ask, time };
}

/** The table as the program creates it, so that the tests see its index. */
async function itemsSchema(): Promise<string> {
  const db = await database('PRAGMA user_version = 1');
  createItems(db);
  indexItems(db);
  const found = rowsOf(db, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND tbl_name = 'items' ORDER BY rowid");
  return found.map(({ sql }) => `${sql};`).join('\n');
}

describe('creating', () => {
  test('an item gets a UUIDv7 and both times from the server, is captured, and wakes the loops', async () => {
    const { ask, db, writes, time } = await items();
    const { status, json } = await ask('POST', '/api/items', { name: 'first', value: 7 });
    expect(status).toBe(201);
    expect(json).toEqual({ id: json.id, name: 'first', value: 7, created_at: time.now, updated_at: time.now });
    expect(json.id).toMatch(UUID_V7);
    expect(captured(db)).toEqual([{ op: 'INSERT', row_id: json.id, row: json }]);
    expect(writes()).toBe(1);
    expect((await ask('GET', `/api/items/${json.id}`)).json).toEqual(json);
  });

  test.each([
    '0',
    '-1',
    '9007199254740991',
    '9007199254740993',
    '-9007199254740993',
    '9223372036854775807',
    '-9223372036854775808',
  ])('the integer %s comes out of every route as it went in', async (value) => {
    const { ask, all } = await items();
    const created = await ask('POST', '/api/items', `{"name":"n","value":${value}}`);
    const { id } = created.json;
    const exact = `"value":${value},`;
    expect(created.text).toContain(exact);
    expect((await ask('GET', `/api/items/${id}`)).text).toContain(exact);
    expect((await ask('GET', '/api/items')).text).toContain(exact);
    await ask('PUT', `/api/items/${id}`, { value: 1 });
    expect((await ask('PUT', `/api/items/${id}`, `{"value":${value}}`)).text).toContain(exact);
    const batch = await ask('POST', '/api/items/batch', `[{"name":"x","value":5},{"name":"n","value":${value}}]`);
    expect(batch.text).toContain(exact);
    expect(all('SELECT DISTINCT typeof(value) AS t, CAST(value AS TEXT) AS v FROM items WHERE name = ?', 'n')).toEqual([
      { t: 'integer', v: value },
    ]);
  });

  test.each([
    ['not JSON', '{', /not JSON/],
    ['nothing', '', /not JSON/],
    ['JSON5', "{name:'a',value:1}", /not JSON/],
    ['a byte order mark', '\ufeff{"name":"a","value":1}', /not JSON/],
    ['an array', '[]', /an item is an object \{name, value\}, not an array/],
    ['null', 'null', /not null/],
    ['a number', '3', /not a number/],
    ['no name', '{"value":1}', /name is missing/],
    ['an unknown field', '{"name":"a","value":1,"colour":2}', /unknown field "colour": allowed are id, name, value/],
    ['a time of its own', '{"name":"a","value":1,"updated_at":5}', /unknown field "updated_at"/],
    ['__proto__', '{"name":"a","value":1,"__proto__":{}}', /unknown field "__proto__"/],
    ['a field twice', '{"name":"a","value":1,"value":2}', /given twice/],
    ['a name that is a number', '{"name":5,"value":1}', /name must be a string, not a number/],
    ['a name that is null', '{"name":null,"value":1}', /name must be a string, not null/],
    ['a value that is text', '{"name":"a","value":"1"}', /value must be a 64-bit integer or null, not a string/],
    ['a value that is an object', '{"name":"a","value":{}}', /value must be a 64-bit integer or null, not an object/],
    ['a value that is true', '{"name":"a","value":true}', /value must be a 64-bit integer or null, not a boolean/],
    ['a fraction', '{"name":"a","value":1.5}', /value must be a 64-bit integer/],
    ['a float that is whole', '{"name":"a","value":1.0}', /value must be a 64-bit integer/],
    ['an exponent', '{"name":"a","value":1e3}', /value must be a 64-bit integer/],
    ['2^63', '{"name":"a","value":9223372036854775808}', /value must be a 64-bit integer/],
    ['-2^63 - 1', '{"name":"a","value":-9223372036854775809}', /value must be a 64-bit integer/],
    ['an id that is no UUID', '{"name":"a","value":1,"id":"7"}', /id must be a UUID/],
    ['an id that is a number', '{"name":"a","value":1,"id":7}', /id must be a string/],
    ['half a surrogate pair', '{"name":"\\ud83d","value":1}', /surrogate/],
    [
      'a long name',
      JSON.stringify({ name: 'x'.repeat(1_001), value: 1 }),
      /name has 1001 characters, 1000 are allowed/,
    ],
  ])('%s is refused with 400 and the reason, and nothing is written', async (_what, body, reason) => {
    const { ask, all, writes } = await items();
    const single = await ask('POST', '/api/items', body);
    expect(single.status).toBe(400);
    expect(single.json).toEqual({ error: expect.stringMatching(reason) });
    expect(all('SELECT * FROM items')).toEqual([]);
    expect(writes()).toBe(0);
  });

  test('a body that is not UTF-8 is refused', async () => {
    const { url } = await items();
    const body = Buffer.concat([Buffer.from('{"name":"'), Buffer.from([0xff]), Buffer.from('","value":1}')]);
    const response = await fetch(`${url}/api/items`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
    expect([response.status, await response.text()]).toEqual([400, '{"error":"the body is not valid UTF-8"}']);
  });

  test.each([
    ['of the greatest length', '\u{1f600}'.repeat(NAME_CHARACTERS_MAX)],
    ['that is empty', ''],
    ['with NUL, quotes and line ends', 'a\0b"\\\n\u2028'],
    ['that looks like an encoded value', '$blob:00'],
    ['that looks like JSON', '{"a":1}'],
  ])('a name %s is kept as it is', async (_what, name) => {
    const { ask } = await items();
    const { status, json } = await ask('POST', '/api/items', { name, value: 1 });
    expect(status).toBe(201);
    expect((await ask('GET', `/api/items/${json.id}`)).json.name).toBe(name);
  });

  test("a client's own id is kept in lower case, and is taken once", async () => {
    const { ask, all } = await items();
    const first = await ask('POST', '/api/items', { id: ID.toUpperCase(), name: 'mine', value: 1 });
    expect([first.status, first.json.id]).toEqual([201, ID]);
    const again = await ask('POST', '/api/items', { id: ID, name: 'other', value: 2 });
    expect([again.status, again.json]).toEqual([400, { error: `id ${ID} exists already` }]);
    expect((await ask('GET', `/api/items/${ID.toUpperCase()}`)).json.name).toBe('mine');
    expect(all('SELECT name FROM items')).toEqual([{ name: 'mine' }]);
  });

  test('an id that was deleted can be created again, and the answer shows the version that the row really has', async () => {
    const { ask, all, time } = await items();
    await ask('POST', '/api/items', { id: ID, name: 'old', value: 1 });
    await ask('DELETE', `/api/items/${ID}`);
    const { status, json } = await ask('POST', '/api/items', { id: ID, name: 'new', value: 1 });
    expect(status).toBe(201);
    expect(json.updated_at).toBe(time.now + 1);
    expect(all('SELECT updated_at FROM items')).toEqual([{ updated_at: json.updated_at }]);
  });
});

test('a value may be missing or null, when it is created, changed or one of several', async () => {
  const { ask, all } = await items();
  const made = [
    await ask('POST', '/api/items', { name: 'missing' }),
    await ask('POST', '/api/items', { name: 'null', value: null }),
  ];
  expect(made.map(({ status, json }) => [status, json.value])).toEqual([
    [201, null],
    [201, null],
  ]);
  const path = `/api/items/${made[0]?.json.id}`;
  expect((await ask('PUT', path, { value: 7 })).json.value).toBe(7);
  expect((await ask('PUT', path, { name: 'kept' })).json).toMatchObject({ name: 'kept', value: 7 });
  expect((await ask('PUT', path, { value: null })).json).toMatchObject({ name: 'kept', value: null });
  const batch = await ask('POST', '/api/items/batch', [
    { name: 'b' },
    { name: 'b', value: null },
    { name: 'b', value: 1 },
  ]);
  expect(batch.json.items.map(({ value }: Item) => value)).toEqual([null, null, 1]);
  expect(all('SELECT DISTINCT typeof(value) AS t FROM items ORDER BY 1')).toEqual([{ t: 'integer' }, { t: 'null' }]);
});

test('a table with a node_id column is told where an item was created', async () => {
  const { db, ask, all } = await items();
  await ask('POST', '/api/items', { name: 'before', value: 1 });
  db.exec('ALTER TABLE items ADD COLUMN Node_ID TEXT');
  await ask('POST', '/api/items', { name: 'one', value: 1 });
  await ask('POST', '/api/items/batch', [{ name: 'several', value: 1 }]);
  expect(all('SELECT name, Node_ID AS node_id FROM items ORDER BY name')).toEqual([
    { name: 'before', node_id: null },
    { name: 'one', node_id: 'here' },
    { name: 'several', node_id: 'here' },
  ]);
});

describe('creating several', () => {
  const two = [
    { name: 'a', value: 1 },
    { name: 'b', value: 2, id: ID },
  ];

  test.each([
    ['an array', two],
    ['{items}', { items: two }],
  ])('%s becomes items in the order given, and wakes the loops once', async (_what, body) => {
    const { ask, writes } = await items();
    const { status, json } = await ask('POST', '/api/items/batch', body);
    expect(status).toBe(201);
    expect(json.created).toBe(2);
    expect(json.items.map(({ name, value }: Item) => [name, value])).toEqual([
      ['a', 1],
      ['b', 2],
    ]);
    expect(json.items[1].id).toBe(ID);
    expect(writes()).toBe(1);
  });

  test('no items are no error', async () => {
    const { ask } = await items();
    expect(await ask('POST', '/api/items/batch', [])).toMatchObject({ status: 201, text: '{"created":0,"items":[]}' });
  });

  test.each([
    ['a wrong type', '[{"name":"a","value":1},{"name":"b","value":"2"}]', /^item 1: value must be/],
    ['a float', '[{"name":"a","value":1},{"name":"b","value":2.0}]', /^item 1: value must be/],
    ['a missing field', '[{"name":"a","value":1},{"value":2}]', /^item 1: name is missing/],
    [
      'an unknown field',
      '{"items":[{"name":"a","value":1},{"name":"b","value":1,"x":1}]}',
      /^item 1: unknown field "x"/,
    ],
    ['a field twice', '[{"name":"a","value":1},{"name":"b","name":"c","value":2}]', /^item 1: a field is given twice/],
    ['something else', '[{"name":"a","value":1},7]', /^item 1: an item is an object/],
    [
      'an id twice',
      `[{"name":"a","value":1,"id":"${ID}"},{"name":"b","value":1,"id":"${ID}"}]`,
      /^item 1: id .* exists/,
    ],
    ['no list', '{"name":"a"}', /unknown field "name": send an array/],
    ['a list that is none', '{"items":5}', /send an array/],
    ['the list twice', '{"items":[{"name":"a","value":1}],"items":[{"name":"a","value":1}]}', /"items" is given twice/],
    ['too many', JSON.stringify(Array(BATCH_ITEMS_MAX + 1).fill({})), /10001 items are too many: 10000/],
  ])('%s is refused with its index, and none is created', async (_what, body, reason) => {
    const { ask, all, db, writes } = await items();
    const { status, json } = await ask('POST', '/api/items/batch', body);
    expect([status, json]).toEqual([400, { error: expect.stringMatching(reason) }]);
    expect(all('SELECT * FROM items')).toEqual([]);
    expect(captured(db)).toEqual([]);
    expect(writes()).toBe(0);
  });

  test('an id that exists already undoes the items before it', async () => {
    const { ask, all } = await items();
    await ask('POST', '/api/items', { id: ID, name: 'there', value: 1 });
    const { status, json } = await ask('POST', '/api/items/batch', two);
    expect([status, json.error]).toEqual([400, `item 1: id ${ID} exists already`]);
    expect(all('SELECT name FROM items')).toEqual([{ name: 'there' }]);
  });

  test('the largest batch is one transaction, and its ids are in order', { tags: 'long' }, async () => {
    const { ask, all } = await items();
    const list = Array.from({ length: BATCH_ITEMS_MAX }, (_, value) => ({ name: 'n', value }));
    const { status, json } = await ask('POST', '/api/items/batch', list);
    expect([status, json.created]).toEqual([201, BATCH_ITEMS_MAX]);
    const values = all('SELECT value FROM items ORDER BY id').map(({ value }) => value);
    expect(values).toEqual(list.map(({ value }) => value));
  });
});

describe('reading, changing, deleting', () => {
  test('the list is the latest hundred, by created_at and then by id', { tags: 'long' }, async () => {
    const { ask, time } = await items();
    const made: string[] = [];
    for (let i = 0; i < LIST_MAX + 20; i++) {
      if (i % 3 === 0) time.now += 1;
      made.push((await ask('POST', '/api/items', { name: `n${i}`, value: i })).json.id);
    }
    const { status, json } = await ask('GET', '/api/items');
    expect(status).toBe(200);
    expect(json.map(({ id }: Item) => id)).toEqual(made.toReversed().slice(0, LIST_MAX));
  });

  test('the list ends where the rows together are too large, and has at least one', async () => {
    const { ask, db } = await items();
    const large = (id: string, share: number, at: number): void => {
      const name = `printf('%.*c', ${Math.floor(LIST_BYTES_MAX * share)}, 'x')`;
      db.exec(`INSERT INTO items (id, name, created_at, updated_at) VALUES ('${id}', ${name}, ${at}, 1)`);
    };
    const listed = async (): Promise<string[]> => (await ask('GET', '/api/items')).json.map(({ id }: Item) => id);
    for (const at of [1, 2, 3, 4]) large(`third ${at}`, 0.3, at);
    expect(await listed()).toEqual(['third 4', 'third 3', 'third 2']);
    expect((await ask('GET', '/api/items/third%201')).status).toBe(200);
    large('huge', 2, 5);
    expect(await listed()).toEqual(['huge']);
  });

  test('the list is read from an index, without sorting', async () => {
    const { all } = await items();
    const plan = all(`EXPLAIN QUERY PLAN ${LATEST.replace('?', '0')}`).map(({ detail }) => detail);
    expect(plan).toEqual([expect.stringMatching(/^SCAN items USING INDEX items_latest$/)]);
  });

  test('an update changes the given fields and the time, and always moves the time on', async () => {
    const { ask, time } = await items();
    const { json: item } = await ask('POST', '/api/items', { name: 'a', value: 1 });
    const path = `/api/items/${item.id}`;
    const named = await ask('PUT', path, { name: 'b' });
    expect([named.status, named.json]).toEqual([200, { ...item, name: 'b', updated_at: expect.any(Number) }]);
    expect(named.json.updated_at).toBeGreaterThan(item.updated_at);
    time.now = named.json.updated_at + 10;
    const valued = await ask('PUT', path, { value: 2 });
    expect(valued.json).toEqual({ ...item, name: 'b', value: 2, updated_at: time.now });
    expect((await ask('GET', path)).json).toEqual(valued.json);
  });

  test.each([
    ['no field', {}, /at least one of name, value/],
    ['another id', { id: ID }, /unknown field "id": allowed are name, value/],
    ['null', '{"name":null}', /name must be a string, not null/],
    ['a long name', { name: 'x'.repeat(1_001) }, /1000 are allowed/],
  ])('an update with %s is refused', async (_what, body, reason) => {
    const { ask, writes } = await items();
    const { json: item } = await ask('POST', '/api/items', { name: 'a', value: 1 });
    const refused = await ask('PUT', `/api/items/${item.id}`, body);
    expect([refused.status, refused.json]).toEqual([400, { error: expect.stringMatching(reason) }]);
    expect((await ask('GET', `/api/items/${item.id}`)).json).toEqual(item);
    expect(writes()).toBe(1);
  });

  test('a deletion says which item is gone, is captured, and finds nothing the second time', async () => {
    const { ask, db, writes } = await items();
    const { json: item } = await ask('POST', '/api/items', { name: 'a', value: 1 });
    const path = `/api/items/${item.id}`;
    expect(await ask('DELETE', path)).toMatchObject({ status: 200, json: { deleted: item.id } });
    expect(captured(db).map(({ op }) => op)).toEqual(['INSERT', 'DELETE']);
    for (const [method, body] of [['GET'], ['DELETE'], ['PUT', { value: 1 }]] as const) {
      expect(await ask(method, path, body)).toMatchObject({ status: 404, json: { error: 'no such item' } });
    }
    expect(writes()).toBe(2);
  });

  test('rows that other programs wrote are shown, whatever is in them', async () => {
    const { ask, db } = await items();
    db.exec("INSERT INTO items VALUES ('Odd/id %', x'00ff', 1.5, NULL, 5), ('b', NULL, 'text', 'x', 6)");
    const odd = { id: 'Odd/id %', name: '$blob:00FF', value: 1.5, created_at: null, updated_at: 5 };
    expect((await ask('GET', `/api/items/${encodeURIComponent('Odd/id %')}`)).json).toEqual(odd);
    const { json } = await ask('GET', '/api/items');
    expect(json).toEqual([{ id: 'b', name: null, value: 'text', created_at: 'x', updated_at: 6 }, odd]);
  });
});

describe('the edge of the routes', () => {
  test.each([
    ['PUT', '/api/items', 'GET, HEAD, POST'],
    ['DELETE', '/api/items', 'GET, HEAD, POST'],
    ['GET', '/api/items/batch', 'POST'],
    ['POST', `/api/items/${ID}`, 'GET, HEAD, PUT, DELETE'],
    ['PATCH', `/api/items/${ID}`, 'GET, HEAD, PUT, DELETE'],
  ])('%s %s is 405 and says what is allowed', async (method, path, allow) => {
    const { url } = await items();
    const response = await fetch(url + path, { method });
    expect([response.status, response.headers.get('allow')]).toEqual([405, allow]);
    expect(await response.json()).toEqual({ error: `use ${allow}` });
  });

  test.each(['/', '/api', '/api/', '/api/items/', '/api/items/a/b', '/api/item', '/api/itemsx'])(
    '%s is 404 in plain text',
    async (path) => {
      const { url } = await items();
      const response = await fetch(url + path);
      expect([response.status, response.headers.get('content-type')]).toEqual([404, 'text/plain']);
      expect(await response.text()).toBe('not found');
    },
  );

  test('an id that cannot be decoded is an item that is not there', async () => {
    const { ask } = await items();
    expect((await ask('GET', '/api/items/%E0%A4%A')).status).toBe(404);
  });

  test('HEAD is GET without the body', async () => {
    const { url } = await items();
    const response = await fetch(`${url}/api/items`, { method: 'HEAD' });
    expect([response.status, await response.text()]).toEqual([200, '']);
  });

  test.each([
    ['text/plain', 415],
    ['application/x-www-form-urlencoded', 415],
    ['Application/JSON; charset=utf-8', 201],
  ])('content type %s is answered with %i', async (type, status) => {
    const { url } = await items();
    const body = '{"name":"a","value":1}';
    const response = await fetch(`${url}/api/items`, { method: 'POST', headers: { 'content-type': type }, body });
    expect(response.status).toBe(status);
    if (status === 415) expect(await response.json()).toEqual({ error: expect.stringContaining(type) });
  });

  test('a body over the limit is 413', async () => {
    const { ask, all } = await items();
    const large = await ask('POST', '/api/items', `{"name":"a","value":1}${' '.repeat(ITEM_BYTES_MAX)}`);
    expect([large.status, large.json]).toEqual([413, { error: `the body is larger than ${ITEM_BYTES_MAX} bytes` }]);
    expect(all('SELECT * FROM items')).toEqual([]);
  });
});

test('an existing table called items can be used when it has the columns, in any case and order', async () => {
  const table = (columns: string): string => `CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER, ${columns})`;
  expect(hasItemColumns(await database(table('extra, VALUE INTEGER, Name TEXT, created_at INTEGER')))).toBe(true);
  expect(hasItemColumns(await database(table('value INTEGER, name TEXT')))).toBe(false);
});

describe('UUIDv7', () => {
  const source = (times: number[]): (() => string) =>
    uuidv7({ now: () => times.shift() ?? 1_700_000_000_000, sleep: () => Promise.resolve() });

  test('carries the time, the version and the variant', () => {
    const id = source([0x0123456789ab])();
    expect(id).toMatch(/^01234567-89ab-7/);
    expect(id).toMatch(UUID_V7);
  });

  test('rises within a millisecond, and while the clock is set back', () => {
    const next = source([1_700_000_000_005, 1_700_000_000_005, 1_600_000_000_000]);
    const ids = Array.from({ length: 20_000 }, next);
    expect(ids).toEqual(ids.toSorted());
    expect(new Set(ids).size).toBe(ids.length);
  });

  test('takes the next millisecond when the counter is used up', { tags: 'long' }, () => {
    const dice = (bytes: number): Buffer => {
      const thrown = Buffer.alloc(bytes);
      // The highest start there is for the counter.
      if (bytes === 4) thrown.writeUInt32BE(2 ** 26 - 2 ** 16 - 1);
      return thrown;
    };
    const next = uuidv7({ now: () => 5, sleep: () => Promise.resolve() }, dice);
    const ids = Array.from({ length: 2 ** 16 + 2 }, next);
    expect(ids).toEqual(ids.toSorted());
    expect(ids.filter((id) => id.startsWith('00000000-0005-')).length).toBe(2 ** 16 + 1);
    expect(ids.at(-1)).toMatch(/^00000000-0006-7/);
  });
});

test('somebody else has the lock: writes wait for the end of it, and everything else is answered meanwhile', async () => {
  const path = join(scratchFolder(), 'items.db');
  const { ask, db, writes } = await items(path);
  // Whoever waited in SQLite for the whole of it would keep everything else from going on.
  db.exec('PRAGMA busy_timeout = 60000');
  const { id } = (await ask('POST', '/api/items', { name: 'before', value: 1 })).json;
  const other = await database('SELECT 1', path);
  other.exec('BEGIN IMMEDIATE');
  const waiting = [
    ask('POST', '/api/items', { name: 'new', value: 2 }),
    ask('POST', '/api/items/batch', { items: [{ name: 'several', value: 3 }] }),
    ask('PUT', `/api/items/${id}`, { name: 'changed' }),
  ];
  expect((await ask('GET', `/api/items/${id}`)).json).toMatchObject({ name: 'before' });
  expect((await ask('GET', '/health')).status).toBe(200);
  expect(writes()).toBe(1);
  other.exec('COMMIT');
  expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual([201, 201, 200]);
  other.exec('BEGIN IMMEDIATE');
  const deleted = ask('DELETE', `/api/items/${id}`);
  expect((await ask('GET', `/api/items/${id}`)).json).toMatchObject({ name: 'changed' });
  other.exec('COMMIT');
  expect((await deleted).status).toBe(200);
  expect(writes()).toBe(5);
});
