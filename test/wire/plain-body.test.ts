/** What a plain peer is sent has the four keys of the contract, whatever the rows are. */
import { expect, test } from 'vitest';
import { plainBody } from '../../src/wire/body.ts';

const bytes = (text: string) => new TextEncoder().encode(text);
const spelt = (changes: object[]): string => JSON.stringify({ batch_id: 7, changes });

test('base and origin are taken out of each change, and nothing else', () => {
  const tricky = '},"old_id":null,"base":1,"origin":"x"}';
  const rows = [
    { id: 'a', name: tricky, updated_at: 5 },
    { id: 'b', old_id: null, base: 4, origin: 'me', updated_at: 5 },
    { id: tricky, [tricky]: tricky, updated_at: 5 },
    { id: 'd', name: '\\', updated_at: -5 },
  ];
  const changes = rows.map((row) => ({ op: 'UPDATE', table: 'items', row, old_id: null }));
  const more = [
    { base: 4 },
    { base: -4, origin: 'n1' },
    { base: 3, origin: '"\\"},"base":1}' },
    { base: 0, origin: 'ü' },
  ];
  const given = bytes(spelt(changes.map((change, i) => ({ ...change, ...more[i] }))));
  expect(new TextDecoder().decode(plainBody(given))).toBe(spelt(changes));
  // One body goes to many.
  expect(plainBody(given)).toBe(plainBody(given));
});

test('a body that has neither is sent as it is', () => {
  const body = bytes(spelt([{ op: 'INSERT', table: 'items', row: { id: 'a', name: 'base' }, old_id: null }]));
  expect(plainBody(body)).toBe(body);
});

test('bytes that are no UTF-8 stay what they are', () => {
  const [head, tail] = ['{"batch_id":1,"changes":[{"op":"UPDATE","table":"t","row":{"id":"', '"},"old_id":null'];
  const odd = Uint8Array.of(0xff, 0xfe, 0x80);
  const join = (...parts: Uint8Array[]) => new Uint8Array(parts.flatMap((part) => [...part]));
  const given = join(bytes(head), odd, bytes(`${tail},"base":12}]}`));
  expect([...plainBody(given)]).toEqual([...join(bytes(head), odd, bytes(`${tail}}]}`))]);
});
