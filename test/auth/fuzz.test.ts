/** Signature headers made up by chance: nothing throws, nothing is accepted, nothing takes long. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { anyText } from '../support/any-text.ts';
import { draws } from '../support/draws.ts';
import { answered, received, reply, request, senderOf } from './messages.ts';

const PIECES = [
  'rowcast=', 'rowcast', 'proxy=', '(', ')', '"@method"', '"@status"', '"content-type"', '"content-digest"',
  '"x-node-id"', '"signature";req;key="rowcast"', ';created=1700000000', ';nonce="AAECAwQFBgcICQoLDA0ODw"',
  ';keyid="k1"', ';alg="hmac-sha256"', ';alg="none"', ';tag="rowcast-sync"', ';expires=1', ' ', ',', ', ', ';', '"', '\\',
  ':', '=', ':47iCZsTvrusOoNQA1G7gSkTV9JsHUB+Je/f/7ZSO4hI=:', '::', '1e9', '-1', '?1', '*', '\n', '\0', 'é', 'sha-256=',
]; // biome-ignore format: a list of words
const text = fc.oneof(
  fc.array(fc.constantFrom(...PIECES), { maxLength: 30 }).map((pieces) => pieces.join('')),
  anyText({ maxLength: 200 }),
);
const NAMES = ['signature-input', 'signature', 'content-digest', 'x-node-id', 'content-type', 'x-rowcast'];

test('made-up headers on a request', { tags: 'long' }, () => {
  const { message } = request();
  fc.assert(
    fc.property(
      fc.subarray(NAMES, { minLength: 1 }),
      fc.array(text, { minLength: 6, maxLength: 6 }),
      (names, texts) => {
        const made = Object.fromEntries(names.map((name, i) => [name, texts[i] as string]));
        const headers = { ...message.headers, ...made };
        const same = Object.entries(headers).every(([name, value]) => value.trim() === message.headers[name]);
        const verified = received({ ...message, headers });
        expect(verified.kind === 'stranger' || verified.kind === 'unsigned' || same).toBe(true);
      },
    ),
    { numRuns: draws(5_000) },
  );
});

test('made-up headers on an answer', () => {
  const { message, sent } = request();
  const answer = reply(senderOf(message));
  fc.assert(
    fc.property(
      fc.subarray(NAMES, { minLength: 1 }),
      fc.array(text, { minLength: 6, maxLength: 6 }),
      (names, texts) => {
        const made = Object.fromEntries(names.map((name, i) => [name, texts[i] as string]));
        const headers = { ...answer.headers, ...made };
        const same = Object.entries(headers).every(
          ([name, v]) => name === 'content-type' || v.trim() === answer.headers[name],
        );
        expect(answered(sent, { ...answer, headers }).kind !== 'verified' || same).toBe(true);
      },
    ),
    { numRuns: draws(5_000) },
  );
});

test('one piece taken out of, doubled in, or swapped with another of a good header', () => {
  const { message } = request();
  const names = ['signature-input', 'signature'] as const;
  const parts = /[A-Za-z0-9+/_-]+|[^A-Za-z0-9+/_-]/g;
  for (const name of names) {
    const good = message.headers[name] as string;
    const pieces = good.match(parts) ?? [];
    const variants = pieces.flatMap((piece, i) => [
      [...pieces.slice(0, i), ...pieces.slice(i + 1)],
      [...pieces.slice(0, i), piece, ...pieces.slice(i)],
      ...pieces.map((other, j) => pieces.map((one, at) => (at === i ? other : at === j ? piece : one))),
    ]);
    expect(variants.length).toBeGreaterThan(10);
    for (const variant of variants) {
      const made = variant.join('');
      if (made.trim() === good) continue;
      const verified = received({ ...message, headers: { ...message.headers, [name]: made } });
      if (verified.kind === 'verified' || verified.kind === 'denied') expect.fail(`accepted: ${made}`);
    }
  }
});

test('a header of commas, quotes and parentheses without end is not looked at for long', () => {
  const { message } = request();
  for (const piece of ['(', '"', ',', 'rowcast=(),', '\\"', ';a=1']) {
    const made = piece.repeat(Math.ceil(1_000_000 / piece.length));
    const verified = received({ ...message, headers: { ...message.headers, 'signature-input': made } });
    expect(verified.kind).toBe('stranger');
  }
});
