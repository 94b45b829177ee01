/**
 * What REPLACE removes besides the row of its own id: rows with other ids that have the same value under a UNIQUE constraint,
 * or the same rowid where a statement gives one. No trigger of theirs fires. They are noted before the write and, if they are
 * gone after it, recorded as deleted. To note one too many does no harm.
 */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { conjunction, fold, literal, quote } from '../sqlite/sql.ts';
import type { UniqueConstraint } from '../sqlite/unique-indexes.ts';
import { rareRowJson } from '../wire/row-json.ts';
import { encode } from '../wire/values.ts';
import { dayOf } from './floors.ts';
import type { TriggerParts } from './triggers.ts';
import { idOf, NOT_SYNCING, SEEMS_LOCAL, versionOf } from './versions.ts';

export function captureReplaced(table: Table): TriggerParts[] {
  if (table.uniques.length === 0 && table.rowids.length === 0) return [];
  const noted = `${isNoted(table)} AND ${NOT_SYNCING}`;
  const clashes = (own: 'NEW' | 'OLD'): string =>
    `${SEEMS_LOCAL} AND EXISTS (SELECT 1 ${victims(table, own)}) AND ${NOT_SYNCING}`;
  const update = updatesOf(table);
  const inserts = [
    { kind: 'insert_clash', event: 'BEFORE INSERT', when: clashes('NEW'), body: [note(table, 'NEW')] },
    { kind: 'insert_replaced', event: 'AFTER INSERT', when: noted, body: settle(table) },
  ];
  return [
    ...(table.uniques.length > 0 ? inserts : []),
    {
      kind: 'update_clash',
      event: `BEFORE ${update}`,
      when: `${allColumnsRead(table)}${clashes('OLD')}`,
      body: [note(table, 'OLD')],
    },
    { kind: 'update_replaced', event: `AFTER ${update}`, when: noted, body: settle(table) },
  ];
}

/** For the triggers that each INSERT has in any case: conditions, and what is done where they hold. */
interface OfRowids {
  before: { when: string; body: string[] };
  after: { when: string; body: string[] };
}

/**
 * Without another constraint, only a row that is told where to go can be in anybody's way, and hardly any is: two more
 * triggers would cost each INSERT a seventh. Undefined where there is nothing of the kind.
 */
export function replacedByRowid(table: Table): OfRowids | undefined {
  if (table.uniques.length > 0 || table.rowids.length === 0) return undefined;
  return {
    before: { when: `EXISTS (SELECT 1 ${victims(table, 'NEW')})`, body: [note(table, 'NEW')] },
    after: { when: isNoted(table), body: settle(table) },
  };
}

function isNoted(table: Table): string {
  return `EXISTS (SELECT 1 FROM _replaced WHERE table_name = ${literal(table.name)})`;
}

/** The rows in the way of NEW. Those of its own id are somebody else's business: `own` is the row that is written. */
function victims(table: Table, own: 'NEW' | 'OLD'): string {
  const id = idOf(table, 't');
  const from = `FROM ${quote(table.name)} AS t WHERE`;
  const isAnother = `${id} IS NOT ${idOf(table, own)} AND ${id} IS NOT NULL`;
  // Of an INSERT whose rowid SQLite has yet to choose, this asks for -1: mostly there is none, and to note one does no harm.
  const byRowid = `t.${table.rowKey} = NEW.${table.rowKey}`;
  if (table.uniques.length === 0) return `${from} ${byRowid} AND ${isAnother}`;
  // One look-up per constraint: joined by OR, SQLite walks the whole table.
  const clashing = table.uniques
    .map((unique) => clash(table, unique))
    .concat(table.rowids.length === 0 ? [] : byRowid)
    .map((inTheWay) => `SELECT ${id} ${from} ${inTheWay}`)
    .join(' UNION ALL ');
  return `${from} ${id} IN (${clashing}) AND ${isAnother}`;
}

function clash(table: Table, unique: UniqueConstraint): string {
  // An expression is asked of the new row by way of a subquery that has its columns under their own names.
  const names = [...table.columns.map(({ name }) => name), ...table.generated].map(quote);
  const fresh = `(SELECT ${names.map((name) => `NEW.${name} AS ${name}`).join(', ')})`;
  // A row that the index does not have is not asked: the expression may fail for it, and with it the application's write.
  const condition = unique.where === undefined ? [] : [`(${unique.where}\n)`];
  const indexed = condition.map((holds) => ` WHERE ${holds}`).join('');
  const terms = unique.columns.map(({ name, expression, collation }) =>
    expression === undefined
      ? `t.${quote(name)} = NEW.${quote(name)} COLLATE ${quote(collation)}`
      : `(${expression}\n) = (SELECT ${expression}\n FROM ${fresh}${indexed}) COLLATE ${quote(collation)}`,
  );
  return [...condition, ...terms].join(' AND ');
}

/**
 * By a rowid hardly any row is removed, and what is to be done about that is compiled with each INSERT: then the row itself is
 * left out. A deletion is told by its id and version.
 */
function isSlim(table: Table): boolean {
  return table.uniques.length === 0;
}

function note(table: Table, own: 'NEW' | 'OLD'): string {
  const version = versionOf(table, 't');
  const row = isSlim(table) ? 'NULL' : rareRowJson(table, 't', { column: table.updatedAt, by: version });
  return (
    'INSERT INTO _replaced (table_name, row_id, version, row_data) ' +
    `SELECT ${literal(table.name)}, ${idOf(table, 't')}, ${version}, ${row} ${victims(table, own)} ` +
    'ON CONFLICT (table_name, row_id) DO UPDATE SET version = excluded.version, row_data = excluded.row_data'
  );
}

/**
 * Between two statements nothing is being replaced, and yet there may be notes: of a statement that was ignored, whose rows
 * are all there, and of one whose own row a cascade has removed, so that no trigger came after it. They are not left for
 * later: without what else tells that its row has gone, one that was ignored would be taken for replaced. Of tables that are
 * the ones that were noted; in a transaction of ours.
 */
export function settleReplaced(db: Connection, tables: Table[]): void {
  for (const table of notedAmong(db, tables)) {
    const row = `coalesce(r.row_data, ${withoutContent(table)})`;
    for (const sql of settling(table, { at: 'main.', row, hides: true })) db.run(sql);
  }
}

/**
 * On every look: these are whole rows, and as many as there were statements that were ignored. `tables` are asked for once
 * nobody else can write, and there are none if somebody has changed the schema: what was noted of one table is not to be
 * looked for in another.
 */
export function settleLeft(db: Connection, known: Table[], tables: () => Table[]): void {
  // Of a transaction of the application's nobody knows what becomes of it.
  if (db.isInTransaction === true || notedAmong(db, known).length === 0) return;
  db.transaction(() => settleReplaced(db, tables()));
}

/** What was noted of a table that has been lost, or made anew, is nothing to go by. In a transaction of ours. */
export function forgetReplaced(db: Connection): void {
  db.run('DELETE FROM main._replaced');
}

function notedAmong(db: Connection, tables: Table[]): Table[] {
  const noted = new Set(
    db.all<{ name: string }>('SELECT DISTINCT table_name AS name FROM main._replaced').map((one) => one.name),
  );
  return noted.size === 0 ? [] : tables.filter(({ name }) => noted.has(name));
}

function settle(table: Table): string[] {
  const row = isSlim(table) ? withoutContent(table) : 'r.row_data';
  return settling(table, { at: '', row, hides: table.uniques.length > 0 });
}

function withoutContent(table: Table): string {
  return `json_object(${literal(table.id)}, ${encode('r.row_id', 'TEXT')}, ${literal(table.updatedAt)}, r.version)`;
}

/** `at`: in a trigger no table is named with its database. `hides`: there may be rows of the table that are hidden. */
function settling(table: Table, { at, row, hides }: { at: 'main.' | ''; row: string; hides: boolean }): string[] {
  const name = literal(table.name);
  const day = dayOf(table);
  // A statement that was ignored leaves its notes behind. A row of theirs that went later has left a trace of its own.
  const notIn = (traces: string): string =>
    ` AND NOT EXISTS (SELECT 1 FROM ${at}${traces} AS e WHERE e.table_name = ${name} ` +
    'AND e.row_id = r.row_id AND e.version >= r.version)';
  const gone =
    `FROM ${at}_replaced AS r WHERE r.table_name = ${name} ` +
    `AND NOT EXISTS (SELECT 1 FROM ${at}${quote(table.name)} AS t WHERE ${idOf(table, 't')} = r.row_id)` +
    `${hides ? notIn('_hidden') : ''}`;
  return [
    `INSERT INTO ${at}_changes (op, table_name, row_id, row_data) ` +
      `SELECT 'DELETE', ${literal(table.wireName)}, r.row_id, ${row} ${gone}${notIn('_tombstones')}`,
    `INSERT INTO ${at}_tombstones (table_name, row_id, version${day.column}) ` +
      `SELECT ${name}, r.row_id, r.version${day.value} ${gone} ` +
      `ON CONFLICT DO UPDATE SET version = excluded.version${day.update} WHERE excluded.version > version`,
    `DELETE FROM ${at}_replaced WHERE table_name = ${name}`,
  ];
}

/** The UPDATEs that can bring two rows into conflict. */
function updatesOf(table: Table): string {
  const columns = table.uniques.flatMap((unique) => unique.columns.map(({ name }) => name));
  // Nobody knows which columns a condition or an expression looks at, and a generated column is never itself in SET.
  const hidden = table.uniques.some((u) => u.where !== undefined || u.columns.some((c) => c.expression !== undefined));
  if (hidden || hasGenerated(table)) return 'UPDATE';
  return `UPDATE OF ${[...new Set(columns.map(quote)), ...table.rowids].join(', ')}`;
}

function hasGenerated(table: Table): boolean {
  const generated = new Set(table.generated.map(fold));
  return table.uniques.some((unique) => unique.columns.some(({ name }) => generated.has(fold(name))));
}

/**
 * Before an UPDATE, SQLite computes a generated column of NEW from those columns that are in SET or that the trigger
 * reads, and takes the others for NULL. So where a generated column counts, the trigger reads them all.
 */
function allColumnsRead(table: Table): string {
  if (table.generated.length === 0 || table.uniques.length === 0) return '';
  return `${conjunction(table.columns.map(({ name }) => `NEW.${quote(name)} IS NEW.${quote(name)}`))} AND `;
}
