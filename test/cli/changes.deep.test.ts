/** The feed of running programs: over the network, over kills, and to whom it is shown. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Reader } from '../support/event-reader.ts';
import { scratchFolder, until } from '../support/nodes.ts';
import { freePorts, hangUp, startNode } from '../support/programs.ts';

const FEED = ['-feed-keep', '1000', '-stop-ms', '600000'];

async function put(url: string, name: string, token?: string): Promise<string> {
  const headers = { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }) };
  const answer = await fetch(`${url}/api/items`, { method: 'POST', headers, body: JSON.stringify({ name }) });
  expect(answer.status).toBe(201);
  return ((await answer.json()) as { id: string }).id;
}

test('a write on one node is in the events of the other, also when that was killed meanwhile', async () => {
  const [portA, portB] = (await freePorts(2)) as [number, number];
  const to = (port: number): string => `http://127.0.0.1:${port}`;
  const a = await startNode('a', [...FEED, '-listen', `127.0.0.1:${portA}`, '-peer', to(portB)]);
  const args = [...FEED, '-listen', `127.0.0.1:${portB}`, '-peer', to(portA)];
  const b = await startNode('b', args);
  const folder = b.db.replace(/\/[^/]*$/, '');
  const reader = new Reader(`${b.url}/_rowcast/changes`);
  await until('it is there', () => reader.events.length > 1);
  const first = await put(a.url, 'first');
  await until('it is told', () => reader.ids.includes(first));
  b.child.kill('SIGKILL');
  await b.ended;
  await until('the connection is gone', () => reader.ended);
  const second = await put(a.url, 'second');
  const again = await startNode('b', args, folder);
  const next = new Reader(`${again.url}/_rowcast/changes?include=row`, { 'last-event-id': reader.position });
  await until('the second is told', () => next.ids.includes(second));
  expect(next.events.some(({ event }) => event === 'reset')).toBe(false);
  expect(next.ids).not.toContain(first);
  again.child.kill('SIGTERM');
  expect(await again.ended).toBe(0);
  await until('it is told of the end', () => next.ended);
  expect(again.lines('stopped')).toMatchObject([{ requests: 'finished' }]);
});

test('it is for those who may read the items, and served only where it was asked for', async () => {
  const env = { ROWCAST_TOKENS: 'read:may-read-all-items,health:may-read-health-only' };
  const guarded = await startNode('a', FEED, undefined, { env });
  const status = async (url: string, token?: string): Promise<number> =>
    (await fetch(`${url}/_rowcast/changes`, token ? { headers: { authorization: `Bearer ${token}` } } : {})).status;
  expect(await status(guarded.url)).toBe(401);
  expect(await status(guarded.url, 'may-read-health-only')).toBe(403);
  expect(await status(guarded.url, 'may-read-all-items')).toBe(200);
  expect(await status((await startNode('b')).url)).toBe(404);
});

test('a reader whose token was taken away is told nothing more, though it was reading', async () => {
  const path = join(scratchFolder(), 'tokens');
  const [old, other] = ['may-read-all-items', 'may-read-and-write'];
  const allow = (...tokens: object[]): void => writeFileSync(path, JSON.stringify({ tokens }), { mode: 0o600 });
  allow({ token: old, scope: ['read'] }, { token: other, scope: ['read', 'write'] });
  const node = await startNode('a', [...FEED, '-tokens-file', path]);
  const changes = `${node.url}/_rowcast/changes`;
  const [gone, stays] = [old, other].map((token) => new Reader(changes, { authorization: `Bearer ${token}` }));
  const polled = fetch(`${changes}?feed=longpoll&since=now`, { headers: { authorization: `Bearer ${old}` } });
  await until('both read', () => (gone?.events.length ?? 0) > 0 && (stays?.events.length ?? 0) > 0);
  await hangUp(node, 'reloaded', () => allow({ token: other, scope: ['read', 'write'] }));
  const id = await put(node.url, 'after', other);
  await until('it is told to the one', () => stays?.ids.includes(id) === true);
  await until('the other is let go of', () => gone?.ended === true);
  expect(gone?.ids).not.toContain(id);
  expect((await polled).status).toBe(401);
});
