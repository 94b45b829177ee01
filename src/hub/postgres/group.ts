/** Who of the group is alive, by the server's clock alone (I9); and that no two have one name. */
import type { Clock } from '../../clock.ts';
import { RowcastError } from '../../errors.ts';
import type { Beat, HubGroup } from '../store.ts';
import { type Epoch, PRESENT } from './epoch.ts';
import type { Sessions } from './sessions.ts';

export interface GroupOptions {
  sessions: Sessions;
  epoch: Epoch;
  clock: Clock;
  random: () => number;
  instance: string;
}

const NAME_LOOK_MS = 250;

export class PostgresGroup implements HubGroup {
  readonly instance: string;
  readonly #o: GroupOptions;
  /** Tells this process from another one of its name. */
  readonly #boot: string;

  constructor(options: GroupOptions) {
    this.#o = options;
    this.instance = options.instance;
    this.#boot = [1, 2].map(() => Math.floor(options.random() * 2 ** 32).toString(16)).join('-');
  }

  /** One that has ended without a word is gone after its time; one that is alive goes on being seen. */
  async enter(ttlMs: number): Promise<void> {
    const { sessions, clock, instance } = this.#o;
    let first: string | undefined;
    for (let waited = 0; ; waited += NAME_LOOK_MS) {
      if ((await this.#beat(ttlMs)).isSeen) return;
      const [other] = await sessions.query<{ seen: string }>(
        'SELECT seen::text AS seen FROM rowcast.hubs WHERE instance = $1',
        instance,
      );
      first ??= other?.seen;
      if ((other && other.seen !== first) || waited > 2 * ttlMs) throw this.#taken();
      await clock.sleep(NAME_LOOK_MS);
    }
  }

  async beat(ttlMs: number): Promise<Beat> {
    const { isSeen, members, roster, epoch } = await this.#beat(ttlMs);
    if (!isSeen) throw this.#taken();
    this.#o.epoch.see(epoch);
    return { members: JSON.parse(members) as string[], roster };
  }

  async leave(): Promise<void> {
    const sql = 'DELETE FROM rowcast.hubs WHERE instance = $1 AND boot = $2';
    await this.#o.sessions.transaction((session) => session.run(sql, this.instance, this.#boot), 'lazy');
  }

  async #beat(ttlMs: number): Promise<Beaten> {
    const [beaten] = await this.#o.sessions.query<Beaten>(BEAT, this.instance, this.#boot, ttlMs);
    if (!beaten) throw new RowcastError('DATABASE_FAILED', 'the store has no meta');
    return beaten;
  }

  #taken(): RowcastError {
    return new RowcastError('INVALID_OPTION', `another process of the group is called "${this.instance}"`, {
      hint: 'give each an -instance of its own',
    });
  }
}

interface Beaten {
  /** False where another process of this name is alive. */
  isSeen: boolean;
  members: string;
  roster: number;
  epoch: string;
}

const SEEN = "h.seen > clock_timestamp() - $3::double precision * interval '1 millisecond'";

/**
 * One statement, which is all that a process says of itself twice a second, and a transaction of its own. Nothing is lost with
 * the latest of these, so nobody waits for the disk. It sees the others as they were before it, and itself as it is.
 */
const BEAT =
  "WITH lazy AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS set), " +
  'beaten AS (INSERT INTO rowcast.hubs AS h (instance, boot, seen) ' +
  'SELECT $1::text, $2::text, clock_timestamp() FROM lazy WHERE lazy.set IS NOT NULL ' +
  'ON CONFLICT (instance) DO UPDATE SET boot = excluded.boot, seen = excluded.seen ' +
  `WHERE h.boot = excluded.boot OR NOT (${SEEN}) RETURNING h.instance), ` +
  'members AS (SELECT instance FROM beaten UNION SELECT h.instance FROM rowcast.hubs AS h ' +
  `WHERE h.instance <> $1 AND ${SEEN}) ` +
  'SELECT EXISTS (SELECT 1 FROM beaten) AS "isSeen", m.roster, ' +
  `coalesce((SELECT json_agg(instance ORDER BY instance) FROM members)::text, '[]') AS members, ${PRESENT} AS epoch ` +
  'FROM rowcast.meta AS m';
