/** On demand, and by itself: when, how often, what is remembered, and what is told. */
import { expect, test } from 'vitest';
import type { RowcastEvents } from '../../src/index.ts';
import { ITEMS, rowsOf, until } from '../support/nodes.ts';
import { type Pair, pair, silently, THERE } from './pairs.ts';

const DAY = 24 * 3_600_000;
const T = 1_600_000_000_000;

/** A pair that has exchanged something: only then is it known that the other is a Rowcast. */
async function acquainted(config: NonNullable<Parameters<typeof pair>[0]['config']> = {}): Promise<Pair> {
  const the = await pair({ here: ITEMS, config: { random: () => 0.5, ...config } });
  the.link.up = true;
  the.here.exec("INSERT INTO items VALUES ('first', 'x', 1, 1, NULL)");
  await the.manager.flush();
  return the;
}

function events(the: Pair): RowcastEvents['verify-done'][] {
  const told: RowcastEvents['verify-done'][] = [];
  the.manager.on('verify-done', (event) => told.push(event));
  return told;
}

const noteOf = (the: Pair): Record<string, unknown> =>
  JSON.parse(String(rowsOf(the.here, `SELECT value FROM _meta WHERE key = 'verify ${THERE}'`)[0]?.value ?? '{}'));

test('once a day, first within a day, and what differs is put right', async () => {
  const the = await acquainted();
  const told = events(the);
  await the.clock.advance(5_000);
  await until('it is planned', () => noteOf(the).due !== undefined);
  const begun = the.clock.now();
  expect(Number(noteOf(the).due)).toBeGreaterThan(begun + DAY / 2 - 60_000);
  expect(Number(noteOf(the).due)).toBeLessThan(begun + DAY);
  silently([the.there], () => the.there.exec(`INSERT INTO items VALUES ('lost', 'x', 1, 1, ${T})`));
  await the.clock.jump(DAY / 2 - 60_000);
  await the.clock.advance(5_000);
  expect(told).toEqual([]);
  await the.clock.jump(120_000);
  await the.clock.advance(10_000);
  await until('it has been compared', () => told.length === 1);
  expect(told[0]).toMatchObject({
    peer: THERE,
    cause: 'daily',
    equal: true,
    differences: 1,
    repaired: 1,
    tables: { items: 1 },
  });
  expect(JSON.stringify(told[0])).not.toContain('lost');
  expect(rowsOf(the.here, "SELECT id FROM items WHERE id = 'lost'")).toHaveLength(1);
  expect(the.manager.health().peer_states[0]?.verified).toMatchObject({ equal: true, differences: 1, repaired: 1 });
  await the.clock.jump(DAY - 600_000);
  await the.clock.advance(5_000);
  expect(told.length).toBe(1);
  await the.clock.jump(700_000);
  await the.clock.advance(5_000);
  await until('it has been compared again', () => told.length === 2);
  expect(told[1]).toMatchObject({ differences: 0, equal: true });
});

test('one on demand neither brings another about nor puts the next one off', async () => {
  const the = await acquainted();
  const told = events(the);
  await the.clock.advance(3_000);
  await until('it is planned', () => noteOf(the).due !== undefined);
  const { due } = noteOf(the);
  silently([the.there], () => the.there.exec(`INSERT INTO items VALUES ('lost', 'x', 1, 1, ${T})`));
  const [result] = await the.manager.verify(THERE);
  expect(result).toMatchObject({ differences: 1, repaired: 0 });
  await the.clock.advance(5_000);
  expect(told.map(({ cause }) => cause)).toEqual(['asked']);
  expect(noteOf(the)).toMatchObject({ due, last: { equal: false, differences: 1 } });
});

test('a peer that cannot answer is tried again, and is not said to be equal', async () => {
  const the = await acquainted({ verify: { every: '1h' } });
  const told = events(the);
  await the.clock.advance(5_000);
  await until('it is planned', () => noteOf(the).due !== undefined);
  await the.other.stop();
  await the.clock.jump(3_600_000);
  await the.clock.advance(5_000);
  await until('it was tried', () => told.length > 0);
  expect(told[0]).toMatchObject({ equal: false, error: expect.stringContaining('503') });
  expect(the.manager.health().peer_states[0]?.verified).toMatchObject({ equal: false });
  expect(Number(noteOf(the).due)).toBeLessThanOrEqual(the.clock.now() + 600_000);
});

test.each([
  [{ peer: 'http://nobody' }, 'INVALID_PEER', /none of the peers/],
  [{ options: { repairs: true } }, 'INVALID_OPTION', /no option "repairs"; did you mean repair\?/],
  [{ options: { repair: 'yes' } }, 'INVALID_OPTION', /"repair" must be true or false/],
  [{ options: { limit: -1 } }, 'INVALID_OPTION', /"limit" must be an integer/],
  [{ options: { tables: ['item'] } }, 'INVALID_TABLE', /"item" is not synced here; did you mean items\?/],
  [{ options: { tables: [] } }, 'INVALID_OPTION', /non-empty array/],
  [{ options: { signal: 1 } }, 'INVALID_OPTION', /AbortSignal/],
  [{ options: { onProgress: 1 } }, 'INVALID_OPTION', /must be a function/],
])(
  'verify(%j) is refused, and nothing is asked',
  async ({ peer, options }: { peer?: string; options?: object }, code, message) => {
    const the = await pair({ here: ITEMS });
    await expect(the.manager.verify(peer, options)).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message),
    });
    expect(the.requests).toEqual([]);
  },
);

test.each([
  [{ every: '1x' }, /"verify.every" must be a time/],
  [{ every: 5 }, /"verify.every" must be a time/],
  [{ evry: '1h' }, /no "evry"; did you mean every\?/],
  [{ repair: 1 }, /"verify.repair" must be/],
  [true, /"verify" must be an object/],
])('the option verify: %j is refused', async (verify, message) => {
  await expect(pair({ here: ITEMS, config: { verify: verify as never } })).rejects.toThrow(message);
});

test('progress is told, a signal ends it, and only so many differences are listed', async () => {
  const the = await pair({
    here: ITEMS,
    fill: (here) => {
      for (let i = 0; i < 30; i++) here.exec(`INSERT INTO items VALUES ('r${i}', 'x', 1, 1, ${T})`);
    },
  });
  const told: number[] = [];
  const [result] = await the.manager.verify(THERE, {
    limit: 3,
    onProgress: ({ differences }) => told.push(differences),
  });
  expect(result).toMatchObject({ differences: 30, tables: [{ list: { length: 3 } }] });
  expect(told.at(-1)).toBe(30);
  const [ended] = await the.manager.verify(THERE, { signal: AbortSignal.abort() });
  expect(ended).toMatchObject({ equal: false, error: 'stopped' });
});
