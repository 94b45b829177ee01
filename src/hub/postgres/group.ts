/** Who of the group is alive, by the server's clock alone (I9); and that no two have one name. */
import type { Clock } from '../../clock.ts';
import { RowcastError } from '../../errors.ts';
import type { Beat, HubGroup } from '../store.ts';
import { EPOCH, type Epoch } from './epoch.ts';
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
      if (await this.#beat(ttlMs)) return;
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
    if (!(await this.#beat(ttlMs))) throw this.#taken();
    const [found] = await this.#o.sessions.query<{ members: string; roster: number; epoch: string }>(
      `SELECT (SELECT json_agg(instance ORDER BY instance) FROM rowcast.hubs AS h WHERE ${isSeen('$1')})::text AS members, ` +
        `(SELECT roster FROM rowcast.meta) AS roster, ${EPOCH} AS epoch`,
      ttlMs,
    );
    if (!found) throw new RowcastError('DATABASE_FAILED', 'the store has no meta');
    this.#o.epoch.see(found.epoch);
    return { members: JSON.parse(found.members ?? '[]') as string[], roster: found.roster };
  }

  async leave(): Promise<void> {
    const sql = 'DELETE FROM rowcast.hubs WHERE instance = $1 AND boot = $2';
    await this.#o.sessions.transaction((session) => session.run(sql, this.instance, this.#boot), 'lazy');
  }

  /** False where another process of this name is alive. */
  async #beat(ttlMs: number): Promise<boolean> {
    const sql =
      'INSERT INTO rowcast.hubs AS h (instance, boot, seen) VALUES ($1, $2, clock_timestamp()) ' +
      'ON CONFLICT (instance) DO UPDATE SET boot = excluded.boot, seen = excluded.seen ' +
      `WHERE h.boot = excluded.boot OR NOT (${isSeen('$3')})`;
    const params = [this.instance, this.#boot, ttlMs] as const;
    return (await this.#o.sessions.transaction((session) => session.run(sql, ...params), 'lazy')) > 0;
  }

  #taken(): RowcastError {
    return new RowcastError('INVALID_OPTION', `another process of the group is called "${this.instance}"`, {
      hint: 'give each an -instance of its own',
    });
  }
}

function isSeen(ttlMs: string): string {
  return `h.seen > clock_timestamp() - ${ttlMs}::double precision * interval '1 millisecond'`;
}
