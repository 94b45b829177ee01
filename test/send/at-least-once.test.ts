/** What was sent is on disk, is sent again until it is acknowledged, and nothing else goes with it. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import {
  acknowledged,
  connectionError,
  never,
  type Reply,
  receivedBy,
  recordingFetch,
} from '../support/bad-servers.ts';
import { openDatabase } from '../support/lane.ts';
import { cleanUp, database, exactRows, ITEMS, node, rowsOf, scratchFolder } from '../support/nodes.ts';
import { idsOf, PEER, pending, rig, TIMEOUT, watched, write, writeMany } from '../support/sender.ts';
import { settle } from '../support/virtual-clock.ts';

test('what is sent was flushed to disk before, although the application runs with synchronous=NORMAL', async () => {
  const path = join(scratchFolder(), 'a.db');
  const db = await database(ITEMS, path);
  db.exec('PRAGMA synchronous = NORMAL');
  const level = (): number => Number(Object.values(rowsOf(db, 'PRAGMA synchronous')[0] ?? {})[0]);
  const last = (): number => Number(rowsOf(db, 'SELECT max(change_id) AS n FROM _changes')[0]?.n);
  /** The newest change that a commit with synchronous=FULL has covered; only a commit that wrote something flushes. */
  let flushedUpTo = 0;
  let wrote = false;
  const handle = watched(db, (sql) => {
    if (sql.startsWith('BEGIN')) wrote = false;
    if (/^(INSERT|UPDATE|DELETE)/.test(sql)) wrote = true;
    if (sql === 'COMMIT' && level() >= 2 && wrote) flushedUpTo = last();
  });
  const { fetch, sent } = recordingFetch((one) => {
    expect(flushedUpTo).toBeGreaterThanOrEqual(one.batchId);
    return acknowledged(one);
  });
  const manager = attach(handle, { maxAheadMs: 0, id: 'sender', peers: [PEER], fetch, batchSize: 2 }, ['items']);
  cleanUp(() => manager.stop());
  for (const id of ['a', 'b', 'c', 'd', 'e']) {
    write(db, id, `${id}2`, `${id}3`);
    await manager.flush();
  }
  expect(pending({ db })).toBe(0);
  expect(sent.flatMap(idsOf).length).toBe(15);
  expect(level()).toBe(1);
});

test('after a crash a new attach sends again what was not acknowledged, and nothing else', async () => {
  const path = join(scratchFolder(), 'a.db');
  const first = await rig((sent) => (sent.batchId <= 4 ? acknowledged(sent) : never()), { path, batchSize: 2 });
  writeMany(first.db, 10);
  await first.clock.advance(0);
  expect(first.sent.map((one) => one.batchId)).toEqual([2, 4, 6]);
  // The first process is as good as dead: its request hangs and its clock stands still.
  const db = await openDatabase(path);
  cleanUp(() => db.close());
  const { sent, fetch } = recordingFetch(acknowledged);
  const manager = attach(db, { maxAheadMs: 0, id: 'sender', peers: [PEER], fetch, batchSize: 2 }, ['items']);
  cleanUp(() => manager.stop());
  await manager.flush();
  expect(sent.map((one) => one.batchId)).toEqual([6, 8, 10]);
  expect(pending({ db })).toBe(0);
});

test('a lost acknowledgement means that the same batch is sent again, and the end is the same', async () => {
  const receiver = await node({ id: 'receiver' });
  let lost = 3;
  const { db, clock, sent } = await rig((_sent, raw) => {
    const reply = receivedBy(receiver.manager, raw);
    lost -= 1;
    return lost >= 0 ? connectionError() : reply;
  });
  write(db, 'a', 'b');
  await clock.advance(2_000);
  expect(sent.length).toBe(4);
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(db, 'items'));
  expect(pending({ db })).toBe(0);
});

test('ids never start again after a drain, not even after another attach', async () => {
  const { db, clock, sent, manager } = await rig(acknowledged);
  write(db, 'a', 'b', 'c');
  await clock.advance(50);
  expect(pending({ db })).toBe(0);
  write(db, 'd');
  await clock.advance(50);
  await manager.stop();
  const second = recordingFetch(acknowledged);
  const again = attach(db, { maxAheadMs: 0, id: 'sender', peers: [PEER], fetch: second.fetch }, ['items']);
  cleanUp(() => again.stop());
  write(db, 'e');
  await again.flush();
  expect([...sent, ...second.sent].map((one) => one.batchId)).toEqual([3, 4, 5]);
});

test('an acknowledgement deletes nothing that was written after its batch was read', async () => {
  let answer: ((reply: Reply) => void) | undefined;
  const { db, clock } = await rig((one) =>
    one.batchId === 2 ? new Promise((resolve) => (answer = resolve)) : never(),
  );
  write(db, 'a', 'b');
  await clock.advance(0);
  write(db, 'c');
  answer?.({ status: 200, body: '{"ack":2}' });
  await settle();
  expect(rowsOf(db, 'SELECT change_id, row_id FROM _changes')).toEqual([{ change_id: 3, row_id: 'c' }]);
});

test('an answer that comes after its request was given up changes nothing', async () => {
  const answers: ((reply: Reply) => void)[] = [];
  const { db, clock, events } = await rig(() => new Promise((resolve) => answers.push(resolve)));
  write(db, 'a');
  await clock.advance(TIMEOUT + 50);
  expect(answers.length).toBe(2);
  answers[0]?.({ status: 200, body: '{"ack":1}' });
  await settle();
  expect(pending({ db })).toBe(1);
  expect(events).toEqual([]);
});
