/** What a database says of itself is sealed by a secret of the file: only a later state of it, or a copy, can say it too. */
import { createHash, createHmac } from 'node:crypto';
import type { Self } from '../wire/introduction.ts';

/** Of this database `seal` is the secret. */
interface Sealing {
  inc: string;
  seal: string | null;
}

export function sealOf({ inc, seal: secret }: Sealing, { boot, tick }: Pick<Self, 'boot' | 'tick'>): string {
  const key = secret ?? '';
  const text = `${inc} ${boot} ${tick}`;
  if (latest?.text !== text || latest.key !== key) {
    const seal = createHmac('sha256', key).update(text).digest('hex').slice(0, 16);
    latest = { key, text, seal };
  }
  return latest.seal;
}

/** All peers are told the same tick, until the next. */
let latest: { key: string; text: string; seal: string } | undefined;

export function isSealedBy(own: Sealing, said: Pick<Self, 'boot' | 'tick' | 'seal'>): boolean {
  return own.seal !== null && said.seal === sealOf(own, said);
}

/** Hex digits by chance. The id goes in as well: two nodes whose chance is the same must not be one. */
export function drawn(what: string, digits: number, { id, random }: { id: string; random: () => number }): string {
  const chance = [random(), random(), random()].join(' ');
  return createHash('sha256').update(`${id} ${what} ${chance}`).digest('hex').slice(0, digits);
}
