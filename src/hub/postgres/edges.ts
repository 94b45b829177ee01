/** The edges as the group has them: where each is, who answers there, and whether it is paused. */
import { RowcastError } from '../../errors.ts';
import type { EdgeRow, Seq } from '../store.ts';
import { integerArray, type Param, textArray } from './driver.ts';
import { type Epoch, PRESENT } from './epoch.ts';
import { Gathered } from './gathered.ts';
import type { Session, Sessions } from './sessions.ts';

/** Generations are numbers of the store, and of the state of it that this process has seen: see epoch.ts. */
const PER_EPOCH = 2 ** 40;

export class PostgresEdges {
  readonly #sessions: Sessions;
  readonly #epoch: Epoch;
  readonly #identified = new Gathered<Identified, EdgeRow | undefined>((all) => this.#identify(all));

  constructor(sessions: Sessions, epoch: Epoch) {
    this.#sessions = sessions;
    this.#epoch = epoch;
  }

  async all(): Promise<EdgeRow[]> {
    return this.#read(this.#sessions, `${EDGES} ORDER BY url`);
  }

  async get(url: string, session: Session = this.#sessions): Promise<EdgeRow> {
    const row = await this.find(url, session);
    if (!row) throw new RowcastError('INVALID_PEER', `${url} is no edge of this hub`);
    return row;
  }

  async find(url: string, session: Session = this.#sessions): Promise<EdgeRow | undefined> {
    return (await this.#read(session, `${EDGES} WHERE url = $1`, url))[0];
  }

  async among(session: Session, urls: string[]): Promise<Map<string, EdgeRow>> {
    const rows = await this.#read(session, `${EDGES} WHERE url = ANY ($1::text[])`, textArray(urls));
    return new Map(rows.map((row) => [row.url, row]));
  }

  async add(urls: string[]): Promise<void> {
    await this.#sessions.transaction(async (session) => {
      const added = await session.run(
        `INSERT INTO rowcast.edges (url, anew_upto) SELECT u, ${LATEST} FROM unnest($1::text[]) AS u ` +
          'ORDER BY u ON CONFLICT DO NOTHING',
        textArray([...new Set(urls)]),
      );
      if (added > 0) await session.run(NEXT_ROSTER);
    });
  }

  async forget(urls: string[]): Promise<void> {
    if (urls.length === 0) return;
    await this.#sessions.transaction(async (session) => {
      const list = textArray(urls);
      await session.run('DELETE FROM rowcast.verified WHERE url = ANY ($1::text[])', list);
      const gone = await session.run('DELETE FROM rowcast.edges WHERE url = ANY ($1::text[])', list);
      if (gone > 0) await session.run(NEXT_ROSTER);
    });
  }

  async pause(url: string, paused: boolean): Promise<void> {
    await this.#sessions.transaction(async (session) => {
      await session.run('UPDATE rowcast.edges SET paused = $2 WHERE url = $1', url, paused);
      await session.run(NEXT_ROSTER);
    });
  }

  async pin(url: string, nodeId: string): Promise<void> {
    await this.#sessions.transaction((session) =>
      session.run('UPDATE rowcast.edges SET pinned = $2 WHERE url = $1', url, nodeId),
    );
  }

  async reseed(url: string): Promise<EdgeRow> {
    return this.#sessions.transaction(async (session) => {
      await this.seed(session, url);
      return this.get(url, session);
    });
  }

  /** It begins at 0, in the next generation. */
  async seed(session: Session, url: string): Promise<void> {
    await session.run(`UPDATE rowcast.edges SET ${ANEW} WHERE url = $1`, url);
    await session.run(NEXT_ROSTER);
  }

  async identify(url: string, generation: number, nodeId: string, isPlain: boolean): Promise<EdgeRow> {
    const [row] = await this.#identified.do([{ url, generation, nodeId, isPlain }]);
    return row ?? this.get(url);
  }

  async #identify(all: Identified[]): Promise<(EdgeRow | undefined)[]> {
    return this.#sessions.transaction(async (session) => {
      const urls = [...new Set(all.map(({ url }) => url))];
      const list = textArray(urls);
      await session.query('SELECT 1 FROM rowcast.edges WHERE url = ANY ($1::text[]) ORDER BY url FOR UPDATE', list);
      const before = await this.among(session, urls);
      const others = all.filter(({ url, generation, nodeId }) => {
        const row = before.get(url);
        return row && row.nodeId !== nodeId && row.generation === generation;
      });
      if (others.length === 0) return all.map(({ url }) => before.get(url));
      await session.run(
        'UPDATE rowcast.edges AS e SET node_id = i.node_id FROM unnest($1::text[], $2::text[]) AS i (url, node_id) ' +
          'WHERE e.url = i.url',
        textArray(others.map(({ url }) => url)),
        textArray(others.map(({ nodeId }) => nodeId)),
      );
      // Another node has nothing of what the one before it had.
      const replaced = others.filter(({ url, isPlain }) => isPlain && before.get(url)?.nodeId !== undefined);
      if (replaced.length > 0) {
        const anew = `UPDATE rowcast.edges SET ${ANEW}, inc = NULL WHERE url = ANY ($1::text[])`;
        await session.run(anew, textArray(replaced.map(({ url }) => url)));
      }
      const rows = await this.among(session, urls);
      return all.map(({ url }) => rows.get(url));
    });
  }

  /** In a transaction: these databases are the first at edges where nobody was known. Those of them that are. */
  async beginAt<T extends { url: string; intro: { inc: string } }>(session: Session, all: T[]): Promise<T[]> {
    if (all.length === 0) return [];
    const begun = await session.query<{ url: string }>(
      'UPDATE rowcast.edges AS e SET inc = b.inc FROM unnest($1::text[], $2::text[]) AS b (url, inc) ' +
        'WHERE e.url = b.url AND e.inc IS NULL AND e.position = 0 RETURNING e.url',
      textArray(all.map(({ url }) => url)),
      textArray(all.map(({ intro }) => intro.inc)),
    );
    const urls = new Set(begun.map(({ url }) => url));
    return all.filter(({ url }) => urls.has(url));
  }

  /** In a transaction. Forward, and of the generations named alone. */
  async advance(session: Session, given: Move[]): Promise<void> {
    const epoch = this.#epoch.number * PER_EPOCH;
    const moves = given.filter(({ generation }) => generation >= epoch);
    if (moves.length === 0) return;
    await session.run(
      'UPDATE rowcast.edges AS e SET position = m.position ' +
        'FROM (SELECT url, generation, max(position) AS position ' +
        'FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS m (url, generation, position) GROUP BY url, generation) ' +
        'AS m WHERE e.url = m.url AND e.generation = m.generation AND e.position < m.position ' +
        // Behind a pooler the server may be another one by now.
        `AND ${PRESENT} = $4`,
      textArray(moves.map(({ url }) => url)),
      integerArray(moves.map(({ generation }) => generation - epoch)),
      integerArray(moves.map(({ position }) => position)),
      this.#epoch.text ?? '',
    );
  }

  /** Of the state of the server that was read: by the time of the answer this process may have seen another one. */
  async #read(session: Session, sql: string, ...params: Param[]): Promise<EdgeRow[]> {
    if (session === this.#sessions) return this.#sessions.use((one) => this.#read(one, sql, ...params));
    const rows = await session.query<StoredEdge>(sql, ...params);
    return rows.map((row) => rowOf(row, session.era));
  }
}

function rowOf(row: StoredEdge, era: number): EdgeRow {
  return {
    url: row.url,
    position: row.position,
    nodeId: row.node_id ?? undefined,
    inc: row.inc ?? undefined,
    pinned: row.pinned ?? undefined,
    anewUpto: row.anew_upto,
    paused: row.paused,
    generation: era * PER_EPOCH + row.generation,
  };
}

/** Nobody is known there. Whoever has acknowledged without a word of who it is was another, as far as anybody knows. */
export function isUnused({ inc, position }: EdgeRow): boolean {
  return inc === undefined && position === 0;
}

export interface Move {
  url: string;
  generation: number;
  position: Seq;
}

/** The node that answers at an edge. */
interface Identified {
  url: string;
  generation: number;
  nodeId: string;
  /** It does not introduce itself. */
  isPlain: boolean;
}

interface StoredEdge {
  url: string;
  position: Seq;
  node_id: string | null;
  paused: boolean;
  inc: string | null;
  anew_upto: Seq;
  pinned: string | null;
  generation: number;
}

const EDGES = 'SELECT url, position, node_id, paused, inc, anew_upto, pinned, generation FROM rowcast.edges';

/** Up to there an edge that begins anew is sent what it brought itself, too. */
const LATEST = '(SELECT coalesce(max(seq), 0) FROM rowcast.rows)';

const ANEW = `position = 0, anew_upto = ${LATEST}, generation = nextval('rowcast.generations')`;

/** The others look at their edges again when they see another number. */
const NEXT_ROSTER = 'UPDATE rowcast.meta SET roster = roster + 1';
