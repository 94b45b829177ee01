/** Wrong arguments: each is answered with an error of our own that names the value, and changes nothing. */
import { describe, expect, test } from 'vitest';
import { createListener } from '../src/http/index.ts';
import { type Manager, RowcastError } from '../src/index.ts';
import { node, rowsOf } from './support/nodes.ts';

const unprintable = {
  toString(): string {
    throw new Error('not this one');
  },
};
const bare = Object.assign(Object.create(null), { self: null });
bare.self = bare;
const BATCH = '{"batch_id":1,"changes":[]}';

type Call = (manager: Manager, value: never) => unknown;
const CALLS: Record<string, [call: Call, wrong: unknown[], told: RegExp]> = {
  'hello(...)': [
    (m, value) => m.hello(value),
    [5, 10n, true, [], ['id=a'], {}, Symbol('s'), () => {}],
    /"said" must be/,
  ],
  'receive(..., {said})': [(m, said) => m.receive(BATCH, { said }), [5, 10n, ['id=a'], new Date()], /"said" must be/],
  'receive(..., {from})': [(m, from) => m.receive(BATCH, { from }), [5, ['a'], {}], /"from" must be/],
  'receive(..., {comesAgain})': [
    (m, comesAgain) => m.receive(BATCH, { comesAgain }),
    [1, 'true', {}],
    /"comesAgain" must be true or false/,
  ],
  'receive(..., ...)': [(m, value) => m.receive(BATCH, value), [5, 'x', true, () => {}], /must be an object/],
  'deadLetters.list(...)': [
    (m, value) => m.deadLetters.list(value),
    [null, 5, [], { limt: 5 }],
    /deadLetters\.list\(\)/,
  ],
  'deadLetters.list({after})': [(m, after) => m.deadLetters.list({ after }), [10n, unprintable, bare], /whole number/],
  'deadLetters.retry(...)': [
    (m, value) => m.deadLetters.retry(value),
    [true, [], {}, new Date(), 10n, 'x', Symbol('s'), bare, unprintable],
    /number of a dead letter must be a number, not/,
  ],
  'deadLetters.discard(...)': [
    (m, value) => m.deadLetters.discard(value),
    [true, [], {}, new Date(), 10n, 'x', undefined],
    /number of a dead letter must be a number, not/,
  ],
  'conflicts.list(...)': [
    (m, value) => m.conflicts.list(value),
    [null, 5, [], { tabel: 'items' }],
    /conflicts\.list\(\)/,
  ],
  'conflicts.list({table})': [
    (m, table) => m.conflicts.list({ table }),
    [5, null, [], 10n],
    /"table" must be text, not/,
  ],
  'conflicts.get(...)': [(m, value) => m.conflicts.get(value), [10n, unprintable, bare], /must be a whole number, not/],
  'conflicts.restore(1, ...)': [
    (m, value) => m.conflicts.restore(1, value),
    [null, ['name']],
    /conflicts\.restore\(\)/,
  ],
  'createListener(m, ...)': [(m, value) => createListener(m, value), [null, 5, true, []], /must be an object/],
  'createListener(m, {})': [
    (m, value) => createListener(m, value),
    [{ prefx: '/' }],
    /no option "prefx"; did you mean/,
  ],
  'forget(...)': [(m, value) => m.forget(value), [10n, bare], /no node .+ is known here/],
  'on(...)': [(m, value) => m.on(value, () => {}), [10n, bare, Symbol('s')], /there is no event/],
  'peers.add(...)': [(m, value) => m.peers.add(value), [10n, null, Symbol('s')], /peer .+ is not a string/],
  'peers.remove(...)': [(m, value) => m.peers.remove(value), [10n], /peer 10n is not a string/],
  'peers.pause(...)': [(m, value) => m.peers.pause(value), [10n], /peer 10n is not a string/],
  'configure({batchMs})': [(m, batchMs) => m.configure({ batchMs }), [10n, unprintable, bare], /"batchMs" must be/],
  'verify(...)': [(m, value) => m.verify(value), [10n], /peer 10n is not a string/],
};

describe.each(Object.entries(CALLS))('%s', (_name, [call, values, told]) => {
  test('says what is wrong, in an error of ours, and changes nothing', async () => {
    const { db, manager } = await node();
    const before = rowsOf(db, 'SELECT * FROM _meta ORDER BY key');
    for (const value of values) {
      const failure = await attempt(() => call(manager, value as never));
      expect(failure).toBeInstanceOf(RowcastError);
      expect((failure as RowcastError).message).toMatch(told);
    }
    expect(rowsOf(db, 'SELECT * FROM _meta ORDER BY key')).toEqual(before);
    expect(manager.health().ok).toBe(true);
  });
});

test('what is not known of a request may be left out, or be null', async () => {
  const { manager } = await node();
  expect(manager.receive(BATCH, null as never).status).toBe(200);
  expect(manager.receive(BATCH, { said: null, from: undefined }).status).toBe(200);
  expect(manager.hello(null)).toEqual({});
});

async function attempt(action: () => unknown): Promise<unknown> {
  try {
    return await action();
  } catch (error) {
    return error;
  }
}
