/** A ledger read in turns: whoever else has something to do is never kept waiting for long. */
import type { Id, Range } from './ids.ts';
import type { Columns, Counterpart, Entry, Ledger, Sight } from './ledger.ts';
import type { Pace } from './pace.ts';

/** Ranges given to a ledger at once. */
const TOGETHER = 64;

/** Each row is hashed by itself. */
const LISTED = 8;

/** What is in these ranges, in the order of the ids, as it is read; `upTo` is where a piece ends. */
export async function* listInTurns(
  ledger: Ledger,
  pace: Pace,
  table: string,
  columns: Columns,
  ranges: Range[],
): AsyncGenerator<{ entries: Entry[]; upTo: Id | null }> {
  for (let left = ranges; left.length > 0; ) {
    const some = left.slice(0, TOGETHER);
    const pieces = await pace.turn((portion) => ledger.list(table, columns, some, portion), LISTED);
    for (const { entries, end } of pieces) {
      const { upTo } = left[0] as Range;
      yield { entries, upTo: end ?? upTo };
      left = end === null ? left.slice(1) : [{ after: end, upTo }, ...left.slice(1)];
    }
  }
}

/** Each is looked up in several tables, by its id. */
const LOOKED_UP = 16;

/** What is known of all these ids. */
export async function lookInTurns(
  ledger: Ledger,
  pace: Pace,
  table: string,
  columns: Columns,
  ids: Id[],
  other: Counterpart | undefined,
): Promise<Omit<Sight, 'rest'>> {
  const all: Omit<Sight, 'rest'> = { entries: [], undelivered: [], parked: [], early: [] };
  for (let left = ids; left.length > 0; ) {
    const some = left;
    const { entries, undelivered, parked, early, rest, floor, nodes } = await pace.turn(
      (portion) => ledger.look(table, columns, some, other, portion),
      LOOKED_UP,
    );
    all.entries.push(...entries);
    all.undelivered.push(...undelivered);
    all.parked.push(...parked);
    all.early.push(...early);
    // Of several the highest: it never goes down.
    if (floor !== undefined) all.floor = floor;
    if (nodes !== undefined) all.nodes = nodes;
    left = rest;
  }
  return all;
}
