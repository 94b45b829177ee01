/** What somebody may have meant: the known word nearest to the one that was given. */

/** `; did you mean ...?` where one of the known words is near, or begins with the given one. */
export function suggest(word: string, known: readonly string[]): string {
  const near = nearest(word, known);
  return near === undefined ? '' : `; did you mean ${near}?`;
}

export function nearest(word: string, known: readonly string[]): string | undefined {
  const given = word.toLowerCase();
  const near = known
    .map((candidate) => ({ candidate, distance: editDistance(given, candidate.toLowerCase()) }))
    .filter(({ candidate, distance }) => distance <= 2 && distance < candidate.length)
    .sort((a, b) => a.distance - b.distance)[0];
  return near?.candidate ?? known.find((candidate) => candidate.startsWith(word));
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row[b.length] as number;
}
