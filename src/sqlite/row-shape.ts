/** Rows as they are read here, whatever the application has set for its own: objects, by the names of their columns. */

type Setting = 'safeIntegers' | 'setReadBigInts' | 'setReturnArrays';

/**
 * The application may have asked its handle for bigints everywhere, or for arrays in place of rows. The numbers that we read
 * ourselves are small, and we go by names.
 */
export function plainRows(statement: object): void {
  const settings = statement as { [name in Setting]?: (on: boolean) => void };
  settings.safeIntegers?.(false);
  settings.setReadBigInts?.(false);
  settings.setReturnArrays?.(false);
}

/**
 * Whether the application's `PRAGMA short_column_names = OFF` has made `items.id` of the column `id`. (It also does so
 * where a subquery says `*`: no statement of ours does.)
 */
export function isQualified(row: object): boolean {
  for (const name in row) if (name.includes('.') || name.startsWith('"')) return true;
  return false;
}

/** No column that is read here has a dot in its name. */
export function named(row: object, qualified: boolean): object {
  if (!qualified) return row;
  const plain = (name: string): string => name.slice(name.lastIndexOf('.') + 1).replace(/^"(.*)"$/, '$1');
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [plain(name), value]));
}
