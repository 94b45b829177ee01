/** What a stranger may send at most of one thing: ids, keys, names. A node and a hub say the same of it. */
import { describe, expect, test } from 'vitest';
import { createLog, logEvents } from '../../src/cli/log.ts';
import { systemClock } from '../../src/clock.ts';
import { hub } from '../support/hubs.ts';
import { node, rowsOf } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const SCHEMA = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';

function put(id: string, more: object = {}, table = 'items'): object {
  return { op: 'INSERT', table, row: { id, name: 'n', ...more, updated_at: T }, old_id: null };
}

const receivers = {
  node: async () => {
    const { manager, db } = await node({ schema: SCHEMA });
    return { replica: manager, letters: () => rowsOf(db, 'SELECT code, peer FROM _dead_letter_info'), db };
  },
  hub: async () => {
    const { hub: relay, db } = await hub();
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

  test('takes a node id of more than 200 characters for none', async () => {
    const { replica, letters } = await receivers[kind]();
    const bad = JSON.stringify({ batch_id: 1, changes: [{ op: 'NO' }] });
    await replica.receive(bad, { from: 'n'.repeat(201) });
    expect(letters()).toEqual([{ code: 'bad-op', peer: null }]);
  });
});

test('a batch of many strange tables is ten lines of the log, and a count', async () => {
  const { manager } = await node({ schema: SCHEMA });
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
