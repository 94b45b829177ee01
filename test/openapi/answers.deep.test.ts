/** A running node and a running hub answer as the OpenAPI document says: every route, by status and by shape. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, test } from 'vitest';
import { scratchFolder } from '../support/nodes.ts';
import { freePorts, MAIN, type Parsed, runProgram, started, startNode } from '../support/programs.ts';

type Responses = Record<string, { content: Record<string, { schema: object }> }>;
interface Operation {
  tags: string[];
  'x-served-by': string[];
  responses: Responses;
}

const document: Parsed = JSON.parse(execFileSync(process.execPath, [MAIN, 'openapi'], { encoding: 'utf8' }));
const ajv = new Ajv2020({ strict: false, allErrors: true });
ajv.addSchema({ $id: 'rowcast', components: document.components });

/** What was asked, as `method path status`. */
const answered = new Set<string>();

interface Case {
  /** As in the document. */
  route: string;
  /** Where it differs from that: an id, a query. */
  at?: string;
  status: number;
  body?: unknown;
  headers?: Record<string, string>;
}

async function hold(base: string, { route, at, status, body, headers = {} }: Case): Promise<Parsed> {
  const [method = '', path = ''] = route.split(' ');
  const operation = document.paths[path]?.[method.toLowerCase()] as Operation | undefined;
  const admin: Record<string, string> =
    path.startsWith('/_rowcast/api') && method === 'POST' ? { 'x-rowcast-admin': '1' } : {};
  const answer = await fetch(base + (at ?? path), {
    method,
    headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...admin, ...headers },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await answer.text();
  expect(answer.status, `${route} ${at ?? ''}: ${text.slice(0, 300)}`).toBe(status);
  const response = operation?.responses[status];
  expect(response, `${route} says nothing of ${status}`).toBeDefined();
  const type = answer.headers.get('content-type')?.split(';')[0] as string;
  const content = (response as Responses[string]).content[type];
  expect(content, `${route} ${status} says nothing of ${type}`).toBeDefined();
  answered.add(`${route} ${status}`);
  if (type !== 'application/json') return text;
  const schema = JSON.parse(JSON.stringify(content?.schema).replaceAll('"#/', '"rowcast#/'));
  const isValid = ajv.validate(schema, JSON.parse(text));
  expect(isValid ? [] : ajv.errors, `${route} ${status}: ${text.slice(0, 500)}`).toEqual([]);
  return JSON.parse(text);
}

const WRONG = { op: 'INSERT', table: 'nowhere', row: { id: 'x', updated_at: 1 } };

/** What both answer at the port for peers. */
const data: Case[] = [
  { route: 'POST /sync', status: 200, body: { batch_id: 1, changes: [WRONG] } },
  { route: 'POST /sync', status: 200, body: { batch_id: 2, changes: [{ op: 'NONE' }] } },
  { route: 'POST /sync', status: 400, body: '[]' },
  { route: 'POST /sync', status: 415, body: '{}', headers: { 'content-type': 'text/plain' } },
  { route: 'POST /sync', status: 403, body: '{}', headers: { origin: 'http://elsewhere' } },
  { route: 'POST /sync/compare', status: 200, body: { want: 'tables' } },
  { route: 'POST /sync/compare', status: 400, body: { want: 'all' } },
  { route: 'GET /health', status: 200 },
  { route: 'GET /livez', status: 200 },
  { route: 'GET /readyz', status: 200 },
  { route: 'GET /metrics', status: 200 },
];

const admin: Case[] = [
  { route: 'GET /_rowcast/openapi.json', status: 200 },
  { route: 'GET /_rowcast/', status: 200 },
  { route: 'GET /_rowcast/api/routes', status: 200 },
  { route: 'GET /_rowcast/api/rates', status: 200 },
  { route: 'GET /_rowcast/api/log', status: 200 },
  { route: 'GET /_rowcast/api/status', status: 200 },
  { route: 'GET /_rowcast/api/peers', status: 200 },
  { route: 'POST /_rowcast/api/peers/add', status: 200, body: { url: 'http://127.0.0.1:1' } },
  { route: 'POST /_rowcast/api/peers/add', status: 400, body: { url: 'nonsense' } },
  { route: 'GET /_rowcast/api/peers', status: 200 },
  { route: 'GET /_rowcast/api/status', status: 200 },
  { route: 'POST /_rowcast/api/peers/pause', status: 200, body: { url: 'http://127.0.0.1:1' } },
  { route: 'POST /_rowcast/api/peers/resume', status: 200, body: { url: 'http://127.0.0.1:1' } },
  { route: 'POST /_rowcast/api/peers/reseed', status: 200, body: { url: 'http://127.0.0.1:1' } },
  { route: 'POST /_rowcast/api/peers/remove', status: 200, body: { url: 'http://127.0.0.1:1' } },
  { route: 'POST /_rowcast/api/peers/pause', status: 400, body: {} },
  { route: 'POST /_rowcast/api/peers/pause', status: 403, body: {}, headers: { 'x-rowcast-admin': '0' } },
  { route: 'GET /_rowcast/api/dead-letters', status: 200 },
  { route: 'GET /_rowcast/api/dead-letters', at: '/_rowcast/api/dead-letters?cut=1', status: 200 },
  { route: 'GET /_rowcast/api/dead-letters', at: '/_rowcast/api/dead-letters?limit=x', status: 400 },
  { route: 'GET /_rowcast/api/dead-letters/{id}', at: '/_rowcast/api/dead-letters/999', status: 404 },
  { route: 'GET /_rowcast/api/dead-letters/{id}', at: '/_rowcast/api/dead-letters/x', status: 400 },
  { route: 'POST /_rowcast/api/dead-letters/{id}/retry', at: '/_rowcast/api/dead-letters/999/retry', status: 404 },
  { route: 'POST /_rowcast/api/dead-letters/{id}/discard', at: '/_rowcast/api/dead-letters/999/discard', status: 404 },
  { route: 'POST /_rowcast/api/dead-letters/retry', status: 200, body: {} },
  { route: 'POST /_rowcast/api/dead-letters/retry', status: 400, body: { code: 1 } },
  { route: 'GET /_rowcast/api/dead-letters', at: '/_rowcast/api/dead-letters?cut=5', status: 200 },
  { route: 'GET /_rowcast/api/routes', status: 200 },
  { route: 'GET /_rowcast/api/rates', status: 200 },
  { route: 'GET /_rowcast/api/rates', at: '/_rowcast/api/rates?from=x', status: 400 },
  { route: 'GET /_rowcast/api/log', status: 200 },
  { route: 'GET /_rowcast/api/log', at: '/_rowcast/api/log?after=x', status: 400 },
  { route: 'GET /_rowcast/api/verify', status: 200 },
  { route: 'POST /_rowcast/api/verify', status: 200, body: {} },
  { route: 'POST /_rowcast/api/verify', status: 400, body: { peers: 1 } },
  { route: 'GET /_rowcast/api/status', status: 403, headers: { origin: 'http://elsewhere' } },
];

async function everything(base: string, cases: Case[]): Promise<void> {
  for (const one of cases) await hold(base, one);
}

/** Letters that can be shown, tried again and let go of. */
async function letters(base: string): Promise<void> {
  const [first] = (await hold(base, { route: 'GET /_rowcast/api/dead-letters', status: 200 })) as { id: number }[];
  if (!first) throw new Error('there is no letter');
  const at = `/_rowcast/api/dead-letters/${first.id}`;
  await hold(base, { route: 'GET /_rowcast/api/dead-letters/{id}', at, status: 200 });
  await hold(base, { route: 'POST /_rowcast/api/dead-letters/{id}/retry', at: `${at}/retry`, status: 200 });
  await hold(base, { route: 'POST /_rowcast/api/dead-letters/{id}/discard', at: `${at}/discard`, status: 200 });
}

/** An edit that had not seen the one here replaces it; what was lost is listed, put back and let go of. */
async function lostEdit(url: string, door: string): Promise<void> {
  const made = await hold(url, { route: 'POST /api/items', status: 201, body: { name: 'mine', value: 1 } });
  const row = { ...made, name: 'theirs', updated_at: made.updated_at + 1 };
  const change = { op: 'UPDATE', table: 'items', row, old_id: null, base: made.updated_at - 1 };
  await hold(url, { route: 'POST /sync', status: 200, body: { batch_id: 3, changes: [change] } });
  const path = '/_rowcast/api/conflicts';
  const [first] = (await hold(door, { route: `GET ${path}`, status: 200 })) as { conflictId: number }[];
  const at = `${path}/${first?.conflictId}`;
  await hold(door, { route: `GET ${path}/{id}`, at, status: 200 });
  await hold(door, { route: `GET ${path}/{id}`, at: `${path}/999`, status: 404 });
  const why = '/_rowcast/api/why';
  await hold(door, { route: `GET ${why}`, at: `${why}?table=items&id=${made.id}`, status: 200 });
  await hold(door, { route: `GET ${why}`, at: `${why}?table=items`, status: 400 });
  await hold(door, { route: `POST ${path}/{id}/restore`, at: `${at}/restore`, status: 200, body: {} });
  await hold(door, { route: `POST ${path}/{id}/dismiss`, at: `${at}/dismiss`, status: 200 });
  await hold(door, { route: `POST ${path}/{id}/dismiss`, at: `${at}/dismiss`, status: 404 });
}

const FLAGS = ['-admin-listen', '127.0.0.1:0'];

describe('a node', () => {
  const running = (): Promise<Parsed> => startNode('a', [...FLAGS, '-feed-keep', '100']);

  test('answers at its port as the document says, and to its operator', async () => {
    const node = await running();
    await everything(node.url, data);
    const { id } = await hold(node.url, { route: 'POST /api/items', status: 201, body: { name: 'x', value: 1 } });
    const at = `/api/items/${id}`;
    await everything(node.url, [
      { route: 'POST /api/items', status: 400, body: { name: 1 } },
      { route: 'POST /api/items', status: 413, body: { name: 'x'.repeat(70_000) } },
      { route: 'POST /api/items', status: 415, body: '{}', headers: { 'content-type': 'text/plain' } },
      { route: 'GET /api/items', status: 200 },
      { route: 'POST /api/items/batch', status: 201, body: [{ name: 'y' }] },
      { route: 'POST /api/items/batch', status: 400, body: [{}] },
      { route: 'GET /api/items/{id}', at, status: 200 },
      { route: 'GET /api/items/{id}', at: '/api/items/none', status: 404 },
      { route: 'PUT /api/items/{id}', at, status: 200, body: { value: 2 } },
      { route: 'PUT /api/items/{id}', at, status: 400, body: {} },
      { route: 'PUT /api/items/{id}', at: '/api/items/none', status: 404, body: { value: 2 } },
      { route: 'POST /sync/fetch', status: 200, body: { table: 'items', ids: [id] } },
      { route: 'POST /sync/fetch', status: 400, body: { table: 'items' } },
      {
        route: 'POST /sync/compare',
        status: 200,
        body: { want: 'rows', table: 'items', columns: null, ids: [id] },
      },
      { route: 'DELETE /api/items/{id}', at, status: 200 },
      { route: 'DELETE /api/items/{id}', at, status: 404 },
      { route: 'GET /_rowcast/changes', at: '/_rowcast/changes?include=row', status: 200 },
      { route: 'GET /_rowcast/changes', at: '/_rowcast/changes?feed=x', status: 400 },
    ]);
    const { position } = await hold(node.url, { route: 'GET /_rowcast/changes', status: 200 });
    await hold(node.url, { route: 'POST /api/items', status: 201, body: { name: 'z' } });
    const since = `/_rowcast/changes?feed=longpoll&include=row&since=${position}`;
    await hold(node.url, { route: 'GET /_rowcast/changes', at: since, status: 200 });
    await letters(node.started.admin);
    const peer = { url: 'http://127.0.0.1:1' };
    await hold(node.started.admin, { route: 'POST /_rowcast/api/peers/add', status: 200, body: peer });
    const gone = { route: 'POST /_rowcast/api/forget', body: { id: peer.url } };
    await hold(node.started.admin, { ...gone, status: 200 });
    await hold(node.started.admin, { ...gone, status: 404, body: { id: 'nobody' } });
    await hold(node.started.admin, { ...gone, status: 400, body: {} });
    await lostEdit(node.url, node.started.admin);
    await everything(node.started.admin, admin);
  });

  test('and where there are tokens', async () => {
    const env = { ROWCAST_TOKENS: 'read:a-token-that-reads' };
    const guarded = await startNode('b', ['-feed-keep', '100'], undefined, { env });
    const headers = { authorization: 'Bearer a-token-that-reads' };
    for (const [route, at] of [
      ['GET /api/items'],
      ['GET /api/items/{id}', '/api/items/x'],
      ['GET /_rowcast/changes'],
      ['GET /metrics'],
    ] as [string, string?][]) {
      await hold(guarded.url, { route, ...(at && { at }), status: 401 });
    }
    await hold(guarded.url, { route: 'POST /api/items', status: 403, body: { name: 'x' }, headers });
    await hold(guarded.url, { route: 'GET /metrics', status: 403, headers });
    await hold(guarded.url, { route: 'GET /health', status: 200 });
    await hold(guarded.url, { route: 'GET /readyz', status: 200 });
  });

  test('a method that the document has not is refused', async () => {
    const node = await running();
    for (const [path, methods] of Object.entries(document.paths) as [string, Record<string, Operation>][]) {
      const isAdmin = Object.values(methods)[0]?.tags[0] === 'admin';
      const base = isAdmin ? node.started.admin : node.url;
      for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'PATCH']) {
        if (methods[method.toLowerCase()]) continue;
        const answer = await fetch(base + path.replace('{id}', '1'), { method, headers: { 'x-rowcast-admin': '1' } });
        expect([400, 404, 405], `${method} ${path}`).toContain(answer.status);
      }
    }
  });
});

test('a hub answers as the document says', async () => {
  const [port] = (await freePorts(1)) as [number];
  const db = join(scratchFolder(), 'hub.db');
  const hub = runProgram(MAIN, ['hub', '-id', 'hub', '-db', db, '-listen', `127.0.0.1:${port}`, ...FLAGS]);
  const { url, admin: door } = await started(hub);
  await everything(url, data);
  await hold(url, { route: 'POST /sync/fetch', status: 200, body: { table: 'nowhere', ids: ['x'] } });
  await letters(door);
  await everything(door, admin);
  for (const [path, methods] of Object.entries(document.paths) as [string, Record<string, Operation>][]) {
    if (Object.values(methods).some((one) => one['x-served-by'].includes('hub'))) continue;
    expect((await fetch(url + path.replace('{id}', '1'))).status, path).toBe(404);
  }
});

test('every route of the document was asked, and has answered well', () => {
  const all = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods as object).map((method) => `${method.toUpperCase()} ${path}`),
  );
  const well = (route: string): boolean => [200, 201].some((status) => answered.has(`${route} ${status}`));
  expect(all.filter((route) => !well(route))).toEqual([]);
});
