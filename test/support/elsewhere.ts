/** The check at the end of most capture tests: what was shipped, and nothing else, makes an empty node the same. */
import { expect } from 'vitest';
import type { Clock } from '../../src/clock.ts';
import type { Fetch } from '../../src/send/transport.ts';
import type { TestDatabase } from './lane.ts';
import { database, ITEMS, type NodeOptions, node, rowsOf, type TestNode, writeStamps } from './nodes.ts';

export const PEER = 'http://peer.test';

/** The pauses between two passes never end, so nothing ships until a test flushes; those between attempts take no time. */
export const standstill: Clock = {
  now: () => Date.now(),
  sleep: (ms, signal) =>
    ms <= 800 || signal?.aborted
      ? // Not at once: a loop that does nothing but sleep would let nobody else have a turn.
        new Promise((resolve) => setImmediate(resolve))
      : new Promise((resolve) => signal?.addEventListener('abort', () => resolve(), { once: true })),
};

export interface Origin extends TestNode {
  schema: string;
  tables: string[];
  /** Every body that was shipped. */
  bodies: string[];
}

/** A node with a peer that takes everything and keeps the bodies. */
export async function origin(options: NodeOptions = {}): Promise<Origin> {
  const bodies: string[] = [];
  const fetch: Fetch = async (_url, { body }) => {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(body);
    bodies.push(text);
    return { status: 200, text: async () => JSON.stringify({ applied: 0, ack: JSON.parse(text).batch_id }) };
  };
  const { schema = ITEMS, tables = ['items'] } = options;
  const config = { peers: [PEER], clock: standstill, batchMs: 3_600_000, random: () => 1, fetch };
  return { ...(await node({ ...config, ...options })), schema, tables, bodies };
}

export const q = (name: unknown): string => `"${String(name).replaceAll('"', '""')}"`;

/** Every row with storage classes, bytes and generated columns, and every deletion that still counts. */
export function state(db: TestDatabase, tables: string[]): string[][] {
  return tables.map((table) => {
    const cells = rowsOf(db, 'SELECT name FROM pragma_table_xinfo(?)', table).map(
      ({ name }) => `typeof(${q(name)}) || ':' || quote(${q(name)}) || ':' || hex(${q(name)})`,
    );
    const line = (part: string[]): string => part.join(" || '|' || ");
    const lines: string[] = [];
    // In pieces, because an expression may not be deeper than 1,000.
    for (let i = 0; i < cells.length; i += 100) lines.push(`(${line(cells.slice(i, i + 100))})`);
    const rows = rowsOf(db, `SELECT ${line(lines)} AS line FROM ${q(table)} WHERE id IS NOT NULL ORDER BY id`);
    const gone = rowsOf(
      db,
      `SELECT quote(row_id) || ' deleted at ' || version AS line FROM _tombstones WHERE table_name = ? COLLATE NOCASE ` +
        `AND row_id NOT IN (SELECT id FROM ${q(table)} WHERE id IS NOT NULL) ORDER BY row_id`,
      table,
    );
    return [...rows, ...gone].map((row) => String(row.line));
  });
}

/** As if just attached: no rows and no memory of any. Cheaper than another node. */
export function wipe(db: TestDatabase, tables: string[]): void {
  const [keys] = rowsOf(db, 'PRAGMA foreign_keys');
  const references = 'SELECT 1 FROM sqlite_schema AS m, pragma_foreign_key_list(m.name) LIMIT 1';
  // Where there are none the pragma is spared: it makes SQLite prepare every statement anew.
  const suspended = keys?.foreign_keys === 1 && rowsOf(db, references).length > 0;
  if (suspended) db.exec('PRAGMA foreign_keys = OFF');
  db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
  for (const table of tables) db.exec(`DELETE FROM ${q(table)}`);
  db.exec("DELETE FROM _tombstones; UPDATE _meta SET value = 0 WHERE key = 'syncing'");
  if (suspended) db.exec('PRAGMA foreign_keys = ON');
}

/**
 * The invariant of every scenario: what was shipped, and nothing else, makes an empty node the same. In order, reversed,
 * twice, one change per batch backwards, and on the careful path (a DELETE without a row is never regular).
 */
export async function expectSameElsewhere(
  from: Origin,
  options: { schema?: string; ways?: string[] } = {},
): Promise<void> {
  writeStamps(from.manager);
  const expected = state(from.db, from.tables);
  expect(await from.manager.flush()).toEqual({ delivered: [PEER], unreachable: [] });
  expect(from.all('SELECT count(*) AS n FROM _changes')).toEqual([{ n: 0 }]);
  const changes = from.bodies.flatMap((body) =>
    rowsOf(from.db, "SELECT value FROM json_each(?, '$.changes') ORDER BY key", body).map(({ value }) => String(value)),
  );
  const stranger = JSON.stringify({ op: 'DELETE', table: from.tables[0], row: null, old_id: 'nobody' });
  const ways: Record<string, string[][]> = {
    'in order': [changes],
    reversed: [changes.toReversed()],
    twice: [changes, changes],
    'one by one, backwards': changes.toReversed().map((change) => [change]),
    carefully: [[stranger, ...changes]],
  };
  const other = await node({ schema: options.schema ?? from.schema, tables: from.tables });
  for (const [way, batches] of Object.entries(ways)) {
    if (options.ways && !options.ways.includes(way)) continue;
    wipe(other.db, from.tables);
    for (const batch of batches) {
      // As from Rowcast: of a peer that is not, a later change of a batch wins a tie, and here the order is turned round.
      const answer = other.manager.receive(`{"batch_id":7,"changes":[${batch.join(',')}]}`, { said: 'id=origin' });
      expect(answer, way).toMatchObject({ status: 200, body: { ack: 7 } });
      expect(answer.body, way).not.toHaveProperty('rejected');
    }
    expect(state(other.db, from.tables), way).toEqual(expected);
    expect(other.all('SELECT * FROM _changes'), `nothing is captured again, ${way}`).toEqual([]);
    expect(other.all("SELECT value FROM _meta WHERE key = 'syncing'"), way).toEqual([{ value: 0 }]);
  }
}

/** For the many and the large: both paths, each once. */
export const QUICK = { ways: ['reversed', 'carefully'] };

/** The same statements on a database without Rowcast: what the application would have without capture. */
export async function expectSameWithout(it: Origin, statements: string[]): Promise<void> {
  const plain = await database(it.schema);
  const outcome = (db: TestDatabase, sql: string): string => {
    try {
      db.exec(sql);
      return 'done';
    } catch (error) {
      return String((error as Error).message);
    }
  };
  for (const sql of statements) {
    expect(`${sql}: ${outcome(it.db, sql)}`).toBe(`${sql}: ${outcome(plain, sql)}`);
  }
  for (const table of it.tables) {
    const columns = rowsOf(plain, 'SELECT name FROM pragma_table_xinfo(?)', table)
      .map(({ name }) => String(name))
      .filter((name) => !['updated_at', 'later'].includes(name.toLowerCase()))
      .map((name) => `quote(${q(name)}) AS ${q(name)}`);
    const select = `SELECT ${columns.join(', ')} FROM ${q(table)} ORDER BY id`;
    expect(rowsOf(it.db, select)).toEqual(rowsOf(plain, select));
  }
}

/** Inserts, rewrites, replaces, forgets updated_at, renames, deletes and brings back, in a table with any names. */
export function life(table: string, column: string): string[] {
  const [t, c] = [q(table), q(column)];
  return [
    `INSERT INTO ${t} (id, ${c}, updated_at) VALUES ('a', 'one', 1000), ('b', 'two', 1000), ('c', NULL, 1000), ('d', '$x', 1000)`,
    `UPDATE ${t} SET ${c} = 'changed', updated_at = 2000 WHERE id = 'a'`,
    `UPDATE ${t} SET ${c} = 'forgotten' WHERE id = 'b'`,
    `REPLACE INTO ${t} (id, ${c}, updated_at) VALUES ('a', 'replaced', 500)`,
    `UPDATE ${t} SET id = 'renamed' WHERE id = 'c'`,
    `DELETE FROM ${t} WHERE id = 'd'`,
    `INSERT INTO ${t} (id, ${c}, updated_at) VALUES ('d', 'again', 1), ('e', x'00ff', NULL)`,
    `DELETE FROM ${t} WHERE id = 'b'`,
  ];
}
