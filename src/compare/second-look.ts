/** Both sides as they are now, for ids that were found to differ a while ago. */
import type { Floors } from './forgotten.ts';
import type { Id } from './ids.ts';
import type { Columns, Entry, Sight } from './ledger.ts';
import type { Sides } from './walk.ts';

/** What one side knows of some ids. */
interface Looked {
  entries: Map<Id, Entry>;
  undelivered: Set<Id>;
  parked: Set<Id>;
}

export async function lookAt(
  { ledger, remote, pace, peer }: Sides & { peer: string },
  table: string,
  columns: Columns,
  ids: Id[],
): Promise<{ here: Looked; there: Looked; floors: Floors }> {
  // First there: what has come from there meanwhile is then seen here, and not the other way round.
  const there = await remote.look(table, columns, ids);
  const here = await pace.turn(() => ledger.look(table, columns, ids, peer));
  return { here: looked(here), there: looked(there), floors: { here: here.floor, there: there.floor } };
}

function looked({ entries, undelivered, parked }: Sight): Looked {
  return {
    entries: new Map(entries.map((entry) => [entry.id, entry])),
    undelivered: new Set(undelivered),
    parked: new Set(parked),
  };
}
