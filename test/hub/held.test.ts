/** Somebody else has the lock of the hub's file, a shell with an open transaction: the hub answers, waits, and goes on. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createHandler, createListener } from '../../src/http/index.ts';
import type { HubConfig } from '../../src/hub/hub.ts';
import { count, door, edge, hub, insert, live, quiet, T } from '../support/hubs.ts';
import { database, rowsOf, scratchFolder, until } from '../support/nodes.ts';

/** Whoever waits in SQLite for the whole of it keeps everything else from going on: a minute is more than a test has. */
const LIMIT_MS = 60_000;

async function besideAnother(config: Partial<HubConfig> = {}) {
  const path = join(scratchFolder(), 'hub.db');
  const it = await hub(config, path);
  it.db.exec(`PRAGMA busy_timeout = ${LIMIT_MS}`);
  const other = await database('SELECT 1', path);
  const complaints: string[] = [];
  it.hub.on('error', ({ code }) => complaints.push(code));
  it.hub.on('warning', ({ message }) => complaints.push(message));
  return { ...it, other, complaints };
}

function batch(...changes: object[]): Request {
  return new Request('http://hub.test/sync', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ batch_id: 7, changes }),
  });
}

const turns = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 200));

test('a batch waits for the end of it, and others are answered meanwhile', async () => {
  const { hub: relay, db, other, complaints, rows } = await besideAnother();
  const handler = createHandler(relay);
  other.exec('BEGIN IMMEDIATE');
  const answer = handler(batch(live('a', T)));
  expect((await handler(new Request('http://hub.test/livez'))).status).toBe(200);
  expect((await handler(new Request('http://hub.test/health'))).status).toBe(200);
  await turns();
  expect(rows()).toEqual([]);
  other.exec('COMMIT');
  expect(await (await answer).json()).toEqual({ applied: 1, ack: 7 });
  expect(rows()).toMatchObject([{ row_id: 'a' }]);
  expect(complaints).toEqual([]);
  expect(Object.values(rowsOf(db, 'PRAGMA busy_timeout')[0] ?? {})).toEqual([LIMIT_MS]);
});

test('what edges acknowledge meanwhile is noted afterwards, and what they write comes through', async () => {
  const center = await door();
  const [one, two] = [await door(), await door()];
  const nodes = [await edge('a', [center.url], one), await edge('b', [center.url], two)] as const;
  const { hub: relay, other, complaints } = await besideAnother({ edges: [one.url, two.url] });
  center.open(createListener(relay));
  insert(nodes[0], 'before');
  await until('it has arrived', () => count(nodes[1]) === 1);
  await quiet([relay], [...nodes]);
  other.exec('BEGIN IMMEDIATE');
  insert(nodes[0], 'meanwhile');
  await turns();
  expect(count(nodes[1])).toBe(1);
  expect((await relay.health()).ok).toBe(true);
  other.exec('ROLLBACK');
  await until('it has arrived', () => count(nodes[1]) === 2);
  await quiet([relay], [...nodes]);
  expect(complaints).toEqual([]);
});

test('an edge is added, paused and removed once it is free', async () => {
  const { hub: relay, other } = await besideAnother();
  const at = await door();
  other.exec('BEGIN IMMEDIATE');
  const added = relay.edges.add(at.url);
  await turns();
  other.exec('COMMIT');
  await added;
  other.exec('BEGIN IMMEDIATE');
  const paused = relay.edges.pause(at.url);
  await turns();
  other.exec('COMMIT');
  await paused;
  expect(await relay.edges.list()).toMatchObject([{ url: at.url, paused: true }]);
  other.exec('BEGIN IMMEDIATE');
  const removed = relay.edges.remove(at.url);
  await turns();
  other.exec('COMMIT');
  await removed;
  expect(await relay.edges.list()).toEqual([]);
});

test('for longer than SQLite itself would have waited, the sender is told to try again, and somebody is told why', async () => {
  const { hub: relay, db, other, complaints } = await besideAnother();
  db.exec('PRAGMA busy_timeout = 100');
  other.exec('BEGIN IMMEDIATE');
  const answer = await createHandler(relay)(batch(live('a', T)));
  expect(answer.status).toBe(503);
  expect(await answer.json()).toEqual({ error: expect.stringContaining('another connection') });
  expect(complaints).toEqual(['DATABASE_BUSY']);
  other.exec('ROLLBACK');
  expect((await createHandler(relay)(batch(live('a', T)))).status).toBe(200);
});

test('a hub that is stopped does not wait for it', async () => {
  const { hub: relay, other } = await besideAnother();
  other.exec('BEGIN IMMEDIATE');
  const answer = createHandler(relay)(batch(live('a', T)));
  await turns();
  await relay.stop();
  expect((await answer).status).toBe(503);
  other.exec('ROLLBACK');
});
