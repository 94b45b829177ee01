/** Text of any characters, drawn. */
import fc from 'fast-check';

const SURROGATES = { from: 0xd800, count: 0x800 };
const character = fc
  .nat(0x10ffff - SURROGATES.count)
  .map((n) => String.fromCodePoint(n < SURROGATES.from ? n : n + SURROGATES.count));
const low = fc.nat(0x7f).map((n) => String.fromCharCode(n));
/** Names that objects have by themselves. */
const names = fc.constantFrom('__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf', '__defineGetter__');

/** As `fc.string({ unit: 'binary' })`, which makes a table of all of Unicode first: a second of work in every process. */
export function anyText(length: { minLength?: number; maxLength?: number } = {}): fc.Arbitrary<string> {
  const { maxLength = Number.POSITIVE_INFINITY } = length;
  return fc.oneof(
    { weight: 9, arbitrary: fc.string({ unit: fc.oneof(character, low), ...length }) },
    { weight: 1, arbitrary: names.filter((name) => name.length <= maxLength) },
  );
}
