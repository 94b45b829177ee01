/** What a group notes beside its rows: comparisons of edges, the time, and changes that were early. */
import { batchText } from '../../wire/body.ts';
import type { HubStore } from '../store.ts';
import { textArray } from './driver.ts';
import { Gathered } from './gathered.ts';
import type { PostgresLetters } from './letters.ts';
import type { Base } from './parts.ts';

/** How much is released at a time: a bounded transaction. */
const RELEASED = { limit: 200, characters: 256 * 1024 };

export class PostgresNotes {
  readonly #base: Base;
  readonly #letters: PostgresLetters;
  readonly #verified = new Gathered<Verified, Verified>((all) => this.#noteVerified(all));

  constructor(base: Base, letters: PostgresLetters) {
    this.#base = base;
    this.#letters = letters;
  }

  async verified(): Promise<Map<string, string>> {
    const sql = 'SELECT url, note FROM rowcast.verified';
    const rows = await this.#base.sessions.query<{ url: string; note: string }>(sql);
    return new Map(rows.map(({ url, note }) => [url, note]));
  }

  async noteVerified(url: string, note: string): Promise<void> {
    await this.#verified.do([{ url, note }]);
  }

  async #noteVerified(all: Verified[]): Promise<Verified[]> {
    // The last word of each.
    const notes = new Map(all.map(({ url, note }) => [url, note]));
    const lists = [textArray([...notes.keys()]), textArray([...notes.values()])];
    await this.#base.sessions.transaction((session) => session.run(NOTE, ...lists));
    return all;
  }

  async clock(): Promise<number | undefined> {
    const sql = 'SELECT max(noted) AS noted FROM rowcast.clock';
    const [found] = await this.#base.sessions.query<{ noted: number | null }>(sql);
    return found?.noted ?? undefined;
  }

  async noteClock(time: number): Promise<void> {
    await this.#base.sessions.transaction(async (session) => {
      await session.run('DELETE FROM rowcast.clock WHERE noted < $1', time);
      await session.run('INSERT INTO rowcast.clock (noted) VALUES ($1)', time);
    });
  }

  /** Several processes may do it at once: merged twice, a change is merged once. */
  async release(receive: HubStore['receive']): Promise<boolean> {
    const due = await this.#letters.due(RELEASED);
    if (due.length === 0) return false;
    const lost = due.filter(({ change }) => change === null);
    const whole = due.filter(({ change }) => change !== null);
    const body = batchText(0, whole.map(({ change }) => change).join(','));
    const { ack } = await receive(body, { from: undefined, plain: false, again: true });
    const rejected = new Map(ack.rejected?.map((one) => [one.index, one]));
    const retried = lost.map(({ id }) => ({ id, code: 'bad-change', reason: 'the change itself was not kept' }));
    const merged: number[] = [];
    for (const [index, { id, code }] of whole.entries()) {
      const rejection = rejected.get(index);
      if (!rejection) merged.push(id);
      else if (rejection.code !== code) retried.push({ id, code: rejection.code, reason: rejection.message });
    }
    await this.#letters.settle(merged, retried);
    return true;
  }
}

interface Verified {
  url: string;
  note: string;
}

/** Of an edge that was forgotten meanwhile, by another process, nothing is noted. In one order, in which all take their locks. */
const NOTE =
  'INSERT INTO rowcast.verified (url, note) SELECT e.url, v.note FROM unnest($1::text[], $2::text[]) AS v (url, note) ' +
  'JOIN rowcast.edges AS e ON e.url = v.url ORDER BY e.url ON CONFLICT (url) DO UPDATE SET note = excluded.note';
