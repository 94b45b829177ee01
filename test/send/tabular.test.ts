/** Batches go in the tabular form to who says that it reads it, and nowhere else. */
import { expect, test } from 'vitest';
import type { Reply } from '../support/bad-servers.ts';
import { rowsOf } from '../support/nodes.ts';
import { pending, rig, write } from '../support/sender.ts';
import { batchIn, isTabular } from '../support/tabular.ts';

const SELF = 'id=b; inc=9be0aa10c2f4d871; boot=3-aa11cc22; t0=5; t=60';

/** Which bodies went out, and whether a peer that answers like this has them all. */
async function sentTo(answer: (body: Uint8Array, nth: number) => Reply, rounds = 3) {
  const bodies: Uint8Array[] = [];
  const it = await rig((_, raw) => {
    bodies.push(Uint8Array.from(raw));
    return answer(raw, bodies.length);
  });
  for (let round = 0; round < rounds; round++) {
    write(it.db, `${round}-a`, `${round}-b`, `${round}-c`);
    await it.clock.advance(3_000);
  }
  return { ...it, bodies };
}

const taken = (body: Uint8Array, said: string): Reply => ({
  status: 200,
  body: JSON.stringify({ applied: 3, ack: batchIn(body).batch_id }),
  headers: { 'x-rowcast': said, 'x-node-id': 'b' },
});

const texts = (bodies: Uint8Array[]): string[] => bodies.map((body) => new TextDecoder().decode(body));

test('a peer that says so is sent the tabular form from its first answer on', async () => {
  const { bodies, db, manager } = await sentTo((body) => taken(body, `${SELF}; reads=tabular`));
  expect(bodies.map(isTabular)).toEqual([false, true, true]);
  expect(bodies.flatMap((body) => batchIn(body).changes.map(({ row }) => row.id))).toEqual([
    '0-a',
    '0-b',
    '0-c',
    '1-a',
    '1-b',
    '1-c',
    '2-a',
    '2-b',
    '2-c',
  ]);
  expect([pending({ db }), manager.deadLetters.list()]).toEqual([0, []]);
});

test.each([
  ['says nothing of it', SELF],
  ['reads another form', `${SELF}; reads=sideways`],
  ['is a plain one', ''],
])('a peer that %s is sent what it was always sent', async (_, said) => {
  const { bodies } = await sentTo((body) => taken(body, said));
  const row = (id: string): string =>
    `{"op":"INSERT","table":"items","row":{"id":"${id}","name":"name of ${id}","value":1,"created_at":10,"updated_at":1000},"old_id":null}`;
  const rows = (round: number): string => ['a', 'b', 'c'].map((name) => row(`${round}-${name}`)).join(',');
  expect(texts(bodies)).toEqual([0, 1, 2].map((n) => `{"batch_id":${3 * n + 3},"changes":[${rows(n)}]}`));
});

test('a peer that reads it no more is sent the plain form again', async () => {
  const { bodies } = await sentTo((body, nth) => taken(body, nth === 2 ? SELF : `${SELF}; reads=tabular`), 4);
  expect(bodies.map(isTabular)).toEqual([false, true, false, true]);
});

test('what is refused in this form is sent in the plain one at once, and nothing is set aside', async () => {
  const { bodies, db, manager, events, times } = await sentTo((body) =>
    isTabular(body)
      ? {
          status: 400,
          body: '{"error":"changes must be an array"}',
          headers: { 'x-rowcast': `${SELF}; reads=tabular` },
        }
      : taken(body, `${SELF}; reads=tabular`),
  );
  expect(bodies.map(isTabular)).toEqual([false, true, false, false]);
  expect([pending({ db }), manager.deadLetters.list(), rowsOf(db, 'SELECT * FROM _dead_letter')]).toEqual([0, [], []]);
  expect(events.filter((event) => event !== 'acked')).toEqual(['peer-up']);
  expect(times[2]).toBe(times[1]);
});

test('what does not arrive in this form is sent in the plain one', async () => {
  const { bodies, db } = await sentTo((body) =>
    isTabular(body) ? { status: 502, body: 'no' } : taken(body, `${SELF}; reads=tabular`),
  );
  expect(pending({ db })).toBe(0);
  expect(bodies.filter((body) => !isTabular(body))).toHaveLength(3);
});

test('a change that is refused in either form is found, and the others go on in the tabular one', async () => {
  const { bodies, db, manager } = await sentTo((body) =>
    batchIn(body).changes.some(({ row }) => row.id === '1-b')
      ? { status: 422, body: '{"error":"not this one"}', headers: { 'x-rowcast': `${SELF}; reads=tabular` } }
      : taken(body, `${SELF}; reads=tabular`),
  );
  expect(pending({ db })).toBe(0);
  expect(manager.deadLetters.list().map(({ rowId, direction }) => [rowId, direction])).toEqual([['1-b', 'out']]);
  expect(isTabular(bodies.at(-1) as Uint8Array)).toBe(true);
});
