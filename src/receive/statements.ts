/** What merges the changes of a group on the careful way, and what finds one of them that a trigger has kept out all the same. */
import type { Table } from '../sqlite/schema.ts';
import { quote } from '../sqlite/sql.ts';
import {
  beatenByDeletesSql,
  deleteSql,
  entombed,
  entombSql,
  type Shape,
  type Source,
  unwrittenSql,
  updateSql,
  upsertSql,
} from './merge.ts';
import { STAGE } from './stage.ts';

export interface Statements {
  /** In their order; the rows that those which count have changed are the changes that have won. */
  run: { sql: string; counts: boolean }[];
  /** Undefined where no trigger does so. */
  keptOut: string | undefined;
}

export function deletion(table: Table, source: Source): Statements {
  const run = [counted(entombSql(table, source)), { sql: deleteSql(table, source), counts: false }];
  return { run, keptOut: table.ignores ? beatenByDeletesSql(table, source) : undefined };
}

/**
 * Where triggers of the application fire, a row that is there is updated, and only one that is not is inserted: to SQLite an
 * UPSERT is an INSERT at first, which fires triggers BEFORE INSERT, and then an UPDATE OR ABORT, whatever its triggers say
 * themselves of conflicts. Of several changes to a row only the newest is written, and those of one time by UPSERT all the same.
 */
export function upsert(table: Table, shape: Shape, source: Source): Statements {
  const run = table.fires
    ? [
        { sql: waySql(table), counts: false },
        counted(updateSql(table, shape, those(source, `w.way = ${UPDATED}`))),
        // And those of rows that a trigger has taken away since.
        counted(
          upsertSql(
            table,
            shape,
            those(source, `(w.way = ${INSERTED} OR (w.way = ${UPDATED} AND NOT ${isThere(table, 'w')}))`),
          ),
        ),
      ]
    : [counted(upsertSql(table, shape, source))];
  return { run, keptOut: table.ignores ? unwrittenSql(table, shape, source) : undefined };
}

const INSERTED = 0;
const UPDATED = 1;
const OUTDATED = 2;

/** Decides it for the changes of a group and range. A row that is there in spite of its tombstone is nobody's to update. */
function waySql(table: Table): string {
  const isLive = `${isThere(table, 's')} AND NOT ${entombed(table, { id: 's.id', ua: 's.ua' })}`;
  const way = `CASE WHEN age > 1 THEN ${OUTDATED} WHEN tied > 1 THEN ${INSERTED} ELSE iif(${isLive}, ${UPDATED}, ${INSERTED}) END`;
  return (
    `UPDATE ${STAGE} SET way = d.way FROM (SELECT s.idx AS idx, ${way} AS way FROM (SELECT idx, id, ua, ` +
    'dense_rank() OVER (PARTITION BY id ORDER BY ua DESC) AS age, count(*) OVER (PARTITION BY id, ua) AS tied ' +
    `FROM ${STAGE} WHERE grp = ? AND idx >= ? AND idx < ? AND apart IS NULL) AS s LIMIT -1) AS d ` +
    `WHERE ${STAGE}.idx = d.idx`
  );
}

function isThere(table: Table, line: string): string {
  return `EXISTS (SELECT 1 FROM ${table.target} AS t WHERE t.${quote(table.id)} = ${line}.id)`;
}

/** Those of the source whose line `w` of the stage is so. */
function those(source: Source, which: string): Source {
  const sql =
    `SELECT p.idx AS idx, p.id AS id, p.ua AS ua, p.r AS r FROM (${source.sql}) AS p ` +
    `JOIN ${STAGE} AS w ON w.idx = p.idx WHERE ${which} ORDER BY p.idx LIMIT -1`;
  return { ...source, sql };
}

function counted(sql: string): Statements['run'][number] {
  return { sql, counts: true };
}

/** For rows that exist. */
export function update(table: Table, shape: Shape, source: Source): Statements {
  const run = [counted(updateSql(table, shape, source))];
  return { run, keptOut: table.ignores ? unwrittenSql(table, shape, source, 'updates') : undefined };
}
