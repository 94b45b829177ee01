/** Each form of a batch is made of the other, and comes back as the bytes that it was. */
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Body } from '../../src/wire/body.ts';
import { plainForm, tabularForm, tabularHead } from '../../src/wire/tabular.ts';
import { anyText } from '../support/any-text.ts';
import { batchIn, type PlainChange } from '../support/tabular.ts';

const MAX = 64 * 1024 * 1024;

const bytesOf = (text: string): Body => new TextEncoder().encode(text);
const latin1 = (body: Uint8Array): string => Buffer.from(body).toString('latin1');

function bodyOf(changes: unknown[], batchId = 7): Body {
  return bytesOf(JSON.stringify({ batch_id: batchId, changes }));
}

function write(row: Record<string, unknown>, more: object = {}): PlainChange {
  return { op: 'INSERT', table: 'items', row, old_id: null, ...more };
}

function thereAndBack(body: Body, rows: number): Body | 'too-large' | undefined {
  const tabular = tabularForm(body, rows);
  const text = latin1(tabular as Body);
  const head = tabularHead(text);
  return head && plainForm(text, head, rows, MAX);
}

const VALUES = [
  'x',
  '',
  'ünï "€" \\ \u2028 \n \u0000 ]},{"op":"',
  '","name":"',
  '$blob:00FF',
  '$bytes:FF',
  '9007199254740993',
  '9e999',
  null,
  0,
  -1.5e-300,
  true,
];

describe('the tabular form', () => {
  test('names the columns once', () => {
    const body = bodyOf([write({ id: 'a', n: 1, updated_at: 5 }), write({ id: 'b', n: null, updated_at: 6 })]);
    expect(new TextDecoder().decode(tabularForm(body, 2))).toBe(
      '{"batch_id":7,"op":"INSERT","table":"items","columns":["id","n","updated_at"],"rows":[["a",1,5],["b",null,6]]}',
    );
  });

  test('has what updates have seen behind their columns', () => {
    const update = (id: string, base: number) => write({ id, updated_at: 9 }, { op: 'UPDATE', base });
    const body = bodyOf([update('a', 5), update('b', -6)]);
    expect(new TextDecoder().decode(tabularForm(body, 2))).toBe(
      '{"batch_id":7,"op":"UPDATE","table":"items","columns":["id","updated_at"],"base":true,"rows":[["a",9,5],["b",9,-6]]}',
    );
    expect(latin1(thereAndBack(body, 2) as Body)).toBe(latin1(body));
  });

  test('of any values and names comes back as the bytes that it was', () => {
    const value = fc.oneof(fc.constantFrom(...VALUES), anyText(), fc.double({ noNaN: true }));
    const name = fc.oneof(
      fc.constantFrom('$1', '$&', 'a.b*', 'é', ',', ':x', 'name', '['),
      fc.string({ minLength: 1 }),
    );
    const names = fc.uniqueArray(name, { minLength: 1, maxLength: 12 });
    const rows = names.chain((keys) =>
      fc.array(fc.tuple(...keys.map(() => value)), { minLength: 2, maxLength: 6 }).map((lists) => ({ keys, lists })),
    );
    let made = 0;
    fc.assert(
      fc.property(rows, fc.boolean(), ({ keys, lists }, based) => {
        const changes = lists.map((values, i) => {
          const row = Object.fromEntries(keys.map((key, k) => [key, values[k]]));
          return write(row, based ? { op: 'UPDATE', base: i } : {});
        });
        const body = bodyOf(changes);
        const tabular = tabularForm(body, changes.length);
        if (!tabular) return;
        made += 1;
        expect(batchIn(tabular)).toEqual(batchIn(body));
        expect(latin1(thereAndBack(body, changes.length) as Body)).toBe(latin1(body));
      }),
    );
    expect(made).toBeGreaterThan(30);
  });

  test('of the golden bodies says what they say', () => {
    const bodies = readFileSync(new URL('golden-bodies.txt', import.meta.url), 'utf8')
      .split('\n')
      .filter((line) => line.includes('"changes":['))
      .map((line) => line.slice(line.indexOf('{')));
    const made = bodies.filter((text) => {
      const body = bytesOf(text);
      const { changes } = batchIn(body);
      const tabular = tabularForm(body, changes.length);
      if (!tabular) return false;
      expect(batchIn(tabular)).toEqual(batchIn(body));
      expect(latin1(thereAndBack(body, changes.length) as Body)).toBe(latin1(body));
      return true;
    });
    expect(made.length).toBeGreaterThan(3);
  });

  const A = { id: 'a', updated_at: 1 };
  const B = { id: 'b', updated_at: 2 };
  test.each<[string, PlainChange[]]>([
    ['one change', [write(A)]],
    ['two kinds', [write(A), write(B, { op: 'UPDATE' })]],
    ['two tables', [write(A), write(B, { table: 'notes' })]],
    ['deletions', [write(A, { op: 'DELETE', old_id: 'a' }), write(B, { op: 'DELETE', old_id: 'b' })]],
    ['other keys', [write(A), write({ id: 'b', n: 1, updated_at: 2 })]],
    ['keys in another order', [write(A), write({ updated_at: 2, id: 'b' })]],
    ['what only one has seen', [write(A, { op: 'UPDATE' }), write(B, { op: 'UPDATE', base: 1 })]],
    ['what only the first has seen', [write(A, { op: 'UPDATE', base: 1 }), write(B, { op: 'UPDATE' })]],
    ['who made it', [write(A, { base: 1, origin: 'x' }), write(B, { base: 1, origin: 'x' })]],
    ['a value that is nested', [write({ ...A, n: { x: 1 } }), write({ ...B, n: { x: 1 } })]],
    ['an old id', [write(A, { old_id: 'z' }), write(B, { old_id: 'z' })]],
    ['a name with a quote', [write({ ...A, 'a"b': 1 }), write({ ...B, 'a"b': 1 })]],
    [
      'more columns than a pattern has',
      Array(2).fill(write(Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`c${i}`, i])))),
    ],
    ['rows that are long', [write({ ...A, n: 'x'.repeat(3_000) }), write({ ...B, n: 'x'.repeat(3_000) })]],
  ])('there is none of %s', (_, changes) => {
    expect(tabularForm(bodyOf(changes), changes.length)).toBeUndefined();
  });

  test('there is none of what is spelt with white space, or is no batch', () => {
    const changes = [write(A), write(B)];
    const spelt = [JSON.stringify({ batch_id: 7, changes }, null, 1), '', '{}', `${latin1(bodyOf(changes))} `];
    for (const text of spelt) expect(tabularForm(bytesOf(text), 2)).toBeUndefined();
  });

  test('there is none of a body that breaks off, wherever it does', () => {
    const whole = bodyOf([write({ ...A, n: 'a "quote" \\' }), write({ ...B, n: null })]);
    expect(tabularForm(whole.slice(), 2)).toBeDefined();
    const made = Array.from(whole, (_, length) => tabularForm(whole.slice(0, length), 2));
    expect(made.filter((one) => one !== undefined)).toEqual([]);
  });

  test('there is none where the first row is longer than all the others would be together', () => {
    const wide = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`a long name ${i}`, i]));
    const others = Array.from({ length: 20 }, () => write({ id: 'a' }));
    expect(tabularForm(bodyOf([write(wide), ...others]), 21)).toBeUndefined();
  });

  test('with white space between its rows has a plain one with the same', () => {
    const spelt = (rows: string): string =>
      `{"batch_id":7,"op":"INSERT","table":"items","columns":["id","updated_at"],"rows":[${rows}]}`;
    const text = spelt('["a",1] ,\r\n\t["b",2]\n');
    const plain = plainForm(text, tabularHead(text) as never, 2, MAX) as Body;
    expect(JSON.parse(latin1(plain))).toEqual({ batch_id: 7, changes: [write(A), write(B)] });
    expect(latin1(plain)).toContain('} ,\r\n\t{');
  });

  test.each([
    ['[["a",1],["b"]]'],
    ['[["a",1],["b",2,3]]'],
    ['[["a",1],["b",[2]]]'],
    ['[["a",1],{"b":2}]'],
    ['[["a",1],2]'],
    ['[["a",1], ["b",2,3]]'],
  ])('whose rows are %s has no plain one', (rows) => {
    const text = `{"batch_id":7,"op":"INSERT","table":"items","columns":["id","updated_at"],"rows":${rows}}`;
    expect(plainForm(text, tabularHead(text) as never, 2, MAX)).toBeUndefined();
  });

  test('becomes no more than is allowed, and not out of proportion', () => {
    const name = 'n'.repeat(60_000);
    const rows = Array(1_000).fill('[1]').join(',');
    const text = `{"batch_id":7,"op":"INSERT","table":"items","columns":["${name}"],"rows":[${rows}]}`;
    const head = tabularHead(text) as never;
    expect(plainForm(text, head, 1_000, MAX)).toBe('too-large');
    const small = `{"batch_id":7,"op":"INSERT","table":"items","columns":["id"],"rows":[["a"],["b"]]}`;
    expect(plainForm(small, tabularHead(small) as never, 2, 100)).toBe('too-large');
    expect(plainForm(small, tabularHead(small) as never, 2, 200)).toBeInstanceOf(Uint8Array);
  });
});
