/** The rule of UNIQUE constraints in a dozen lines, as an oracle: which rows are visible, of the newest versions of all. */
export interface Version {
  id: string;
  updatedAt: number;
  row: Record<string, unknown>;
}

/** Rows in order of strength, each visible unless a visible one before it shares a value. */
export function visibleOf<V extends Version>(rows: V[], clash: (a: V, b: V) => boolean): V[] {
  const visible: V[] = [];
  for (const row of rows.toSorted((a, b) => b.updatedAt - a.updatedAt || (a.id < b.id ? 1 : -1))) {
    if (!visible.some((other) => clash(row, other))) visible.push(row);
  }
  return visible;
}
