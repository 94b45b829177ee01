/**
 * Received batches. Those that wait while others are being written go together, in one statement: what is newer than the
 * row that is there replaces it. What that leaves in doubt is looked at closely, in the same transaction, while its rows
 * are locked.
 */
import { RowcastError } from '../../errors.ts';
import { fold } from '../../sqlite/sql.ts';
import { readIntroduction } from '../../wire/introduction.ts';
import { readOrigins } from '../../wire/origins.ts';
import { keyOfRow } from '../row-key.ts';
import type { Examined, RegularChange } from '../sqlite-spelt.ts';
import type { Sender, Stored } from '../store.ts';
import { CloseLook, type HubRow, refuseAbove, shapeOf } from './close-look.ts';
import { fromText, textArray, toText } from './driver.ts';
import { PLACES } from './horizon.ts';
import { type Base, byDatabase, type CompanyInTransaction, Detached, type LettersOfBatch, type Tick } from './parts.ts';
import type { Session } from './sessions.ts';
import { type Left, NONE_LEFT, replaceOlder, replacePresent, type Write } from './writes.ts';

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
        const { results, tick } = await this.#base.sessions.promptly((session) =>
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
    // Asked together, and done one after the other. Before a close look, which locks rows, nothing else is locked.
    const [left, tick] =
      plain.length > 0
        ? await Promise.all([replaceOlder(session, plain), this.#company.tick(session)])
        : [NONE_LEFT, undefined];
    for (const [i, batch] of batches.entries()) {
      const first = placed[i] as number;
      const outcome = batch.plain && outcomeOf(batch, batch.plain, (idx) => left.get(first + idx));
      const result = outcome ?? (await this.#closely(session, batch, first, present[i] as boolean));
      // Some of it may be written already, and wants its edges woken, whatever became of the rest.
      const isWritten = [...(batch.plain?.values() ?? [])].some(({ change: { idx } }) => !left.has(first + idx));
      results.push({ ...result, advanced: result.advanced || isWritten });
    }
    return { results, tick: tick ?? (await this.#company.tick(session)) };
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
    const writes = advanced.map((row) => ({ ...row, idx: first + row.idx }));
    if (writes.length > 0 && !(await replacePresent(session, writes, present))) throw new Outdated();
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

/**
 * Of two changes of one row the newer stands for both, where it would replace the other whole. Undefined where it cannot be
 * said which one that is without a close look.
 */
function plainOf(changes: RegularChange[]): Plain | undefined {
  const rows: Plain = new Map();
  for (const change of changes) {
    const key = keyOfRow(fold(change.tbl), change.id);
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

/** What is known of these rows, for us alone until the end of the transaction. */
async function lockRows(
  session: Session,
  rows: { table: string; id: string }[],
): Promise<(HubRow & { seq: number })[]> {
  const keys = [...new Map(rows.map((row) => [keyOfRow(fold(row.table), row.id), row])).values()];
  const found = await session.query<HubRow & { seq: number }>(
    'SELECT t.seq, t.table_name AS "table", t.row_id AS id, t.op, t.updated_at AS version, t.origin, t.writer, t.base, ' +
      't.row_data AS row FROM rowcast.rows AS t JOIN unnest($1::text[], $2::text[]) AS k (tkey, row_id) ' +
      'ON t.tkey = k.tkey AND t.row_id = k.row_id ORDER BY t.tkey, t.row_id FOR UPDATE OF t',
    textArray(keys.map(({ table }) => toText(fold(table)))),
    textArray(keys.map(({ id }) => toText(id))),
  );
  return found.map((row) => ({ ...row, table: fromText(row.table), id: fromText(row.id) }));
}
