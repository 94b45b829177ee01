/**
 * What a column has in the rows of a table in which it was gone, and is back: its default, which nobody has said.
 *
 * Other nodes may have kept the column, and have sent what was written to it while nobody here took it. So the peers are
 * asked for the table, and `_unsaid` notes of each row that its value is not known. Until it is, others are told of the
 * row without the column (wire/told-json.ts), and of two versions with one time the one that says something wins here
 * (receive/merge.ts). A note goes when a change says what is in the column, when the application writes something else
 * there, and when the table has been compared with every peer: then nobody knows better, and the default is what it is.
 */
import type { Connection } from '../sqlite/connection.ts';
import type { Column, Table } from '../sqlite/schema.ts';
import { fold, inMain, literal, quote } from '../sqlite/sql.ts';
import { BOUND_ID } from '../wire/values.ts';
import type { Warning } from './installed-triggers.ts';
import { keepNames, Names } from './names.ts';

/**
 * Notes which columns a table has lost (`lost` are those that went just now) and which are back. True where others have to
 * be asked what is in those. In the transaction that brings the table up to date.
 */
export function followLosses(db: Connection, table: Table, lost: string[], warnings: Warning[]): boolean {
  const names = Names.read(db).of(table.name);
  const isThere = (name: string): boolean => table.columns.some((column) => fold(column.name) === name);
  const gone = [...new Set([...names.lost, ...lost.map(fold)])];
  const wereGone = [...names.dropped, ...gone];
  const back = table.columns.filter(({ name }) => wereGone.includes(fold(name)));
  if (back.length > 0 || gone.length > names.lost.length) {
    const without = (some: string[]): string[] => some.filter((name) => !isThere(name));
    keepNames(db, { ...names, dropped: without(names.dropped), lost: without(gone) });
    for (const { name } of back) table.dropped.delete(fold(name));
  }
  const unknown = back.filter((column) => note(db, table, column));
  for (const { name } of unknown) warnings.push(['column-back', backIn(table, name)]);
  describeUnsaid(db, table);
  return unknown.length > 0;
}

/** Columns have other names now; one may have that of another, which has got a third: so each has one of its own in between. */
export function renameUnsaid(db: Connection, tableName: string, pairs: (readonly [string, string])[]): void {
  const inBetween = pairs.map((_pair, i) => `\u0001 in between ${i}`);
  const rename = (from: string, to: string): void =>
    db.run(
      'UPDATE OR REPLACE main._unsaid SET column_name = ? ' +
        'WHERE table_name = ? COLLATE NOCASE AND column_name = ? COLLATE NOCASE',
      to,
      tableName,
      from,
    );
  for (const [i, [from]] of pairs.entries()) rename(from, inBetween[i] as string);
  for (const [i, [, to]] of pairs.entries()) rename(inBetween[i] as string, to);
}

/** What the application inserts it has said. For a trigger; nothing where there is nothing to say. */
export function sayInserted(table: Table): string[] {
  return said(table, () => '1');
}

/** And what it changes. Where it leaves a column as it was, it has said nothing of it. */
export function sayUpdated(table: Table): string[] {
  return said(table, (name) => {
    const [now, before] = [`NEW.${quote(name)}`, `OLD.${quote(name)}`];
    return `(${now} COLLATE BINARY IS NOT ${before} OR typeof(${now}) <> typeof(${before}))`;
  });
}

/** A letter has said what is in the column. True where nobody had; `rowId` as it travels. */
export function sayFilled(db: Connection, table: Table, column: Column, rowId: string | null): boolean {
  if (!table.unsaid?.columns.includes(column.name)) return false;
  db.run(
    `DELETE FROM main._unsaid WHERE table_name = ? AND column_name = ? AND row_id = ${BOUND_ID}`,
    table.unsaid.of,
    column.name,
    rowId,
  );
  return db.changes() > 0;
}

/** These tables, as they travel, have been compared with a peer, and what differed was exchanged. */
export function noteCompared(db: Connection, tables: Table[], peer: string, peers: string[]): void {
  const open = tables.filter(({ unsaid }) => unsaid !== undefined);
  if (open.length === 0) return;
  db.transaction(() => {
    for (const { name } of open) {
      const done = [...new Set([...comparedWith(db, name), peer])];
      if (!peers.every((one) => done.includes(one))) noteComparedWith(db, name, done);
      else {
        db.run('DELETE FROM main._unsaid WHERE table_name = ?', name);
        noteComparedWith(db, name, []);
      }
    }
  });
}

/** True where there are rows whose value is not known. */
function note(db: Connection, table: Table, { name, fallback }: Column): boolean {
  const id = `t.${quote(table.id)}`;
  db.run(
    'INSERT INTO main._unsaid (table_name, column_name, row_id) ' +
      `SELECT ${literal(table.name)}, ${literal(name)}, ${id} FROM ${inMain(table.name)} AS t ` +
      `WHERE ${id} IS NOT NULL AND t.${quote(name)} COLLATE BINARY IS (${fallback}) ON CONFLICT DO NOTHING`,
  );
  noteComparedWith(db, table.name, []);
  const sql = 'SELECT 1 AS n FROM main._unsaid WHERE table_name = ? AND column_name = ? LIMIT 1';
  return db.get(sql, table.name, name) !== undefined;
}

function describeUnsaid(db: Connection, table: Table): void {
  delete table.unsaid;
  if (!db.get('SELECT 1 AS n FROM main._unsaid WHERE table_name = ? LIMIT 1', table.name)) return;
  const names = table.columns.map(({ name }) => literal(name)).join(', ');
  db.run(
    'DELETE FROM main._unsaid AS u WHERE table_name = ? AND (' +
      `column_name NOT IN (${names}) ` +
      `OR NOT EXISTS (SELECT 1 FROM ${inMain(table.name)} AS t WHERE t.${quote(table.id)} = u.row_id) ` +
      'AND NOT EXISTS (SELECT 1 FROM main._hidden AS h WHERE h.table_name = u.table_name AND h.row_id = u.row_id))',
    table.name,
  );
  const sql = 'SELECT 1 AS n FROM main._unsaid WHERE table_name = ? AND column_name = ? LIMIT 1';
  const columns = table.columns.map(({ name }) => name).filter((name) => db.get(sql, table.name, name));
  if (columns.length > 0) table.unsaid = { of: table.name, columns };
}

function said({ unsaid, id }: Table, isSaid: (column: string) => string): string[] {
  return (unsaid?.columns ?? []).map(
    (name) =>
      `DELETE FROM _unsaid WHERE table_name = ${literal(unsaid?.of ?? '')} AND column_name = ${literal(name)} ` +
      `AND row_id = NEW.${quote(id)} AND ${isSaid(name)}`,
  );
}

function comparedWith(db: Connection, tableName: string): string[] {
  const value = db.get('SELECT value FROM main._meta WHERE key = ?', keyOf(tableName))?.value;
  try {
    const peers: unknown = JSON.parse(String(value));
    return Array.isArray(peers) ? peers.filter((peer) => typeof peer === 'string') : [];
  } catch {
    return [];
  }
}

function noteComparedWith(db: Connection, tableName: string, peers: string[]): void {
  if (peers.length === 0) db.run('DELETE FROM main._meta WHERE key = ?', keyOf(tableName));
  else
    db.run(
      'INSERT INTO main._meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value',
      keyOf(tableName),
      JSON.stringify(peers),
    );
}

function keyOf(tableName: string): string {
  return `unsaid:${fold(tableName)}`;
}

function backIn(table: Table, column: string): string {
  return (
    `column "${column}" of "${table.name}" was gone and is back: the peers are asked what is in it, and until they have ` +
    'said so its default is not told to anybody; a peer that is not Rowcast cannot be asked'
  );
}
