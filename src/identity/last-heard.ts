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
 * Nobody waits for the node of this name, until it is heard again. Another one may be at a URL each time that is asked: of those
 * that nobody uses any more the oldest go, and then nobody counts as waited for. In a transaction.
 */
export function noteForgotten(db: Connection, name: Name, at: number): void {
  note(db, 'forgotten', name, at);
  const excess = marksOf(db, 'forgotten') - MARKS_MAX;
  if (excess <= 0) return;
  const isUsed = `${nameIn('forgotten')} IN (SELECT id FROM main._names UNION ALL SELECT peer_url FROM main._peer_state)`;
  const oldest = `SELECT key FROM main._meta WHERE ${are('forgotten')} AND NOT ${isUsed} ORDER BY value LIMIT ${excess}`;
  const gone = db.all(`DELETE FROM main._meta WHERE key IN (${oldest}) RETURNING key`);
  if (gone.length > 0) awaitNobody(db);
}

/** When others than these were heard, who are remembered no more: nobody asks for that. In a transaction. */
export function forgetHeardBut(db: Connection, names: Name[]): void {
  const isOther = `${nameIn('heard')} NOT IN (SELECT value FROM json_each(?))`;
  db.run(`DELETE FROM main._meta WHERE ${are('heard')} AND ${isOther}`, JSON.stringify(names));
}

/**
 * Tombstones are collected without the database that has this name: what it had by then is known again when that database, and
 * no other under its name, has delivered it. In a transaction.
 */
export function noteUnawaited(db: Connection, name: Name, inc: string | undefined, at: number): void {
  if (noted(db, 'unawaited', name) === undefined && marksOf(db, 'unawaited') >= MARKS_MAX) {
    awaitNobody(db);
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
const EVERYBODY = 'unawaited all';

function awaitNobody(db: Connection): void {
  db.run('INSERT INTO main._meta (key, value) VALUES (?, 1) ON CONFLICT DO NOTHING', EVERYBODY);
}

function marksOf(db: Connection, what: What): number {
  return Number(db.get(`SELECT count(*) AS n FROM main._meta WHERE ${are(what)}`)?.n);
}

/** The keys of one kind, as a range: the character behind the colon is the semicolon. */
const are = (what: What): string => `key >= '${what}:' AND key < '${what};'`;
const nameIn = (what: What): string => `substr(key, ${what.length + 2})`;

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
