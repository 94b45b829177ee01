/** Chance, from one seed. Each concern draws from a stream of its own, so that taking one away leaves the others as they were. */
import { Random } from '../support/model.ts';

export { Random };

export function stream(seed: number, ...names: (string | number)[]): Random {
  let hash = (seed ^ 0x9e3779b9) >>> 0;
  for (const name of names) {
    const text = String(name);
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193) >>> 0;
    hash = Math.imul(hash ^ (hash >>> 15), 0x85ebca6b) >>> 0;
  }
  return new Random(hash);
}

/**
 * From `low` to about `high`, each order of magnitude as likely as the next. By multiplication alone: two runtimes need
 * not agree on the last digit of a power or a logarithm.
 */
export function logUniform(random: Random, low: number, high: number): number {
  let octaves = 0;
  for (let x = low * 2; x <= high; x *= 2) octaves += 1;
  let value = low;
  for (let i = random.below(octaves + 1); i > 0; i--) value *= 2;
  return value * (1 + random.next());
}

/** Mostly small, now and then several times the average, which is near one. */
export function exponential(random: Random): number {
  let halvings = 0;
  while (random.chance(0.5)) halvings += 1;
  return (halvings + random.next()) * 0.7;
}

/** One of these, by how many of so many it is. */
export function weighted<T>(random: Random, choices: [T, number][]): T {
  let place = random.below(choices.reduce((sum, [, weight]) => sum + weight, 0));
  for (const [choice, weight] of choices) {
    place -= weight;
    if (place < 0) return choice;
  }
  throw new Error('no choice');
}
