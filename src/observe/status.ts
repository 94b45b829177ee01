/** status(): a node's health and what a dashboard draws beside it. Bounded work, as for health(). */

import { lastChangeId } from '../capture/change-ids.ts';
import type { Registry } from '../capture/registry.ts';
import type { Health } from '../health.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { RowCounter } from '../sqlite/row-counter.ts';
import { type Facts, factsOf } from './facts.ts';

export interface Status extends Health, Facts {
  /** How many changes have been captured in the life of this file: the id of the latest. */
  captured: number;
  /** The synced tables; counted as `item_count` is. */
  tables: { name: string; rows: number; tombstones: number }[];
  /** How many edits that were lost are in the journal. */
  conflicts: number;
}

export function statusOf(
  health: Health,
  { db, registry, counter }: { db: Connection; registry: Registry; counter: RowCounter },
): Status {
  return {
    ...health,
    ...factsOf(db),
    captured: lastChangeId(db),
    conflicts: counter.count('_conflicts', 'conflict_id'),
    tables: registry.list().map(({ name, id }) => ({
      name,
      rows: counter.count(name, id),
      tombstones: counter.count('_tombstones', 'row_id', false, { column: 'table_name', value: name }),
    })),
  };
}
