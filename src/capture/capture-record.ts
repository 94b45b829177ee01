/**
 * What `_meta` knows of a table's triggers: as they were when they were last seen to be complete. Only so can it be told,
 * later and by another process, that a table has been without them, and that they were not merely made by another build.
 */
import { createHash } from 'node:crypto';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';
import { hasMeta, Names } from './names.ts';
import { TRIGGER_FORM, type Trigger } from './triggers.ts';

/**
 * `intact`: captured without a break. `new`: never captured before. `returned`: it was taken off the list, and is back.
 * `gap`: its triggers were taken away or altered by somebody else, so writes may have gone unseen. `unwatched`: it has been
 * written to under a UNIQUE constraint that its triggers did not know, so what a REPLACE removed by it went unseen.
 * `forgotten`: what was captured is gone, because somebody has dropped a table of ours.
 */
export type CaptureState = 'intact' | 'new' | 'returned' | 'gap' | 'unwatched' | 'forgotten';

interface CaptureRecord {
  names: string[];
  texts: string;
  columns: string[];
  /** What a REPLACE may remove other rows by. A build that did not note it has left it out. */
  uniques?: string[];
  /** What its triggers name a row by, as long as no column has that name. Likewise. */
  rowKey?: string;
  /** The form of their texts, where the build that made them knew of forms. */
  form?: number;
}

interface Circumstances {
  /** Whether this process had the table on its list all the time. */
  had?: boolean;
  /** The change up to which the triggers are known to have been complete. */
  since?: number;
  /** Tables of ours that somebody has dropped, with what they said of it. */
  dropped?: string[];
}

/** `there` are the triggers of ours that are on the table now. */
export function captureState(
  db: Connection,
  table: Table,
  there: Trigger[],
  { had = false, since = 0, dropped = [] }: Circumstances = {},
): CaptureState {
  const value = db.get('SELECT value FROM main._meta WHERE key = ?', keyOf(table.name))?.value;
  // Who had it, and is told that it was taken off, was taken for dead.
  if (value === OFF) return had ? 'gap' : 'returned';
  const record = typeof value === 'string' ? parsed(value) : undefined;
  // A build that kept no record: its triggers, where there are any, are all that is known.
  if (!record) return there.length > 0 ? 'intact' : 'new';
  const now = recordOf(table, there);
  // They find no row by it any more, and so none that waits for its time.
  if ([...table.columns.map(({ name }) => name), ...table.generated].some((name) => fold(name) === record.rowKey))
    return 'gap';
  // Renaming a column rewrites the triggers that name it, and they go on capturing.
  const isRenamed = now.texts !== record.texts && pairsOf(db, table, record, there).length > 0;
  if (now.texts !== record.texts && !isRenamed) return 'gap';
  if (dropped.length > 0) return 'forgotten';
  return hasNewUnique(record, now, isRenamed) && wasWritten(db, table, since) ? 'unwatched' : 'intact';
}

/** A renamed column has another name in the constraints as well: then only their number tells. */
function hasNewUnique(
  { uniques: before }: CaptureRecord,
  { uniques: now = [] }: CaptureRecord,
  isRenamed: boolean,
): boolean {
  if (!before) return false;
  return isRenamed ? now.length > before.length : now.some((one) => !before.includes(one));
}

/** A REPLACE that has removed other rows has written one itself. What nobody has looked at yet has not been sent, and is there. */
function wasWritten(db: Connection, table: Table, since: number): boolean {
  const written = `table_name = ${literal(table.wireName)} AND op <> 'DELETE'`;
  return db.get(`SELECT 1 AS n FROM main._changes WHERE change_id > ? AND ${written} LIMIT 1`, since) !== undefined;
}

/**
 * The columns that somebody has renamed by ALTER TABLE since the triggers were last seen, each with its old name and its
 * new one. There the triggers are still in place, and the columns in their order; a table that was rebuilt has none of ours.
 */
export function renamedColumns(db: Connection, table: Table, there: Trigger[]): [string, string][] {
  const record = recordIn(db, table);
  return record ? pairsOf(db, table, record, there) : [];
}

/** The columns that the table had when its triggers were last seen and has no more, and those that it has got since. */
export function replacedColumns(db: Connection, table: Table): { lost: string[]; got: string[] } {
  const before = recordIn(db, table)?.columns ?? [];
  const now = table.columns.map(({ name }) => name);
  const without = (some: string[], others: string[]): string[] =>
    some.filter((name) => !others.some((other) => fold(other) === fold(name)));
  return { lost: without(before, now), got: before.length > 0 ? without(now, before) : [] };
}

function pairsOf(db: Connection, table: Table, record: CaptureRecord, there: Trigger[]): [string, string][] {
  if (!record.names.every((name) => there.some((trigger) => trigger.name === name))) return [];
  const columns = table.columns.map(({ name }) => name);
  const [before, after] = [record.columns.map(fold), columns.map(fold)];
  const moved = record.columns.flatMap((name, i): [string, string][] => {
    const to = columns[i];
    return to === undefined || fold(to) === fold(name) ? [] : [[name, to]];
  });
  if (moved.length === 0) return [];
  const isPlain = ([from, to]: [string, string]): boolean => !after.includes(fold(from)) && !before.includes(fold(to));
  // Where one has got the name of another, columns that have changed places look the same: SQLite has written into the
  // triggers which it is.
  const known = Names.read(db).of(table.name).columns;
  const isWritten = ([from, to]: [string, string]): boolean => {
    const { sentAs = from } = known.find(({ name }) => fold(name) === fold(from)) ?? {};
    return there.some(({ sql }) => [from, sentAs].some((key) => sql.includes(`${literal(key)}, NEW.${quote(to)}`)));
  };
  return moved.every((pair) => isPlain(pair) || isWritten(pair)) ? moved : moved.filter(isPlain);
}

/** The table has another name now; what is known of its triggers is known of that. */
export function moveCapture(db: Connection, from: string, to: string): void {
  if (keyOf(from) === keyOf(to)) return;
  db.run('DELETE FROM main._meta WHERE key = ?', keyOf(to));
  db.run('UPDATE main._meta SET key = ? WHERE key = ?', keyOf(to), keyOf(from));
}

/** The tables that are captured, by what was noted of them: for whoever has no list. */
export function capturedTables(db: Connection): string[] {
  if (!hasMeta(db)) return [];
  const names = db.all<{ name: string }>(
    `SELECT substr(key, ${PREFIX.length + 1}) AS name FROM main._meta ` +
      `WHERE key >= '${PREFIX}' AND key < 'capture;' AND value <> '${OFF}' ORDER BY key`,
  );
  return names.map(({ name }) => name);
}

/** Notes the triggers that have just been seen, or made. */
export function noteCapture(db: Connection, table: Table, there: Trigger[]): void {
  note(db, table.name, JSON.stringify(recordOf(table, there)));
}

/** The form of the triggers that are there: 0 of a build that knew of none, undefined where they are not as a build left them. */
export function formOf(db: Connection, table: Table, there: Trigger[]): number | undefined {
  const record = recordIn(db, table);
  if (record?.texts !== recordOf(table, there).texts) return undefined;
  return record.form ?? 0;
}

/** Its triggers were taken away by ourselves. */
export function noteCaptureOff(db: Connection, tableName: string): void {
  note(db, tableName, OFF);
}

const OFF = 'off';
const PREFIX = 'capture:';

function note(db: Connection, tableName: string, value: string): void {
  db.run(
    'INSERT INTO main._meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value ' +
      'WHERE value IS NOT excluded.value',
    keyOf(tableName),
    value,
  );
}

function keyOf(tableName: string): string {
  return `${PREFIX}${fold(tableName)}`;
}

function recordOf(table: Table, triggers: Trigger[]): CaptureRecord {
  const sorted = triggers.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const hash = createHash('sha256');
  for (const { name, sql } of sorted) hash.update(`${name}\0${sql}\0`);
  return {
    names: sorted.map(({ name }) => name),
    texts: hash.digest('hex'),
    columns: table.columns.map((column) => column.name),
    uniques: table.uniques.map((unique) => JSON.stringify(unique)),
    rowKey: table.rowKey,
    form: TRIGGER_FORM,
  };
}

function recordIn(db: Connection, table: Table): CaptureRecord | undefined {
  const value = db.get('SELECT value FROM main._meta WHERE key = ?', keyOf(table.name))?.value;
  return typeof value === 'string' ? parsed(value) : undefined;
}

/** A person may have written anything there. */
function parsed(value: string): CaptureRecord | undefined {
  try {
    const record = JSON.parse(value) as Partial<CaptureRecord> | null;
    const whole =
      typeof record?.texts === 'string' &&
      [record.names, record.columns, record.uniques ?? []].every((list) => Array.isArray(list)) &&
      typeof (record.form ?? 0) === 'number';
    return whole ? (record as CaptureRecord) : undefined;
  } catch {
    return undefined;
  }
}
