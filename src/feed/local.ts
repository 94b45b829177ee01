/** The writes of the application, of whichever connection or process: they are in `_changes`, and read from there. */
import type { Connection } from '../sqlite/connection.ts';
import { exactJson } from '../wire/exact-text.ts';
import { encode } from '../wire/values.ts';

/** Read at a time. */
const CHANGES_MAX = 5_000;

export interface LocalWrites {
  /** As a JSON array of [op, table, id], each row once and with what was last done to it. */
  rows: string;
  count: number;
  /** The id of the last change that is in it. */
  upTo: number;
  /** There may be more. */
  more: boolean;
  /** Changes after the last that was seen are not there any more: another process has deleted them. */
  missed: boolean;
}

/** The changes after one; undefined where there are none. `latest` is the greatest id that was given. */
export function localWrites(db: Connection, after: number, latest: number): LocalWrites | undefined {
  if (latest === after) return undefined;
  const next = 'SELECT change_id, op, table_name, row_id FROM main._changes WHERE change_id > CAST(? AS INTEGER) ';
  const page = `${next}ORDER BY change_id LIMIT ${CHANGES_MAX}`;
  const each = `SELECT op, table_name, row_id, max(change_id) AS at FROM (${page}) GROUP BY table_name, row_id ORDER BY at`;
  const named = "row_id IS NOT NULL AND typeof(table_name) = 'text'";
  const found = db.get<{ rows: Uint8Array; count: number }>(
    `SELECT CAST(json_group_array(json_array(coalesce(op, 'UPDATE'), table_name, ${encode('row_id', 'TEXT')})) AS BLOB) ` +
      `AS rows, count(*) AS count FROM (${each}) WHERE ${named}`,
    after,
  );
  const read = db.get<{ n: number; first: number | null; last: number | null }>(
    `SELECT count(*) AS n, min(change_id) AS first, max(change_id) AS last FROM (${page})`,
    after,
  );
  if (!found || !read) return undefined;
  const { n, first, last } = read;
  // Ids are given without gaps; and where the sequence was set back, nothing is known of what was before.
  const missed = latest < after || first === null || first > after + 1;
  const more = n === CHANGES_MAX;
  return { rows: exactJson(found.rows), count: found.count, upTo: more ? (last as number) : latest, more, missed };
}
