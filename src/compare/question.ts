/** What may be asked at `/sync/compare` and `/sync/fetch`, and whether a body is such a question. */
import { RowcastError } from '../errors.ts';
import type { Affinity } from '../sqlite/schema.ts';
import { compareIds, type Id, isId, type Range } from './ids.ts';
import type { Columns } from './ledger.ts';

export type Question =
  | { want: 'tables' }
  | { want: 'hash' | 'rows'; table: string; columns: Columns; ranges: Range[]; floor: number | undefined }
  | { want: 'rows'; table: string; columns: Columns; ids: Id[] };

export interface FetchQuestion {
  table: string;
  ids: Id[];
}

export const RANGES_MAX = 256;
export const IDS_MAX = 1_000;
/** A question is some hundred ids and bounds; an id may be long. */
export const QUESTION_BYTES_MAX = 4 * 1024 * 1024;

const AFFINITIES: Affinity[] = ['TEXT', 'INTEGER', 'REAL', 'NUMERIC', 'BLOB'];
const COLUMNS_MAX = 2_000;

export function readQuestion(body: string | Uint8Array): Question {
  const { want, table, columns, ranges, runs, ids, floor } = objectIn(body);
  if (want === 'tables') return { want };
  if (want !== 'hash' && want !== 'rows') throw wrong('"want" must be "tables", "hash" or "rows"');
  const common = { table: checkTable(table), columns: checkColumns(columns) };
  if (want === 'rows' && ids !== undefined) return { want, ...common, ids: checkIds(ids) };
  const asked = runs === undefined ? ranges : pairsIn(runs);
  return { want, ...common, ranges: checkRanges(asked), floor: checkFloor(floor) };
}

export function readFetch(body: string | Uint8Array): FetchQuestion {
  const { table, ids } = objectIn(body);
  return { table: checkTable(table), ids: checkIds(ids) };
}

function objectIn(body: string | Uint8Array): Record<string, unknown> {
  const bytes = typeof body === 'string' ? Buffer.byteLength(body) : body?.byteLength;
  if (bytes > QUESTION_BYTES_MAX) {
    throw new RowcastError('BODY_TOO_LARGE', `the body has ${bytes} bytes, ${QUESTION_BYTES_MAX} are allowed`);
  }
  let value: unknown;
  try {
    value = JSON.parse(typeof body === 'string' ? body : new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch (cause) {
    throw new RowcastError('INVALID_BATCH', 'the body is not JSON', { cause });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw wrong('the body must be a JSON object');
  return value as Record<string, unknown>;
}

function checkTable(table: unknown): string {
  if (typeof table !== 'string' || table === '') throw wrong('"table" must be the name of a table');
  return table;
}

function checkColumns(columns: unknown): Columns {
  if (columns === null) return null;
  if (typeof columns !== 'object' || columns === undefined || Array.isArray(columns)) {
    throw wrong('"columns" must be an object of names and affinities, or null');
  }
  const entries = Object.entries(columns as object);
  if (entries.length === 0 || entries.length > COLUMNS_MAX)
    throw wrong(`"columns" must name 1 to ${COLUMNS_MAX} columns`);
  for (const [name, affinity] of entries) {
    if (!AFFINITIES.includes(affinity)) {
      throw wrong(`the affinity of column ${JSON.stringify(name)} must be one of ${AFFINITIES.join(', ')}`);
    }
  }
  return columns as Columns;
}

/** Ranges that each begin where the one before ends, told by their bounds: of a run of three ids, two ranges. */
function pairsIn(runs: unknown): unknown[] {
  if (!Array.isArray(runs)) throw wrong('"runs" must be an array of arrays of ids');
  let ranges = 0;
  for (const [i, run] of runs.entries()) {
    if (!Array.isArray(run) || run.length < 2) throw wrong(`run ${i} must be an array of two or more ids`);
    ranges += run.length - 1;
    // Before anything is made of them.
    if (ranges > RANGES_MAX) throw wrong(`"runs" must be 1 to ${RANGES_MAX} ranges`);
  }
  return runs.flatMap((run: unknown[]) => run.slice(1).map((upTo, j) => [run[j], upTo]));
}

/** In order and apart from each other, so that a question never costs more than one walk over the table. */
function checkRanges(ranges: unknown): Range[] {
  if (!Array.isArray(ranges) || ranges.length === 0 || ranges.length > RANGES_MAX) {
    throw wrong(`"ranges" must be an array of 1 to ${RANGES_MAX} pairs of ids`);
  }
  let last: Id | null | undefined;
  return ranges.map((pair, i) => {
    const [after, upTo] = Array.isArray(pair) && pair.length === 2 ? pair : [undefined, undefined];
    if (!isBound(after) || !isBound(upTo)) throw wrong(`range ${i} must be a pair of ids, or of null for the ends`);
    const backwards = after !== null && upTo !== null && compareIds(after, upTo) > 0;
    const overlaps = i > 0 && (last === null || after === null || compareIds(after, last as Id) < 0);
    if (backwards || overlaps)
      throw wrong(`range ${i} must begin where the one before it ends, or after that, and end later`);
    last = upTo;
    return { after, upTo };
  });
}

function isBound(id: unknown): id is Id | null {
  return id === null || (typeof id === 'string' && isId(id));
}

function checkFloor(floor: unknown): number | undefined {
  if (floor === undefined || Number.isSafeInteger(floor)) return floor as number | undefined;
  throw wrong('"floor" must be an integer');
}

function checkIds(ids: unknown): Id[] {
  if (!Array.isArray(ids) || ids.length === 0 || ids.length > IDS_MAX) {
    throw wrong(`"ids" must be an array of 1 to ${IDS_MAX} ids`);
  }
  const odd = ids.findIndex((id) => typeof id !== 'string' || !isId(id));
  if (odd !== -1) throw wrong(`id ${odd} is not an id as it travels: ${JSON.stringify(ids[odd])?.slice(0, 100)}`);
  return ids as Id[];
}

function wrong(message: string): RowcastError {
  return new RowcastError('INVALID_BATCH', message);
}
