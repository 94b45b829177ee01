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

/**
 * Tombstones are collected without the database that has this name: what it had by then is known again when that database, and
 * no other under its name, has delivered it. In a transaction.
 */
export function noteUnawaited(db: Connection, name: Name, inc: string | undefined, at: number): void {
  if (noted(db, 'unawaited', name) === undefined && Number(db.get(MARKS)?.n) >= MARKS_MAX) {
    db.run('INSERT INTO main._meta (key, value) VALUES (?, 1) ON CONFLICT DO NOTHING', EVERYBODY);
    return;
  }
  const before = unawaitedInc(db, name);
  note(db, 'unawaited', name, at);
  db.run(
    'INSERT INTO main._meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value',
    incKey(name),
    before === undefined || before === inc ? (inc ?? NOBODY) : NOBODY,
  );
}

/** More than were noted one by one: of nobody is it known any more what it had. */
export function isNobodyAwaited(db: Connection): boolean {
  return db.get('SELECT 1 AS n FROM main._meta WHERE key = ?', EVERYBODY) !== undefined;
}

/** Whoever can send anything can say that it is any number of nodes: no more of them are noted, and then all are unawaited. */
const MARKS_MAX = 1_000;
const MARKS = "SELECT count(*) AS n FROM main._meta WHERE key >= 'unawaited:' AND key < 'unawaited;'";
const EVERYBODY = 'unawaited all';

/** Is this the database without which tombstones were collected? One that has its name since says nothing of what that one had. */
export function isUnawaitedOne(db: Connection, name: Name, inc: string): boolean {
  return (unawaitedInc(db, name) ?? inc) === inc;
}

/** There were several one after the other: none of them speaks for the others. */
const NOBODY = '';

function unawaitedInc(db: Connection, name: Name): string | undefined {
  const value = db.get('SELECT value FROM main._meta WHERE key = ?', incKey(name))?.value;
  return typeof value === 'string' ? value : undefined;
}

function incKey(name: Name): string {
  return `unawaited inc:${name}`;
}
