/**
 * What `npm test` leaves to `npm run test:deep`. Every file that imports this runs there once more, in full (`DRAWN` of
 * test/lanes/lanes.mjs); of those that are dealt the two runtimes have the other tests there (`DEALT`).
 */

/** How many inputs a test draws that draws any, or how many rows it takes where many are the point: an eighth of them. */
export function draws(all: number): number {
  return Math.ceil(all / (SHARES[process.env.ROWCAST_DRAWS ?? ''] ?? 8));
}

const SHARES: Record<string, number> = { all: 1, half: 2 };

/** Of cases that take long and say much the same, the first; all of them in `npm run test:deep`. */
export function firstOf<T>(cases: readonly T[]): T[] {
  return cases.slice(0, isInFull() ? undefined : 1);
}

/**
 * Of the cases in which each of one list meets each of another: as many that every one of either is in some of them; all of
 * them in `npm run test:deep`.
 */
export function meetings<A, B>(some: readonly A[], others: readonly B[]): [A, B][] {
  const all = some.flatMap((one, i) => others.map((other, j) => ({ i, j, pair: [one, other] as [A, B] })));
  const longer = Math.max(some.length, others.length);
  const isMet = (i: number, j: number): boolean =>
    Array.from({ length: longer }, (_, k) => k).some((k) => k % some.length === i && k % others.length === j);
  return all.filter(({ i, j }) => isInFull() || isMet(i, j)).map(({ pair }) => pair);
}

/** Half of the draws are still all of the cases. */
function isInFull(): boolean {
  return (process.env.ROWCAST_DRAWS ?? '') in SHARES;
}

/**
 * Of many cases that differ in what SQLite or a peer is given, and not in how a runtime calls it: each runtime of
 * `npm test` takes its share, so that every case runs on one of them.
 */
export function shared<T>(cases: readonly T[]): T[] {
  return cases.filter((_, i) => isTaken(i, process.env.ROWCAST_SHARE));
}

/** Whether a runtime takes this one, of a list that is dealt out. In lists of pairs each takes either member in turn. */
export function isTaken(index: number, share = '1/1'): boolean {
  const [part, parts] = share.split('/').map(Number) as [number, number];
  return (index + Math.floor(index / parts)) % parts === part - 1;
}
