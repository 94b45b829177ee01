/** The test vectors of docs/protocol.md, which were made by three other programs. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { digestFits } from '../../src/auth/index.ts';
import { answered, BODY, keys, NONCE, NOW, received, reply, request, senderOf } from './messages.ts';

const page = readFileSync(fileURLToPath(new URL('../../docs/protocol.md', import.meta.url)), 'utf8');

const REQUEST = {
  'content-digest': 'sha-256=:FI5reN/DfzYauBvoGngHvHOq64qdNX7w8QDpNx2GtfQ=:',
  'signature-input':
    'rowcast=("@method" "content-type" "content-digest" "x-node-id");created=1700000000;' +
    'nonce="AAECAwQFBgcICQoLDA0ODw";keyid="k1";alg="hmac-sha256";tag="rowcast-sync"',
  signature: 'rowcast=:47iCZsTvrusOoNQA1G7gSkTV9JsHUB+Je/f/7ZSO4hI=:',
};

const ANSWER = {
  'content-digest': 'sha-256=:W+vGtfzm/52DnuR/PvwR2i3I++Mem5YVpw1VEh+j1d4=:',
  'signature-input':
    'rowcast=("@status" "content-digest" "x-node-id" "signature";req;key="rowcast");created=1700000000;' +
    'keyid="k1";alg="hmac-sha256";tag="rowcast-answer"',
  signature: 'rowcast=:Uk9cNz01SVlgwZvCuHSv5nP0blLxe6HssivQpytvcFU=:',
};

test('a batch is signed as the vector says, and the vector is verified', () => {
  const { message, sent } = request({}, { nonce: NONCE });
  expect(sent.headers).toEqual(REQUEST);
  const sender = senderOf(message);
  expect(sender).toMatchObject({ nodeId: 'a', digest: REQUEST['content-digest'] });
  expect(digestFits(sender.digest, BODY)).toBe(true);
  expect(sender.key.id).toBe('k1');
});

test('its acknowledgement likewise', () => {
  const { message, sent } = request({}, { nonce: NONCE });
  const answer = reply(senderOf(message));
  expect(answer.headers).toEqual({ ...ANSWER, 'x-node-id': 'b', 'cache-control': 'no-store, no-transform' });
  expect(answered(sent, answer)).toEqual({ kind: 'verified', nodeId: 'b' });
});

test('a hello', () => {
  const { message, sent } = request(
    { method: 'GET', path: '/health', headers: { 'x-node-id': 'a' }, body: new Uint8Array() },
    { nonce: NONCE },
  );
  expect(sent.headers).toEqual({
    'signature-input':
      'rowcast=("@method" "x-node-id");created=1700000000;nonce="AAECAwQFBgcICQoLDA0ODw";keyid="k1";' +
      'alg="hmac-sha256";tag="rowcast-hello"',
    signature: 'rowcast=:LMYbPg5kSfjdw4lwnANrXcjIDKjgDHSq6I1UNAIo6FM=:',
  });
  expect(received(message).kind).toBe('verified');
});

test('the answer of a receiver whose clock is ten minutes ahead', () => {
  const { message, sent } = request({}, { nonce: NONCE });
  const late = received(message, keys(), NOW + 600_000);
  expect(late).toMatchObject({ kind: 'denied', status: 401, error: { error: 'clock', now: 1_700_000_600 } });
  if (late.kind !== 'denied') throw new Error('not denied');
  const answer = reply(late.sender, { status: 401, body: JSON.stringify(late.error) }, NOW + 600_000);
  expect(answer.headers['content-digest']).toBe('sha-256=:WVbRV+6mLqGtF3A7dWQNAiN+RG/2e+DUHC2CO54zFjA=:');
  expect(answer.headers.signature).toBe('rowcast=:gub8ZAsmHxaEGs+M/GFxhj1BwxnfzN69rOUiAtI7Ju8=:');
  expect(answered(sent, answer)).toEqual({ kind: 'verified', nodeId: 'b' });
});

test('the vectors are on the page', () => {
  for (const value of [...Object.values(REQUEST), ...Object.values(ANSWER), BODY]) expect(page).toContain(value);
  expect(createHash('sha256').update(BODY).digest('base64')).toBe(REQUEST['content-digest'].slice(9, -1));
});
