/** A ledger read in turns: whoever else has something to do is never kept waiting for long. */
import type { Id, Range } from './ids.ts';
import type { Columns, Entry, Ledger, Sight } from './ledger.ts';
import type { Pace } from './pace.ts';

/** What is in a range, in the order of the ids, as it is read; `end` as in a piece. */
export async function* listInTurns(
  ledger: Ledger,
  pace: Pace,
  table: string,
  columns: Columns,
  range: Range,
): AsyncGenerator<{ entries: Entry[]; end: Id | null }> {
  for (let { after } = range; ; ) {
    const from = after;
    const piece = await pace.turn((portion) => ledger.list(table, columns, { after: from, upTo: range.upTo }, portion));
    yield piece;
    if (piece.end === null) return;
    after = piece.end;
  }
}

/** What is looked up id by id costs several times what is read in a row. */
const LOOKED_UP = 4;

/** What is known of all these ids. */
export async function lookInTurns(
  ledger: Ledger,
  pace: Pace,
  table: string,
  columns: Columns,
  ids: Id[],
  other: string | undefined,
): Promise<Omit<Sight, 'rest'>> {
  const all: Omit<Sight, 'rest'> = { entries: [], undelivered: [], parked: [], early: [] };
  for (let left = ids; left.length > 0; ) {
    const some = left;
    const { entries, undelivered, parked, early, rest, floor } = await pace.turn(({ rows, bytes }) =>
      ledger.look(table, columns, some, other, { rows: Math.ceil(rows / LOOKED_UP), bytes }),
    );
    all.entries.push(...entries);
    all.undelivered.push(...undelivered);
    all.parked.push(...parked);
    all.early.push(...early);
    // Of several the highest: it never goes down.
    if (floor !== undefined) all.floor = floor;
    left = rest;
  }
  return all;
}
