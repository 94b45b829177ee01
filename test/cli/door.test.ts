import { describe, expect, test } from 'vitest';
import { Doorman, isLoopback, onlyByName } from '../../src/cli/door.ts';
import type { Incoming } from '../../src/http/bridge.ts';

describe('an address that only this machine reaches', () => {
  test.each(['localhost', 'LOCALHOST', '127.0.0.1', '127.255.0.9', '::1'])('%s', (host) => {
    expect(isLoopback(host)).toBe(true);
  });

  test.each([undefined, '', '0.0.0.0', '::', '128.0.0.1', '127.0.0.1.example', 'localhost.example', '::2'])(
    'not %s',
    (host) => {
      expect(isLoopback(host)).toBe(false);
    },
  );
});

describe('on a loopback address', () => {
  const asked = (host: string | null): Promise<number> => {
    const answer = onlyByName(async () => ({ status: 200, headers: {}, body: '' }), ['Node.Internal']);
    const incoming = { header: (name: string) => (name === 'host' ? host : null) } as Incoming;
    return answer(incoming).then(({ status }) => status);
  };

  test.each(['localhost', 'localhost:9001', '127.0.0.1:1', '[::1]:9001', 'node.internal', 'NODE.INTERNAL:80'])(
    'a request for %s is answered',
    async (host) => expect(await asked(host)).toBe(200),
  );

  test('so is one that says no name, which no browser does', async () => {
    expect(await asked(null)).toBe(200);
  });

  test.each(['', 'evil.example', 'localhost.evil.example:9001', '[::2]', 'a:b:c', '127.0.0.1@evil.example'])(
    'a request for %s is refused',
    async (host) => expect(await asked(host)).toBe(403),
  );
});

test('an address has so many at a time, and others are not affected', () => {
  const doorman = new Doorman(2);
  expect([doorman.enter('a'), doorman.enter('a'), doorman.enter('a'), doorman.enter('b')]).toEqual([
    true,
    true,
    false,
    true,
  ]);
  doorman.leave('a');
  expect([doorman.enter('a'), doorman.enter('a')]).toEqual([true, false]);
  const unlimited = new Doorman(0);
  expect(Array.from({ length: 1_000 }, () => unlimited.enter('a')).every(Boolean)).toBe(true);
});
