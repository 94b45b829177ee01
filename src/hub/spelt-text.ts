/**
 * What a batch is about, told by its text alone, as receive/regular-body.ts does for a node: what nodes write is spelt in one
 * way, and SQLite takes ten times as long to take it apart. What is found here is what SQLite would find; a body of which
 * that cannot be said is for SQLite to read.
 */
import { changePattern, executed, fromBytes, HEAD, keysAt, TABLE } from '../receive/regular-body.ts';
import { BATCH_END } from '../wire/body.ts';
import { TABLE_NAME_BYTES_MAX, TIMESTAMP_MAX, TIMESTAMP_MIN } from '../wire/protocol.ts';
import type { BatchDocument } from '../wire/read-batch.ts';
import type { RegularChange } from './sqlite-spelt.ts';

/** Changes to one table whose rows are spelt alike. */
interface Kind {
  tbl: string;
  pattern: RegExp;
  /** Which of what it captures is the id of the row, and which its time. */
  idAt: number;
  timeAt: number;
}

/**
 * A stranger's rows may have any names, and each kind of them has a pattern, which is made for longer and takes more memory the
 * more and the longer its names are. So all three are bounded by characters of names: of one kind, of those that are made for
 * one batch, and of those that are kept.
 */
const NAMES_MAX = 4_000;
/** A few names cost as much as so many characters. */
const NAMES_LEAST = 750;
const NAMES_MADE = 8_000;
const NAMES_KEPT = 100_000;
const kinds = new Map<string, Kind>();
let kept = 0;

/** Its changes, none of which is later than `latest` or has an id of more than `idBytes`; undefined where it must be read. */
export function speltByText(
  { text, count }: BatchDocument,
  latest: number,
  idBytes: number,
): RegularChange[] | undefined {
  // Half of a pair becomes another character before it is read.
  if (text.includes('\\u')) return undefined;
  const asText = Buffer.byteLength(text) === text.length ? asItIs : fromBytes;
  const changes: RegularChange[] = [];
  let kind: Kind | undefined;
  let made = 0;
  let at = HEAD.exec(text)?.[0].length ?? text.length;
  for (let idx = 0; idx < count; idx++) {
    let found = kind && executed(kind.pattern, text, at);
    if (!kind || !found) {
      const names = namesAt(text, at);
      kind = names && kinds.get(names.all);
      if (names && !kind) {
        made += weightOf(names);
        kind = made > NAMES_MADE ? undefined : kindOf(names);
      }
      if (!kind) return undefined;
      found = executed(kind.pattern, text, at);
    }
    const change = found && changeOf(idx, kind, found, { latest, idBytes, asText });
    if (!change) return undefined;
    changes.push(change);
    // A comma, or the end.
    at = kind.pattern.lastIndex + 1;
  }
  return text.length === at - 1 + BATCH_END.length ? changes : undefined;
}

interface Reading {
  latest: number;
  idBytes: number;
  asText(bytes: string): string;
}

function changeOf(
  idx: number,
  { tbl, idAt, timeAt }: Kind,
  found: RegExpExecArray,
  { latest, idBytes, asText }: Reading,
): RegularChange | undefined {
  const [, op = '', row = '', , , old = '', seen] = found;
  const [id, ua] = [found[idAt] as string, Number(found[timeAt])];
  if (ua > latest || id.length - 2 > idBytes) return undefined;
  const isDelete = op === 'DELETE';
  if (old !== (isDelete ? id : 'null')) return undefined;
  return {
    idx,
    op,
    tbl,
    id: asText(id.slice(1, -1)),
    ua,
    base: op === 'UPDATE' ? baseOf(seen) : null,
    row: asText(isDelete ? `{"id":${id},"updated_at":${ua}}` : row),
  };
}

function baseOf(seen: string | undefined): number | null {
  const base = seen === undefined ? Number.NaN : Number(seen);
  return base >= TIMESTAMP_MIN && base <= TIMESTAMP_MAX ? base : null;
}

/** What the change at that place calls its table and the columns of its row; `all` tells it from any other. */
interface Names {
  all: string;
  table: string;
  keys: string[];
}

/** Undefined where these are no plain names, or too many. */
function namesAt(text: string, at: number): Names | undefined {
  const keys = keysAt(text, at);
  const table = executed(TABLE, text, at)?.[1];
  if (!keys || table === undefined || /^[[{]/.test(table) || table.length > TABLE_NAME_BYTES_MAX) return undefined;
  const all = JSON.stringify([table, keys]);
  return all.length > NAMES_MAX ? undefined : { all, table, keys };
}

/** Undefined where its rows have no id and no time, or anything twice. */
function kindOf(names: Names): Kind | undefined {
  const { all, table, keys } = names;
  const idAt = keys.indexOf('id');
  const timeAt = keys.indexOf('updated_at');
  if (idAt < 0 || timeAt < 0 || new Set(keys).size < keys.length) return undefined;
  if (kept + weightOf(names) > NAMES_KEPT) {
    kinds.clear();
    kept = 0;
  }
  kept += weightOf(names);
  const tbl = fromBytes(table);
  const [first, second] = idAt < timeAt ? [3, 4] : [4, 3];
  const kind: Kind = { tbl, pattern: changePattern(tbl, keys), idAt: first as number, timeAt: second as number };
  kinds.set(all, kind);
  return kind;
}

function weightOf({ all }: Names): number {
  return Math.max(all.length, NAMES_LEAST);
}

function asItIs(text: string): string {
  return text;
}
