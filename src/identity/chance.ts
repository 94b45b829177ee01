/** The system's chance, for whoever is not given another: what is drawn by it must not be guessed from what was drawn before. */
import { randomInt } from 'node:crypto';

/** From 0 up to, and not including, 1. */
export function chance(): number {
  return randomInt(2 ** 32) / 2 ** 32;
}
