/** What a second look makes of a suspicion. */
import { expect, test } from 'vitest';
import type { Entry } from '../../src/compare/ledger.ts';
import { judge } from '../../src/compare/verify.ts';

const at = (version: number, hash = `h${version}`): Entry => ({ id: 'x', version, deleted: false, hash });
const gone = (version: number): Entry => ({ id: 'x', version, deleted: true, hash: '' });
const none = undefined;
const nobody = { here: false, there: false };

type Both = [Entry | undefined, Entry | undefined];
const CASES: [string, Both, Both, { here: boolean; there: boolean }, string][] = [
  ['it has arrived', [at(2), at(1)], [at(2), at(2)], nobody, 'equal'],
  ['it has not arrived, and nobody sends it', [at(2), at(1)], [at(2), at(1)], nobody, 'differs'],
  ['it has not arrived, and is on its way', [at(2), at(1)], [at(2), at(1)], { here: true, there: false }, 'pending'],
  [
    'the older side alone has something on its way',
    [at(2), at(1)],
    [at(2), at(1)],
    { here: false, there: true },
    'differs',
  ],
  ['it has arrived, and was written again', [at(2), at(1)], [at(3), at(2)], nobody, 'moved'],
  ['written again, but the first has not arrived', [at(2), at(1)], [at(3), at(1)], nobody, 'differs'],
  ['both were written again', [at(2), at(1)], [at(3), at(4)], nobody, 'moved'],
  ['absent there, still', [at(2), none], [at(2), none], nobody, 'differs'],
  ['absent there, and then an older one', [at(2), none], [at(2), at(1)], nobody, 'differs'],
  ['gone from both', [at(2), none], [none, none], nobody, 'equal'],
  ['a tie that stays', [at(2, 'a'), at(2, 'b')], [at(2, 'a'), at(2, 'b')], nobody, 'differs'],
  [
    'a tie that is on its way',
    [at(2, 'a'), at(2, 'b')],
    [at(2, 'a'), at(2, 'b')],
    { here: false, there: true },
    'pending',
  ],
  ['a tie that one side has left', [at(2, 'a'), at(2, 'b')], [at(3), at(2, 'b')], nobody, 'differs'],
  ['a tie that both have left', [at(2, 'a'), at(2, 'b')], [at(3), at(4)], nobody, 'moved'],
  ['a deletion of the same time', [gone(2), at(2)], [gone(2), at(2)], nobody, 'differs'],
  ['a deletion that has arrived, written again', [gone(2), at(2)], [at(3), gone(2)], nobody, 'moved'],
  ['the same time with other content than then', [at(2, 'a'), at(1)], [at(3), at(2, 'b')], nobody, 'differs'],
];

test.each(CASES)('%s', (_, before, now, onItsWay, expected) => {
  const suspect = ([here, there]: Both) => ({ id: 'x', here, there });
  expect(judge(suspect(before), suspect(now), onItsWay)).toBe(expected);
});
