/** Whatever is changed on the way, by somebody without the key, is accepted by nobody. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { createKeyring, digestFits } from '../../src/auth/index.ts';
import * as protocol from '../../src/wire/protocol.ts';
import {
  answered,
  BODY,
  type Headers,
  INTRODUCTION,
  keys,
  type Message,
  NOW,
  OTHER_SECRET,
  type Reply,
  received,
  reply,
  request,
  SECRET,
  senderOf,
} from './messages.ts';

const SYNC_HEADERS = {
  'content-type': 'application/json',
  'content-encoding': 'gzip',
  'x-node-id': 'a',
  'x-rowcast': INTRODUCTION,
  'x-send-again': '*',
  'x-origins': 'a;0',
};
const ANSWER_HEADERS = { 'x-node-id': 'b', 'x-rowcast': INTRODUCTION, 'x-apply-ms': '3', 'x-any-order': '1' };
const PATHS = ['/sync', '/sync/compare', '/sync/fetch', '/health'];

/** Verified as a receiver does: by the headers, and then by the digest. */
function isAccepted(message: Message): boolean {
  const verified = received(message);
  if (verified.kind !== 'verified') return false;
  return verified.sender.digest === undefined || digestFits(verified.sender.digest, message.body);
}

function withHeader(headers: Headers, name: string, value: string | undefined): Headers {
  const { [name]: _, ...rest } = headers;
  return value === undefined ? rest : { ...rest, [name]: value };
}

/** Every header that there is, in all ways: without it, with one character changed, doubled, of another message. */
function* changed(headers: Headers, foreign: Headers): Generator<[string, Headers]> {
  for (const [name, value] of Object.entries(headers)) {
    yield [`${name} taken away`, withHeader(headers, name, undefined)];
    yield [`${name} empty`, withHeader(headers, name, '')];
    yield [`${name} twice`, withHeader(headers, name, `${value}, ${value}`)];
    if (foreign[name] !== undefined && foreign[name] !== value)
      yield [`${name} of another message`, withHeader(headers, name, foreign[name])];
    for (let i = 0; i < value.length; i++) {
      for (const to of new Set(['A', '0', '"', ';', '\n', String.fromCharCode(value.charCodeAt(i) ^ 1)])) {
        const other = value.slice(0, i) + to + value.slice(i + 1);
        if (other !== value) yield [`${name} with ${JSON.stringify(to)} at ${i}`, withHeader(headers, name, other)];
      }
      yield [`${name} without ${i}`, withHeader(headers, name, value.slice(0, i) + value.slice(i + 1))];
    }
  }
}

/** The headers that say nothing to a signature. */
const UNCOVERED = new Set(['cache-control']);

describe('a request', () => {
  test('is accepted as it is', () => {
    expect(isAccepted(request({ headers: SYNC_HEADERS }).message)).toBe(true);
  });

  test('is refused with any of its headers changed in any place', () => {
    const { message } = request({ headers: SYNC_HEADERS });
    const foreign = request({ headers: { ...SYNC_HEADERS, 'x-node-id': 'c' }, body: Buffer.from('{}') }).message;
    let tried = 0;
    for (const [what, headers] of changed(message.headers, foreign.headers)) {
      tried += 1;
      if (isAccepted({ ...message, headers })) expect.fail(`accepted: ${what}`);
    }
    expect(tried).toBeGreaterThan(2_500);
  });

  test('is refused with any bit of its body changed, and with any part of it missing', () => {
    const { message } = request();
    for (let bit = 0; bit < message.body.byteLength * 8; bit++) {
      const body = Uint8Array.from(message.body);
      body[bit >> 3] = (body[bit >> 3] as number) ^ (1 << (bit & 7));
      if (isAccepted({ ...message, body })) expect.fail(`accepted with bit ${bit} changed`);
    }
    for (let length = 0; length < message.body.byteLength; length++) {
      if (isAccepted({ ...message, body: message.body.subarray(0, length) })) expect.fail(`accepted cut at ${length}`);
    }
    expect(isAccepted({ ...message, body: Buffer.from(`${BODY} `) })).toBe(false);
  });

  test.each(['content-encoding', 'x-rowcast', 'x-send-again', 'x-origins'])(
    'is refused where %s was put there on the way',
    (name) => {
      const { message } = request();
      expect(isAccepted(message)).toBe(true);
      for (const value of ['', 'gzip', INTRODUCTION]) {
        expect(isAccepted({ ...message, headers: { ...message.headers, [name]: value } })).toBe(false);
      }
    },
  );

  test('for one path is none for another, nor by another method', () => {
    const headers = { 'content-type': 'application/json', 'x-node-id': 'a' };
    for (const path of PATHS) {
      const { message } = request({ path, headers });
      expect(isAccepted(message)).toBe(true);
      for (const other of PATHS) expect(isAccepted({ ...message, path: other })).toBe(other === path);
      for (const method of ['GET', 'PUT', 'HEAD', 'post']) expect(isAccepted({ ...message, method })).toBe(false);
    }
  });

  test('is accepted once: the same again is told so, by a receiver that has seen it', () => {
    const keyring = keys();
    const { message } = request();
    expect(received(message, keyring).kind).toBe('verified');
    expect(received(message, keyring)).toMatchObject({ kind: 'denied', status: 425 });
    expect(received(message, keyring, NOW + 299_000)).toMatchObject({ kind: 'denied', status: 425 });
    expect(received(message, keyring, NOW + 301_000)).toMatchObject({ kind: 'denied', status: 401 });
  });

  test('is refused where its time is off by more than five minutes', () => {
    for (const [seconds, kind] of [
      [-301, 'denied'],
      [-300, 'verified'],
      [300, 'verified'],
      [301, 'denied'],
    ] as const) {
      expect(received(request().message, keys(), NOW + seconds * 1_000).kind).toBe(kind);
    }
  });

  test('by another key, under a known or an unknown name, is a stranger', () => {
    const other = createKeyring({ keys: [{ id: 'k1', secret: OTHER_SECRET }] });
    expect(received(request({}, { keyring: other }).message)).toMatchObject({ kind: 'stranger' });
    const unknown = createKeyring({ keys: [{ id: 'k2', secret: SECRET }] });
    expect(received(request({}, { keyring: unknown }).message)).toMatchObject({ kind: 'stranger' });
  });

  test('of a node that may not use the key is told so', () => {
    const keyring = keys({ keys: [{ id: 'k1', secret: SECRET, nodes: ['b', 'c'] }] });
    expect(received(request().message, keyring)).toMatchObject({ kind: 'denied', status: 403 });
    const headers = { 'content-type': 'application/json', 'x-node-id': 'c' };
    expect(received(request({ headers }).message, keyring).kind).toBe('verified');
  });

  test('beside the signature of a proxy is accepted, and a second one of ours is not', () => {
    const { message } = request();
    const { 'signature-input': input, signature } = message.headers as Record<string, string>;
    const beside = (theirs: string, theirSignature: string): Message => ({
      ...message,
      headers: {
        ...message.headers,
        'signature-input': `${theirs}, ${input}`,
        signature: `${theirSignature},${signature}`,
      },
    });
    expect(isAccepted(beside('proxy=("a" "b, rowcast=(");tag="x, rowcast=\\"y"', 'proxy=:AAAA:'))).toBe(true);
    expect(isAccepted(beside('rowcast2=("a")', 'rowcast2=:AAAA:'))).toBe(true);
    expect(isAccepted(beside('rowcast=("a")', 'proxy=:AAAA:'))).toBe(false);
    expect(isAccepted(beside('rowcast', 'proxy=:AAAA:'))).toBe(false);
    expect(isAccepted(beside(input as string, signature as string))).toBe(false);
    expect(isAccepted(beside('proxy="breaks off', 'proxy=:AAAA:'))).toBe(false);
  });

  test('with its parameters or components in another order than they were signed is refused', () => {
    const { message } = request();
    const input = message.headers['signature-input'] as string;
    const params = input
      .slice(input.indexOf(')') + 1)
      .split(';')
      .slice(1);
    const list = input.slice(input.indexOf('(') + 1, input.indexOf(')')).split(' ');
    const written = (components: string[], given: string[]): Message => ({
      ...message,
      headers: { ...message.headers, 'signature-input': `rowcast=(${components.join(' ')});${given.join(';')}` },
    });
    expect(isAccepted(written(list, params))).toBe(true);
    expect(isAccepted(written(list, params.toReversed()))).toBe(false);
    expect(isAccepted(written(list.toReversed(), params))).toBe(false);
    expect(isAccepted(written(list, [...params, params[0] as string]))).toBe(false);
    expect(isAccepted(written(list, [...params, 'expires=1']))).toBe(false);
    expect(isAccepted(written([...list, list[0] as string], params))).toBe(false);
    for (const missing of params)
      expect(
        isAccepted(
          written(
            list,
            params.filter((one) => one !== missing),
          ),
        ),
      ).toBe(false);
  });

  test('base64 has one spelling', () => {
    const { message } = request();
    for (const name of ['signature', 'content-digest']) {
      const value = message.headers[name] as string;
      const last = value.length - 3;
      const code = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
      const sloppy = code[code.indexOf(value[last] as string) + 1] as string;
      const spellings = [
        value.replace(/=:$/, ':'),
        value.replace(/=:$/, '==:'),
        value.slice(0, last) + sloppy + value.slice(last + 1),
        value.replaceAll('+', '-').replaceAll('/', '_').replace(/=:$/, ':'),
        value.replace('=:', '=: '),
        value.replace(/=:$/, '\n=:'),
      ];
      for (const spelt of spellings) {
        expect(spelt).not.toBe(value);
        expect(isAccepted({ ...message, headers: { ...message.headers, [name]: spelt } })).toBe(false);
      }
    }
  });
});

test('every header that is acted on is covered: a new one cannot be forgotten', () => {
  const source = readFileSync(fileURLToPath(new URL('../../src/http/respond.ts', import.meta.url)), 'utf8');
  const names = [...source.matchAll(/header\((?:'([^']+)'|(\w+))\)/g)].map(
    ([, plain, constant]) => plain ?? (protocol as Record<string, unknown>)[constant as string],
  );
  // By these a request is only ever answered 403, which says nothing about its changes.
  // The last one is named by the refusal, and counts where the sender has announced the same.
  const refusing = ['origin', 'sec-fetch-site', 'content-length'];
  const read = new Set(names.filter((name) => !refusing.includes(name as string)) as string[]);
  expect(read.size).toBeGreaterThan(5);
  const all = Object.fromEntries([...read].map((name) => [name, 'x']));
  const { message } = request({ headers: { ...all, ...SYNC_HEADERS } });
  for (const name of read) expect(message.headers['signature-input']).toContain(`"${name}"`);
});

describe('an answer', () => {
  const answerTo = (body = '{"applied":1,"ack":3}'): { sent: ReturnType<typeof request>['sent']; answer: Reply } => {
    const { message, sent } = request();
    return { sent, answer: reply(senderOf(message), { headers: ANSWER_HEADERS, body }) };
  };

  test('is accepted as it is', () => {
    const { sent, answer } = answerTo();
    expect(answered(sent, answer)).toEqual({ kind: 'verified', nodeId: 'b' });
  });

  test('is refused with any of its headers changed in any place', () => {
    const { sent, answer } = answerTo();
    const foreign = answerTo('{"applied":0,"ack":4}').answer;
    for (const [what, headers] of changed(answer.headers, foreign.headers)) {
      if ([...UNCOVERED].some((name) => what.startsWith(name))) continue;
      if (answered(sent, { ...answer, headers }).kind === 'verified') expect.fail(`accepted: ${what}`);
    }
  });

  test('is refused with any bit of its body, or its status, changed', () => {
    const { sent, answer } = answerTo();
    for (let bit = 0; bit < answer.body.byteLength * 8; bit++) {
      const body = Uint8Array.from(answer.body);
      body[bit >> 3] = (body[bit >> 3] as number) ^ (1 << (bit & 7));
      if (answered(sent, { ...answer, body }).kind === 'verified') expect.fail(`accepted with bit ${bit} changed`);
    }
    for (const status of [201, 204, 400, 413, 503]) expect(answered(sent, { ...answer, status }).kind).toBe('forged');
  });

  test('to one request is none to another, though they are the same but for the nonce', () => {
    const { answer } = answerTo();
    expect(answered(request().sent, answer)).toMatchObject({ kind: 'forged' });
    const [first, second] = [answerTo(), answerTo()];
    expect(answered(first.sent, second.answer).kind).toBe('forged');
    expect(answered(second.sent, first.answer).kind).toBe('forged');
    expect(answered(first.sent, first.answer).kind).toBe('verified');
  });

  test('without its signature is unsigned, and never verified', () => {
    const { sent, answer } = answerTo();
    const bare = withHeader(withHeader(answer.headers, 'signature', undefined), 'signature-input', undefined);
    expect(answered(sent, { ...answer, headers: bare })).toEqual({ kind: 'unsigned' });
  });

  test('a request is no answer, and an answer no request', () => {
    const { message, sent } = request();
    expect(answered(sent, { status: 200, headers: message.headers, body: message.body }).kind).toBe('forged');
    const { answer } = answerTo();
    const headers = { ...answer.headers, 'content-type': 'application/json' };
    expect(received({ method: 'POST', path: '/sync', headers, body: answer.body }).kind).toBe('stranger');
  });

  test('by another key than that of the request is refused, though that is known as well', () => {
    const both = {
      keys: [
        { id: 'k1', secret: SECRET },
        { id: 'k2', secret: OTHER_SECRET },
      ],
    };
    const { message, sent } = request({}, { keyring: createKeyring(both) });
    const sender = senderOf(message, createKeyring(both));
    const other = createKeyring(both).find('k2');
    if (!other) throw new Error('no key');
    expect(answered(sent, reply({ ...sender, key: other })).kind).toBe('forged');
  });

  test.each(['x-rowcast', 'x-apply-ms', 'x-any-order'])('is refused where %s was put there on the way', (name) => {
    const { message, sent } = request();
    const answer = reply(senderOf(message));
    expect(answered(sent, answer).kind).toBe('verified');
    expect(answered(sent, { ...answer, headers: { ...answer.headers, [name]: '1' } }).kind).toBe('forged');
  });
});

test('a key that is for one node introduces no other', () => {
  const introduces = (id: string) => {
    const headers = { ...SYNC_HEADERS, 'x-rowcast': INTRODUCTION.replace('id=a', `id=${id}`) };
    return received(request({ headers }).message);
  };
  expect(introduces('a').kind).toBe('verified');
  expect(introduces('c')).toMatchObject({ kind: 'denied', status: 403 });
});
