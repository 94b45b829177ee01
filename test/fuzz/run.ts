/** Feeds inputs to a real node, holds every answer and every state to the oracle, and shrinks what fails. */
import { deepStrictEqual } from 'node:assert';
import { Buffer } from 'node:buffer';
import type { Manager } from '../../src/index.ts';
import { LETTER_CHANGE } from '../../src/letters/dead-letters.ts';
import type { Received } from '../../src/receive/answer.ts';
import { type RejectionCode, TABLE_NAME_BYTES_MAX } from '../../src/wire/protocol.ts';
import { tabularForm } from '../../src/wire/tabular.ts';
import { q, standstill, wipe } from '../support/elsewhere.ts';
import { openDatabase, type TestDatabase } from '../support/lane.ts';
import { Random } from '../support/model.ts';
import { cleanUp, node, rowsOf } from '../support/nodes.ts';
import { FUZZ_SCHEMA, FUZZ_TABLES, type Input, write } from './inputs.ts';
import { field, type Json, readJson } from './json.ts';
import { cellSql, type Expected, expectation, Oracle, type Outcome, Values } from './oracle.ts';

/** An answer, from whichever way it came. */
export interface Answer {
  status: number;
  applied?: unknown;
  /** As decimal text: JavaScript's numbers end before 64 bits do. */
  ack?: string;
  rejected?: unknown;
  error?: unknown;
}

/** How an input gets to the node; `expected` may override what the body alone would be answered with. */
export interface Route {
  deliver(manager: Manager, input: Input): Answer | Promise<Answer>;
  expected?(input: Input, byBody: () => Expected): Expected;
}

/** The plain way. Of the bodies that have a tabular form, every other one comes in it, and nothing else may be different. */
export const byReceive: Route = {
  deliver: (manager, { body, from }) => {
    const given = body.length % 2 === 0 ? (inTabularForm(body) ?? body) : body;
    return asAnswer(manager.receive(given, { from, said: 'id=fuzz' }));
  },
};

function inTabularForm(body: string | Uint8Array): Uint8Array | undefined {
  const bytes = typeof body === 'string' ? new TextEncoder().encode(body) : Uint8Array.from(body);
  const batch = readJson(Buffer.from(bytes).toString())?.json;
  const changes = batch && field(batch, 'changes');
  return changes?.kind === 'array' ? tabularForm(bytes, changes.items.length) : undefined;
}

export function asAnswer(received: Received): Answer {
  if (received.status !== 200) return { status: received.status, error: received.body.error };
  const { applied, ack, rejected } = received.body;
  return { status: 200, applied, ack: String(ack), rejected };
}

/** The text of an HTTP answer, read without losing digits. */
export function asHttpAnswer(status: number, text: string): Answer {
  const read = readJson(text);
  const ack = field(read?.json, 'ack');
  const { applied, rejected, error } = (read ? JSON.parse(text) : {}) as Record<string, unknown>;
  return { status, applied, rejected, error, ...(ack?.kind === 'number' && { ack: ack.text }) };
}

/** Every code there is for a change that is set aside; the fuzzer must have met all of them. */
export const PARK_CODES: readonly string[] = [
  'bad-change',
  'bad-op',
  'bad-row',
  'bad-id',
  'bad-timestamp',
  'unknown-table',
  'unknown-column',
  'constraint',
] satisfies RejectionCode[];

/** What no content of a batch may change. That somebody has brought one who does not say which database it is may be noted. */
const FIXED =
  "SELECT (SELECT group_concat(type || name || tbl_name || coalesce(sql, ''), char(10)) FROM (SELECT * FROM sqlite_schema ORDER BY name)) AS schema, " +
  "(SELECT group_concat(key || '=' || quote(value)) FROM _meta WHERE (key, value) IS NOT ('plain_brought', 1)) AS meta, " +
  '(SELECT count(*) FROM _peer_state) AS peers, (SELECT count(*) FROM _stamps) AS stamps, ' +
  '(SELECT count(*) FROM _replaced) AS replaced, (SELECT group_concat(id || secret || updated_at) FROM private) AS private, ' +
  "(SELECT count(*) FROM _changes WHERE op <> 'UPDATE') AS captured, (SELECT count(*) FROM _dead_letter_info WHERE direction <> 'in' OR reason IS NULL) AS odd, " +
  '(SELECT count(*) FROM _dead_letter) - (SELECT count(*) FROM _dead_letter_info) AS unpaired';

interface Target {
  db: TestDatabase;
  manager: Manager;
}

export class Fuzz {
  readonly #values: Values;
  readonly #first: Target;
  readonly #second: Target;
  readonly #fixed: unknown;
  readonly #events = { rows: -1, parked: 0 };
  readonly #statements = new Map<string, ReturnType<TestDatabase['prepare']>>();
  /** How many inputs were accepted, and how many changes in them were applied and rejected: a fuzzer that only gets 400 tests nothing. */
  readonly seen = { inputs: 0, accepted: 0, applied: 0, stale: 0, codes: new Map<string, number>() };

  private constructor(values: Values, first: Target, second: Target) {
    this.#values = values;
    this.#first = first;
    this.#second = second;
    this.#fixed = rowsOf(first.db, FIXED);
    first.manager.on('applied', ({ rows }) => {
      this.#events.rows = rows.length;
    });
    first.manager.on('dead-letter', ({ code, rows }) => {
      // A row that another one hides is no rejection.
      if (code !== 'unique') this.#events.parked += rows.length;
    });
  }

  static async start(config: { maxBodyBytes?: number } = {}): Promise<Fuzz> {
    const scratch = await openDatabase();
    cleanUp(() => scratch.close());
    const target = async (): Promise<Target> =>
      node({ schema: FUZZ_SCHEMA, tables: FUZZ_TABLES, clock: standstill, ...config });
    const second = node({ schema: FUZZ_SCHEMA, tables: FUZZ_TABLES, clock: standstill });
    return new Fuzz(new Values(scratch), await target(), await second);
  }

  get manager(): Manager {
    return this.#first.manager;
  }

  /** One history from an empty node: every input in turn, then what can only be seen at the end. Throws what is wrong. */
  async history(inputs: Input[], route: Route, salt: number): Promise<void> {
    this.#forget(this.#first.db);
    const oracle = new Oracle();
    const random = new Random(salt);
    const accepted: string[] = [];
    const letters = new Set<string>();
    let rows = 0;
    const seen = new Map<string, [number, boolean]>();
    for (const [step, input] of inputs.entries()) {
      await this.#at(step, input, async () => {
        const byBody = (): Expected => expectation(input.body, this.#values);
        const expected = route.expected?.(input, byBody) ?? byBody();
        const before = this.#pulse();
        this.#events.parked = 0;
        const answer = await route.deliver(this.#first.manager, input);
        this.seen.inputs += 1;
        if (expected.kind === 'refused') {
          this.#checkRefusal(expected, answer);
          deepStrictEqual(this.#pulse(), before, 'a refused body has changed something');
          return;
        }
        const outcome = oracle.merge(expected.plans);
        this.#checkAnswer(expected, outcome, answer);
        for (const { index, code } of (answer.rejected ?? []) as { index: number; code: string }[]) {
          // What is said of unknown columns is kept by row, and only where it stands.
          if (code === 'unknown-column') rows += 1;
          else letters.add(expected.texts[index] as string);
        }
        accepted.push(...expected.texts);
        for (const table of outcome.tables) this.#checkTable(this.#first, oracle, table, seen);
        deepStrictEqual(this.#pulse().syncing, 0, 'syncing');
        if (random.chance(0.3)) await this.#sendAgain(input, route, answer, outcome, oracle);
      });
    }
    await this.#at(inputs.length - 1, undefined, async () => this.#checkEnd(oracle, letters, rows, accepted, random));
  }

  async #at(step: number, input: Input | undefined, check: () => Promise<void>): Promise<void> {
    try {
      await check();
    } catch (error) {
      throw new Failed(step, input, error);
    }
  }

  #checkRefusal(expected: Extract<Expected, { kind: 'refused' }>, answer: Answer): void {
    deepStrictEqual(
      answer.status,
      expected.status,
      `expected ${expected.status} (${expected.why}), got ${show(answer)}`,
    );
    // An unknown route answers in plain text, as the specification has it.
    if (answer.status === 404) return;
    if (typeof answer.error !== 'string' || !/\w{3}/.test(answer.error)) throw new Error(`no reason: ${show(answer)}`);
  }

  #checkAnswer(expected: Extract<Expected, { kind: 'accepted' }>, outcome: Outcome, answer: Answer): void {
    deepStrictEqual([answer.status, answer.ack], [200, expected.ack], `got ${show(answer)}`);
    const { applied } = answer;
    const [least, most] = outcome.applied;
    const rejected = (answer.rejected ?? []) as { index: number; code: string; message: string }[];
    if (!Number.isInteger(applied) || (applied as number) < least || (applied as number) > most) {
      throw new Error(
        `applied is ${applied}, expected ${least === most ? least : `${least} to ${most}`}: ${show(answer)}`,
      );
    }
    if (answer.rejected !== undefined && rejected.length === 0) throw new Error('an empty list of rejections');
    const indexes = rejected.map(({ index }) => index);
    deepStrictEqual(
      indexes,
      [...new Set(indexes)].sort((a, b) => a - b),
      'rejections are in order, each once',
    );
    for (const { index, code, message } of rejected) {
      const allowed = outcome.rejected.get(index)?.codes ?? [];
      if (!allowed.includes(code)) throw new Error(`change ${index} was rejected with ${code}, expected ${allowed}`);
      if (!PARK_CODES.includes(code) || typeof message !== 'string' || message === '' || message.length > 250) {
        throw new Error(`a rejection without a proper reason: ${show(answer)}`);
      }
      this.seen.codes.set(code, (this.seen.codes.get(code) ?? 0) + 1);
    }
    for (const [index, { must, codes }] of outcome.rejected) {
      if (must && !indexes.includes(index)) throw new Error(`change ${index} should have been rejected with ${codes}`);
    }
    // The application hears of the same changes as the sender, but of a change that lost there is nothing to fill in later.
    const mayBeLost = rejected.filter(({ code }) => code === 'unknown-column').length;
    deepStrictEqual(this.#events.rows, applied, 'the events tell another story');
    if (this.#events.parked > rejected.length || this.#events.parked < rejected.length - mayBeLost) {
      throw new Error(`${this.#events.parked} dead letters were told for ${rejected.length} rejections`);
    }
    this.seen.accepted += 1;
    this.seen.applied += applied as number;
    this.seen.stale += expected.plans.length - rejected.length - (applied as number);
  }

  /** The table is what the oracle says, and no row of it has gone back. */
  #checkTable(
    { db }: Target,
    oracle: Oracle,
    table: string,
    seen?: Map<string, [number, boolean]>,
    except?: Set<string>,
  ): void {
    const { live, deleted } = oracle.rows(table);
    const skipped = (key: string): boolean => oracle.loose.has(key) || (except?.has(key) ?? false);
    const lines = this.#lines(db, table);
    const tombstones = new Map(this.#tombstones(db, table));
    const keyOf = (line: string): string => `${table} ${line.slice(0, line.indexOf('|'))}`;
    const found = lines.filter((line) => !skipped(keyOf(line)));
    deepStrictEqual(
      found.sort(),
      live.filter((line) => !except?.has(keyOf(line))),
      `the rows of ${table}`,
    );
    const alive = new Set(lines.map(keyOf));
    for (const [key, time] of deleted) {
      if (!except?.has(key)) deepStrictEqual(tombstones.get(key), time, `the tombstone of ${key}`);
    }
    for (const key of tombstones.keys()) {
      if (!alive.has(key) && !skipped(key) && !deleted.has(key))
        throw new Error(`a tombstone nobody asked for: ${key}`);
    }
    if (!seen) return;
    const times = new Map(lines.map((line) => [keyOf(line), Number(line.slice(line.lastIndexOf(':') + 1))]));
    const hidden = rowsOf(db, `SELECT ${cellSql('row_id')} AS id, version FROM _hidden WHERE table_name = ?`, table);
    for (const { id, version } of hidden) times.set(`${table} ${id}`, Number(version));
    for (const key of oracle.loose) {
      if (!key.startsWith(`${table} `)) continue;
      const isDelete = !times.has(key);
      const time = times.get(key) ?? tombstones.get(key);
      const [before, wasDelete] = seen.get(key) ?? [Number.NEGATIVE_INFINITY, false];
      if (time === undefined && before > Number.NEGATIVE_INFINITY) throw new Error(`${key} is gone without a trace`);
      if (time === undefined) continue;
      if (time < before || (time === before && wasDelete && !isDelete)) throw new Error(`${key} went back in version`);
      seen.set(key, [time, isDelete]);
    }
  }

  async #sendAgain(input: Input, route: Route, answer: Answer, outcome: Outcome, oracle: Oracle): Promise<void> {
    const state = (): unknown => [
      [...outcome.tables].map((table) => [this.#lines(this.#first.db, table), this.#tombstones(this.#first.db, table)]),
      this.#get(this.#first.db, 'SELECT count(*) AS letters FROM _dead_letter'),
    ];
    const before = state();
    const again = await route.deliver(this.#first.manager, input);
    // With a second UNIQUE constraint, what was in the way the first time may have moved.
    if (outcome.tables.has('uniq')) return;
    deepStrictEqual(state(), before, 'the same batch again has changed something');
    deepStrictEqual(again, answer, 'the same batch again got another answer');
    for (const table of outcome.tables) this.#checkTable(this.#first, oracle, table);
  }

  #checkEnd(oracle: Oracle, letters: Set<string>, rows: number, accepted: string[], random: Random): void {
    const { db } = this.#first;
    for (const table of FUZZ_TABLES) this.#checkTable(this.#first, oracle, table);
    deepStrictEqual(rowsOf(db, FIXED), this.#fixed, 'an internal table, the schema or a table that is not synced');
    const kept = rowsOf(
      db,
      `SELECT ${LETTER_CHANGE} AS change FROM _dead_letter AS d JOIN _dead_letter_info AS i USING (dead_id) WHERE i.code <> 'unique'`,
    ).map(({ change }) => normal(change as string));
    // Of a number that is no change the value is kept, not the spelling.
    const missing = [...letters].filter(
      (text) => /[{[]/.test(text) && !isTooMuch(text) && !kept.includes(normal(text)),
    );
    if (missing.length > 0) throw new Error(`rejected and not kept: ${missing[0]}`);
    if (kept.length > letters.size + rows)
      throw new Error(`${kept.length} letters for ${letters.size} rejected changes`);
    this.#checkSaid(oracle);
    deepStrictEqual(rowsOf(db, 'PRAGMA integrity_check'), [{ integrity_check: 'ok' }]);
    if (random.chance(0.5)) this.#feedSecond(oracle, accepted, random);
  }

  /** A loose row is made of values that somebody named for it, and of defaults. */
  #checkSaid(oracle: Oracle): void {
    for (const table of FUZZ_TABLES) {
      const names = this.#columns(this.#first.db, table).map((name) => name.toLowerCase());
      for (const line of this.#lines(this.#first.db, table)) {
        const cells = line.split('|');
        const key = `${table} ${cells[0]}`;
        cells.forEach((cell, i) => {
          const fallback = cell === 'null:NULL' || (names[i] === 'kind' && cell === 'text:64');
          if (!fallback && !oracle.said.get(`${key} ${names[i]}`)?.has(cell)) {
            throw new Error(`nobody said ${cell} of ${names[i]} in ${key}`);
          }
        });
      }
    }
  }

  /** The same changes in another order and in other batches make another node the same. */
  #feedSecond(oracle: Oracle, accepted: string[], random: Random): void {
    this.#forget(this.#second.db);
    const changes = random.shuffle([...accepted]);
    while (changes.length > 0) {
      const body = `{"batch_id":1,"changes":[${changes.splice(0, 1 + random.below(80)).join(',')}]}`;
      const answer = this.#second.manager.receive(body, { said: 'id=fuzz' });
      if (answer.status !== 200) throw new Error(`the second node answered ${show(answer)} to ${body}`);
    }
    for (const table of FUZZ_TABLES) this.#checkTable(this.#second, oracle, table, undefined, oracle.ordered);
  }

  #forget(db: TestDatabase): void {
    wipe(db, FUZZ_TABLES);
    db.exec('DELETE FROM _dead_letter; DELETE FROM _dead_letter_info; DELETE FROM _changes; DELETE FROM _hidden');
  }

  /** Has this connection written anything? Who brought earlier batches is written down by a tick, whenever that comes. */
  #pulse(): { writes: unknown; syncing: unknown } {
    return this.#get(
      this.#first.db,
      'SELECT total_changes() - (SELECT coalesce(max(arrival_id), 0) FROM _arrivals) AS writes, ' +
        "(SELECT value FROM _meta WHERE key = 'syncing') AS syncing",
    ) as { writes: unknown; syncing: unknown };
  }

  #columns(db: TestDatabase, table: string): string[] {
    return rowsOf(db, 'SELECT name FROM pragma_table_info(?)', table).map(({ name }) => name as string);
  }

  #lines(db: TestDatabase, table: string): string[] {
    const statement = this.#statement(db, `lines ${table}`, () => {
      const cells = this.#columns(db, table).map((name) => cellSql(q(name)));
      return `SELECT ${cells.join(" || '|' || ")} AS line FROM ${q(table)}`;
    });
    return statement.all().map((row) => (row as { line: string }).line);
  }

  #tombstones(db: TestDatabase, table: string): [string, number][] {
    const sql = `SELECT ${cellSql('row_id')} AS id, version FROM _tombstones WHERE table_name = ?`;
    const rows = this.#statement(db, sql, () => sql).all(table) as { id: string; version: number }[];
    return rows.map(({ id, version }) => [`${table} ${id}`, version]);
  }

  #get(db: TestDatabase, sql: string): unknown {
    return { ...(this.#statement(db, sql, () => sql).get() as object) };
  }

  #statement(db: TestDatabase, name: string, sql: () => string): ReturnType<TestDatabase['prepare']> {
    const key = `${db === this.#first.db} ${name}`;
    const statement = this.#statements.get(key) ?? db.prepare(sql());
    this.#statements.set(key, statement);
    return statement;
  }
}

/** What went wrong, at which input of a history; without an input, at its end. */
export class Failed extends Error {
  readonly step: number;
  readonly input: Input | undefined;

  constructor(step: number, input: Input | undefined, cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.step = step;
    this.input = input;
  }
}

/** Leaves out inputs, then changes, as long as the history still fails. */
export async function shrink(inputs: Input[], fails: (fewer: Input[]) => Promise<boolean>): Promise<Input[]> {
  let left = inputs;
  let attempts = 300;
  const without = async (fewer: Input[]): Promise<boolean> => {
    attempts -= 1;
    if (attempts < 0 || fewer.length === 0 || !(await fails(fewer))) return false;
    left = fewer;
    return true;
  };
  if (!(await without(inputs.slice(-1)))) {
    for (let size = inputs.length >> 1; size >= 1; size >>= 1) {
      for (let at = 0; at < left.length; ) {
        if (!(await without([...left.slice(0, at), ...left.slice(at + size)]))) at += size;
      }
    }
  }
  for (let i = 0; i < left.length; i++) {
    for (let n = 0; ; n++) {
      const smaller = withoutChange(left[i] as Input, n);
      if (!smaller) break;
      if (await without(left.with(i, smaller))) n -= 1;
    }
  }
  return left;
}

function withoutChange(input: Input, index: number): Input | undefined {
  const text = typeof input.body === 'string' ? input.body : Buffer.from(input.body).toString();
  const json = readJson(text)?.json;
  const changes = field(json, 'changes');
  if (!json || changes?.kind !== 'array' || index >= changes.items.length) return undefined;
  changes.items.splice(index, 1);
  return { ...input, body: write(json) };
}

/** An input as somebody can paste it. */
export function show(what: unknown): string {
  const isInput = typeof what === 'object' && what !== null && 'body' in what;
  const { body, ...rest } = isInput ? (what as Input) : { body: undefined };
  if (body === undefined) return JSON.stringify(what)?.slice(0, 2_000) ?? String(what);
  const more = Object.values(rest).some((value) => value !== undefined) ? ` ${JSON.stringify(rest).slice(0, 500)}` : '';
  if (typeof body === 'string') return `${JSON.stringify(body).slice(0, 4_000)}${more}`;
  const text = Buffer.from(body).toString();
  const exact = Buffer.from(text).equals(Buffer.from(body));
  return `${exact ? JSON.stringify(text).slice(0, 4_000) : `Buffer.from('${Buffer.from(body).toString('hex').slice(0, 4_000)}', 'hex')`}${more}`;
}

/**
 * The same for the same change, however its white space and its escapes are spelt, and wherever its row stands: a letter
 * has the row behind what surrounds it. Nothing else is the same for two changes: numbers are taken as they are written.
 */
/** A table of such a name is nobody's: attach refuses it, and nothing of it is kept. */
function isTooMuch(change: string): boolean {
  const table = field(readJson(change)?.json as Json, 'table');
  return table?.kind === 'string' && Buffer.byteLength(table.value) > TABLE_NAME_BYTES_MAX;
}

function normal(change: string): string {
  const json = readJson(change)?.json as Json;
  if (json.kind !== 'object') return write(json);
  const fields = json.fields.toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return write({ kind: 'object', fields });
}
