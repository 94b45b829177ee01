/** Two attachments to one file with different peers: neither drops what the peers of the other need, and both are told. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { attach, type Config, type Manager } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import {
  cleanUp,
  database,
  ITEMS,
  node,
  rowsOf,
  scratchFolder,
  serveManager,
  type TestNode,
} from '../support/nodes.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

interface Process {
  db: TestDatabase;
  manager: Manager;
  codes: string[];
  clock: VirtualClock;
}

const HOUR = 3_600_000;

async function processOn(path: string, config: Partial<Config> & { clock: VirtualClock }): Promise<Process> {
  const db = await database(ITEMS.replace('TABLE', 'TABLE IF NOT EXISTS'), path);
  const manager = attach(db, { maxAheadMs: 0, id: 'node', peers: [], batchMs: HOUR, ...config }, ['items']);
  cleanUp(() => manager.stop());
  const codes: string[] = [];
  manager.on('warning', ({ code }) => codes.push(code));
  return { db, manager, codes, clock: config.clock };
}

const write = ({ db }: Process, id: string): unknown => db.exec(`INSERT INTO items VALUES ('${id}', 'n', 1, 1, 1000)`);
const ids = (it: TestNode): unknown[] => it.all('SELECT id FROM items ORDER BY id').map(({ id }) => id);
const changes = ({ db }: Process): unknown => rowsOf(db, 'SELECT count(*) AS n FROM _changes')[0]?.n;

/** Lets both tick a few times, one after the other. */
async function ticks(...processes: Process[]): Promise<void> {
  for (let i = 0; i < 60; i++) for (const { clock } of processes) await clock.advance(40);
}

async function two(): Promise<{ path: string; left: TestNode; right: TestNode; one: Process; other: Process }> {
  const path = join(scratchFolder(), 'shared.db');
  const left = await node({ id: 'left' });
  const right = await node({ id: 'right' });
  const one = await processOn(path, { peers: [await serveManager(left.manager)], clock: new VirtualClock() });
  const other = await processOn(path, { peers: [await serveManager(right.manager)], clock: new VirtualClock() });
  return { path, left, right, one, other };
}

test('a change stays until the peers of both have it', async () => {
  const { left, right, one, other } = await two();
  write(one, 'a');
  write(other, 'b');
  await one.manager.flush();
  expect(ids(left)).toEqual(['a', 'b']);
  expect(changes(one)).toBe(2);
  await other.manager.flush();
  expect(ids(right)).toEqual(['a', 'b']);
  expect(changes(one)).toBe(0);
});

test('both are told, once', async () => {
  const { one, other } = await two();
  await ticks(one, other);
  await ticks(one, other);
  expect(one.codes).toEqual(['two-processes']);
  expect(other.codes).toEqual(['two-processes']);
});

test('one that sends beside others that have no peers is nothing to tell', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const peer = await serveManager((await node({ id: 'left' })).manager);
  const one = await processOn(path, { peers: [peer], clock: new VirtualClock() });
  const other = await processOn(path, { peers: [], clock: new VirtualClock() });
  const third = await processOn(path, { id: 'another', peers: [], clock: new VirtualClock() });
  await ticks(one, other, third);
  expect(one.codes).toEqual(['two-processes']);
  await third.manager.stop();
  await ticks(one, other);
  expect([one.codes, other.codes]).toEqual([['two-processes'], ['two-processes']]);
});

test('two with the same configuration, or one after the other, are nothing to tell', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const peer = await serveManager((await node({ id: 'left' })).manager);
  const one = await processOn(path, { peers: [peer], clock: new VirtualClock() });
  const other = await processOn(path, { peers: [peer], clock: new VirtualClock() });
  await ticks(one, other);
  await one.manager.stop();
  await other.manager.stop();
  const third = await processOn(path, { peers: [], clock: new VirtualClock() });
  await ticks(third);
  expect([...one.codes, ...other.codes, ...third.codes]).toEqual([]);
  expect(rowsOf(third.db, 'SELECT peers FROM _attachments')).toEqual([{ peers: '[]' }]);
});

test('a peer that was taken out of the configuration holds nothing back any more', async () => {
  const { right, one, other } = await two();
  write(one, 'a');
  await one.manager.stop();
  await other.manager.flush();
  expect(ids(right)).toEqual(['a']);
  expect(changes(other)).toBe(0);
});

test('one that ended without stop() is forgotten after a minute in which it gave no sign; until then all is kept', async () => {
  const { one, other } = await two();
  write(one, 'a');
  // Its clock stands still from here on: it gives no sign.
  await other.clock.advance(59_000);
  await other.manager.flush();
  expect(changes(other)).toBe(1);
  await other.clock.advance(2_000);
  expect(rowsOf(other.db, 'SELECT count(*) AS n FROM _attachments')).toEqual([{ n: 1 }]);
  write(other, 'b');
  await other.manager.flush();
  expect(changes(other)).toBe(0);
  expect(other.codes).toEqual([]);
});

test('what was kept for one alone goes when it goes, though nothing more is sent', async () => {
  const { one, other } = await two();
  write(one, 'a');
  await other.manager.flush();
  await other.clock.advance(1_000);
  expect(changes(other)).toBe(1);
  await other.clock.advance(70_000);
  expect(changes(other)).toBe(0);
});

test('one that was only suspended, and forgotten meanwhile, loses nothing', async () => {
  const { left, one, other } = await two();
  write(one, 'a');
  await other.clock.advance(70_000);
  await other.manager.flush();
  expect(changes(other)).toBe(0);
  write(other, 'b');
  // It goes on: with shipping, before it has looked around.
  await one.manager.flush();
  await settle();
  expect(ids(left)).toEqual(['a', 'b']);
  expect(rowsOf(one.db, 'SELECT count(*) AS n FROM _attachments')).toEqual([{ n: 2 }]);
});

test('alone, the file is not written to', async () => {
  const path = join(scratchFolder(), 'alone.db');
  const one = await processOn(path, { clock: new VirtualClock() });
  const watcher = await database('SELECT 1', path);
  const version = (): unknown => rowsOf(watcher, 'PRAGMA data_version')[0]?.data_version;
  const before = version();
  await ticks(one);
  expect(version()).toBe(before);
});
