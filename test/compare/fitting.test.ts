/** Which of the rows that are asked for make a batch: measured a few at a time, and none is passed over. */
import { expect, test } from 'vitest';
import { fittingAmong } from '../../src/compare/ledger.ts';
import { hub } from '../support/hubs.ts';
import { node } from '../support/nodes.ts';

const ids = (from: number, to: number): string[] => Array.from({ length: to - from }, (_, i) => `r${from + i}`);

test('no more are measured than may be in a batch, unless there is nothing of them', () => {
  const measured: string[][] = [];
  const there = new Set(['r25', 'r27', 'r40']);
  const fitting = fittingAmong(ids(0, 50), { rows: 10, bytes: 100 }, (some) => {
    measured.push(some);
    return some.filter((id) => there.has(id)).map((id) => ({ id, bytes: 60 }));
  });
  expect(measured).toEqual([ids(0, 10), ids(10, 20), ids(20, 30)]);
  // The second of them is too much for this batch.
  expect(fitting).toEqual({ fitting: ['r25'], rest: ['r27', ...ids(30, 50)] });
});

test('of ids of which there is nothing at all, nothing is left', () => {
  expect(fittingAmong(ids(0, 25), { rows: 10, bytes: 100 }, () => [])).toEqual({ fitting: [], rest: [] });
});

const CHANGE =
  '{"op":"INSERT","table":"items","row":{"id":"r999","name":"x","value":1,"created_at":1,"updated_at":1700000000000},"old_id":null}';
const ASKED = JSON.stringify({ table: 'items', ids: ids(0, 1_000) });

test.each(['node', 'hub'])('a %s finds the one row that it has among many that it does not have', async (kind) => {
  const replica = kind === 'hub' ? (await hub()).hub : (await node()).manager;
  await replica.receive(`{"batch_id":1,"changes":[${CHANGE}]}`, { from: 'x' });
  const { status, body } = await replica.answer('/sync/fetch', ASKED);
  expect(status).toBe(200);
  expect(JSON.parse(body).changes.map(({ row }: { row: { id: string } }) => row.id)).toEqual(['r999']);
});
