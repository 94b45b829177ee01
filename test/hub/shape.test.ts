/** Which rows have the same columns: those replace each other whole in a group, and all others are looked at closely. */
import { describe, expect, test } from 'vitest';
import { shapeOf } from '../../src/hub/postgres/close-look.ts';

/** Each pair by turns, since what was seen last is tried first. */
function haveOneShape(a: unknown, b: unknown): boolean {
  const [first, second] = [shapeOf(JSON.stringify(a)), shapeOf(JSON.stringify(b))];
  expect([shapeOf(JSON.stringify(a)), shapeOf(JSON.stringify(b))]).toEqual([first, second]);
  return first === second;
}

describe('the shape of a row', () => {
  test('is that of its columns, whatever their values, their order and their case', () => {
    const row = { id: 'a', name: 'x', updated_at: 1 };
    expect(haveOneShape(row, { id: 'b', name: null, updated_at: -2.5e9 })).toBe(true);
    expect(haveOneShape(row, { id: 'b', name: true, updated_at: 2 })).toBe(true);
    expect(haveOneShape(row, { updated_at: 2, name: 'y', id: 'b' })).toBe(true);
    expect(haveOneShape(row, { ID: 'b', Name: 'y', updated_at: 2 })).toBe(true);
    expect(haveOneShape(row, { id: 'b', name: { $blob: 'AA==' }, updated_at: 2 })).toBe(true);
    expect(haveOneShape(row, { id: 'b', name: 'x'.repeat(20_000), updated_at: 2 })).toBe(true);
  });

  test('is another one where a column is missing, or more, or another', () => {
    const row = { id: 'a', name: 'x', updated_at: 1 };
    expect(haveOneShape(row, { id: 'a', updated_at: 1 })).toBe(false);
    expect(haveOneShape(row, { ...row, more: 1 })).toBe(false);
    expect(haveOneShape(row, { id: 'a', nome: 'x', updated_at: 1 })).toBe(false);
    expect(haveOneShape({}, row)).toBe(false);
  });

  test('is not taken from what stands in a value', () => {
    const row = { id: 'a', name: 'x', updated_at: 1 };
    expect(haveOneShape(row, { id: 'a","name":"x', updated_at: 1 })).toBe(false);
    expect(haveOneShape(row, { id: '\\', name: '","more":"\\', updated_at: 1 })).toBe(true);
    expect(haveOneShape(row, { id: 'a', name: { updated_at: 1 } })).toBe(false);
    expect(haveOneShape({ id: 'a', name: 'x' }, { id: 'a', name: { more: 1 } })).toBe(true);
    expect(haveOneShape({ id: 'a', name: 'x' }, { id: 'a', name: [1, { x: 2 }], more: 1 })).toBe(false);
  });

  test('has names of any characters', () => {
    const odd = { id: 'a', 'a.b': 1, 'a"b': 2, 'a\\b': 3, '(x)*+?[^]{$}|/': 4, '\u2028\n': 5, __proto__x: 6, '1': 7 };
    expect(haveOneShape(odd, { ...odd, 'a"b': 'y' })).toBe(true);
    expect(haveOneShape({ id: 'a', 'a.b': 1 }, { id: 'a', axb: 1 })).toBe(false);
    expect(haveOneShape({ id: 'a', 'a|b': 1 }, { id: 'a', a: 1 })).toBe(false);
  });
});
