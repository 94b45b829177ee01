/** The rows of a group beside receiving and reading them: what is to go out again, and what was asked for. */
import { fold } from '../../sqlite/sql.ts';
import type { Seq } from '../store.ts';
import { fromText, textArray, toText } from './driver.ts';
import { FIRST_PLACE, PLACES } from './horizon.ts';
import { WRITER } from './read.ts';
import type { Sessions } from './sessions.ts';

export class PostgresRows {
  readonly #sessions: Sessions;

  constructor(sessions: Sessions) {
    this.#sessions = sessions;
  }

  async touch(table: string, rowId: string): Promise<boolean> {
    const sql = `UPDATE rowcast.rows AS r SET seq = ${FIRST_PLACE}, ${NOBODYS} WHERE r.tkey = $1 AND r.row_id = $2`;
    const key = [toText(fold(table)), toText(rowId)];
    return (await this.#sessions.transaction((session) => session.run(sql, ...key))) > 0;
  }

  async tables(): Promise<string[]> {
    // One look-up per table by the index: a list of distinct names would read all of it.
    const found = await this.#sessions.query<{ name: string }>(
      'WITH RECURSIVE t (name) AS (SELECT min(tkey) FROM rowcast.rows UNION ALL ' +
        'SELECT (SELECT min(r.tkey) FROM rowcast.rows AS r WHERE r.tkey > t.name) FROM t WHERE t.name IS NOT NULL) ' +
        'SELECT name FROM t WHERE name IS NOT NULL',
    );
    return found.map(({ name }) => fromText(name));
  }

  async noteAsked(tables: string[]): Promise<void> {
    const sql =
      'INSERT INTO rowcast.asked (tkey) SELECT t FROM unnest($1::text[]) AS t ORDER BY t ON CONFLICT DO NOTHING';
    const keys = textArray([...new Set(tables.map((table) => toText(fold(table))))]);
    await this.#sessions.transaction((session) => session.run(sql, keys));
  }

  async askedFor(): Promise<string[]> {
    const asked = await this.#sessions.query<{ tkey: string }>('SELECT tkey FROM rowcast.asked ORDER BY tkey');
    return asked.map(({ tkey }) => fromText(tkey));
  }

  /**
   * In its order, as many at a time as one transaction has places. What has a place above the first of these by then was
   * touched already, or written since. It stays asked for until all of it is done.
   */
  async touchTable(table: string): Promise<void> {
    const tkey = toText(fold(table));
    let upTo: Seq | undefined;
    for (let after: Seq = -1; ; ) {
      const done = await this.#sessions.transaction(async (session) => {
        const [first] = await session.query<{ place: Seq }>(`SELECT ${FIRST_PLACE} AS place`);
        const [moved] = await session.query<{ n: number; last: Seq | null }>(
          TOUCH_SOME,
          tkey,
          after,
          upTo ?? first?.place ?? 0,
        );
        if (moved?.n !== PLACES) await session.run('DELETE FROM rowcast.asked WHERE tkey = $1', tkey);
        return { first: first?.place, ...moved };
      });
      if (done.n !== PLACES || done.last == null) return;
      upTo ??= done.first;
      after = done.last;
    }
  }
}

/** It goes to everybody; who made it is still told. */
const NOBODYS = `writer = ${WRITER}, origin = NULL`;

const TOUCH_SOME =
  'WITH chosen AS (SELECT s.seq, row_number() OVER (ORDER BY s.seq) - 1 AS idx FROM (SELECT seq FROM rowcast.rows ' +
  `WHERE tkey = $1 AND seq > $2 AND seq < $3 ORDER BY seq LIMIT ${PLACES}) AS s), ` +
  `moved AS (UPDATE rowcast.rows AS r SET seq = ${FIRST_PLACE} + chosen.idx, ${NOBODYS} ` +
  'FROM chosen WHERE r.seq = chosen.seq RETURNING chosen.seq) ' +
  'SELECT count(*) AS n, max(chosen.seq) AS last FROM chosen';
