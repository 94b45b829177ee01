/** Lines of `_nodes`: this database, and those that were heard of. */
import type { Connection } from '../sqlite/connection.ts';
import type { Introduction } from '../wire/introduction.ts';
import { claimedBy, claimsLeft } from './claim.ts';
import { earlier, type Memory, type Own } from './judge.ts';

/** Of this database `seal` is the secret. */
export interface Known extends Own {
  inc: string;
  id: string;
  self: number | null;
  /** What it has said, and may not know any more. */
  claim: string | null;
  /** The tick here at which something new was last heard of it. */
  heard: number | null;
}

/** A line as one text: one binding takes several times as long to make a row of eleven columns as to look it up. */
const LINE = `json_object(${['inc', 'id', 'boot', 'before', 't0', 'tick', 'back', 'self', 'seal', 'heard', 'claim']
  .map((column) => `'${column}', ${column}`)
  .join(', ')})`;

/** Put together once: a text that is made anew for each of the look-ups of a message is read through for each, too. */
const FIND = `SELECT ${LINE} AS line FROM main._nodes WHERE inc = ?`;

export function findNode(db: Connection, inc: string): Readonly<Known> | undefined {
  const line = db.get<{ line: string }>(FIND, inc)?.line;
  return line === undefined ? undefined : readLine(line);
}

/** Those that have said what they may not know any more, the latest first. */
export function withClaims(db: Connection, limit: number): Readonly<Known>[] {
  const sql = `SELECT ${LINE} AS line FROM main._nodes WHERE claim IS NOT NULL ORDER BY heard DESC, inc LIMIT ${limit}`;
  return db.all<{ line: string }>(sql).map(({ line }) => readLine(line));
}

/** The same line is looked up several times for a message, and this database's own for each peer: by its text it is known. */
const read = new Map<string, Known>();
const READ_MAX = 64;

function readLine(line: string): Known {
  const known = read.get(line);
  if (known) return known;
  const found = knownAs(JSON.parse(line));
  if (read.size >= READ_MAX) read.clear();
  read.set(line, found);
  return found;
}

/** Of a line as it is kept. */
export function knownAs(line: Omit<Known, 'before' | 'ended'> & { before: string }): Known {
  return { ...line, ...bootsOf(line.before) };
}

/** The attaches of this database before the next one, each with the tick at which it ended: the text of `before`. */
export function boots(own: Known): string {
  const ended = new Map([...own.ended, [own.boot, own.tick]]);
  const spelt = (boot: string): string => (ended.has(boot) ? `${boot}.${ended.get(boot)}` : boot);
  return earlier(own).map(spelt).join(' ');
}

/** Adds one to the tick of this database; how it was before, or undefined where it is not this one. */
export function tickNode(db: Connection, inc: string): Pick<Known, 'boot' | 'before' | 'tick'> | undefined {
  const row = db.get<{ boot: string; before: string; tick: number }>(
    'UPDATE main._nodes SET tick = tick + 1 WHERE inc = ? AND self = 1 RETURNING boot, before, tick - 1 AS tick',
    inc,
  );
  return row && { ...row, before: bootsOf(row.before).before };
}

/** What is remembered of another from now on; `known` is what was, `own` is this one. */
export function rememberNode(
  db: Connection,
  said: Introduction,
  memory: Memory,
  known: Known | undefined,
  own: Known,
): void {
  const { inc, id } = said;
  const { boot, before, t0, tick, back, seal } = memory;
  if (known && known.id === id && known.boot === boot && known.back === back) {
    const gone = goneOn(said, memory, known, own);
    const sql = 'UPDATE main._nodes SET tick = ?, seal = ?, heard = ?, claim = ? WHERE inc = ?';
    if (gone) db.run(sql, gone.tick, gone.seal, gone.heard, gone.claim, inc);
    return;
  }
  const claim = known ? claimsLeft(known, memory, said, own.inc) : null;
  db.run(
    'INSERT INTO main._nodes (inc, id, boot, before, t0, tick, back, seal, heard, claim) ' +
      'VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ' +
      'ON CONFLICT DO UPDATE SET id = excluded.id, boot = excluded.boot, before = excluded.before, ' +
      't0 = excluded.t0, tick = excluded.tick, back = excluded.back, seal = excluded.seal, heard = excluded.heard, ' +
      'claim = excluded.claim',
    inc,
    id,
    boot,
    before.join(' '),
    t0,
    tick,
    back,
    seal,
    own.tick,
    claim,
  );
}

/** What changes of a line when its database goes on; undefined where it has said nothing new. */
export function goneOn(said: Introduction, memory: Memory, known: Known, own: Known): GoneOn | undefined {
  const claim = claimsLeft(known, memory, said, own.inc);
  if (memory.tick <= known.tick && claim === known.claim) return undefined;
  return { tick: memory.tick, seal: memory.seal, heard: own.tick, claim };
}

export type GoneOn = Pick<Known, 'tick' | 'seal' | 'heard' | 'claim'>;

/** A request says of a database what has to be asked of it. In the transaction of what the request brings. */
export function noteClaim(db: Connection, said: Introduction, known: Known): void {
  const claim = claimedBy(said, known);
  if (claim !== known.claim) db.run('UPDATE main._nodes SET claim = ? WHERE inc = ?', claim, said.inc);
}

function bootsOf(text: string): Pick<Known, 'before' | 'ended'> {
  if (text === '') return { before: [], ended: NONE };
  const entries = text.split(' ').map((entry) => entry.split('.'));
  const ended = entries.flatMap(([boot, tick]): [string, number][] => (tick ? [[boot as string, Number(tick)]] : []));
  return { before: entries.map(([boot]) => boot as string), ended: new Map(ended) };
}

const NONE: ReadonlyMap<string, number> = new Map();
