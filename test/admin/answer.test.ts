/** The operator's routes: what they do to a node and to a hub, and whom they refuse. */
import { describe, expect, test } from 'vitest';
import { createAdminHandler } from '../../src/admin/index.ts';
import { Cluster } from '../support/cluster.ts';
import { until } from '../support/nodes.ts';

type Handler = (request: Request) => Promise<Response>;

async function ask(handler: Handler, path: string, body?: unknown, headers: Record<string, string> = {}) {
  const post = body !== undefined && {
    method: 'POST',
    headers: { 'x-rowcast-admin': '1', ...headers },
    body: JSON.stringify(body),
  };
  const answer = await handler(new Request(`http://localhost/_rowcast/api/${path}`, post || { headers }));
  return { status: answer.status, said: await answer.json() };
}

const BAD = { op: 'INSERT', table: 'nowhere', row: { id: 'x', updated_at: 1 }, old_id: null };

test('a node is asked how it is, and its peers are paused and removed', async () => {
  const cluster = new Cluster();
  const { manager } = await cluster.node('a', ['b']);
  const handler = createAdminHandler(manager);
  expect((await ask(handler, 'status')).said).toMatchObject({ ok: true, node_id: 'a', tables: [{ name: 'items' }] });
  const url = cluster.url('b');
  expect(await ask(handler, 'peers/pause', { url })).toEqual({ status: 200, said: { ok: true } });
  expect((await ask(handler, 'peers')).said).toMatchObject([{ url, paused: true }]);
  await ask(handler, 'peers/resume', { url });
  await ask(handler, 'peers/add', { url: 'http://c.test' });
  await ask(handler, 'peers/remove', { url });
  expect((await ask(handler, 'peers')).said).toMatchObject([{ url: 'http://c.test', paused: false }]);
});

test('a hub has the same, with its edges', async () => {
  const cluster = new Cluster();
  const { hub } = await cluster.hub('h', ['a']);
  const handler = createAdminHandler(hub);
  expect((await ask(handler, 'status')).said).toMatchObject({ ok: true, node_id: 'h' });
  await ask(handler, 'peers/pause', { url: cluster.url('a') });
  expect((await ask(handler, 'peers')).said).toMatchObject([{ url: cluster.url('a'), paused: true }]);
});

test('dead letters are listed, shown, tried again and discarded', async () => {
  const { manager } = await new Cluster().node('a', []);
  const handler = createAdminHandler(manager);
  manager.receive(JSON.stringify({ batch_id: 1, changes: [BAD, { ...BAD, table: 'other' }] }));
  const { said: list } = await ask(handler, 'dead-letters?limit=1');
  expect(list).toMatchObject([{ id: 1, code: 'unknown-table', table: 'nowhere' }]);
  expect((await ask(handler, 'dead-letters?after=1')).said).toMatchObject([{ id: 2 }]);
  expect((await ask(handler, 'dead-letters/2')).said).toMatchObject({ id: 2, table: 'other' });
  expect((await ask(handler, 'dead-letters/retry', { code: 'constraint' })).said).toEqual({});
  expect((await ask(handler, 'dead-letters/retry', {})).said).toEqual({ kept: 2 });
  expect((await ask(handler, 'dead-letters/1/discard', {})).status).toBe(200);
  expect(await ask(handler, 'dead-letters/1')).toMatchObject({ status: 404, said: { code: 'NO_SUCH_LETTER' } });
});

test('letters of one code are found however many others come before them', { tags: 'long' }, async () => {
  const { manager } = await new Cluster().node('a', []);
  const handler = createAdminHandler(manager);
  const others = Array.from({ length: 1_200 }, (_, i) => ({ ...BAD, row: { id: `x${i}`, updated_at: 1 } }));
  const rows = ['p', 'q'].map((id) => ({ id, name: 'n', value: 1, created_at: 1, updated_at: 1, more: 1 }));
  const wider = rows.map((row) => ({ op: 'INSERT', table: 'items', row, old_id: null }));
  manager.receive(JSON.stringify({ batch_id: 1, changes: [...others, ...wider] }));
  const { said } = await ask(handler, 'dead-letters?code=unknown-column');
  expect(said).toMatchObject([{ rowId: 'p' }, { rowId: 'q' }]);
  expect((await ask(handler, 'dead-letters?code=unknown-column&limit=1')).said).toMatchObject([{ rowId: 'p' }]);
  expect((await ask(handler, `dead-letters?code=unknown-column&after=${said[0].id}`)).said).toMatchObject([
    { rowId: 'q' },
  ]);
  expect((await ask(handler, 'dead-letters?code=constraint')).said).toEqual([]);
});

test('conflicts are listed, shown, restored and dismissed, and the story of a row is told', async () => {
  const { manager, db } = await new Cluster().node('a', []);
  const handler = createAdminHandler(manager);
  db.exec("INSERT INTO items VALUES ('r', 'mine', 1, 1, 200), ('q', 'mine', 1, 1, 200)");
  const changes = ['r', 'q'].map((id) => ({
    op: 'UPDATE',
    table: 'items',
    row: { id, name: 'theirs', value: 1, created_at: 1, updated_at: 300 },
    old_id: null,
    base: 100,
  }));
  manager.receive(JSON.stringify({ batch_id: 1, changes }), { from: 'b', said: 'id=b' });
  const one = { conflictId: 1, table: 'items', id: 'r', lostVersion: 200, wonVersion: 300, wonBy: 'b', base: 100 };
  expect((await ask(handler, 'conflicts')).said).toMatchObject([one, { conflictId: 2 }]);
  expect((await ask(handler, 'conflicts?after=1&limit=1')).said).toMatchObject([{ id: 'q' }]);
  expect((await ask(handler, 'conflicts?table=items&id=r')).said).toMatchObject([{ id: 'r' }]);
  expect((await ask(handler, 'conflicts/1')).said).toMatchObject({
    ...one,
    lost: { name: 'mine' },
    current: { name: 'theirs' },
    columns: ['name'],
  });
  expect((await ask(handler, 'conflicts/1/restore', { columns: ['nome'] })).status).toBe(400);
  expect((await ask(handler, 'conflicts/1/restore', { colums: ['name'] })).said.error).toContain(
    '"colums" is not known',
  );
  expect((await ask(handler, 'conflicts/1/restore', { columns: ['name'] })).said).toEqual({ columns: ['name'] });
  expect((await ask(handler, 'why?table=items&id=r')).said).toMatchObject({ state: 'live', row: { name: 'mine' } });
  expect((await ask(handler, 'why?table=items')).said.error).toContain('"id" must be given');
  expect((await ask(handler, 'why?table=nowhere&id=r')).status).toBe(400);
  expect((await ask(handler, 'conflicts/2/dismiss', {})).said).toEqual({ ok: true });
  expect(await ask(handler, 'conflicts/2')).toMatchObject({ status: 404, said: { code: 'NO_SUCH_CONFLICT' } });
  expect((await ask(handler, 'conflicts/1/keep', {})).status).toBe(400);
  expect((await ask(handler, 'conflicts/x')).status).toBe(400);
});

test('of a large row the list has the beginning, where that is asked for, and the letter itself all of it', async () => {
  const { manager } = await new Cluster().node('a', []);
  const handler = createAdminHandler(manager);
  const row = { id: 'x', updated_at: 1, name: 'x'.repeat(5_000) };
  manager.receive(JSON.stringify({ batch_id: 1, changes: [{ ...BAD, row }] }));
  const whole = JSON.stringify(row);
  const { said } = await ask(handler, 'dead-letters?cut=100');
  expect(said).toMatchObject([{ row: whole.slice(0, 100), rowLength: whole.length }]);
  expect((await ask(handler, 'dead-letters')).said).toMatchObject([{ row: whole }]);
  expect((await ask(handler, 'dead-letters/1')).said).toMatchObject({ row: whole });
});

test('what can be asked is listed; the log only where somebody keeps it', async () => {
  const { manager } = await new Cluster().node('a', []);
  const without = createAdminHandler(manager);
  expect((await ask(without, 'routes')).said).toEqual(expect.arrayContaining(['GET status', 'POST verify']));
  expect((await ask(without, 'log')).status).toBe(404);
  const handler = createAdminHandler(manager, { log: (after) => ({ last: after + 1 }) });
  expect((await ask(handler, 'routes')).said).toContain('GET log');
  expect((await ask(handler, 'log?after=6')).said).toEqual({ last: 7 });
  expect((await ask(handler, 'log')).said).toEqual({ last: 1 });
  expect((await ask(handler, 'log?after=x')).status).toBe(400);
});

test('a comparison is begun, looked at, and not begun twice', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b']);
  await cluster.node('b', ['a']);
  a.db.exec("INSERT INTO items (id, updated_at) VALUES ('x', 1)");
  await a.manager.flush();
  const handler = createAdminHandler(a.manager);
  expect((await ask(handler, 'verify')).said).toEqual({ number: 0, running: false });
  expect((await ask(handler, 'verify', { repair: true })).said).toMatchObject({ number: 1, running: true });
  expect(await ask(handler, 'verify', {})).toMatchObject({ status: 400, said: { error: /under way/ } });
  await until('it is over', async () => !(await ask(handler, 'verify')).said.running);
  expect((await ask(handler, 'verify')).said.results).toMatchObject([{ peer: cluster.url('b'), equal: true }]);
});

describe('what is refused changes nothing', () => {
  test.each([
    ['peers/pause', {}, 400, '"url" must be given'],
    ['peers/pause', { url: 'http://stranger.test' }, 400, 'not among the peers'],
    ['peers/explode', { url: 'http://b.test' }, 404, 'peers can be'],
    ['dead-letters/7/retry', {}, 404, 'there is no dead letter 7'],
    ['dead-letters/seven/retry', {}, 400, 'must be a whole number'],
    ['verify', { repair: 'yes' }, 400, '"repair" must be true or false'],
    ['verify', { repare: true }, 400, '"repare" is not known'],
    ['status', {}, 404, 'there is no POST'],
  ])('%s %j', async (path, body, status, error) => {
    const { manager } = await new Cluster().node('a', ['b']);
    const answer = await ask(createAdminHandler(manager), path, body);
    expect(answer).toEqual({ status, said: expect.objectContaining({ error: expect.stringContaining(error) }) });
    expect(manager.peers.list()).toMatchObject([{ url: 'http://b.test', paused: false }]);
  });

  test('a body that is no object, or too large', async () => {
    const { manager } = await new Cluster().node('a', []);
    const handler = createAdminHandler(manager);
    const post = (body: string): Promise<Response> =>
      handler(
        new Request('http://localhost/_rowcast/api/verify', {
          method: 'POST',
          headers: { 'x-rowcast-admin': '1' },
          body,
        }),
      );
    for (const body of ['[]', 'null', '{', `{"a":"${'x'.repeat(70_000)}"}`])
      expect((await post(body)).status).toBe(400);
  });

  test('a page of another site, a form, and whoever has not the token', async () => {
    const { manager } = await new Cluster().node('a', ['b']);
    const open = createAdminHandler(manager);
    const url = 'http://b.test';
    const cross = { host: 'localhost', origin: 'http://evil.test' };
    expect((await ask(open, 'peers/pause', { url }, cross)).status).toBe(403);
    expect((await ask(open, 'status', undefined, cross)).status).toBe(403);
    expect((await ask(open, 'status', undefined, { host: 'localhost', origin: 'http://localhost' })).status).toBe(200);
    expect((await ask(open, 'peers/pause', { url }, { 'x-rowcast-admin': '' })).status).toBe(403);
    const closed = createAdminHandler(manager, { token: 'a token of some length' });
    for (const authorization of ['', 'Bearer', 'Bearer wrong', 'Basic a token of some length']) {
      expect((await ask(closed, 'status', undefined, { authorization })).status).toBe(401);
    }
    const right = { authorization: 'Bearer a token of some length' };
    expect((await ask(closed, 'status', undefined, right)).status).toBe(200);
    expect(manager.peers.list()).toMatchObject([{ url, paused: false }]);
  });
});

test('what the database keeps from being done is no fault of the request', async () => {
  const { manager, db } = await new Cluster().node('a', []);
  const handler = createAdminHandler(manager);
  db.exec('BEGIN');
  const asked = await ask(handler, 'peers/add', { url: 'http://c.test' });
  db.exec('ROLLBACK');
  expect(asked).toMatchObject({ status: 503, said: { code: 'IN_TRANSACTION' } });
  expect(await ask(handler, 'peers/add', { url: 'nowhere' })).toMatchObject({ status: 400 });
});

test('a body that breaks off is the fault of the one who sends it', async () => {
  const { manager } = await new Cluster().node('a', []);
  const broken = new ReadableStream({ pull: (controller) => controller.error(new Error('gone')) });
  const request = new Request('http://localhost/_rowcast/api/peers/add', {
    method: 'POST',
    headers: { 'x-rowcast-admin': '1' },
    body: broken,
    ...({ duplex: 'half' } as object),
  });
  expect((await createAdminHandler(manager)(request)).status).toBe(400);
});
