/** What a database says of itself is sealed by a secret of the file: only a later state of it, or a copy, can say it too. */
import { createHash, createHmac } from 'node:crypto';
import type { Self } from '../wire/introduction.ts';

/** Of this database `seal` is the secret. */
interface Sealing {
  inc: string;
  seal: string | null;
}

export function sealOf({ inc, seal: secret }: Sealing, { boot, tick }: Pick<Self, 'boot' | 'tick'>): string {
  const words = `${inc} ${boot} ${tick}`;
  if (latest?.secret !== secret || latest.words !== words) latest = { secret, words, seal: sealed(secret, words) };
  return latest.seal;
}

/** Between two ticks a database says the same of itself to everybody. */
let latest: { secret: string | null; words: string; seal: string } | undefined;

function sealed(secret: string | null, words: string): string {
  return createHmac('sha256', secret ?? '')
    .update(words)
    .digest('hex')
    .slice(0, 16);
}

export function isSealedBy(own: Sealing, said: Pick<Self, 'boot' | 'tick' | 'seal'>): boolean {
  return own.seal !== null && said.seal === sealOf(own, said);
}

/** Hex digits by chance. The id goes in as well: two nodes whose chance is the same must not be one. */
export function drawn(what: string, digits: number, { id, random }: { id: string; random: () => number }): string {
  const chance = [random(), random(), random()].join(' ');
  return createHash('sha256').update(`${id} ${what} ${chance}`).digest('hex').slice(0, digits);
}
