/** Bodies that wait come back as they were, from memory that is used again. */
import { expect, test } from 'vitest';
import { pickedUp, Shelf } from '../../src/journal/shelf.ts';

const PIECE = 32 * 1024;

/** Every byte, and none at the same place in two of them. */
const filled = (length: number, first: number): Buffer =>
  Buffer.from(Uint8Array.from({ length }, (_, i) => first + (i % 251)));

test.each([0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 100_001])(
  'a body of %i bytes, as bytes and as text',
  (length) => {
    const shelf = new Shelf();
    const body = filled(length, 1);
    const laid = [shelf.lay(body), shelf.lay(body.toString('latin1')), shelf.lay(filled(length, 2))];
    expect(laid.map((one) => pickedUp(one).equals(body))).toEqual([true, true, length === 0]);
  },
);

test('what was let go is used again, and nobody else gets it', () => {
  const shelf = new Shelf();
  const first = shelf.lay(filled(2 * PIECE, 1));
  const stays = shelf.lay(filled(PIECE + 5, 2));
  shelf.letGo(first);
  const second = shelf.lay(filled(2 * PIECE - 9, 3));
  const third = shelf.lay(filled(PIECE, 4));
  expect(new Set(second.pieces)).toEqual(new Set(first.pieces));
  expect(third.pieces.some((piece) => first.pieces.includes(piece) || stays.pieces.includes(piece))).toBe(false);
  expect(pickedUp(stays).equals(filled(PIECE + 5, 2))).toBe(true);
  expect(pickedUp(second).equals(filled(2 * PIECE - 9, 3))).toBe(true);
  expect(pickedUp(third).equals(filled(PIECE, 4))).toBe(true);
});

test('what it takes is what is counted, and the bytes of a caller are not kept', () => {
  const shelf = new Shelf();
  const body = filled(PIECE + 1, 1);
  const laid = shelf.lay(body);
  expect(laid.bytes).toBe(laid.pieces.reduce((sum, { buffer }) => sum + buffer.byteLength, 0));
  body.fill(0);
  expect(pickedUp(laid).equals(filled(PIECE + 1, 1))).toBe(true);
});

test('when nothing waits, nothing is held', { tags: 'long' }, () => {
  const shelf = new Shelf();
  const first = shelf.lay(filled(PIECE, 1));
  shelf.letGo(first);
  shelf.clear();
  expect(shelf.lay(filled(PIECE, 1)).pieces[0]).not.toBe(first.pieces[0]);
});
