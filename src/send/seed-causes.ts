/** How often each peer was given everything, or whole tables, and why: counted in the file, in the transaction that begins it. */
import type { Connection } from '../sqlite/connection.ts';

/**
 * `new`: it was none of the peers. `replaced`: another database answers there. `restored`: it, or another node, has lost a part
 * of what it had. `stale`: changes that it lacks are gone. `table`: tables were not captured for a while, or were asked for.
 * `manual`: somebody has asked for it.
 */
export type SeedCause = (typeof CAUSES)[number];

const CAUSES = ['new', 'replaced', 'restored', 'stale', 'table', 'manual'] as const;

/** In the transaction in which it begins. */
export function countSeed(db: Connection, peer: string, cause: SeedCause): void {
  const counted = "iif(json_valid(value), value, '{}')";
  db.run(
    `INSERT INTO main._meta (key, value) VALUES (?, json_object('${cause}', 1)) ON CONFLICT DO UPDATE SET value = ` +
      `json_set(${counted}, '$.${cause}', coalesce(json_extract(${counted}, '$.${cause}'), 0) + 1)`,
    keyOf(peer),
  );
}

/** Zero where there was none: a rate needs its zero. */
export function seedsOf(db: Connection, peer: string): Record<SeedCause, number> {
  const value = db.get('SELECT value FROM main._meta WHERE key = ?', keyOf(peer))?.value;
  const counts = countsIn(value);
  return Object.fromEntries(CAUSES.map((cause) => [cause, Number(counts[cause] ?? 0)])) as Record<SeedCause, number>;
}

/** A person may have written anything there. */
function countsIn(value: unknown): Record<string, unknown> {
  try {
    return (typeof value === 'string' ? JSON.parse(value) : undefined) ?? {};
  } catch {
    return {};
  }
}

function keyOf(peer: string): string {
  return `seeds ${peer}`;
}
