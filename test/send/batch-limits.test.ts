/** What goes into one batch: so many changes, so many bytes, and nothing that is not committed. */
import { expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { acknowledged, type Reply, recordingFetch } from '../support/bad-servers.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, node, rowsOf } from '../support/nodes.ts';
import { idsOf, PEER, pending, rig, write, writeMany } from '../support/sender.ts';
import { settle } from '../support/virtual-clock.ts';

test('no batch has more changes than batchSize', async () => {
  const { db, clock, sent } = await rig(acknowledged, { batchSize: 7 });
  writeMany(db, 50);
  await clock.advance(0);
  expect(Math.max(...sent.map((one) => one.changes.length))).toBe(7);
  expect(sent.flatMap(idsOf).length).toBe(50);
});

test.each(['tail', 'snapshot'])('no batch has more bytes than maxBatchBytes, in the %s', async (part) => {
  const max = 4_096;
  const fill = (db: TestDatabase): void => {
    db.exec('BEGIN');
    for (let i = 0; i < 1_000; i++) {
      db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(`row-${i}`, `ä${'x'.repeat((i * 7) % 90)}`);
    }
    // A long id is carried twice by a deletion.
    for (let i = 0; i < 20; i++) {
      db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(`${'long'.repeat(100)}-${i}`, 'x');
    }
    db.exec("DELETE FROM items WHERE id LIKE 'long%'");
    db.exec('COMMIT');
  };
  const before = await node();
  if (part === 'snapshot') fill(before.db);
  await before.manager.stop();
  const { sent, fetch } = recordingFetch(acknowledged);
  const manager = attach(before.db, { maxAheadMs: 0, id: 'sender', peers: [PEER], fetch, maxBatchBytes: max }, [
    'items',
  ]);
  cleanUp(() => manager.stop());
  if (part === 'tail') fill(before.db);
  await manager.flush();
  expect(sent.length).toBeGreaterThan(5);
  expect(sent.filter((one) => one.bytes > max).map((one) => one.bytes)).toEqual([]);
});

test.each(['tail', 'snapshot'])('a change larger than maxBatchBytes still goes, alone, in the %s', async (part) => {
  const fill = (db: TestDatabase): void => {
    write(db, 'a', 'b');
    db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run('c-big', 'x'.repeat(10_000));
    write(db, 'd', 'e');
  };
  const before = await node();
  if (part === 'snapshot') fill(before.db);
  await before.manager.stop();
  const { sent, fetch } = recordingFetch(acknowledged);
  const manager = attach(before.db, { maxAheadMs: 0, id: 'sender', peers: [PEER], fetch, maxBatchBytes: 2_048 }, [
    'items',
  ]);
  cleanUp(() => manager.stop());
  if (part === 'tail') fill(before.db);
  await manager.flush();
  expect(sent.map(idsOf)).toEqual([['a', 'b'], ['c-big'], ['d', 'e']]);
});

test('nothing of a transaction is shipped before COMMIT', async () => {
  const { db, clock, sent, events } = await rig(acknowledged);
  write(db, 'before');
  db.exec('BEGIN');
  write(db, 'inside');
  await clock.advance(5_000);
  expect(sent).toEqual([]);
  db.exec('COMMIT');
  await clock.advance(50);
  expect(sent.map(idsOf)).toEqual([['before', 'inside']]);
  expect(events).toEqual(['peer-up', 'acked']);
});

test('nothing at all of a transaction is shipped after ROLLBACK', async () => {
  const { db, clock, sent, manager } = await rig(acknowledged);
  write(db, 'before');
  await clock.advance(50);
  db.exec('BEGIN IMMEDIATE');
  write(db, 'inside');
  manager.nudge();
  await clock.advance(5_000);
  const flushed = manager.flush();
  await settle();
  db.exec('ROLLBACK');
  await flushed;
  await clock.advance(5_000);
  expect(sent.map(idsOf)).toEqual([['before']]);
  write(db, 'after');
  await clock.advance(50);
  expect(sent.map(idsOf)).toEqual([['before'], ['after']]);
});

test('an answer that comes while the application has a transaction open does not join that transaction', async () => {
  let answer: ((reply: Reply) => void) | undefined;
  let asked = 0;
  const { db, clock, sent, events } = await rig((one) => {
    asked += 1;
    return asked === 1 ? new Promise((resolve) => (answer = resolve)) : acknowledged(one);
  });
  write(db, 'a');
  await clock.advance(0);
  db.exec('BEGIN');
  write(db, 'b');
  answer?.({ status: 200, body: '{"ack":1}' });
  await clock.advance(5_000);
  db.exec('ROLLBACK');
  expect(rowsOf(db, 'SELECT row_id FROM _changes').length).toBeLessThanOrEqual(1);
  await clock.advance(5_000);
  expect(pending({ db })).toBe(0);
  expect(new Set(sent.flatMap(idsOf))).toEqual(new Set(['a']));
  expect(events).not.toContain('error');
});
