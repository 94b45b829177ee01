/** Batches in either form, read and made without the code that is tested. */

export interface PlainChange {
  op: string;
  table: string;
  row: Record<string, unknown>;
  old_id: string | null;
  base?: number;
}

export interface PlainBatch {
  batch_id: number;
  changes: PlainChange[];
}

export function isTabular(body: string | Uint8Array): boolean {
  return 'rows' in parsed(body);
}

/** What a body says, in whichever form. */
export function batchIn(body: string | Uint8Array): PlainBatch {
  const batch = parsed(body);
  if (!('rows' in batch)) return batch as PlainBatch;
  const { batch_id, op, table, columns, base, rows } = batch as Tabular;
  const changes = rows.map((values): PlainChange => {
    const row = Object.fromEntries(columns.map((name, i) => [name, values[i]]));
    return { op, table, row, old_id: null, ...(base && { base: values[columns.length] as number }) };
  });
  return { batch_id, changes };
}

/** Changes that are alike, in the tabular form. */
export function asTabular({ batch_id, changes }: PlainBatch): string {
  const [first] = changes;
  if (!first) throw new Error('a batch without changes has no tabular form');
  const { op, table, row, base } = first;
  const columns = Object.keys(row);
  const rows = changes.map((one) => [...columns.map((name) => one.row[name]), ...('base' in one ? [one.base] : [])]);
  return JSON.stringify({ batch_id, op, table, columns, ...(base !== undefined && { base: true }), rows });
}

interface Tabular {
  batch_id: number;
  op: string;
  table: string;
  columns: string[];
  base?: true;
  rows: unknown[][];
}

function parsed(body: string | Uint8Array): object {
  return JSON.parse(typeof body === 'string' ? body : new TextDecoder().decode(body)) as object;
}
