import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { createListener } from '../../src/http/index.ts';
import { SqliteHubStore } from '../../src/hub/sqlite-store.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { firstOf } from '../support/draws.ts';
import { count, type Door, deliver, door, edge, gone, hub, live, plainAck, T, type TestHub } from '../support/hubs.ts';
import { lane } from '../support/lane.ts';
import { Random } from '../support/model.ts';
import { database, exactRows, node, rowsOf, scratchFolder, serve, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const SELF = { id: 'hub', random: Math.random, maxAheadMs: 0 };

describe('what is stored', () => {
  test('values pass byte for byte, and names in whatever case', async () => {
    const bodies: string[] = [];
    const url = await serve((request, response) => plainAck(request, response, bodies));
    const { hub: made } = await hub({ edges: [url] });
    const row =
      '{"id":"x","a":1.0,"b":9223372036854775807,"c":123456789012345678901234567890,"d":1e5,"e":"\\u0041\\ud83d\\ude00\\/","f":-0.0,' +
      '"g":"$blob:00FF","h":{"n":[1.50,null]},"i":true,"j":"9007199254740993","k":null,"\\u006b2":"","updated_at":5}';
    const body = `{"batch_id":1,"changes":[{"op":"INSERT","table":"Ite\\"ms","row":${row},"old_id":null}]}`;
    expect(await made.receive(body)).toEqual({
      status: 200,
      body: { applied: 1, ack: 1 },
      headers: expect.any(Object),
    });
    await until('it has arrived', () => bodies.length === 1);
    expect(bodies[0]).toBe(body);
  });

  test('it knows no schema: a row keeps the columns that the sender of a newer version does not have', async () => {
    const { hub: made, rows } = await hub();
    await deliver(made, [live('x', T, { name: 'old', ratio: 0.5, N2: 1 })]);
    expect((await deliver(made, [live('x', T + 1, { name: 'new', extra: [1] })])).applied).toBe(1);
    expect(rows()[0]?.row_data).toBe(`{"id":"x","name":"new","extra":[1],"updated_at":${T + 1},"ratio":0.5,"N2":1}`);
    expect((await deliver(made, [live('x', T + 1, { name: 'new', extra: [1] })])).applied).toBe(1);
    await deliver(made, [live('x', T + 2, { NAME: 'newer', n2: 2 })]);
    expect(JSON.parse(rows()[0]?.row_data as string)).toEqual({
      id: 'x',
      NAME: 'newer',
      n2: 2,
      updated_at: T + 2,
      extra: [1],
      ratio: 0.5,
    });
    await deliver(made, [gone('x', T + 3)]);
    await deliver(made, [live('x', T + 4, { name: 'again' })]);
    expect(JSON.parse(rows()[0]?.row_data as string)).toEqual({ id: 'x', name: 'again', updated_at: T + 4 });
  });

  test('a row put together from two is nobody\u2019s: it goes back to the sender of the newer version too', async () => {
    const { hub: made, rows } = await hub();
    await deliver(made, [live('x', T, { name: 'old', extra: 'kept' })], 'a');
    await deliver(made, [live('x', T + 1, { name: 'new' })], 'b');
    expect(rows()[0]).toMatchObject({ updated_at: T + 1, origin: null });
    await deliver(made, [live('x', T + 2, { name: 'whole', extra: 'again' })], 'b');
    expect(rows()[0]).toMatchObject({ updated_at: T + 2, origin: 'b' });
  });

  test('nodes with two schemas of one table keep all columns through the hub', async () => {
    const center = await door();
    const doors = [await door(), await door(), await door()] as [Door, Door, Door];
    const narrow = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';
    const wide = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, price REAL, updated_at INTEGER)';
    const a = await edge('a', [center.url], doors[0], { schema: narrow });
    const b = await edge('b', [center.url], doors[1], { schema: wide });
    const made = await hub({ edges: [doors[0].url, doors[1].url] });
    center.open(createListener(made.hub));
    b.db.exec(`INSERT INTO items VALUES ('x', 'first', 2.5, ${T})`);
    await until('a has it', () => count(a) === 1);
    a.db.exec(`UPDATE items SET name = 'second', updated_at = ${T + 1}`);
    await until('b has it', () => b.all('SELECT name FROM items')[0]?.name === 'second');
    expect(b.all('SELECT price FROM items')).toEqual([{ price: 2.5 }]);
    // One that comes later is told of both.
    const c = await node({ schema: wide });
    const [kept] = made.rows();
    await deliver(c.manager, [
      { op: kept?.op, table: 'items', row: JSON.parse(kept?.row_data as string), old_id: null },
    ]);
    expect(exactRows(c.db, 'items')).toEqual(exactRows(b.db, 'items'));
  });

  test('it advances only by what is newer, and what did not advance it is not passed on', async () => {
    const bodies: string[] = [];
    const url = await serve((request, response) => plainAck(request, response, bodies));
    const { hub: made, rows } = await hub({ edges: [url] });
    await deliver(made, [live('x', T, { name: 'm' })]);
    await until('it was sent', () => bodies.length === 1);
    expect((await deliver(made, [live('x', T, { name: 'm' })])).applied).toBe(1);
    expect((await deliver(made, [live('x', T, { name: 'a' })])).applied).toBe(0);
    expect((await deliver(made, [live('x', T - 1, { name: 'z' })])).applied).toBe(0);
    expect((await deliver(made, [gone('x', T - 1)])).applied).toBe(0);
    await made.flush();
    expect(bodies).toHaveLength(1);
    expect((await deliver(made, [gone('x', T)])).applied).toBe(1);
    // The later of the two is what a plain sender has, and it has lost against the deletion of the batch before.
    expect((await deliver(made, [gone('x', T), live('x', T, { name: 'zzz' })])).applied).toBe(0);
    await made.flush();
    expect(bodies).toHaveLength(2);
    expect(rows()).toMatchObject([{ op: 'DELETE', row_id: 'x', updated_at: T }]);
  });

  test('ids and table names are told apart as nodes do it', async () => {
    const { hub: made, rows } = await hub();
    const odd = (id: string, table: string, more = {}): object => ({
      op: 'INSERT',
      table,
      row: { ID: id, Updated_At: T, ...more },
      old_id: null,
    });
    expect(
      (await deliver(made, [odd('$text:$blob:', 'Items'), odd('$blob:ab', 'items'), odd('$blob:AB', 'ITEMS')])).applied,
    ).toBe(3);
    expect((await deliver(made, [live('$int:5', T), live('5', T)])).applied).toBe(2);
    expect(rows().map(({ row_id }) => row_id)).toEqual(['$blob:AB', '$text:$blob:', '5']);
  });
});

test('a table that a node asks for again goes to all edges, its own rows to it as well, and once in ten minutes', async () => {
  const made = await hub();
  await deliver(made.hub, [live('mine', T), live('old', T), gone('dead', T)], 'a');
  await deliver(made.hub, [{ ...live('other', T), table: 'others' }], 'a');
  const places = (): unknown[] =>
    rowsOf(made.db, 'SELECT row_id, seq, origin FROM _hub_rows ORDER BY seq').map(({ row_id, seq, origin }) => [
      row_id,
      seq,
      origin,
    ]);
  const ask = (header: string) => made.hub.receive('{"batch_id":1,"changes":[]}', { from: 'a', sendAgain: header });
  for (const nonsense of ['%', 'null', '{}', '"items"', encodeURIComponent('["nowhere"]')]) await ask(nonsense);
  const before = places();
  expect(before).toHaveLength(4);
  expect((await ask(encodeURIComponent('["ITEMS"]'))).status).toBe(200);
  await until('it has new places', () => JSON.stringify(places()) !== JSON.stringify(before));
  expect(places()).toEqual([
    ['other', 4, 'a'],
    ['mine', 5, null],
    ['old', 6, null],
    ['dead', 7, null],
  ]);
  await ask('*');
  await until('the other table has, too', () => JSON.stringify(places()).includes('["other",8,null]'));
  expect(places().slice(0, 3)).toEqual([
    ['mine', 5, null],
    ['old', 6, null],
    ['dead', 7, null],
  ]);
});

test('a table that is asked for too early goes out in its time, though the hub dies before that', {
  tags: 'long',
}, async () => {
  const path = join(scratchFolder(), 'hub.db');
  const clock = new VirtualClock();
  const first = await hub({ clock }, path);
  await deliver(first.hub, [live('x', T)], 'a');
  const ask = (to: TestHub) => to.hub.receive('{"batch_id":1,"changes":[]}', { from: 'a', sendAgain: '*' });
  const place = ({ db }: TestHub): unknown => rowsOf(db, 'SELECT seq FROM _hub_rows')[0]?.seq;
  await ask(first);
  expect(place(first)).toBe(2);
  // It has been acknowledged, so nobody will ask again.
  await clock.advance(9 * 60_000);
  expect((await ask(first)).status).toBe(200);
  await clock.advance(50_000);
  expect(place(first)).toBe(2);
  // The file as it is at this moment: what the process would still do never happens.
  const after = join(scratchFolder(), 'after.db');
  first.db.exec(`VACUUM INTO '${after}'`);
  const second = await hub({ clock: new VirtualClock() }, after);
  expect(place(second)).toBe(3);
  await clock.advance(20_000);
  expect(place(first)).toBe(3);
  await clock.advance(30 * 60_000);
  expect(place(first)).toBe(3);
});

test('a table that could not be given new places is tried again', async () => {
  const clock = new VirtualClock();
  const made = await hub({ clock });
  await deliver(made.hub, [live('x', T)], 'a');
  const errors: string[] = [];
  made.hub.on('error', ({ message }) => errors.push(message));
  made.db.exec("CREATE TRIGGER no BEFORE UPDATE ON _hub_rows BEGIN SELECT raise(ABORT, 'not now'); END");
  const answer = await made.hub.receive('{"batch_id":1,"changes":[]}', { from: 'a', sendAgain: '*' });
  expect(answer.status).toBe(200);
  await clock.advance(500);
  expect(errors).toEqual([expect.stringContaining('not now')]);
  made.db.exec('DROP TRIGGER no');
  await clock.advance(10_000);
  expect(rowsOf(made.db, 'SELECT seq FROM _hub_rows')).toEqual([{ seq: 2 }]);
  expect(errors).toHaveLength(1);
});

describe('agreement with nodes', () => {
  const SCHEMA =
    'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, ratio REAL, data BLOB, updated_at INTEGER)';
  const VALUES: Record<string, unknown[]> = {
    name: [null, '', 'a', 'A', 'aa', 'ab"c', '\n', '\u00e9', '\ud83d\ude00', '$text:$blob:00', '10', '9', '{"a":1}'],
    value: [null, 0, 1, -1, 9, 10, 9007199254740991, '9007199254740993', '-9223372036854775808', '9e999'],
    ratio: [null, 0.5, 1.5, -2.25, 1e21, 1e-7, 0.1, '9e999', '-9e999'],
    data: [null, '$blob:', '$blob:00', '$blob:FF', 'text', 7, '$int:9007199254740993', '$real:9e999', 1.5],
  };

  /** A Rowcast node: of a plain sender the later change wins a tie within a batch. */
  const SENDER = { from: 'a', said: 'id=a' };

  test.each(
    firstOf([
      [1, 2],
      [3, 4],
      [5, 6],
      [7, 8],
    ]).flat(),
  )('random ties are decided alike by the hub and by a node (seed %i)', async (seed) => {
    const random = new Random(seed);
    const pick = <V>(from: V[]): V => from[Math.floor(random.next() * from.length)] as V;
    const made = await hub();
    const real = await node({ schema: SCHEMA });
    for (let batch = 0; batch < 60; batch++) {
      const changes = Array.from({ length: 1 + Math.floor(random.next() * 6) }, () => {
        const id = pick(['p', 'q', '$blob:0A']);
        const updatedAt = T + Math.floor(random.next() * 3) + (batch >> 3);
        const row: Record<string, unknown> = { id };
        for (const key of ['value', 'name', 'data', 'ratio']) row[key] = pick(VALUES[key] as unknown[]);
        row.updated_at = updatedAt;
        if (random.next() < 0.12) return { op: 'DELETE', table: 'items', row, old_id: id };
        return { op: pick(['INSERT', 'UPDATE']), table: pick(['items', 'items', 'Items']), row, old_id: null };
      });
      const body = JSON.stringify({ batch_id: batch, changes });
      const { status, body: answer } = real.manager.receive(body, SENDER);
      expect(await made.hub.receive(body, SENDER), body).toEqual({
        status,
        body: answer,
        headers: expect.any(Object),
      });
    }
    const copy = await node({ schema: SCHEMA });
    for (const { op, row_id, row_data } of made.rows()) {
      await deliver(copy.manager, [
        { op, table: 'items', row: JSON.parse(row_data as string), old_id: op === 'DELETE' ? row_id : null },
      ]);
    }
    expect(exactRows(copy.db, 'items')).toEqual(exactRows(real.db, 'items'));
    const graves = 'SELECT row_id, version FROM _tombstones WHERE row_id NOT IN (SELECT id FROM items) ORDER BY row_id';
    expect(copy.all(graves)).toEqual(real.all(graves));
  });
});

test('a SQLite without JSONB gives the same answers', async () => {
  const random = new Random(9);
  const [fast, slow] = await Promise.all(
    [true, false].map(async (jsonb) => {
      const db = new Connection(await database('SELECT 1'));
      const maxBodyBytes = 1_000_000;
      const store = new SqliteHubStore(db, { clock: systemClock, maxBodyBytes, ...SELF, jsonb });
      await store.open();
      return { db, store };
    }),
  );
  if (!fast || !slow) throw new Error('unreachable');
  for (let batch = 0; batch < 100; batch++) {
    const changes = Array.from({ length: 5 }, () => {
      const id = `r${Math.floor(random.next() * 4)}`;
      const at = T + Math.floor(random.next() * 4);
      const dice = random.next();
      if (dice < 0.1) return [7, 'text', null, { op: 'INSERT' }][Math.floor(dice * 40)];
      if (dice < 0.2) return { op: 'DELETE', table: 'items', row: null, old_id: id };
      if (dice < 0.3) return gone(id, at);
      return live(id, at, { name: dice > 0.6 ? 'b' : null, ...(dice > 0.8 && { more: [dice > 0.9, 1.5] }) });
    });
    const body = JSON.stringify({ batch_id: batch, changes });
    const sender = { from: 'a', plain: batch % 2 === 0 };
    expect(await slow.store.receive(body, sender), body).toEqual(await fast.store.receive(body, sender));
  }
  const all = 'SELECT * FROM _hub_rows ORDER BY seq';
  expect(slow.db.all(all)).toEqual(fast.db.all(all));
});

describe('what is no change', () => {
  test('is set aside with the reason, and does not stop the others', async () => {
    const { hub: made, db, rows } = await hub();
    const parked: string[] = [];
    made.on('dead-letter', ({ code }) => parked.push(code));
    const bad: [unknown, string][] = [
      [7, 'bad-change'],
      ['text', 'bad-change'],
      [null, 'bad-change'],
      [[], 'bad-change'],
      [{ ...live('x', T), op: 'UPSERT' }, 'bad-op'],
      [{ ...live('x', T), table: 5 }, 'unknown-table'],
      [{ ...live('x', T), table: '' }, 'unknown-table'],
      [{ ...live('x', T), row: 'text' }, 'bad-row'],
      [{ ...live('x', T), row: null }, 'bad-row'],
      [live('x', 8_640_000_000_000_001), 'bad-timestamp'],
      [live('x', 1.5), 'bad-timestamp'],
      [{ op: 'INSERT', table: 'items', row: { id: 5, updated_at: T }, old_id: null }, 'bad-id'],
      [{ op: 'INSERT', table: 'items', row: { id: { a: 1 }, updated_at: T }, old_id: null }, 'bad-id'],
      [{ op: 'DELETE', table: 'items', row: { id: 'x', updated_at: T }, old_id: 'y' }, 'bad-id'],
      [{ op: 'DELETE', table: 'items', row: null, old_id: 'never seen' }, 'bad-row'],
    ];
    const changes = [live('good', T), ...bad.map(([change]) => change), live('fine', T)];
    const answer = await deliver(made, changes, 'a');
    expect(answer.applied).toBe(2);
    expect(answer.rejected?.map(({ code }) => code)).toEqual(bad.map(([, code]) => code));
    expect(await deliver(made, changes, 'a')).toEqual(answer);
    expect(rows().map(({ row_id }) => row_id)).toEqual(['fine', 'good']);
    expect((await made.health()).dead_letter).toBe(bad.length);
    expect((await made.deadLetters.list())[0]).toMatchObject({ direction: 'in', peer: 'a', code: 'bad-change' });
    expect(parked).toHaveLength(2 * bad.length);
    expect(rowsOf(db, 'SELECT count(*) AS n FROM _dead_letter')).toEqual([{ n: bad.length }]);
  });

  test('the name of a table is measured in bytes, all of them, however it is written', async () => {
    const { hub: made, rows } = await hub();
    // The binding of Node 22 cuts a text at a NUL on its way to JavaScript.
    const cuts = lane === 'node-sqlite' && process.versions.node.startsWith('22.');
    const names = ['t'.repeat(200), 't'.repeat(201), 'é'.repeat(101), ...(cuts ? [] : [`a\0${'t'.repeat(300)}`])];
    const answer = await deliver(
      made,
      names.map((table) => ({ ...live('x', T), table })),
    );
    expect(answer.rejected?.map(({ code }) => code)).toEqual(names.slice(1).map(() => 'unknown-table'));
    expect(rows().map(({ table_name }) => table_name)).toEqual(names.slice(0, 1));
  });

  test('a DELETE without a row takes the version that the hub has', async () => {
    const { hub: made, rows } = await hub();
    await deliver(made, [live('x', T, { name: 'kept' }), live('y', T)], 'a');
    const rowless = (id: string): object => ({ op: 'DELETE', table: 'items', row: null, old_id: id });
    expect(await deliver(made, [rowless('x')], 'b')).toEqual({ applied: 1, ack: 1 });
    expect(rows()[0]).toMatchObject({ op: 'DELETE', updated_at: T, origin: 'b' });
    expect(JSON.parse(rows()[0]?.row_data as string)).toEqual({ id: 'x', updated_at: T });
    expect((await deliver(made, [rowless('x')], 'b')).applied).toBe(1);
    // What the batch says of the row later stands against it.
    expect((await deliver(made, [rowless('y'), live('y', T + 1)])).applied).toBe(2);
    expect((await deliver(made, [rowless('y'), live('y', T + 1)])).applied).toBe(2);
    expect(rows()[1]).toMatchObject({ op: 'UPDATE', updated_at: T + 1 });
  });

  test('a body that is not a batch is refused as a node refuses it, and changes nothing', async () => {
    const { hub: made, rows } = await hub({ maxBodyBytes: 2_000_000 });
    const status = async (body: string | Uint8Array): Promise<number> => (await made.receive(body)).status;
    expect(await status('nonsense')).toBe(400);
    expect(await status('[]')).toBe(400);
    expect(await status('{"batch_id":"1","changes":[]}')).toBe(400);
    expect(await status('{"batch_id":1,"changes":{}}')).toBe(400);
    expect(await status(new Uint8Array([0xff, 0xfe]))).toBe(400);
    const many = Array.from({ length: 10_001 }, (_, i) => live(`r${i}`, T));
    const { status: ofMany } = await made.receive(JSON.stringify({ batch_id: 1, changes: many }), { said: 'id=a' });
    expect(ofMany).toBe(413);
    expect(await status(`{"batch_id":1,"changes":[],"x":"${'x'.repeat(2_000_000)}"}`)).toBe(413);
    expect(rows()).toEqual([]);
    expect(await made.receive('{"batch_id":9223372036854775807,"changes":[]}')).toEqual({
      status: 200,
      body: { applied: 0, ack: '9223372036854775807' },
      headers: expect.any(Object),
    });
    const at = await serve(createListener(made));
    const post = (type: string): Promise<Response> =>
      fetch(`${at}/sync`, { method: 'POST', headers: { 'content-type': type }, body: '{"batch_id":1,"changes":[]}' });
    expect((await post('text/plain')).status).toBe(415);
    expect(await (await post('application/json')).json()).toEqual({ applied: 0, ack: 1 });
    await made.stop();
    expect((await made.receive('{"batch_id":1,"changes":[]}')).status).toBe(503);
    expect((await fetch(`${at}/health`)).status).toBe(503);
  });
});
