/**
 * Who has made the changes of a batch, where that is not its sender: a header, spelt and read here and nowhere else.
 *
 *   a,shop%2C7,;0x3,1,2x12
 *
 * Names first, then runs of changes by the number of their name: a made the first three, `shop,7` the next, and who made
 * the last twelve is not known. It decides nothing, and is for whoever asks where a row came from.
 */
import { isNodeId } from './protocol.ts';

/** Neighbouring changes of one node; null: nobody knows whose. */
export interface OriginRun {
  node: string | null;
  count: number;
}

/** Of changes that their sender has not made, or may not have: rows as they stand. */
export function madeByOthers(count: number): OriginRun[] {
  return [{ node: null, count }];
}

/** Proxies and servers take a line of 8 kB. */
const LENGTH_MAX = 4_000;

export function writeOrigins(runs: OriginRun[]): string {
  const names = new Map<string, number>();
  const spelt = runs.map(({ node, count }) => {
    const name = node ?? '';
    if (!names.has(name)) names.set(name, names.size);
    return count === 1 ? `${names.get(name)}` : `${names.get(name)}x${count}`;
  });
  return `${[...names.keys()].map(encodeURIComponent).join(',')};${spelt.join(',')}`;
}

/** How many changes can be told of in one header: at least those of the first run. */
export function toldTogether(runs: OriginRun[]): number {
  const names = new Set<string | null>();
  let [length, changes] = [1, 0];
  for (const { node, count } of runs) {
    // A run is the number of its name, a letter, a count, and a comma.
    length += 12 + (names.has(node) ? 0 : encodeURIComponent(node ?? '').length + 1);
    if (length > LENGTH_MAX && changes > 0) return changes;
    names.add(node);
    changes += count;
  }
  return changes;
}

/** Undefined where there is none, or it is not what a batch of so many changes would have: then the sender speaks for itself. */
export function readOrigins(header: string | undefined, count: number): OriginRun[] | undefined {
  const [listed, spelt, ...rest] = header !== undefined && header.length <= LENGTH_MAX ? header.split(';') : [];
  if (listed === undefined || spelt === undefined || rest.length > 0) return undefined;
  const names = listed.split(',').map(nameIn);
  const runs: OriginRun[] = [];
  let total = 0;
  for (const one of spelt.split(',')) {
    const [, number, times = '1'] = /^(\d{1,5})(?:x(\d{1,5}))?$/.exec(one) ?? [];
    const node = number === undefined ? undefined : names[Number(number)];
    if (node === undefined || Number(times) === 0) return undefined;
    runs.push({ node, count: Number(times) });
    total += Number(times);
  }
  return total === count ? runs : undefined;
}

/** That of one change; undefined where there is nothing told of it. */
export function originAt(runs: OriginRun[] | undefined, index: number): OriginRun | undefined {
  let end = 0;
  return runs?.find(({ count }) => {
    end += count;
    return index < end;
  });
}

/** Those of some of the changes, which are named by their indexes, in their order. */
export function originsOf(runs: OriginRun[] | undefined, indexes: number[]): OriginRun[] | undefined {
  return runs && indexes.map((index) => ({ node: originAt(runs, index)?.node ?? null, count: 1 }));
}

/** Those of so many changes, after some that are skipped. */
export function originsBetween(runs: OriginRun[] | undefined, skip: number, count: number): OriginRun[] | undefined {
  let begin = -skip;
  return runs
    ?.map(({ node, count: all }) => {
      const [first, last] = [Math.max(begin, 0), Math.min(begin + all, count)];
      begin += all;
      return { node, count: last - first };
    })
    .filter(({ count: left }) => left > 0);
}

/** Undefined where it is no name of a node. */
function nameIn(text: string): string | null | undefined {
  if (text === '') return null;
  try {
    const name = decodeURIComponent(text);
    return isNodeId(name) ? name : undefined;
  } catch {
    return undefined;
  }
}
