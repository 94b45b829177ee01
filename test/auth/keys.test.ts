/** Keys: what is taken for one, which of them signs, and what is remembered. */
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { createKeyring, type Key } from '../../src/auth/index.ts';
import { checkAuth } from '../../src/auth/keys.ts';
import { NONCES_MAX, Nonces, WINDOW_S } from '../../src/auth/nonces.ts';
import { normalisePeer } from '../../src/wire/peer-url.ts';
import { keys, NOW, OTHER_SECRET, received, request, SECRET } from './messages.ts';

describe('what is refused at the start', () => {
  const refused: [string, unknown, RegExp][] = [
    ['no keys', { keys: [] }, /at least one key/],
    ['an id with a space', { keys: [{ id: 'a b', secret: SECRET }] }, /keys\[0\]\.id/],
    ['a short secret', { keys: [{ id: 'a', secret: 'c2hvcnQ=' }] }, /32 bytes or more.*keygen/],
    ['a secret that is not base64', { keys: [{ id: 'a', secret: `${SECRET.slice(0, -4)}!!!!` }] }, /as base64/],
    [
      'two keys of one id',
      {
        keys: [
          { id: 'a', secret: SECRET },
          { id: 'a', secret: OTHER_SECRET },
        ],
      },
      /two keys/,
    ],
    ['a misspelt field', { keys: [{ id: 'a', secret: SECRET, node: ['x'] }] }, /no "node"; did you mean nodes/],
    ['an unknown mode', { keys: [{ id: 'a', secret: SECRET }], mode: 'maybe' }, /"require" or "accept"/],
    [
      'a key for a peer that is none',
      { keys: [{ id: 'a', secret: SECRET }], sign: { 'http://b': 'x' } },
      /names the key "x"/,
    ],
    [
      'one secret for two keys: whoever has the one has what the other may',
      {
        keys: [
          { id: 'a', secret: SECRET, write: [] },
          { id: 'b', secret: SECRET.replace(/=+$/, '') },
        ],
      },
      /the key "a" has the secret of another one, which may do something else/,
    ],
    [
      'one id for two URLs, of which both would be refused',
      { keys: [{ id: 'a', secret: SECRET }], peerIds: { 'http://b': 'b', 'http://c': 'b' } },
      /names the node "b" for http:\/\/b and for http:\/\/c/,
    ],
    [
      'an id for a peer that need not show it',
      { keys: [{ id: 'a', secret: SECRET }], sign: { 'http://b': null }, peerIds: { 'http://b': 'b' } },
      /names a node for http:\/\/b, which is exempt/,
    ],
    [
      'an id that no node can have',
      { keys: [{ id: 'a', secret: SECRET }], peerIds: { 'http://b': 'b ' } },
      /a node id for/,
    ],
    ['a node that can be none', { keys: [{ id: 'a', secret: SECRET, nodes: ['b, c'] }] }, /array of node ids/],
    ['no nodes', { keys: [{ id: 'a', secret: SECRET, nodes: [] }] }, /array of node ids/],
  ];
  test.each(refused)('%s', (_, options, message) => {
    expect(() => createKeyring(options as never)).toThrow(message);
  });

  test('one peer under two spellings', () => {
    const both = { 'http://b:80': 'a', 'HTTP://b/': null };
    const auth = { keys: [{ id: 'a', secret: SECRET }], sign: both };
    expect(() => checkAuth(auth, normalisePeer)).toThrow(/"auth.sign" names http:\/\/b twice/);
  });

  test('no message has any part of a secret', () => {
    for (const [, options] of refused) {
      try {
        createKeyring(options as never);
      } catch (error) {
        expect(inspect(error)).not.toMatch(/cm93Y2FzdCB0|YW5vdGhlci/);
      }
    }
  });
});

test('a key may have two names for a while, where both may do the same', () => {
  const renamed = ['old', 'new'].map((id) => ({ id, secret: SECRET, nodes: ['a'], write: ['items'] }));
  expect(checkAuth({ keys: renamed }).keys.map(({ id }) => id)).toEqual(['old', 'new']);
});

test('a secret is shown by nothing that prints or serialises what there is of keys', () => {
  const keyring = keys();
  const { sent } = request({}, { keyring });
  const shown = [keyring, keyring.find('k1'), sent].map(
    (one) => inspect(one, { depth: 9, showHidden: true }) + JSON.stringify(one),
  );
  for (const text of shown) expect(text).not.toContain(SECRET.slice(0, 20));
  for (const text of shown) expect(text).not.toContain(Buffer.from(SECRET, 'base64').toString().slice(0, 10));
});

test('the first key signs, or the one that is named for the peer; a rotation passes without a refusal', () => {
  const [old, next] = [
    { id: 'old', secret: SECRET },
    { id: 'new', secret: OTHER_SECRET },
  ];
  const steps = [[old], [old, next], [next, old], [next]];
  for (const [i, mine] of steps.entries()) {
    // Each node is at this step, or at the one before or after it.
    for (const theirs of steps.slice(Math.max(0, i - 1), i + 2)) {
      const { message } = request({}, { keyring: createKeyring({ keys: mine }) });
      expect(received(message, createKeyring({ keys: theirs })).kind).toBe('verified');
    }
  }
  const named = createKeyring({ keys: [old, next], sign: { 'http://b': 'new', 'http://c': null } });
  expect(named.keyFor('http://a')?.id).toBe('old');
  expect(named.keyFor('http://b')?.id).toBe('new');
  expect(named.keyFor('http://c')).toBeUndefined();
});

describe('nonces', () => {
  const second = NOW / 1_000;

  test('are forgotten when nobody can repeat them any more', () => {
    const nonces = new Nonces();
    for (let i = 0; i < 100; i++) nonces.take(`n${i}`, second, second);
    expect(nonces.size).toBe(100);
    expect(nonces.take('n1', second, second + WINDOW_S)).toBe(false);
    nonces.take('later', second + WINDOW_S + 1, second + WINDOW_S + 1);
    expect(nonces.size).toBe(1);
    expect(nonces.isTimely(second, second + WINDOW_S + 1)).toBe(false);
  });

  test('beyond their number the oldest second goes, and nothing of it is timely any more', () => {
    const nonces = new Nonces(10);
    for (let i = 0; i < 30; i++) {
      expect(nonces.isTimely(second + i, second + i)).toBe(true);
      expect(nonces.take('n', second + i, second + i)).toBe(true);
      expect(nonces.size).toBeLessThanOrEqual(10);
      for (let j = 0; j <= i; j++) {
        const again = nonces.isTimely(second + j, second + i) && nonces.take('n', second + j, second + i);
        expect(again, `${j} at ${i}`).toBe(false);
      }
    }
  });

  test('a clock that is set back does not refuse everybody', () => {
    const nonces = new Nonces(2);
    for (let i = 0; i < 5; i++) nonces.take(`n${i}`, second + i, second + i);
    expect(nonces.isTimely(second - 3_600, second - 3_600)).toBe(true);
    expect(nonces.take('n', second - 3_600, second - 3_600)).toBe(true);
  });
});

test('whoever fills the memory of its own key has nothing forgotten of the requests of another', () => {
  const keyring = createKeyring({
    keys: [
      { id: 'k1', secret: SECRET },
      { id: 'k2', secret: OTHER_SECRET },
    ],
  });
  const { message } = request({}, { keyring });
  expect(received(message, keyring).kind).toBe('verified');
  const flooding = keyring.noncesOf(keyring.find('k2') as Key);
  for (let i = 0; i <= NONCES_MAX; i++) flooding.take(`${i}`, NOW / 1_000 + 299, NOW / 1_000);
  expect(received(message, keyring)).toMatchObject({ kind: 'denied', status: 425 });
});
