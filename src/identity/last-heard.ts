/** When others were last heard, to within an hour, and of whom nobody waits to hear any more; all of it outlives a restart. */
import type { Connection } from '../sqlite/connection.ts';

/** `unawaited`: tombstones were last collected then without it. */
export type What = 'heard' | 'forgotten' | 'unawaited';

/** A node id; or, of one that has never said who it is, its URL. */
type Name = string;

export function noted(db: Connection, what: What, name: Name): number | undefined {
  const value = db.get('SELECT value FROM main._meta WHERE key = ?', `${what}:${name}`)?.value;
  return typeof value === 'number' ? value : undefined;
}

/** In a transaction. */
export function note(db: Connection, what: What, name: Name, at: number): void {
  db.run(
    'INSERT INTO main._meta (key, value) VALUES (?, CAST(? AS INTEGER)) ' +
      'ON CONFLICT DO UPDATE SET value = excluded.value',
    `${what}:${name}`,
    at,
  );
}
