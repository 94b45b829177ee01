/** What the loop tells, and that neither a listener nor a failing database stops it. */
import { expect, test } from 'vitest';
import { attach, RowcastError, type RowcastEvents } from '../../src/index.ts';
import { acknowledged, connectionError, recordingFetch } from '../support/bad-servers.ts';
import { cleanUp, database } from '../support/nodes.ts';
import { idsOf, PEER, pending, rig, watched, write, writeMany } from '../support/sender.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

test('events carry what they say', async () => {
  let mode: 'down' | 'refuse' | 'ok' = 'down';
  const made = await rig((sent) =>
    mode === 'down'
      ? connectionError()
      : mode === 'refuse'
        ? { status: 422, body: '{"error":"not you"}' }
        : acknowledged(sent),
  );
  const log: [string, unknown][] = [];
  const { manager, db, clock } = made;
  manager.on('acked', (event: RowcastEvents['acked']) => log.push(['acked', event]));
  manager.on('peer-up', (event: { peer: string }) => log.push(['peer-up', event]));
  manager.on('peer-down', (event: { peer: string; reason: string }) => log.push(['peer-down', event]));
  const off = manager.on('dead-letter', (event: RowcastEvents['dead-letter']) => log.push(['dead-letter', event]));
  write(db, 'a', 'b');
  await clock.advance(1_600);
  mode = 'ok';
  await clock.advance(2_000);
  mode = 'refuse';
  write(db, 'c');
  await clock.advance(2_000);
  expect(log).toEqual([
    ['peer-down', { peer: PEER, reason: expect.stringContaining('ECONNREFUSED') }],
    ['peer-up', { peer: PEER }],
    ['acked', { peer: PEER, batchId: 2, changes: 2 }],
    [
      'dead-letter',
      {
        direction: 'out',
        peer: PEER,
        code: 'refused',
        reason: expect.stringContaining('not you'),
        rows: [{ op: 'INSERT', table: 'items', id: 'c' }],
      },
    ],
  ]);
  off();
  write(db, 'd');
  await clock.advance(2_000);
  expect(log.length).toBe(4);
  expect(manager.deadLetters.list().length).toBe(2);
});

test('a listener that throws disturbs neither the loop nor the other listeners', async () => {
  const { manager, db, clock } = await rig(acknowledged);
  const errors: RowcastError[] = [];
  let heard = 0;
  manager.on('acked', () => {
    throw new Error('mine');
  });
  manager.on('acked', () => {
    heard += 1;
  });
  manager.on('error', (error) => errors.push(error));
  write(db, 'a');
  await clock.advance(50);
  write(db, 'b');
  await clock.advance(50);
  expect(heard).toBe(2);
  expect(pending({ db })).toBe(0);
  expect(errors.map((error) => error.code)).toEqual(['LISTENER_FAILED', 'LISTENER_FAILED']);
});

test('a failure of our own database is an error event, and the loop goes on', async () => {
  const db = await database();
  let broken = false;
  const handle = watched(db, (sql) => {
    if (broken && sql.startsWith('BEGIN')) throw new Error('disk I/O error');
  });
  const clock = new VirtualClock();
  const { fetch, sent } = recordingFetch(acknowledged);
  const manager = attach(handle, { maxAheadMs: 0, id: 'sender', peers: [PEER], clock, fetch, random: () => 0 }, [
    'items',
  ]);
  cleanUp(() => manager.stop());
  const errors: RowcastError[] = [];
  manager.on('error', (error) => errors.push(error));
  broken = true;
  write(db, 'a');
  await clock.advance(120);
  expect(sent).toEqual([]);
  expect(errors.length).toBeGreaterThanOrEqual(2);
  expect(errors[0]).toBeInstanceOf(RowcastError);
  expect(errors[0]).toMatchObject({ code: 'DATABASE_FAILED', message: expect.stringContaining('disk I/O error') });
  broken = false;
  await clock.advance(50);
  expect(sent.map(idsOf)).toEqual([['a']]);
  expect(pending({ db })).toBe(0);
});

test('a failure while the next batch is made ready does not drown the answer to the one under way', async () => {
  const db = await database();
  let broken = false;
  const handle = watched(db, (sql) => {
    if (broken && sql.startsWith('BEGIN')) throw new Error('disk I/O error');
  });
  const { fetch, sent } = recordingFetch(async (one) => {
    broken = true;
    await settle();
    broken = false;
    return acknowledged(one);
  });
  const clock = new VirtualClock();
  const manager = attach(handle, { maxAheadMs: 0, id: 'sender', peers: [PEER], clock, fetch, batchSize: 2 }, ['items']);
  cleanUp(() => manager.stop());
  writeMany(db, 4);
  await manager.flush();
  expect(sent.map((one) => one.batchId)).toEqual([2, 4]);
  expect(pending({ db })).toBe(0);
});
