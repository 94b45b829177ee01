/** A hub keeps what is far ahead of its clock, as a node does, and passes it on when its time has come. */
import { describe, expect, test } from 'vitest';
import { createHub } from '../../src/hub/hub.ts';
import { deliver, gone, hub, live, type TestHub } from '../support/hubs.ts';
import { rowsOf, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const NOW = 1_700_000_000_000;
const DAY = 86_400_000;
const YEAR = 365 * DAY;

async function careful(): Promise<TestHub & { clock: VirtualClock }> {
  const clock = new VirtualClock();
  return { ...(await hub({ clock, maxAheadMs: DAY })), clock };
}

const places = ({ db }: TestHub): unknown[] =>
  rowsOf(db, 'SELECT row_id, op, updated_at, origin FROM _hub_rows ORDER BY seq').map((row) => Object.values(row));

describe('a change whose time is too far ahead', () => {
  test('is acknowledged, listed and kept; the others go on', async () => {
    const made = await careful();
    const answer = await deliver(made.hub, [live('x', NOW), live('y', NOW + YEAR), live('z', NOW + DAY)], 'a');
    expect(answer).toMatchObject({ applied: 2, rejected: [{ index: 1, code: 'future-stamp' }] });
    expect(await made.hub.deadLetters.list()).toMatchObject([
      { code: 'future-stamp', rowId: 'y', dueAt: NOW + YEAR - DAY, peer: 'a' },
    ]);
    expect(places(made).map((row) => (row as unknown[])[0])).toEqual(['x', 'z']);
    expect(await made.hub.health()).toMatchObject({ ok: true, dead_letter: 1 });
  });

  test('gets a new place when its time has come, and goes to all, whoever brought it', async () => {
    const made = await careful();
    await deliver(made.hub, [live('x', NOW + YEAR, { name: 'late' }), gone('y', NOW + YEAR)], 'a');
    await deliver(made.hub, [live('x', NOW + 1), live('y', NOW + 1)], 'a');
    await made.clock.jump(YEAR - DAY - 5_000);
    expect(places(made)).toEqual([
      ['x', 'UPDATE', NOW + 1, 'a'],
      ['y', 'UPDATE', NOW + 1, 'a'],
    ]);
    await made.clock.advance(10_000);
    expect(places(made)).toEqual([
      ['x', 'UPDATE', NOW + YEAR, null],
      ['y', 'DELETE', NOW + YEAR, null],
    ]);
    expect(await made.hub.deadLetters.list()).toEqual([]);
  });

  test('keeps its place when it has lost meanwhile', async () => {
    const made = await careful();
    await deliver(made.hub, [live('x', NOW + YEAR), live('x', NOW + YEAR, { name: 'z' })], 'a');
    await made.clock.jump(YEAR);
    await made.clock.advance(2_000);
    expect(rowsOf(made.db, 'SELECT row_data FROM _hub_rows')).toEqual([
      { row_data: JSON.stringify({ id: 'x', name: 'z', updated_at: NOW + YEAR }) },
    ]);
  });

  test('may come in a form that needs a closer look, and of two of a plain peer the later one waits', async () => {
    const made = await careful();
    const odd = { op: 'UPDATE', table: 'items', row: { ID: '$text:$x', Updated_At: NOW + YEAR }, old_id: null };
    expect(await deliver(made.hub, [odd], 'a')).toMatchObject({ rejected: [{ code: 'future-stamp' }] });
    const twice = [live('p', NOW + YEAR, { name: 'z' }), live('p', NOW + YEAR, { name: 'a' }), live('q', 5)];
    expect(await deliver(made.hub, twice, 'a')).toMatchObject({ applied: 1, rejected: [{ index: 1 }] });
    await made.clock.jump(YEAR);
    await made.clock.advance(2_000);
    expect(places(made).map((row) => (row as unknown[])[0])).toEqual(['q', '$x', 'p']);
    expect(rowsOf(made.db, "SELECT row_data ->> 'name' AS name FROM _hub_rows WHERE row_id = 'p'")).toEqual([
      { name: 'a' },
    ]);
  });

  test('a person may try it, and is told when it is due, or discard it', async () => {
    const made = await careful();
    await deliver(made.hub, [live('x', NOW + YEAR), live('y', NOW + YEAR)], 'a');
    const [x, y] = (await made.hub.deadLetters.list()).map(({ id }) => id) as [number, number];
    expect(await made.hub.deadLetters.retry(x)).toMatchObject({ outcome: 'kept' });
    await made.hub.deadLetters.discard(y);
    expect(await made.hub.deadLetters.list()).toMatchObject([{ code: 'future-stamp', retryCount: 1 }]);
    await made.clock.jump(YEAR);
    await made.clock.advance(2_000);
    expect(places(made)).toEqual([['x', 'UPDATE', NOW + YEAR, null]]);
  });

  test('is released in bounded pages', async () => {
    const made = await careful();
    await deliver(
      made.hub,
      Array.from({ length: 450 }, (_, i) => live(`r${i}`, NOW + YEAR + i)),
      'a',
    );
    await made.clock.jump(YEAR);
    await made.clock.advance(2_000);
    expect(places(made)).toHaveLength(450);
    expect(await made.hub.deadLetters.list()).toEqual([]);
  });
});

test('what an earlier hub has above the ceiling is brought to the present, and goes to all', async () => {
  const made = await careful();
  await deliver(made.hub, [live('x', NOW), live('y', NOW), gone('z', NOW)], 'a');
  await made.hub.stop();
  made.db.exec(
    "UPDATE _hub_rows SET updated_at = 8e15, row_data = json_set(row_data, '$.updated_at', 8000000000000000) " +
      "WHERE row_id <> 'y'; PRAGMA user_version = 4",
  );
  const again = await createHub(made.db, { id: 'hub', edges: [] });
  const warnings: string[] = [];
  again.on('warning', ({ code }) => warnings.push(code));
  const rows = rowsOf(made.db, 'SELECT row_id, updated_at AS at, row_data, origin FROM _hub_rows ORDER BY seq');
  expect(rows.map(({ row_id }) => row_id)).toEqual(['y', 'x', 'z']);
  for (const { at, row_data, origin } of rows.slice(1)) {
    expect(Math.abs(Number(at) - Date.now())).toBeLessThan(600_000);
    expect(JSON.parse(String(row_data)).updated_at).toBe(at);
    expect(origin).toBeNull();
  }
  await until('it is told', () => warnings.length > 0);
  expect(warnings).toEqual(['time-above-ceiling']);
  await again.stop();
});

test('a file of an earlier hub keeps its letters', async () => {
  const made = await careful();
  await deliver(made.hub, [live('x', Number.NaN)], 'a');
  await made.hub.stop();
  made.db.exec(
    'DROP INDEX _dead_letter_due; DROP TABLE _hub_clock; ' +
      'ALTER TABLE _dead_letter_info DROP COLUMN version; PRAGMA user_version = 3',
  );
  const again = await createHub(made.db, { id: 'hub', edges: [], clock: new VirtualClock() });
  expect(await again.deadLetters.list()).toMatchObject([{ code: 'bad-timestamp', rowId: 'x' }]);
  expect(await deliver(again, [live('y', NOW + YEAR)], 'a')).toMatchObject({ rejected: [{ code: 'future-stamp' }] });
  await again.stop();
});
