/**
 * The answers of `/sync/compare` and `/sync/fetch`: what is here, as hashes of ranges, as versions of rows, and as rows.
 * Everything that an answer speaks of is on disk before it is given, because the asker may rely on it.
 */
import type { Clock } from '../clock.ts';
import { messageOf, RowcastError } from '../errors.ts';
import { isCode } from '../sqlite/result-codes.ts';
import { APPLY_MS_HEADER, COMPARE_PATH, FETCH_PATH } from '../wire/protocol.ts';
import { hashRanges } from './hashing.ts';
import type { Id, Range } from './ids.ts';
import type { Columns, Counterpart, Entry, Ledger, Portion } from './ledger.ts';
import { Pace } from './pace.ts';
import { readFetch, readQuestion } from './question.ts';
import { listInTurns, lookInTurns } from './reading.ts';

/** For the caller's own routes: send `body` as JSON, with these headers. */
export interface Answered {
  status: 200 | 400 | 404 | 413 | 503;
  body: string;
  headers: Record<string, string>;
}

export interface AnswerOptions {
  /** The asker's node id, from the header `x-node-id`. */
  from?: string | null | undefined;
  /** The header `x-rowcast`, as it is: then the answer says which database gives it. */
  said?: string | null | undefined;
}

/** Entries in one answer, so that to write it, and to read it, is soon done; what is left is asked for again. */
const ENTRIES_MAX = 1_000;
/** Of one fetch: what takes no longer than a turn. */
const FETCHED: Portion = { rows: 100, bytes: 1024 * 1024 };

export class Answers {
  readonly #ledger: Ledger;
  readonly #clock: Clock;
  readonly #pace: Pace;
  /** One question after the other: several at once would only keep each other waiting, and everybody else longer. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(ledger: Ledger, clock: Clock, stopped: AbortSignal) {
    this.#ledger = ledger;
    this.#clock = clock;
    this.#pace = new Pace(clock, 1, stopped);
  }

  to(path: string, body: string | Uint8Array, { from, said }: AnswerOptions = {}): Promise<Answered> {
    const asker = from == null ? undefined : { name: from, said: said ?? undefined };
    const answer = this.#last.then(() => this.#answer(path, body, asker));
    this.#last = answer;
    return answer;
  }

  async #answer(path: string, body: string | Uint8Array, asker: Counterpart | undefined): Promise<Answered> {
    const began = this.#clock.now();
    const done = (status: Answered['status'], text: string): Answered => {
      const ms = Math.max(0, this.#clock.now() - began);
      return { status, body: text, headers: { [APPLY_MS_HEADER]: String(ms) } };
    };
    const refused = (status: Answered['status'], error: unknown): Answered =>
      done(status, JSON.stringify({ error: messageOf(error) }));
    try {
      if (path === COMPARE_PATH) return done(200, JSON.stringify(await this.#compare(body, asker)));
      if (path === FETCH_PATH) return done(200, await this.#fetch(body));
      return refused(404, `there is nothing at ${path}`);
    } catch (error) {
      const code = error instanceof RowcastError ? error.code : undefined;
      if (code === 'INVALID_BATCH' || code === 'INVALID_TABLE') return refused(400, error);
      return refused(code === 'BODY_TOO_LARGE' || isCode(error, 'TOOBIG') ? 413 : 503, error);
    }
  }

  async #compare(body: string | Uint8Array, asker: Counterpart | undefined): Promise<object> {
    const asked = readQuestion(body);
    // To take a question in was a turn by itself: everybody else has theirs before anything is read for it.
    await this.#pace.rest();
    if (asked.want === 'tables') return { tables: await this.#pace.once(() => this.#ledger.outline()), runs: true };
    const { table, columns } = asked;
    let answer: object;
    if ('ids' in asked) {
      const { entries, early, ...more } = await lookInTurns(this.#ledger, this.#pace, table, columns, asked.ids, asker);
      answer = { rows: entries.map(tuple), ...more, early: early.map(({ id, version }) => [id, version]) };
    } else if (asked.want === 'rows') {
      answer = await this.#rows(table, columns, asked.ranges);
    } else {
      const { ranges, floor } = asked;
      answer = { hashes: await hashRanges(this.#ledger, this.#pace, table, columns, ranges, floor) };
    }
    await this.#pace.once(() => this.#ledger.flushed());
    return answer;
  }

  /** `upTo` is where it breaks off because there is too much. */
  async #rows(table: string, columns: Columns, ranges: Range[]): Promise<object> {
    const rows: Tuple[] = [];
    for await (const { entries, upTo } of listInTurns(this.#ledger, this.#pace, table, columns, ranges)) {
      rows.push(...entries.map(tuple));
      if (rows.length >= ENTRIES_MAX && upTo !== null) return { rows, upTo };
    }
    return { rows };
  }

  async #fetch(body: string | Uint8Array): Promise<string> {
    const { table, ids } = readFetch(body);
    await this.#pace.rest();
    const batch = await this.#pace.once(() => this.#ledger.changes(table, ids, 0, FETCHED));
    return new TextDecoder().decode(batch.body);
  }
}

/** An entry as it travels: id, version, 1 for a deletion, hash. */
export type Tuple = [Id, number, 0 | 1, string?];

function tuple({ id, version, deleted, hash }: Entry): Tuple {
  return deleted ? [id, version, 1] : [id, version, 0, hash];
}
