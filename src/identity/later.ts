/** Whether somebody knows of a later state of this database than it is in. */
import type { Introduction, Remembered } from '../wire/introduction.ts';
import { isBehind, isCopyOf } from './judge.ts';
import type { Known } from './nodes.ts';
import { isSealedBy } from './seal.ts';

/** Only a later state of this database, or a copy, has the secret: what is not sealed with it was made up. */
export function speaksOfLater(said: Introduction, own: Known): boolean {
  const isOurs = (you: Remembered | undefined): boolean =>
    you?.inc === own.inc && isBehind(own, you) && isSealedBy(own, you);
  return (
    isOurs(said.you) ||
    said.claims?.some(isOurs) === true ||
    (said.inc === own.inc && isCopyOf(own, said) && isSealedBy(own, said))
  );
}
