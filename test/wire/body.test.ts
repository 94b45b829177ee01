/** How much of a queue of large changes is spelt out to find how many of them fit into a batch. */
import { describe, expect, test } from 'vitest';
import { createHub } from '../../src/hub/hub.ts';
import { attach, type Database, type Statement } from '../../src/index.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { batchText, changeSql, fitting, STORED_BYTES, writeText } from '../../src/wire/body.ts';
import { acknowledged, recordingFetch } from '../support/bad-servers.ts';
import { cleanUp, database, ITEMS, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const ROWS = 300;
const LARGE = 20_000;
const LIMIT = 200_000;

/** The database with a record of how many changes each statement has spelt out. */
function watched(db: Database): { db: Database; spelt: number[] } {
  const spelt: number[] = [];
  const prepare = (sql: string): Statement => {
    const statement = db.prepare(sql);
    if (!/"old_id"/.test(sql)) return statement;
    const get = (...params: unknown[]): unknown => {
      const result = statement.get(...params) as { n: number };
      // What finds the number is given its limit last but one; what makes a body says how many are in it.
      spelt.push(sql.includes('running') ? Number(params.at(-2)) : result.n);
      return result;
    };
    return { run: (...params) => statement.run(...params), get, all: (...params) => statement.all(...params) };
  };
  return { db: { exec: (sql) => db.exec(sql), prepare, transaction: db.transaction.bind(db) }, spelt };
}

const clock = (): VirtualClock => new VirtualClock((ms) => ms <= 800);

describe('of large rows, only as many are spelt out as can fit', () => {
  const fill =
    `WITH RECURSIVE s (n) AS (SELECT 1001 UNION ALL SELECT n + 1 FROM s WHERE n < ${1_000 + ROWS}) ` +
    `INSERT INTO items SELECT printf('row-%d', n), printf('%.*c', ${LARGE}, 'x'), 5000, 6000, 7000 FROM s`;

  test.each([
    ['changes', `${fill}; UPDATE items SET name = 'short', updated_at = 8000 WHERE id = 'row-1001'`],
    ['a snapshot', fill],
  ])('in %s', async (kind, sql) => {
    const plain = await database(ITEMS);
    const { db, spelt } = watched(plain);
    if (kind === 'a snapshot') plain.exec(sql);
    const { fetch, sent } = recordingFetch(acknowledged);
    const manager = attach(
      db,
      { maxAheadMs: 0, id: 'a', peers: ['http://p'], clock: clock(), fetch, maxBatchBytes: LIMIT },
      ['items'],
    );
    cleanUp(() => manager.stop());
    if (kind === 'changes') plain.exec(sql);
    await manager.flush();
    expect(sent.flatMap(({ changes }) => changes).length).toBe(kind === 'changes' ? ROWS + 1 : ROWS);
    for (const { bytes } of sent) expect(bytes).toBeLessThanOrEqual(LIMIT);
    expect(sent.length).toBeLessThanOrEqual(ROWS / 9 + 2);
    expect(spelt.length).toBeGreaterThanOrEqual(sent.length);
    // Nine of them fit.
    expect(Math.max(...spelt)).toBeLessThanOrEqual(12);
  });

  test('in a hub', async () => {
    const plain = await database('SELECT 1');
    const { db, spelt } = watched(plain);
    const { fetch, sent } = recordingFetch(acknowledged);
    const get = async () => ({ status: 200, text: async () => '{"node_id":"e"}' });
    const hub = await createHub(db, {
      id: 'hub',
      edges: ['http://e'],
      clock: clock(),
      maxAheadMs: 0,
      fetch,
      get,
      maxBatchBytes: LIMIT,
    });
    cleanUp(() => hub.stop());
    const row = (id: number): string =>
      writeText('INSERT', 'items', JSON.stringify({ id: `row-${id}`, name: 'x'.repeat(LARGE), updated_at: 5 }));
    await hub.receive(batchText(1, Array.from({ length: ROWS }, (_, i) => row(i)).join()), { from: 'z' });
    await until('the edge has everything', async () => {
      await hub.flush();
      return sent.flatMap(({ changes }) => changes).length >= ROWS;
    });
    for (const { bytes } of sent) expect(bytes).toBeLessThanOrEqual(LIMIT);
    expect(spelt.length).toBeGreaterThanOrEqual(sent.length);
    expect(Math.max(...spelt)).toBeLessThanOrEqual(12);
  });
});

test('exactly as many fit as a sum over the spelt changes says, and never none', async () => {
  const plain = await database(
    'CREATE TABLE q (seq INTEGER PRIMARY KEY, op TEXT, table_name TEXT, row_id TEXT, row_data TEXT)',
  );
  const parts = ['x', '"', '\\', '\n', 'ü', '\u0001'];
  const put = plain.prepare('INSERT INTO q (op, table_name, row_id, row_data) VALUES (?, ?, ?, ?)');
  for (let i = 0; i < 200; i++) {
    const text = (parts[i % parts.length] as string).repeat((i * 37) % 90);
    put.run(i % 3 ? 'INSERT' : 'DELETE', i % 5 ? 'items' : 'o"ö', text, JSON.stringify({ id: text, name: text }));
  }
  const db = new Connection(plain);
  const oldId = "iif(op = 'DELETE', json_quote(row_id), 'null')";
  const change = changeSql({ op: 'op', table: 'table_name', row: 'row_data', oldId });
  const sizes = db.all<{ n: number }>(`SELECT octet_length(${change}) AS n FROM q ORDER BY seq`).map(({ n }) => n);
  const line = { place: 'seq', change, bytes: STORED_BYTES, from: 'FROM q WHERE seq > ? ORDER BY seq LIMIT ?' };
  for (let i = 0; i < 400; i++) {
    const after = (i * 7) % 200;
    const limit = { changes: 1 + ((i * 13) % 60), bytes: 50 + i * 23 };
    let room = limit.bytes - 50;
    const rest = sizes.slice(after, after + limit.changes);
    const cut = rest.findIndex((size) => {
      room -= size + 1;
      return room < 0;
    });
    const count = Math.min(rest.length, fitting(db, { ...line, params: [after] }, limit));
    expect([i, count]).toEqual([i, rest.length === 0 ? 0 : Math.max(1, cut === -1 ? rest.length : cut)]);
  }
  db.release();
});
