/** What an unusual change is, if it is one: the library's own judgement, without a schema. */
import { type IdLimit, planChange, type Staged } from '../receive/plan.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { TABLE_NAME_BYTES_MAX } from '../wire/protocol.ts';
import { canonicalId } from '../wire/values.ts';

/** A change that is unusual, or none at all. */
export interface Irregular extends Staged {
  /** The row as JSON text. */
  row: string | null;
  change: string;
  id: string | null;
  base: number | null;
}

/** For a table of which only the two columns are known that every table has. */
export function planOf(
  db: Connection,
  change: Irregular,
  idLimit: IdLimit,
): ReturnType<typeof planChange> & { updatedAt: string } {
  let updatedAt = '';
  const plan = planChange(change, {
    table: (name) => (name === '' || Buffer.byteLength(name) > TABLE_NAME_BYTES_MAX ? undefined : anyTable(name)),
    field: (_, key) => {
      const found = fieldOf(db, change.row, key);
      if (key !== undefined && fold(key) === 'updated_at') updatedAt = String(found.value);
      return found;
    },
    shapes: new Map(),
    idLimit,
  });
  return { ...plan, updatedAt };
}

export function canonicalIdOf(db: Connection, id: string): string {
  return id.startsWith('$')
    ? String(db.get(`SELECT ${canonicalId('v')} AS id FROM (SELECT ? AS v LIMIT -1)`, id)?.id)
    : id;
}

function fieldOf(
  db: Connection,
  row: string | null,
  key: string | undefined,
): { type: string | null; value: string | null } {
  const none = { type: null, value: null };
  if (row === null || key === undefined) return none;
  const sql = 'SELECT e.type AS type, CAST(e.atom AS TEXT) AS value FROM json_each(?) AS e WHERE e.key = ?';
  return db.get<{ type: string; value: string }>(sql, row, key) ?? none;
}

function anyTable(name: string): Table {
  return { name, columns: KEY_COLUMNS, id: 'id', updatedAt: 'updated_at', ...NO_NAMES_BEFORE } as Table;
}

const KEY_COLUMNS = [
  { name: 'id', wireName: 'id', affinity: 'TEXT', required: true },
  { name: 'updated_at', wireName: 'updated_at', affinity: 'INTEGER', required: true },
];

const NO_NAMES_BEFORE = { aliases: new Map(), dropped: new Set() };
