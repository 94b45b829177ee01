/** The types as a caller sees them. Nothing here runs: the compiler is the test (types.test.ts calls it). */
import type { Database as BunDatabase } from 'bun:sqlite';
import type BetterSqlite3 from 'better-sqlite3';
import { expectTypeOf } from 'vitest';
import { createHandler, createListener } from '../src/http/index.ts';
import { createHub, type Hub, type HubConfig, type HubHealth } from '../src/hub/index.ts';
import {
  attach,
  type Change,
  type Config,
  type Database,
  type DeadLetter,
  type ErrorCode,
  type FlushResult,
  type Health,
  type Manager,
  type RowcastError,
  type RowRef,
} from '../src/index.ts';
import { fromNodeSqlite } from '../src/sqlite/node-sqlite.ts';

/** node:sqlite's own signatures, as of Node 24; the types of Node 20 do not have the module. */
type SupportedValue = null | number | bigint | string | NodeJS.ArrayBufferView;
interface StatementSync {
  all(...anonymousParameters: SupportedValue[]): unknown[];
  all(namedParameters: Record<string, SupportedValue>, ...anonymousParameters: SupportedValue[]): unknown[];
  get(...anonymousParameters: SupportedValue[]): unknown;
  get(namedParameters: Record<string, SupportedValue>, ...anonymousParameters: SupportedValue[]): unknown;
  run(...anonymousParameters: SupportedValue[]): { changes: number | bigint; lastInsertRowid: number | bigint };
}
interface DatabaseSync {
  close(): void;
  exec(sql: string): void;
  prepare(sql: string): StatementSync;
}

declare const config: Config;
declare const manager: Manager;
declare const hubConfig: HubConfig;
declare const hub: Hub;

export function theHubTakesTheSameDatabases(
  better: BetterSqlite3.Database,
  bun: BunDatabase,
  node: DatabaseSync,
): void {
  expectTypeOf(createHub(better, hubConfig)).toEqualTypeOf<Promise<Hub>>();
  expectTypeOf(createHub(bun, hubConfig)).toEqualTypeOf<Promise<Hub>>();
  expectTypeOf(createHub(fromNodeSqlite(node), hubConfig)).toEqualTypeOf<Promise<Hub>>();
  expectTypeOf(hub.health()).toEqualTypeOf<Promise<HubHealth>>();
  createListener(hub);
  createHandler(hub);
  // @ts-expect-error a hub has no tables, so nothing is applied
  hub.on('applied', () => {});
  // @ts-expect-error its peers are edges
  hubConfig.peers;
}

export function acceptsEveryBinding(better: BetterSqlite3.Database, bun: BunDatabase, node: DatabaseSync): void {
  expectTypeOf(attach(better, config, ['items'])).toEqualTypeOf<Manager>();
  expectTypeOf(attach(bun, config, ['items'])).toEqualTypeOf<Manager>();
  expectTypeOf(attach(fromNodeSqlite(node), config, ['items'])).toEqualTypeOf<Manager>();
  expectTypeOf(better).toExtend<Database>();
  expectTypeOf(bun).toExtend<Database>();

  // @ts-expect-error node:sqlite has no transaction(): it needs the adapter
  attach(node, config, ['items']);
  // @ts-expect-error a path is not a database
  attach('items.db', config, ['items']);
  // @ts-expect-error the tables are an array
  attach(better, config, 'items');
  // @ts-expect-error the tables are not optional
  attach(better, config);
}

export function checksTheConfiguration(db: Database): void {
  attach(db, { id: 'a', peers: [] }, ['items']);
  attach(db, { id: 'a', peers: ['http://b.test'], batchMs: 1, batchSize: 1, requestTimeoutMs: 1 }, ['items']);
  attach(db, { id: 'a', peers: [], fetch, random: Math.random, clock: { now: Date.now, sleep: async () => {} } }, [
    't',
  ]);

  // @ts-expect-error the id is required
  attach(db, { peers: [] }, ['items']);
  // @ts-expect-error the peers are required
  attach(db, { id: 'a' }, ['items']);
  // @ts-expect-error misspelt
  attach(db, { id: 'a', peers: [], batchMS: 50 }, ['items']);
  // @ts-expect-error a number
  attach(db, { id: 'a', peers: [], batchSize: '50' }, ['items']);
  // @ts-expect-error an array
  attach(db, { id: 'a', peers: 'http://b.test' }, ['items']);
  // @ts-expect-error a clock can sleep
  attach(db, { id: 'a', peers: [], clock: { now: Date.now } }, ['items']);
}

export function typesResults(): void {
  expectTypeOf(manager.applyChanges).parameters.toEqualTypeOf<[Change[]]>();
  expectTypeOf(manager.applyChanges).returns.toBeNumber();
  expectTypeOf(manager.health()).toEqualTypeOf<Health>();
  expectTypeOf(manager.health()).toExtend<{
    ok: boolean;
    node_id: string;
    item_count: number;
    pending_changes: number;
    dead_letter: number;
    peers: string[];
  }>();
  expectTypeOf(manager.flush()).resolves.toEqualTypeOf<FlushResult>();
  expectTypeOf(manager.stop()).resolves.toBeVoid();
  expectTypeOf(manager.detach()).resolves.toBeVoid();
  expectTypeOf(manager.nudge()).toBeVoid();
  expectTypeOf(manager.deadLetters.list()).toEqualTypeOf<DeadLetter[]>();
  expectTypeOf(manager.deadLetters.retry(1).outcome).toEqualTypeOf<'queued' | 'applied' | 'kept' | 'gone'>();
  expectTypeOf(manager.deadLetters.discard(1)).toBeVoid();

  // @ts-expect-error an operation is one of three
  manager.applyChanges([{ op: 'UPSERT', table: 'items', row: {}, old_id: null }]);
  // @ts-expect-error a body is text or bytes
  manager.receive({ batch_id: 1, changes: [] });
}

/** The status decides which body there is. */
export function narrowsWhatReceiveReturns(): void {
  const result = manager.receive('{}', { from: 'sender' });
  manager.receive(new Uint8Array());
  if (result.status === 200) {
    expectTypeOf(result.body.applied).toBeNumber();
    expectTypeOf(result.body.ack).toEqualTypeOf<number | string>();
    // @ts-expect-error there is no error in an acknowledgement
    result.body.error;
  } else {
    expectTypeOf(result.body.error).toBeString();
    // @ts-expect-error there is no acknowledgement in an error
    result.body.ack;
  }
}

export function typesEvents(): void {
  manager.on('applied', (event) => {
    expectTypeOf(event.applied).toBeNumber();
    expectTypeOf(event.from).toEqualTypeOf<string | undefined>();
    expectTypeOf(event.rows).toEqualTypeOf<RowRef[]>();
    expectTypeOf(event.rows[0]?.op).toEqualTypeOf<'INSERT' | 'UPDATE' | 'DELETE' | undefined>();
  });
  manager.on('acked', (event) =>
    expectTypeOf(event).toEqualTypeOf<{ peer: string; batchId: number; changes: number }>(),
  );
  manager.on('peer-up', ({ peer }) => expectTypeOf(peer).toBeString());
  manager.on('peer-down', ({ reason }) => expectTypeOf(reason).toBeString());
  manager.on('dead-letter', ({ rows }) => expectTypeOf(rows).toEqualTypeOf<RowRef[]>());
  manager.on('warning', ({ code, message }) => expectTypeOf(code + message).toBeString());
  manager.on('error', (error) => {
    expectTypeOf(error).toEqualTypeOf<RowcastError>();
    expectTypeOf(error.code).toEqualTypeOf<ErrorCode>();
    expectTypeOf(error.hint).toEqualTypeOf<string | undefined>();
    // @ts-expect-error not one of the codes
    if (error.code === 'NO_SUCH_CODE') return;
  });
  expectTypeOf(manager.on('applied', () => {})).toEqualTypeOf<() => void>();

  // @ts-expect-error misspelt
  manager.on('apply', () => {});
  // @ts-expect-error the event has no such field
  manager.on('applied', ({ count }) => count);
  // @ts-expect-error the event of another name
  manager.on('acked', ({ rows }) => rows);
}

export function typesTheHttpEdge(): void {
  expectTypeOf(createHandler(manager)).toEqualTypeOf<(request: Request) => Promise<Response>>();
  createListener(manager, { prefix: '/replication' });
  // @ts-expect-error misspelt
  createHandler(manager, { prefixes: '/replication' });
  // @ts-expect-error a manager, not a database
  createHandler({});
}
