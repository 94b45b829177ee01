/** A sender on a virtual clock, whose network is a function. */
import type { Database, Statement } from '../../src/index.ts';
import { type Reply, recordingFetch, type Sent } from './bad-servers.ts';
import type { TestDatabase } from './lane.ts';
import { type NodeOptions, node, rowsOf, type TestNode } from './nodes.ts';
import { VirtualClock } from './virtual-clock.ts';

export const PEER = 'http://peer.test';
export const TIMEOUT = 30_000;
export const ROUND = [50, 100, 200, 400, 800];

export interface Rig extends TestNode {
  clock: VirtualClock;
  sent: Sent[];
  /** When each request went out, counted from the start. */
  times: number[];
  events: string[];
  /** The pauses between attempts and ticks, without the limits on requests and the slow loop that retries parked changes. */
  pauses(): number[];
}

/** A sender on a virtual clock, whose network is `answer`. */
export async function rig(answer: (sent: Sent, raw: Uint8Array) => Reply | Promise<Reply>, options: NodeOptions = {}) {
  const clock = new VirtualClock();
  const start = clock.now();
  const times: number[] = [];
  const network = recordingFetch((sent, raw) => {
    times.push(clock.now() - start);
    return answer(sent, raw);
  });
  const made = await node({
    id: 'sender',
    peers: [PEER],
    clock,
    random: () => 0,
    requestTimeoutMs: TIMEOUT,
    fetch: network.fetch,
    ...options,
  });
  const events: string[] = [];
  for (const name of ['peer-up', 'peer-down', 'dead-letter', 'acked', 'error'] as const) {
    made.manager.on(name, () => events.push(name));
  }
  const pauses = (): number[] => clock.requested.filter((ms) => ms < 1_000);
  return { ...made, clock, sent: network.sent, times, events, pauses } satisfies Rig;
}

export function write(db: TestDatabase, ...ids: string[]): void {
  for (const id of ids) db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(id, `name of ${id}`);
}

export function writeMany(db: TestDatabase, count: number, name = 'x'): void {
  db.prepare(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO items SELECT printf('row-%06d', i), ?, i, 10, 1000 FROM n",
  ).run(count, name);
}

export const pending = (one: { db: TestDatabase }): number =>
  Number(rowsOf(one.db, 'SELECT count(*) AS n FROM _changes')[0]?.n);
export const idsOf = (sent: Sent): unknown[] => sent.changes.map((change) => change.row.id);

/** The same handle, with a look at everything that passes through it. */
export function watched(db: TestDatabase, before: (sql: string) => void): Database {
  const around = (sql: string, statement: Statement): Statement => ({
    run: (...params) => {
      before(sql);
      return statement.run(...params);
    },
    get: (...params) => {
      before(sql);
      return statement.get(...params);
    },
    all: (...params) => {
      before(sql);
      return statement.all(...params);
    },
  });
  return {
    exec: (sql) => {
      before(sql);
      return db.exec(sql);
    },
    prepare: (sql) => around(sql, db.prepare(sql)),
    transaction: (fn) => db.transaction(fn),
  };
}
