/** Two nodes that are not replicating by themselves, so that a comparison finds what a test has put there. */
import type { Incoming } from '../../src/http/bridge.ts';
import { type Replica, respond } from '../../src/http/respond.ts';
import { attach, type Config, type Fetch, type Manager } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

export interface Request {
  path: string;
  bytes: number;
  status: number;
  answerBytes: number;
}

export interface Pair {
  here: TestDatabase;
  there: TestDatabase;
  manager: Manager;
  other: Manager;
  requests: Request[];
  clock: VirtualClock;
  /** Requests of `/sync` get through; until it is true they break off, so that nothing is shipped. */
  link: { up: boolean };
  /** Both know nothing but `/sync`. */
  plain: boolean;
  /** Both fail to answer anything but `/sync`. */
  failing: boolean;
  /** From here to there. */
  fetch: Fetch;
}

export const THERE = 'http://there.test';
export const HERE = 'http://here.test';

/** Pauses take no time; the limit for a request does not pass. */
export async function pair(options: {
  here: string;
  there?: string;
  tables?: string[];
  thereTables?: string[];
  config?: Partial<Config>;
  /** Of the other one besides. */
  thereConfig?: Partial<Config>;
  clock?: VirtualClock;
  /** Rows that nobody captures: neither side sends them. */
  fill?(here: TestDatabase, there: TestDatabase): void;
}): Promise<Pair> {
  const clock = options.clock ?? new VirtualClock((ms) => ms < 30_000);
  const [here, there] = [await database(options.here), await database(options.there ?? options.here)];
  const requests: Request[] = [];
  const link = { up: false };
  const the = { plain: false, failing: false };
  const managers: Partial<Record<string, Manager>> = {};
  const fetchTo =
    (to: string): Fetch =>
    async (url, { body, headers }) => {
      const path = url.slice(to.length);
      if (path === '/sync' && !link.up) throw new Error('cut off');
      if (path !== '/sync' && (the.plain || the.failing)) {
        return { status: the.plain ? 404 : 500, text: () => Promise.resolve('no') };
      }
      const answer = await respond(managers[to] as Manager, {}, incoming(path, body, headers));
      requests.push({
        path,
        bytes: body.byteLength,
        status: answer.status,
        answerBytes: Buffer.byteLength(answer.body),
      });
      return {
        status: answer.status,
        text: () => Promise.resolve(answer.body),
        headers: { get: (name: string) => answer.headers[name] ?? null },
      };
    };
  const tables = options.tables ?? ['items'];
  const common = { clock, batchMs: 3_600_000, maxAheadMs: 0, ...options.config };
  const other = attach(
    there,
    { ...common, ...options.thereConfig, id: 'there', peers: [HERE], fetch: fetchTo(HERE) },
    options.thereTables ?? tables,
  );
  cleanUp(() => other.stop());
  const manager = attach(here, { ...common, id: 'here', peers: [THERE], fetch: fetchTo(THERE) }, tables);
  cleanUp(() => manager.stop());
  managers[HERE] = manager;
  managers[THERE] = other;
  if (options.fill) silently([here, there], () => options.fill?.(here, there));
  return Object.assign(the, { here, there, manager, other, requests, clock, link, fetch: fetchTo(THERE) });
}

/** Writes as if nobody had seen it: what replication has lost, or was never told of. */
export function silently(dbs: TestDatabase[], write: () => void): void {
  for (const db of dbs) db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
  write();
  for (const db of dbs) db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
}

/** Requests to whoever answers there; batches get there while the link is up, questions always. */
export function wayTo(link: { up: boolean }) {
  return (replica: () => Replica): Fetch =>
    async (url, init) => {
      const path = new URL(url).pathname;
      if (path === '/sync' && !link.up) throw new Error('cut off');
      const { status, body, headers } = await respond(replica(), {}, incoming(path, init.body, init.headers));
      return { status, text: () => Promise.resolve(body), headers: { get: (name: string) => headers[name] ?? null } };
    };
}

export function incoming(path: string, body: Uint8Array, headers: Record<string, string>): Incoming {
  return {
    method: 'POST',
    path,
    header: (name) => headers[name],
    read: () => Promise.resolve(body),
    hold: () => true,
  };
}
