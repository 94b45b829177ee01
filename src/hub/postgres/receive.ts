/**
 * Received batches. Those that wait while others are being written go together, in one statement: what is newer than the
 * row that is there replaces it. What that leaves in doubt is looked at closely, in the same transaction, while its rows
 * are locked.
 */
import { RowcastError } from '../../errors.ts';
import { fold } from '../../sqlite/sql.ts';
import { readIntroduction } from '../../wire/introduction.ts';
import { readOrigins } from '../../wire/origins.ts';
import type { Examined, RegularChange } from '../sqlite-spelt.ts';
import type { Sender, Stored } from '../store.ts';
import { type Advanced, CloseLook, type HubRow, refuseAbove, shapeOf } from './close-look.ts';
import { fromText, integerArray, textArray, toText } from './driver.ts';
import { FIRST_PLACE, PLACES } from './horizon.ts';
import { type Base, byDatabase, type CompanyInTransaction, Detached, type LettersOfBatch, type Tick } from './parts.ts';
import type { Session } from './sessions.ts';

/** Rows that are written together, and writes at a time. */
const TOGETHER = 4_000;
const WRITERS = 2;
/** How often a batch is merged anew because one of its rows has come meanwhile. */
const ATTEMPTS = 5;

type Result = Stored & { advanced: boolean };

/** A batch that waits. */
interface Waiting {
  body: string | Uint8Array;
  sender: Sender;
  examined: Examined;
  /** Its rows, each by its newest change; undefined where it has to be looked at closely. */
  plain: Plain | undefined;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

/** Regular changes, of which each row has one that stands for all. */
type Plain = Map<string, { change: RegularChange; shape: string; changes: number }>;

export class PostgresReceiver {
  readonly #base: Base;
  readonly #letters: LettersOfBatch;
  readonly #company: CompanyInTransaction;
  readonly #look: CloseLook;
  readonly #waiting: Waiting[] = [];
  #writers = 0;

  constructor(base: Base, letters: LettersOfBatch, company: CompanyInTransaction) {
    this.#base = base;
    this.#letters = letters;
    this.#company = company;
    this.#look = new CloseLook(base.scratch, { bodyBytes: base.options.maxBodyBytes, timeLimit: base.timeLimit });
  }

  /** When it resolves, everything the acknowledgement speaks of is on disk. */
  async receive(body: string | Uint8Array, sender: Sender): Promise<Result> {
    const examined = this.#look.examine(body, sender);
    refuseAbove(examined.count, PLACES);
    const plain = examined.regular && plainOf(examined.regular);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ body, sender, examined, plain, resolve, reject });
      this.#write();
    });
  }

  #write(): void {
    while (this.#writers < WRITERS && this.#waiting.length > 0) {
      const batches = this.#next();
      this.#writers += 1;
      this.#writeTogether(batches)
        .catch((error) => {
          for (const { reject } of batches) reject(error);
        })
        .finally(() => {
          this.#writers -= 1;
          this.#write();
        });
    }
  }

  /** The first, and those behind it that can go with it: no row is in two of them. */
  #next(): Waiting[] {
    const first = this.#waiting.shift() as Waiting;
    const batches = [first];
    if (!first.plain) return batches;
    const rows = new Set(first.plain.keys());
    let count = first.examined.count;
    for (let next = this.#waiting[0]; next?.plain; next = this.#waiting[0]) {
      count += next.examined.count;
      const keys = [...next.plain.keys()];
      if (count > TOGETHER || keys.some((key) => rows.has(key))) break;
      for (const key of keys) rows.add(key);
      batches.push(next);
      this.#waiting.shift();
    }
    return batches;
  }

  async #writeTogether(batches: Waiting[]): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        const { results, tick } = await this.#base.sessions.transaction((session) =>
          this.#inTransaction(session, batches),
        );
        this.#company.ticked(tick);
        for (const [i, { resolve }] of batches.entries()) resolve(results[i] as Result);
        return;
      } catch (error) {
        if (error instanceof Detached) await this.#company.attach();
        else if (!(error instanceof Outdated)) throw error;
        if (attempt === ATTEMPTS) throw new RowcastError('DATABASE_BUSY', 'its rows are being written by others');
      }
    }
  }

  async #inTransaction(session: Session, batches: Waiting[]): Promise<{ results: Result[]; tick: Tick }> {
    const present: boolean[] = [];
    for (const i of byDatabase(batches.map(({ sender }) => sender.said))) {
      const { said } = (batches[i] as Waiting).sender;
      present[i] = said === undefined || (await this.#company.requested(session, said));
    }
    const results: Result[] = [];
    const placed = placesOf(batches);
    const plain = batches.flatMap((batch, i) => (batch.plain ? writesOf(batch, placed[i] as number, present[i]) : []));
    const left = plain.length > 0 ? await replaceOlder(session, plain) : NONE_LEFT;
    for (const [i, batch] of batches.entries()) {
      const first = placed[i] as number;
      const outcome = batch.plain && outcomeOf(batch, batch.plain, (idx) => left.get(first + idx));
      results.push(outcome ?? (await this.#closely(session, batch, first, present[i] as boolean)));
    }
    return { results, tick: await this.#company.tick(session) };
  }

  async #closely(
    session: Session,
    { body, sender, examined }: Waiting,
    first: number,
    isPresent: boolean,
  ): Promise<Result> {
    const present = await lockRows(session, examined.rows());
    const { stored, advanced, letters, claim } = this.#look.merge(body, sender, isPresent, present);
    if (letters.length > 0) await this.#letters.keep(session, letters);
    if (claim) await this.#letters.claim(session, claim.from, claim);
    await writeAdvanced(session, advanced, first, present);
    return { ...stored, advanced: advanced.length > 0 };
  }
}

/** A row of the batch has come, or gone on, since it was looked at. */
class Outdated extends Error {}

/** Where the changes of each batch begin. */
function placesOf(batches: Waiting[]): number[] {
  let next = 0;
  return batches.map(({ examined: { count } }) => {
    next += count;
    return next - count;
  });
}

function keyOf(table: string, id: string): string {
  return `${fold(table)}\n${id}`;
}

/**
 * Of two changes of one row the newer stands for both, where it would replace the other whole. Undefined where it cannot be
 * said which one that is without a close look.
 */
function plainOf(changes: RegularChange[]): Plain | undefined {
  const rows: Plain = new Map();
  for (const change of changes) {
    const key = keyOf(change.tbl, change.id);
    const shape = shapeOf(change.row);
    const other = rows.get(key);
    const n = (other?.changes ?? 0) + 1;
    const isWhole = !other || other.shape === shape || change.op === 'DELETE' || other.change.op === 'DELETE';
    if (!isWhole || other?.change.ua === change.ua) return undefined;
    if (!other || change.ua > other.change.ua) rows.set(key, { change, shape, changes: n });
    else other.changes = n;
  }
  return rows;
}

interface Write extends HubRow {
  idx: number;
  shape: string;
}

/** What the changes of a batch write, in the places from `first` on. */
function writesOf(
  { plain, sender, examined: { count } }: Waiting,
  first: number,
  isPresent: boolean | undefined,
): Write[] {
  const origin = isPresent && !sender.again ? (readIntroduction(sender.said)?.inc ?? sender.from ?? null) : null;
  const writers = origin === null || sender.plain ? undefined : readOrigins(sender.origins, count);
  const makers = writers?.flatMap(({ node, count: n }) => new Array<string>(n).fill(node ?? ''));
  return [...(plain as Plain).values()].map(({ change: { idx, op, tbl, id, ua, base, row }, shape }) => {
    const writer = makers?.[idx] ?? null;
    return { idx: first + idx, table: tbl, id, op, version: ua, origin, writer, base, row, shape };
  });
}

/** Why a change was not written: the row is newer, it is this very version, or that takes a close look. */
type Left = 'stale' | 'same' | 'doubtful';

/** Undefined where some of it takes a close look. */
function outcomeOf({ examined }: Waiting, rows: Plain, left: (idx: number) => Left | undefined): Result | undefined {
  let [stale, written] = [0, 0];
  for (const { change, changes } of rows.values()) {
    const why = left(change.idx);
    if (why === 'doubtful') return undefined;
    if (why === 'stale') stale += changes;
    if (why === undefined) written += 1;
  }
  const { batchId, count } = examined;
  return { ack: { applied: count - stale, ack: batchId }, changes: count, letters: [], advanced: written > 0 };
}

const COLUMNS = 'tkey, row_id, op, updated_at, origin, writer, base, shape, table_name, row_data';

/**
 * What many rows have in common is sent once, and each has the number of it: an array of as many equal texts would cost the
 * server, and the hub, as much as the rows themselves.
 */
const SENT =
  'kinds AS MATERIALIZED (SELECT k.kind, k.tkey COLLATE "C" AS tkey, k.op, k.origin, k.writer, k.shape::uuid AS shape, ' +
  'k.table_name FROM unnest($7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[]) ' +
  'WITH ORDINALITY AS k (tkey, op, origin, writer, shape, table_name, kind)), ' +
  'sent AS (SELECT s.idx, k.tkey, s.row_id COLLATE "C" AS row_id, k.op, s.updated_at, k.origin, k.writer, s.base, k.shape, ' +
  'k.table_name, s.row_data FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::text[]) ' +
  'AS s (idx, kind, row_id, updated_at, base, row_data) JOIN kinds AS k ON k.kind = s.kind)';

const PLACE = `place AS MATERIALIZED (SELECT ${FIRST_PLACE} AS first)`;

/** In the order of their keys, in which all take their locks. */
function upsert(where: string): string {
  return (
    `INSERT INTO rowcast.rows AS t (seq, ${COLUMNS}) SELECT place.first + sent.idx, ${COLUMNS} FROM sent, place ` +
    'ORDER BY sent.tkey, sent.row_id ON CONFLICT (tkey, row_id) DO UPDATE SET seq = excluded.seq, op = excluded.op, ' +
    'updated_at = excluded.updated_at, origin = excluded.origin, writer = excluded.writer, base = excluded.base, ' +
    `shape = excluded.shape, table_name = excluded.table_name, row_data = excluded.row_data WHERE ${where}`
  );
}

/** Those that it does not write are locked all the same. */
const REPLACE_OLDER =
  `WITH ${SENT}, ${PLACE} ` +
  upsert(
    'excluded.updated_at > t.updated_at AND ' +
      "(excluded.shape = t.shape OR t.op = 'DELETE' OR excluded.op = 'DELETE')",
  );

/** Those that were not written: a row that was has the place of its change. */
const LEFT =
  `WITH ${SENT}, ${PLACE} SELECT s.idx, CASE WHEN t.updated_at > s.updated_at THEN 'stale' ` +
  "WHEN t.updated_at = s.updated_at AND (t.op = 'DELETE') = (s.op = 'DELETE') AND t.row_data = s.row_data THEN 'same' " +
  "ELSE 'doubtful' END AS left FROM place, sent AS s JOIN rowcast.rows AS t ON t.tkey = s.tkey AND t.row_id = s.row_id " +
  'WHERE t.seq <> place.first + s.idx';

const NONE_LEFT: ReadonlyMap<number, Left> = new Map();

/** Mostly everything is written, and the number of it is all that has to be known. */
async function replaceOlder(session: Session, writes: Write[]): Promise<ReadonlyMap<number, Left>> {
  const params = paramsOf(writes);
  if ((await session.run(REPLACE_OLDER, ...params)) === writes.length) return NONE_LEFT;
  const found = await session.query<{ idx: number; left: Left }>(LEFT, ...params);
  return new Map(found.map(({ idx, left }) => [idx, left]));
}

/** What is known of these rows, for us alone until the end of the transaction. */
async function lockRows(
  session: Session,
  rows: { table: string; id: string }[],
): Promise<(HubRow & { seq: number })[]> {
  const keys = [...new Map(rows.map((row) => [keyOf(row.table, row.id), row])).values()];
  const found = await session.query<HubRow & { seq: number }>(
    'SELECT t.seq, t.table_name AS "table", t.row_id AS id, t.op, t.updated_at AS version, t.origin, t.writer, t.base, ' +
      't.row_data AS row FROM rowcast.rows AS t JOIN unnest($1::text[], $2::text[]) AS k (tkey, row_id) ' +
      'ON t.tkey = k.tkey AND t.row_id = k.row_id ORDER BY t.tkey, t.row_id FOR UPDATE OF t',
    textArray(keys.map(({ table }) => toText(fold(table)))),
    textArray(keys.map(({ id }) => toText(id))),
  );
  return found.map((row) => ({ ...row, table: fromText(row.table), id: fromText(row.id) }));
}

const ADVANCE =
  `WITH ${SENT}, ${PLACE}, written AS (` +
  // One that has come meanwhile is not among those that were looked at.
  `${upsert('t.seq = ANY ($13::bigint[])')} RETURNING 1) SELECT count(*) AS n FROM written`;

async function writeAdvanced(
  session: Session,
  advanced: Advanced[],
  first: number,
  present: { seq: number }[],
): Promise<void> {
  if (advanced.length === 0) return;
  const writes = advanced.map((row) => ({ ...row, idx: first + row.idx }));
  const seen = integerArray(present.map(({ seq }) => seq));
  const [written] = await session.query<{ n: number }>(ADVANCE, ...paramsOf(writes), seen);
  if (written?.n !== writes.length) throw new Outdated();
}

function paramsOf(writes: Write[]): Uint8Array[] {
  const kinds = kindsOf(writes);
  const texts = (of: (one: Write) => string | null): Uint8Array => textArray(kinds.all.map(of));
  return [
    integerArray(writes.map(({ idx }) => idx)),
    integerArray(kinds.ofEach),
    textArray(writes.map(({ id }) => toText(id))),
    integerArray(writes.map(({ version }) => version)),
    integerArray(writes.map(({ base }) => base)),
    textArray(writes.map(({ row }) => row)),
    texts(({ table }) => toText(fold(table))),
    texts(({ op }) => op),
    texts(({ origin }) => origin),
    texts(({ writer }) => writer),
    texts(({ shape }) => shape),
    texts(({ table }) => toText(table)),
  ];
}

/** One of each kind, and the number of each one's kind, counted from 1. Neighbours are mostly alike. */
function kindsOf(writes: Write[]): { all: Write[]; ofEach: number[] } {
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
