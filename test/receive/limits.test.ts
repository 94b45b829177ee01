/** What a stranger may send at most of one thing: ids, keys, names. A node and a hub say the same of it. */
import { describe, expect, test } from 'vitest';
import { createLog, logEvents } from '../../src/cli/log.ts';
import { systemClock } from '../../src/clock.ts';
import { firstOf } from '../support/draws.ts';
import { hub } from '../support/hubs.ts';
import { node, rowsOf } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const SCHEMA = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';

function put(id: string, more: object = {}, table = 'items'): object {
  return { op: 'INSERT', table, row: { id, name: 'n', ...more, updated_at: T }, old_id: null };
}

const receivers = {
  node: async () => {
    const { manager, db } = await node({ schema: SCHEMA, maxAheadMs: 86_400_000 });
    return { replica: manager, letters: () => rowsOf(db, 'SELECT code, peer FROM _dead_letter_info'), db };
  },
  hub: async () => {
    const { hub: relay, db } = await hub({ maxAheadMs: 86_400_000 });
    return { replica: relay, letters: () => rowsOf(db, 'SELECT code, peer FROM _dead_letter_info'), db };
  },
};

async function codes(
  to: { receive(body: string, options: object): unknown },
  changes: object[],
  form = (body: string): string => body,
): Promise<(string | undefined)[]> {
  const answer = (await to.receive(form(JSON.stringify({ batch_id: 1, changes })), { said: 'id=a', from: 'a' })) as {
    status: number;
    body: { rejected?: { index: number; code: string; message: string }[] };
  };
  expect(answer.status).toBe(200);
  return changes.map((_, index) => answer.body.rejected?.find((one) => one.index === index)?.code);
}

describe.each(['node', 'hub'] as const)('a %s', (kind) => {
  test.each([
    ['of the usual form', (body: string) => body],
    ['of another form', (body: string) => `${body} `],
  ])('takes an id of 64 kB and none that is longer: a body %s', async (_, form) => {
    const { replica, letters } = await receivers[kind]();
    const at = 'i'.repeat(65_536);
    const changes = [put(at), put(`${at}x`), put('é'.repeat(32_769)), put('short', { name: 'x'.repeat(70_000) })];
    expect(await codes(replica, changes, form)).toEqual([undefined, 'bad-id', 'bad-id', undefined]);
    const gone = { op: 'DELETE', table: 'items', row: null, old_id: `${at}x` };
    expect(await codes(replica, [gone], form)).toEqual(['bad-id']);
    expect(letters()).toHaveLength(3);
  });

  test('takes a row of 2,000 keys and none with more', async () => {
    const { replica } = await receivers[kind]();
    const keys = (n: number): object => Object.fromEntries(Array.from({ length: n - 3 }, (_, i) => [`c${i}`, i]));
    const expected = [kind === 'node' ? 'unknown-column' : undefined, 'bad-row', undefined];
    expect(await codes(replica, [put('a', keys(2_000)), put('b', keys(2_001)), put('c')])).toEqual(expected);
    // Looked at singly.
    const odd = { ...put('[d', keys(2_001)) };
    expect(await codes(replica, [odd])).toEqual(['bad-row']);
  });

  test('keeps nothing of a table whose name is longer than 200 bytes', async () => {
    const { replica, letters } = await receivers[kind]();
    const name = 't'.repeat(200);
    const [short, long] = await codes(replica, [put('a', {}, name), put('b', {}, `${name}x`)]);
    expect([short, long]).toEqual([kind === 'node' ? 'unknown-table' : undefined, 'unknown-table']);
    expect(letters()).toHaveLength(kind === 'node' ? 1 : 0);
  });

  const SINGLY: [string, (i: number) => object][] = [
    ['no changes at all', () => ({ op: 'NO', table: 'items', why: 'so that it is long enough' })],
    ['without a time', () => ({ op: 'INSERT', table: 'items', row: {}, old_id: null })],
    ['too far ahead', (i) => ({ ...put(`r${i}`), row: { id: `r${i}`, name: 'n', updated_at: Date.now() + 9e10 } })],
    ['deletions without a row', (i) => ({ op: 'DELETE', table: 'items', row: null, old_id: `row-${i}` })],
    ['of a table that nobody could keep', (i) => put(`r${i}`, {}, 't'.repeat(201))],
  ];
  const singly = (n: number, make: (i: number) => object): string =>
    JSON.stringify({ batch_id: 1, changes: Array.from({ length: n }, (_, i) => make(i)) });

  test.each(SINGLY)(
    'takes no more than 10,000 changes that are looked at one by one: %s',
    { tags: 'long' },
    async (_, make) => {
      const { replica, letters } = await receivers[kind]();
      const refused = await replica.receive(singly(10_001, make), { from: 'a' });
      expect(refused).toMatchObject({ status: 413, body: { error: expect.stringContaining('10000 changes') } });
      expect(letters()).toEqual([]);
    },
  );

  test.each(firstOf(SINGLY))('takes 10,000 changes that are looked at one by one: %s', async (_, make) => {
    const { replica } = await receivers[kind]();
    expect((await replica.receive(singly(10_000, make), { from: 'a' })).status).toBe(200);
  });

  test('takes more than 10,000 changes of the usual form of a sender that is not Rowcast', async () => {
    const { replica } = await receivers[kind]();
    const changes = Array.from({ length: 10_500 }, (_, i) => put(`r${i}`));
    const answer = await replica.receive(JSON.stringify({ batch_id: 1, changes }), { from: 'a' });
    expect(answer).toMatchObject({ status: 200, body: { applied: 10_500 } });
  });

  test('takes a node id of more than 200 characters for none', async () => {
    const { replica, letters } = await receivers[kind]();
    const bad = JSON.stringify({ batch_id: 1, changes: [{ op: 'NO' }] });
    await replica.receive(bad, { from: 'n'.repeat(201) });
    expect(letters()).toEqual([{ code: 'bad-op', peer: null }]);
  });
});

test.each(
  firstOf([
    ['no more than 10,000', 10_001, 413],
    ['10,000', 10_000, 200],
  ] as const),
)('a node takes %s changes that break a constraint', async (_, n, status) => {
  const { manager, db } = await node({ schema: SCHEMA.replace('name TEXT', 'name TEXT CHECK (length(name) > 1)') });
  const body = JSON.stringify({ batch_id: 1, changes: Array.from({ length: n }, (_, i) => put(`r${i}`)) });
  expect(await manager.receive(body, { from: 'a' })).toMatchObject({ status });
  expect(rowsOf(db, 'SELECT count(*) AS n FROM items')).toEqual([{ n: 0 }]);
  expect(rowsOf(db, 'SELECT count(*) AS n FROM _dead_letter')).toEqual([{ n: status === 200 ? n : 0 }]);
});

test('what rows that clash need is there before the first of them comes', async () => {
  // Made in the transaction of the batch, it would cost as much as a look at the whole schema for each of them.
  const { manager, db } = await node({ schema: SCHEMA.replace('name TEXT', 'name TEXT UNIQUE') });
  await manager.receive(JSON.stringify({ batch_id: 1, changes: [put('a')] }), { from: 'a' });
  const made = rowsOf(db, "SELECT name FROM sqlite_temp_schema WHERE name LIKE '_rowcast_mirror%'");
  expect(made).toEqual([{ name: '_rowcast_mirror_items' }]);
});

test('a batch of many strange tables is ten lines of the log, and a count', async () => {
  const { manager } = await node({ schema: SCHEMA, maxAheadMs: 86_400_000 });
  const lines: Record<string, unknown>[] = [];
  const log = createLog('b', systemClock, (line) => lines.push(JSON.parse(line)));
  logEvents(manager, log, systemClock);
  const changes = Array.from({ length: 30 }, (_, i) => put(`r${i}`, {}, `table${i}`));
  changes.push(put('x', {}, 'y'.repeat(100_000)));
  await codes(manager, changes);
  await new Promise((resolve) => setImmediate(resolve));
  const told = lines.filter(({ event }) => event === 'dead-letter');
  expect(told).toHaveLength(11);
  expect(told.at(-1)).toMatchObject({ event: 'dead-letter', code: 'others', changes: 21 });
  expect(Math.max(...told.map((line) => JSON.stringify(line).length))).toBeLessThan(600);
});
