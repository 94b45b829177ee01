/** What `_meta` says of the schema that the triggers were made for: SQLite's own counter, as it was then. */
import type { Connection } from '../sqlite/connection.ts';

/** The schema that this or an earlier process has last made triggers for; kept, because the backlog is as well. */
export function verifiedSchema(db: Connection): number | undefined {
  const value = db.get("SELECT value FROM main._meta WHERE key = 'verified_schema'")?.value;
  return value == null ? undefined : Number(value);
}

export function noteVerifiedSchema(db: Connection, version: number): void {
  const put = "INSERT INTO main._meta (key, value) VALUES ('verified_schema', CAST(? AS INTEGER))";
  if (verifiedSchema(db) !== version) db.run(`${put} ON CONFLICT DO UPDATE SET value = excluded.value`, version);
}
