/** Both sides as they are now, for ids that were found to differ a while ago. */
import { decidingOf, type Floors } from './forgotten.ts';
import type { Id } from './ids.ts';
import type { Columns, Early, Entry, Sight } from './ledger.ts';
import { lookInTurns } from './reading.ts';
import type { Sides } from './walk.ts';

/** What one side knows of some ids. */
interface Looked {
  entries: Map<Id, Entry>;
  undelivered: Set<Id>;
  parked: Set<Id>;
  /** Is that very version kept there until its time has come? */
  isEarly(version: Early | undefined): boolean;
}

export async function lookAt(
  { ledger, remote, pace, peer }: Sides & { peer: string },
  table: string,
  columns: Columns,
  ids: Id[],
): Promise<{ here: Looked; there: Looked; floors: Floors; deciding: Floors }> {
  // First there: what has come from there meanwhile is then seen here, and not the other way round.
  const there = await remote.look(table, columns, ids);
  const here = await lookInTurns(ledger, pace, table, columns, ids, { name: peer });
  const floors = { here: here.floor, there: there.floor };
  return { here: looked(here), there: looked(there), floors, deciding: decidingOf(floors, here.nodes, there.nodes) };
}

function looked({ entries, undelivered, parked, early }: Omit<Sight, 'rest'>): Looked {
  const kept = new Set(early.map(nameOf));
  return {
    isEarly: (version) => version !== undefined && kept.has(nameOf(version)),
    entries: new Map(entries.map((entry) => [entry.id, entry])),
    undelivered: new Set(undelivered),
    parked: new Set(parked),
  };
}

function nameOf({ id, version }: Early): string {
  return `${version} ${id}`;
}
