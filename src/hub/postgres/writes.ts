/** How rows are written: many in one statement, which says of each whether it may replace the one that is there. */
import { fold } from '../../sqlite/sql.ts';
import type { HubRow } from './close-look.ts';
import { integerArray, type Param, textArray, toText } from './driver.ts';
import { FIRST_PLACE } from './horizon.ts';
import type { Session } from './sessions.ts';

export interface Write extends HubRow {
  /** Its place, counted from the first of the transaction. */
  idx: number;
  shape: string;
}

/** Why a change was not written: the row is newer, it is this very version, or that takes a close look. */
export type Left = 'stale' | 'same' | 'doubtful';

const COLUMNS = 'tkey, row_id, op, updated_at, origin, writer, base, shape, table_name, row_data';

const OF_EACH = 's.idx, s.row_id COLLATE "C" AS row_id, s.updated_at, s.base, s.row_data';
const OF_KIND = 'k.tkey, k.op, k.origin, k.writer, k.shape, k.table_name';

/**
 * What many rows have in common is sent once, and each has the number of it: an array of as many equal texts would cost the
 * server, and the hub, as much as the rows themselves. Mostly it is one for all: then there is nothing to join.
 */
const SENT = {
  ofOneKind:
    `sent AS (SELECT ${OF_EACH}, ${OF_KIND} FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[]) ` +
    'AS s (idx, row_id, updated_at, base, row_data), (SELECT $6::text COLLATE "C", $7::text, $8::text, $9::text, ' +
    '$10::text::uuid, $11::text) AS k (tkey, op, origin, writer, shape, table_name))',
  ofKinds:
    'kinds AS MATERIALIZED (SELECT k.kind, k.tkey COLLATE "C" AS tkey, k.op, k.origin, k.writer, k.shape::uuid AS shape, ' +
    'k.table_name FROM unnest($6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[]) ' +
    `WITH ORDINALITY AS k (tkey, op, origin, writer, shape, table_name, kind)), sent AS (SELECT ${OF_EACH}, ${OF_KIND} ` +
    'FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $12::bigint[]) ' +
    'AS s (idx, row_id, updated_at, base, row_data, kind) JOIN kinds AS k ON k.kind = s.kind)',
};

type Form = keyof typeof SENT;

const PLACE = `place AS MATERIALIZED (SELECT ${FIRST_PLACE} AS first)`;

/** In the order of their keys, in which all take their locks; so are those of one kind sent. */
const IN_ORDER = { ofOneKind: '', ofKinds: 'ORDER BY sent.tkey, sent.row_id ' };

function upsert(form: Form, where: string): string {
  return (
    `INSERT INTO rowcast.rows AS t (seq, ${COLUMNS}) SELECT place.first + sent.idx, ${COLUMNS} FROM sent, place ` +
    `${IN_ORDER[form]}ON CONFLICT (tkey, row_id) DO UPDATE SET seq = excluded.seq, op = excluded.op, ` +
    'updated_at = excluded.updated_at, origin = excluded.origin, writer = excluded.writer, base = excluded.base, ' +
    `shape = excluded.shape, table_name = excluded.table_name, row_data = excluded.row_data WHERE ${where}`
  );
}

/** Those that it does not write are locked all the same. */
function replaceOlderSql(form: Form): string {
  const isNewer = 'excluded.updated_at > t.updated_at';
  const isWhole = "(excluded.shape = t.shape OR t.op = 'DELETE' OR excluded.op = 'DELETE')";
  return `WITH ${SENT[form]}, ${PLACE} ${upsert(form, `${isNewer} AND ${isWhole}`)}`;
}

/** Those that were not written: a row that was has the place of its change. */
function leftSql(form: Form): string {
  return (
    `WITH ${SENT[form]}, ${PLACE} SELECT s.idx, CASE WHEN t.updated_at > s.updated_at THEN 'stale' ` +
    "WHEN t.updated_at = s.updated_at AND (t.op = 'DELETE') = (s.op = 'DELETE') AND t.row_data = s.row_data THEN 'same' " +
    "ELSE 'doubtful' END AS left FROM place, sent AS s JOIN rowcast.rows AS t ON t.tkey = s.tkey AND t.row_id = s.row_id " +
    'WHERE t.seq <> place.first + s.idx'
  );
}

const REPLACE_OLDER = { ofOneKind: replaceOlderSql('ofOneKind'), ofKinds: replaceOlderSql('ofKinds') };
const LEFT = { ofOneKind: leftSql('ofOneKind'), ofKinds: leftSql('ofKinds') };

export const NONE_LEFT: ReadonlyMap<number, Left> = new Map();

/** Mostly everything is written, and the number of it is all that has to be known. */
export async function replaceOlder(session: Session, writes: Write[]): Promise<ReadonlyMap<number, Left>> {
  const { form, params } = sentOf(writes);
  if ((await session.run(REPLACE_OLDER[form], ...params)) === writes.length) return NONE_LEFT;
  const found = await session.query<{ idx: number; left: Left }>(LEFT[form], ...params);
  return new Map(found.map(({ idx, left }) => [idx, left]));
}

/** One that has come meanwhile is not among those that were looked at. */
const REPLACE_PRESENT =
  `WITH ${SENT.ofKinds}, ${PLACE}, written AS (` +
  `${upsert('ofKinds', 't.seq = ANY ($13::bigint[])')} RETURNING 1) SELECT count(*) AS n FROM written`;

/** False where one of these has come, or gone on, since those that are `present` were read. */
export async function replacePresent(session: Session, writes: Write[], present: { seq: number }[]): Promise<boolean> {
  const seen = integerArray(present.map(({ seq }) => seq));
  const [written] = await session.query<{ n: number }>(REPLACE_PRESENT, ...paramsOf(writes, kindsOf(writes)), seen);
  return written?.n === writes.length;
}

/** What the writes are sent as, in the form that they have. */
function sentOf(writes: Write[]): { form: Form; params: Param[] } {
  const kinds = kindsOf(writes);
  const [only, more] = kinds.all;
  if (!only || more) return { form: 'ofKinds', params: paramsOf(writes, kinds) };
  const params = rowParams(writes.toSorted(byId));
  return { form: 'ofOneKind', params: [...params, ...OF_KIND_PARAMS.map((of) => of(only))] };
}

/** As the server orders them, but for characters of which hardly any id is made. */
function byId(a: Write, b: Write): number {
  return a.id < b.id ? -1 : 1;
}

function paramsOf(writes: Write[], { all, ofEach }: Kinds): Param[] {
  return [...rowParams(writes), ...OF_KIND_PARAMS.map((of) => textArray(all.map(of))), integerArray(ofEach)];
}

function rowParams(writes: Write[]): Param[] {
  return [
    integerArray(writes.map(({ idx }) => idx)),
    textArray(writes.map(({ id }) => toText(id))),
    integerArray(writes.map(({ version }) => version)),
    integerArray(writes.map(({ base }) => base)),
    textArray(writes.map(({ row }) => row)),
  ];
}

const OF_KIND_PARAMS: ((one: Write) => string | null)[] = [
  ({ table }) => toText(fold(table)),
  ({ op }) => op,
  ({ origin }) => origin,
  ({ writer }) => writer,
  ({ shape }) => shape,
  ({ table }) => toText(table),
];

interface Kinds {
  /** One of each. */
  all: Write[];
  /** The number of each one's kind, counted from 1. */
  ofEach: number[];
}

/** Neighbours are mostly alike. */
function kindsOf(writes: Write[]): Kinds {
  const all: Write[] = [];
  const numbers = new Map<string, number>();
  let last: Write | undefined;
  let number = 0;
  const ofEach = writes.map((one) => {
    if (last && isAlike(one, last)) return number;
    const { table, op, origin, writer, shape } = one;
    const kind = JSON.stringify([table, op, origin, writer, shape]);
    number = numbers.get(kind) ?? all.push(one);
    numbers.set(kind, number);
    last = one;
    return number;
  });
  return { all, ofEach };
}

function isAlike(a: Write, b: Write): boolean {
  return a.table === b.table && a.op === b.op && a.origin === b.origin && a.writer === b.writer && a.shape === b.shape;
}
