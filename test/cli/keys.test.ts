/** Keys as the programs read them. */
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { keygen, readAuth } from '../../src/cli/keys.ts';
import { readableByOthers } from '../../src/cli/secrets.ts';
import { OTHER_SECRET, SECRET } from '../auth/messages.ts';
import { scratchFolder } from '../support/nodes.ts';

function keysFile(content: string): string {
  const path = join(scratchFolder(), 'keys.json');
  writeFileSync(path, content, { mode: 0o600 });
  return path;
}

test('from a file, or from the environment, and from nowhere', () => {
  const sign = { 'http://b': null };
  const path = keysFile(JSON.stringify({ keys: [{ id: 'k1', secret: SECRET, nodes: ['a'] }], sign }));
  expect(readAuth({ keysFile: path, keysMode: 'accept', peerId: [['http://c', 'c']] }, {})).toEqual({
    keys: [{ id: 'k1', secret: SECRET, nodes: ['a'] }],
    sign,
    peerIds: { 'http://c': 'c' },
    mode: 'accept',
  });
  expect(readAuth({}, { ROWCAST_KEYS: `k1:${SECRET}, k2:${OTHER_SECRET}` })?.keys).toEqual([
    { id: 'k1', secret: SECRET },
    { id: 'k2', secret: OTHER_SECRET },
  ]);
  expect(readAuth({ keysMode: 'require' }, { ROWCAST_KEYS: ' ' })).toBeUndefined();
});

describe('what is wrong is said, where it is, and nothing of a secret with it', () => {
  const broken = SECRET.slice(0, 20);
  test.each([
    ['not JSON', `{"keys":[{"id":"k1","secret":"${SECRET}"}`, /keys\.json: not JSON/],
    ['JSON with a secret in the wrong place', `["${SECRET}"]`, /not an object/],
    ['a short secret', `{"keys":[{"id":"k1","secret":"${broken}"}]}`, /secret of key "k1" must be 32 bytes/],
    [
      'a key that is not there',
      `{"keys":[{"id":"k1","secret":"${SECRET}"}],"sign":{"http://b":"k2"}}`,
      /names the key "k2"/,
    ],
    ['another field', `{"keys":[],"mode":"accept"}`, /keys and sign, and no "mode"/],
    ['a URL that is none', `{"keys":[{"id":"k1","secret":"${SECRET}"}],"sign":{"b":"k1"}}`, /"b" is not a URL/],
  ])('%s', (_, content, message) => {
    const path = keysFile(content);
    let said = '';
    try {
      readAuth({ keysFile: path }, {});
    } catch (error) {
      said = (error as Error).message;
    }
    expect(said).toMatch(message);
    expect(said).not.toContain(broken);
  });

  test('two nodes for one URL', () => {
    const peerId: [string, string][] = [
      ['http://b', 'b'],
      ['http://b', 'c'],
    ];
    expect(() => readAuth({ peerId }, { ROWCAST_KEYS: `k1:${SECRET}` })).toThrow(/^-peer-id names http:\/\/b twice/);
  });

  test('the environment', () => {
    expect(() => readAuth({}, { ROWCAST_KEYS: SECRET })).toThrow(/^ROWCAST_KEYS: key 1 is not id:base64$/);
    expect(() => readAuth({}, { ROWCAST_KEYS: 'k1:short' })).toThrow(/^ROWCAST_KEYS: the secret of key "k1"/);
    expect(() => readAuth({ keysFile: '/x' }, { ROWCAST_KEYS: `k1:${SECRET}` })).toThrow(
      /-keys-file and ROWCAST_KEYS are both given/,
    );
    expect(() => readAuth({ keysFile: '/nowhere' }, {})).toThrow(/cannot be read/);
    expect(() => readAuth({ peerId: [['http://b', 'b']] }, {})).toThrow(/-peer-id needs keys/);
  });
});

test('a file that others can read is told of', () => {
  const path = keysFile('{}');
  expect(readableByOthers('-keys-file', path)).toEqual([]);
  chmodSync(path, 0o640);
  const message = `-keys-file ${path} can be read by others than its owner: chmod 600 ${path}`;
  expect(readableByOthers('-keys-file', path)).toEqual([{ code: 'secret-readable', message }]);
});

test('keygen prints a file that can be used, and another one each time', async () => {
  const printed: string[] = [];
  const write = vi.spyOn(process.stdout, 'write').mockImplementation((text) => printed.push(String(text)) > 0);
  try {
    expect(await keygen(['k1'])).toBe(0);
    expect(await keygen([])).toBe(0);
    expect(await keygen(['--help'])).toBe(0);
    await expect(keygen(['a b'])).rejects.toThrow(/1 to 64 of/);
    await expect(keygen(['a', 'b'])).rejects.toThrow(/one id/);
  } finally {
    write.mockRestore();
  }
  const [first, second] = printed.slice(0, 2).map((text) => readAuth({ keysFile: keysFile(text) }, {})?.keys[0]);
  expect(first?.id).toBe('k1');
  expect(second?.id).toMatch(/^k-[0-9a-f]{8}$/);
  expect(Buffer.from(first?.secret ?? '', 'base64')).toHaveLength(32);
  expect(first?.secret).not.toBe(second?.secret);
});
