/** Nodes for tests: a database, a manager, and, where wanted, a real HTTP server on loopback. */
import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createListener } from '../../src/http/index.ts';
import { attach, type Config, type Database, type Manager, type Statement } from '../../src/index.ts';
import { cleanUp } from './clean-up.ts';
import { openDatabase, type TestDatabase } from './lane.ts';

export { cleanUp };

export const ITEMS =
  'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER)';

/** A folder that is gone after the test. */
export function scratchFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'rowcast-'));
  cleanUp(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A database with the given schema, closed after the test. */
export async function database(schema = ITEMS, path = ':memory:'): Promise<TestDatabase> {
  const db = await openDatabase(path);
  // A program that stands still in the middle of a transaction keeps its lock for as long.
  db.exec('PRAGMA busy_timeout = 60000');
  if (path !== ':memory:') db.exec('PRAGMA journal_mode = WAL');
  db.exec(schema);
  cleanUp(() => db.close());
  return db;
}

/** Attached to a database that is there already, until the test ends. Tests date their rows as they like. */
export function attached(db: Database, config: Partial<Config> = {}, tables = ['items']): Manager {
  const manager = attach(db, { id: 'node', peers: [], maxAheadMs: 0, ...config }, tables);
  cleanUp(() => manager.stop());
  return manager;
}

export interface TestNode {
  db: TestDatabase;
  manager: Manager;
  /** Reads rows that have their versions: see `writeStamps`. */
  all(sql: string, ...params: unknown[]): Record<string, unknown>[];
}

export interface NodeOptions extends Partial<Config> {
  schema?: string;
  path?: string;
  tables?: string[];
}

/** A node without a server: for capture and apply. With no peers its changes stay in `_changes`. */
export async function node(options: NodeOptions = {}): Promise<TestNode> {
  const { schema, path, tables, ...config } = options;
  const db = await database(schema, path);
  const manager = attach(db, { id: 'node', peers: [], maxAheadMs: 0, ...config }, tables ?? ['items']);
  cleanUp(() => manager.stop());
  const all: TestNode['all'] = (sql, ...params) => {
    if (rowsOf(db, 'SELECT 1 FROM _stamps LIMIT 1').length > 0) manager.receive(NOTHING);
    return rowsOf(db, sql, ...params);
  };
  return { db, manager, all };
}

const NOTHING = '{"batch_id":0,"changes":[]}';

/** What comes before anything is sent or received: the versions that writes have been given are written into the rows. */
export function writeStamps(manager: Manager): void {
  const { status, body } = manager.receive(NOTHING);
  if (status !== 200) throw new Error(JSON.stringify(body));
}

/** Rows as plain objects, whatever the binding makes of them. */
export function rowsOf(db: TestDatabase, sql: string, ...params: unknown[]): Record<string, unknown>[] {
  return db
    .prepare(sql)
    .all(...params)
    .map((row) => ({ ...(row as object) }));
}

/** Passes everything on and writes down what SQL was run. */
export function recording(db: TestDatabase): { handle: Database; sql: string[] } {
  const sql: string[] = [];
  const handle: Database & { inTransaction: boolean | undefined } = {
    get inTransaction() {
      return (db as { inTransaction?: boolean }).inTransaction;
    },
    exec: (text) => {
      sql.push(text);
      return db.exec(text);
    },
    prepare: (text) => {
      const statement = db.prepare(text);
      const noted =
        <T>(method: (...params: unknown[]) => T) =>
        (...params: unknown[]): T => {
          sql.push(text);
          return method.apply(statement, params);
        };
      return {
        run: noted(statement.run),
        get: noted(statement.get),
        all: noted(statement.all),
        // bun:sqlite wants its statements closed before the database.
        finalize: () => (statement as { finalize?: () => void }).finalize?.(),
      } as Statement;
    },
    transaction: (fn) => db.transaction(fn),
  };
  return { handle, sql };
}

/** What was captured: op, row_id and the row, in order. */
export function captured(db: TestDatabase): { op: string; row_id: unknown; row: Record<string, unknown> }[] {
  return rowsOf(db, 'SELECT op, row_id, row_data FROM _changes ORDER BY change_id').map((change) => ({
    op: change.op as string,
    row_id: change.row_id,
    row: JSON.parse(change.row_data as string),
  }));
}

/** Serves `listener` on a free loopback port until the test ends. */
export async function serve(listener: http.RequestListener, port = 0): Promise<string> {
  // A connection that is kept is not closed under a client that stood still meanwhile, as this process does with it.
  const server = http.createServer({ keepAliveTimeout: 600_000 }, listener);
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  cleanUp(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Serves a manager's `/sync` and `/health`. */
export function serveManager(manager: Manager): Promise<string> {
  return serve(createListener(manager));
}

/**
 * Waits for something that another loop will bring about; the limit is a safety net, not a measurement. A question whose
 * connection breaks is asked again: one that is kept may have been closed while this process stood still.
 */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  limitMs = 240_000,
): Promise<void> {
  const end = Date.now() + limitMs;
  const holds = async (): Promise<boolean> => {
    try {
      return await condition();
    } catch (error) {
      if (isBroken(error)) return false;
      throw error;
    }
  };
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`gave up waiting until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

function isBroken(error: unknown): boolean {
  const { code, cause } = error as { code?: unknown; cause?: { code?: unknown } };
  return ['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET', 'ConnectionClosed'].includes(String(cause?.code ?? code));
}

/** A table's rows with the storage class of every value, so that 1, 1.0 and '1' differ. */
export function exactRows(db: TestDatabase, table: string): string[] {
  const columns = rowsOf(db, 'SELECT name FROM pragma_table_info(?)', table).map(({ name }) => name as string);
  const parts = columns.map((name) => `typeof("${name}") || ':' || quote("${name}")`).join(" || '|' || ");
  return rowsOf(db, `SELECT ${parts} AS line FROM "${table}" ORDER BY id`).map(({ line }) => line as string);
}
