/** What we sign an independent implementation of RFC 9421 verifies, and what that signs we do. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createRequire } from 'node:module';
import type * as Library from 'http-message-signatures';
import { expect, test } from 'vitest';
import { contentDigest } from '../../src/auth/index.ts';
import {
  answered,
  BODY,
  type Headers,
  INTRODUCTION,
  NONCE,
  NOW,
  received,
  reply,
  request,
  SECRET,
  senderOf,
} from './messages.ts';

// It is CommonJS, whose names Bun does not find by an import.
const { httpbis } = createRequire(import.meta.url)('http-message-signatures') as typeof Library;

const mac = (data: Buffer): Buffer => createHmac('sha256', Buffer.from(SECRET, 'base64')).update(data).digest();
const theirKey = { id: 'k1', alg: 'hmac-sha256', sign: async (data: Buffer) => mac(data) };
const keyLookup = async (): Promise<{ verify(data: Buffer, signature: Buffer): Promise<boolean> }> => ({
  verify: async (data, signature) => timingSafeEqual(mac(data), signature),
});
const url = 'http://b.example/sync';

const ROUTES = [
  { path: '/sync', method: 'POST', tag: 'rowcast-sync' },
  { path: '/sync/compare', method: 'POST', tag: 'rowcast-compare' },
  { path: '/sync/fetch', method: 'POST', tag: 'rowcast-fetch' },
  { path: '/health', method: 'GET', tag: 'rowcast-hello' },
];

const INTRODUCED = { 'x-node-id': 'a', 'x-rowcast': INTRODUCTION };
const JSON_HEADERS = { 'content-type': 'application/json' };

test.each(ROUTES)('$method $path signed by us is verified by them', async ({ path, method }) => {
  const headers = method === 'GET' ? INTRODUCED : { ...JSON_HEADERS, ...INTRODUCED, 'content-encoding': 'gzip' };
  const { message } = request({ path, method, headers });
  expect(await httpbis.verifyMessage({ keyLookup }, { method, url, headers: message.headers })).toBe(true);
  const other = { ...message.headers, 'x-node-id': 'c' };
  expect(await httpbis.verifyMessage({ keyLookup }, { method, url, headers: other })).toBe(false);
});

test.each(ROUTES)('$method $path signed by them is verified by us', async ({ path, method, tag }) => {
  const body = Buffer.from(BODY);
  const headers: Headers =
    method === 'GET' ? INTRODUCED : { ...JSON_HEADERS, ...INTRODUCED, 'content-digest': contentDigest(body) };
  const signed = await httpbis.signMessage(
    {
      key: theirKey,
      name: 'rowcast',
      fields: ['x-rowcast', ...Object.keys(headers).filter((name) => name !== 'x-rowcast'), '@method'],
      params: ['tag', 'alg', 'keyid', 'nonce', 'created'],
      paramValues: { created: new Date(NOW), nonce: NONCE, tag },
    },
    { method, url, headers },
  );
  const lower = Object.fromEntries(
    Object.entries(signed.headers).map(([name, value]) => [name.toLowerCase(), `${value}`]),
  );
  expect(received({ method, path, headers: lower, body }).kind).toBe('verified');
});

test('our answers are verified by them, and theirs by us', async () => {
  const { message, sent } = request();
  const asked = { method: 'POST', url, headers: message.headers };
  const sender = senderOf(message);
  const ours = reply(sender, { headers: { 'x-node-id': 'b', 'x-rowcast': INTRODUCTION } });
  expect(await httpbis.verifyMessage({ keyLookup }, { status: 200, headers: ours.headers }, asked)).toBe(true);
  const another = { ...asked, headers: request().message.headers };
  expect(await httpbis.verifyMessage({ keyLookup }, { status: 200, headers: ours.headers }, another)).toBe(false);

  const body = Buffer.from('{"applied":1,"ack":3}');
  const theirs = await httpbis.signMessage(
    {
      key: theirKey,
      name: 'rowcast',
      fields: ['@status', 'content-digest', 'x-node-id', 'signature;req;key="rowcast"'],
      params: ['created', 'keyid', 'alg', 'tag'],
      paramValues: { created: new Date(NOW), tag: 'rowcast-answer' },
    },
    { status: 200, headers: { 'x-node-id': 'b', 'content-digest': contentDigest(body) } },
    asked,
  );
  const headers = Object.fromEntries(
    Object.entries(theirs.headers).map(([name, value]) => [name.toLowerCase(), `${value}`]),
  );
  expect(answered(sent, { status: 200, headers, body })).toEqual({ kind: 'verified', nodeId: 'b' });
});
