/** status(): a node's health and what a dashboard draws beside it. Bounded work, as for health(). */

import { lastChangeId } from '../capture/change-ids.ts';
import type { Registry } from '../capture/registry.ts';
import type { Health } from '../health.ts';
import type { Connection } from '../sqlite/connection.ts';
import { atLeastOf, type RowCounter } from '../sqlite/row-counter.ts';
import { type Facts, factsOf } from './facts.ts';

export interface Status extends Health, Facts {
  /** How many changes have been captured in the life of this file: the id of the latest. */
  captured: number;
  /** The synced tables; counted as `item_count` is, and `at_least` likewise. */
  tables: { name: string; rows: number; tombstones: number; at_least?: ('rows' | 'tombstones')[] }[];
  /** How many edits that were lost are in the journal. */
  conflicts: number;
}

export function statusOf(
  health: Health,
  { db, registry, counter }: { db: Connection; registry: Registry; counter: RowCounter },
): Status {
  const conflicts = counter.count({ name: '_conflicts', id: 'conflict_id' });
  const { at_least = [] } = atLeastOf({ conflicts });
  const all = [...(health.at_least ?? []), ...at_least];
  return {
    ...health,
    ...factsOf(db, counter),
    captured: lastChangeId(db),
    conflicts: conflicts.rows,
    tables: registry.list().map((table) => {
      const { name } = table;
      const rows = counter.count(table);
      const part = { column: 'table_name', value: name };
      const tombstones = counter.count({ name: '_tombstones', id: 'row_id', part });
      return { name, rows: rows.rows, tombstones: tombstones.rows, ...atLeastOf({ rows, tombstones }) };
    }),
    ...(all.length > 0 && { at_least: all }),
  };
}
