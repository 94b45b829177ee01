/** How the next changes are read from `_changes`: as a body, to plain peers and to those that keep a journal of conflicts. */
import { UNUSABLE } from '../capture/adopt.ts';
import { BOUND_NUMBER } from '../sqlite/sql.ts';
import { type Body, baseSql, batchSql, changeSql, type Line, STORED_BYTES } from '../wire/body.ts';
import { encode } from '../wire/values.ts';

/** Changes as they go onto the wire, in one body. */
export interface Serialised {
  body: Body;
  last: number;
  n: number;
  /** Rows without an id, which no other node could tell apart. */
  nameless: number;
  /** Changes that no trigger of ours has recorded, and that lack something. */
  foreign: number;
}

/** The next changes: after which, and how many. */
const NEXT = `FROM main._changes WHERE change_id > ? ORDER BY change_id LIMIT ${BOUND_NUMBER}`;

/** One of them, as it goes onto the wire. */
const CHANGE = {
  op: 'op',
  table: 'table_name',
  row: "coalesce(row_data, 'null')",
  oldId: `iif(op = 'DELETE', json_quote(${encode('row_id', 'TEXT')}), 'null')`,
};

export const PLAIN = reading(changeSql(CHANGE));
export const BASED = reading(changeSql({ ...CHANGE, more: `iif(op = 'UPDATE', ${baseSql('base')}, '')` }));

/** The whole request body is made by SQLite, as bytes: no row ever becomes a JavaScript object or string. */
function reading(change: string): { line: Omit<Line, 'params'>; sql: string } {
  const found = `change_id, row_id IS NULL AS nameless, ${UNUSABLE} AS "foreign", ${change} AS change`;
  return {
    line: { from: NEXT, place: 'change_id', change, bytes: STORED_BYTES },
    sql:
      `SELECT ${batchSql('max(change_id)')} AS body, max(change_id) AS last, count(*) AS n, ` +
      `sum(nameless) AS nameless, sum("foreign") AS "foreign" FROM (SELECT ${found} ${NEXT})`,
  };
}
