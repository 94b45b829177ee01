/** The dead letters of a group: what letters/dead-letters.ts keeps in two tables is one here. */
import { RowcastError } from '../../errors.ts';
import type { RowRef } from '../../events.ts';
import { type DeadLetter, type Kept, LETTER_CHANGE, type LetterContent, spelling } from '../../letters/dead-letters.ts';
import { type LetterLimits, LetterRoom, REASON_MAX } from '../../letters/letter-room.ts';
import { changesIn, type RefusedChange } from '../../send/set-aside.ts';
import { fold } from '../../sqlite/sql.ts';
import type { EdgeShipment, HubLetters } from '../store.ts';
import { fromText, integerArray, textArray, toText } from './driver.ts';
import type { Base, LettersOfBatch } from './parts.ts';
import type { Session } from './sessions.ts';

/** A change that waits for its time, or what is left of it: null where the change itself was not kept. */
export interface Due {
  id: number;
  code: string;
  change: string | null;
}

export class PostgresLetters implements HubLetters, LettersOfBatch {
  readonly #base: Base;
  readonly #room: LetterRoom;
  /** What was counted for the claim that is being made. */
  #counted: { ofSender: LetterLimits; ofAll: LetterLimits } | undefined;

  constructor(base: Base) {
    this.#base = base;
    this.#room = new LetterRoom(() => {
      if (!this.#counted) throw new Uncounted();
      return this.#counted;
    }, base.clock);
  }

  /** What keeps more from being received, for health. */
  get problem(): string | undefined {
    return this.#room.problem;
  }

  async claim(session: Session, from: string | undefined, kept: LetterLimits): Promise<void> {
    try {
      this.#counted = undefined;
      this.#room.claim(from, kept);
    } catch (error) {
      if (!(error instanceof Uncounted)) throw error;
      const [found] = await session.query<Counted>(COUNT, from === undefined ? null : toText(from));
      const { letters, bytes, own, own_bytes: ownBytes } = found as Counted;
      this.#counted = { ofSender: { letters: own, bytes: ownBytes }, ofAll: { letters, bytes } };
      this.#room.claim(from, kept);
    }
  }

  async keep(session: Session, received: { letter: LetterContent; why: Kept }[]): Promise<void> {
    for (const { letter, why } of received) {
      const { code, reason, from, version } = why;
      await this.#keep(session, 'in', letter, { code, reason, peer: from ?? null, attempts: 0, version });
    }
  }

  async list(options: { limit?: number; after?: number } = {}): Promise<DeadLetter[]> {
    const sql = `${SELECT} WHERE dead_id > $1 ORDER BY dead_id LIMIT $2`;
    const found = await this.#base.sessions.query<Stored>(sql, options.after ?? 0, options.limit ?? 100);
    return found.map((letter) => this.#described(letter));
  }

  async get(id: number): Promise<DeadLetter> {
    const letter = await this.#find(id);
    if (!letter) throw new RowcastError('NO_SUCH_LETTER', `there is no dead letter ${id}`);
    return this.#described(letter);
  }

  async changeOf(id: number): Promise<string | undefined> {
    const letter = await this.#find(id);
    return (letter && this.#changeOf(letter)) ?? undefined;
  }

  setAside(
    { body }: Pick<EdgeShipment, 'body'>,
    { peer, reason, attempts }: { peer: string; reason: string; attempts: number },
  ): Promise<RowRef[]> {
    const changes = changesIn(this.#base.scratch, body);
    return this.#refused(changes, () => ({ code: 'refused', reason, peer, attempts }));
  }

  forbid(
    { body }: EdgeShipment,
    { peer, forbidden }: { peer: string; forbidden: { index: number; reason: string }[] },
  ): Promise<RowRef[]> {
    const changes = changesIn(this.#base.scratch, body);
    const chosen = forbidden.map(({ index }) => changes[index] as RefusedChange);
    return this.#refused(chosen, (i) => {
      const { reason } = forbidden[i] as { reason: string };
      return { code: 'forbidden', reason, peer, attempts: 1 };
    });
  }

  async countRetry(id: number, code: string, reason: string): Promise<void> {
    await this.settle([], [{ id, code, reason }]);
  }

  async remove(id: number): Promise<void> {
    await this.settle([id], []);
  }

  /** Some are done with, and others were tried in vain. */
  async settle(done: number[], retried: { id: number; code: string; reason: string }[]): Promise<void> {
    const retry = 'UPDATE rowcast.letters SET retry_count = retry_count + 1, code = $2, reason = $3 WHERE dead_id = $1';
    await this.#base.sessions.transaction(async (session) => {
      if (done.length > 0) {
        await session.run('DELETE FROM rowcast.letters WHERE dead_id = ANY ($1::bigint[])', integerArray(done));
      }
      for (const { id, code, reason } of retried) await session.run(retry, id, code, toText(reason));
    });
  }

  /** The latest letters of one row, the oldest first; the id as it travels. */
  async ofRow(table: string, rowId: string, limit: number): Promise<DeadLetter[]> {
    const sql = `${SELECT} WHERE row_id = $1 AND ${FOLDED} = $2 ORDER BY dead_id DESC LIMIT $3`;
    const found = await this.#base.sessions.query<Stored>(sql, toText(rowId), toText(fold(table)), limit);
    return found.reverse().map((letter) => this.#described(letter));
  }

  /** Changes of these rows that wait for their time. */
  async early(table: string, ids: string[]): Promise<{ id: string; version: number }[]> {
    const found = await this.#base.sessions.query<{ id: string; version: number }>(
      'SELECT row_id AS id, version FROM rowcast.letters ' +
        `WHERE row_id = ANY ($1::text[]) AND code = 'future-stamp' AND ${FOLDED} = $2`,
      textArray(ids.map(toText)),
      toText(fold(table)),
    );
    return found.map(({ id, version }) => ({ id: fromText(id), version }));
  }

  /** The next whose time has come, the earliest first, within bounds; at least one, however large it is. */
  async due({ limit, characters: most }: { limit: number; characters: number }): Promise<Due[]> {
    const found = await this.#base.sessions.query<Stored>(
      `${SELECT} WHERE code = 'future-stamp' AND version <= $1 ORDER BY version, dead_id LIMIT $2`,
      this.#base.timeLimit.latest,
      limit,
    );
    let characters = 0;
    return found
      .filter(({ row }, i) => {
        characters += row?.length ?? 0;
        return i === 0 || characters <= most;
      })
      .map((letter) => ({ id: letter.id, code: letter.code ?? '', change: this.#changeOf(letter) }));
  }

  async #find(id: number): Promise<Stored | undefined> {
    const [letter] = await this.#base.sessions.query<Stored>(`${SELECT} WHERE dead_id = $1`, id);
    return letter;
  }

  /** The whole change, as JSON text. */
  #changeOf({ op, rowId, row, table, change }: Stored): string | null {
    const [operation, id, name] = [op, rowId, table].map((text) => (text === null ? null : fromText(text)));
    const sql =
      `SELECT ${LETTER_CHANGE} AS change FROM (SELECT ? AS op, ? AS row_id, ? AS row_data) AS d, ` +
      '(SELECT 1 AS dead_id, ? AS table_name, ? AS change) AS i';
    const params = [operation ?? null, id ?? null, row, name ?? null, change];
    return this.#base.scratch.get<{ change: string | null }>(sql, ...params)?.change ?? null;
  }

  #described(letter: Stored): DeadLetter {
    const { version, change: _, ...stored } = letter;
    const read = (text: string | null): string | null => (text === null ? null : fromText(text));
    const dueAt = stored.code === 'future-stamp' && version !== null ? this.#base.timeLimit.dueAt(version) : null;
    return {
      ...stored,
      op: read(stored.op),
      table: read(stored.table),
      rowId: read(stored.rowId),
      peer: read(stored.peer),
      reason: read(stored.reason),
      dueAt,
    };
  }

  #refused(changes: RefusedChange[], why: (index: number) => Omit<Reasons, 'version'>): Promise<RowRef[]> {
    return this.#base.sessions.transaction(async (session) => {
      for (const [i, { content }] of changes.entries()) await this.#keep(session, 'out', content, why(i));
      return changes.map(({ ref }) => ref);
    });
  }

  /** The same one again is the same letter; it may have waited for something else until now. */
  async #keep(session: Session, direction: 'in' | 'out', letter: LetterContent, why: Reasons): Promise<void> {
    const { rest, fingerprint, isOfRow } = spelling(this.#base.scratch, direction, why.peer, letter);
    const text = (value: string | null): string | null => (value === null ? null : toText(value));
    await session.run(
      'INSERT INTO rowcast.letters AS l (op, row_id, row_data, failed_at, retry_count, direction, table_name, peer, code, ' +
        'reason, change, fingerprint, version) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ' +
        `ON CONFLICT (fingerprint) DO UPDATE SET ${isOfRow ? NEWER : 'version = excluded.version WHERE excluded.version IS NOT NULL'}`,
      text(letter.op),
      text(letter.rowId),
      letter.row,
      this.#base.clock.now(),
      why.attempts,
      direction,
      text(letter.table),
      text(why.peer),
      why.code,
      toText(why.reason.slice(0, REASON_MAX)),
      rest,
      fingerprint,
      why.version ?? null,
    );
  }
}

/** How many there are has to be asked first. */
class Uncounted extends Error {}

interface Counted {
  letters: number;
  bytes: number;
  own: number;
  own_bytes: number;
}

const BYTES = 'coalesce(octet_length(row_data), 0) + coalesce(octet_length(change), 0)';

const COUNT =
  'SELECT count(*) AS letters, coalesce(sum(bytes), 0)::bigint AS bytes, count(*) FILTER (WHERE own) AS own, ' +
  'coalesce(sum(bytes) FILTER (WHERE own), 0)::bigint AS own_bytes FROM ' +
  `(SELECT peer IS NOT DISTINCT FROM $1 AS own, ${BYTES} AS bytes FROM rowcast.letters WHERE direction = 'in') AS l`;

/** Of what an edge refuses, one letter a row: see `spelling`. */
const NEWER =
  'op = excluded.op, row_data = excluded.row_data, failed_at = excluded.failed_at, retry_count = excluded.retry_count, ' +
  'code = excluded.code, reason = excluded.reason, change = excluded.change ' +
  'WHERE (l.op, l.row_data, l.change) IS DISTINCT FROM (excluded.op, excluded.row_data, excluded.change)';

interface Reasons {
  code: string;
  reason: string;
  peer: string | null;
  attempts: number;
  version?: number | undefined;
}

type Stored = Omit<DeadLetter, 'dueAt'> & { version: number | null; change: string | null };

/** As SQLite folds: letters of ASCII alone. */
const FOLDED = 'lower(table_name COLLATE "C")';

const SELECT =
  'SELECT dead_id AS id, direction, op, table_name AS "table", row_id AS "rowId", row_data AS "row", peer, code, reason, ' +
  'failed_at AS "failedAt", retry_count AS "retryCount", version, change FROM rowcast.letters';
