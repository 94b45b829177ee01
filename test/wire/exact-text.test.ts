/** Text that is not UTF-8: SQLite takes it, so it arrives as it is, as a value and as an id, on every way there is. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createHub, type Hub } from '../../src/hub/hub.ts';
import { attach, type Manager } from '../../src/index.ts';
import type { Fetch } from '../../src/send/transport.ts';
import { exactText, inOneSpelling } from '../../src/wire/exact-text.ts';
import { draws } from '../support/draws.ts';
import { PEER, standstill } from '../support/elsewhere.ts';
import type { TestDatabase } from '../support/lane.ts';
import {
  cleanUp,
  database,
  type NodeOptions,
  node,
  rowsOf,
  serveManager,
  type TestNode,
  until,
  writeStamps,
} from '../support/nodes.ts';

const SCHEMA = 'CREATE TABLE items (id TEXT PRIMARY KEY, v TEXT, w, updated_at INTEGER)';
const UNIQUE = 'CREATE TABLE items (id TEXT PRIMARY KEY, v TEXT UNIQUE, w, updated_at INTEGER)';

/** Text of these bytes, as SQL. */
const text = (hex: string): string => `CAST(x'${hex}' AS TEXT)`;
/** U+FFFD is what JavaScript reads for each of these. */
const [ONE, TWO, THREE] = ['ff41', 'fe41', '8041'] as const;

interface Peer {
  receive: Manager['receive'] | Hub['receive'];
}

function shipping(to: () => Peer, options: NodeOptions = {}): NodeOptions {
  const fetch: Fetch = async (_url, { body, headers }) => {
    const { 'X-Node-Id': from, 'X-Rowcast': said } = headers as Record<string, string>;
    const answer = await to().receive(body, { from, said });
    return { status: answer.status, text: async () => JSON.stringify(answer.body) };
  };
  return { id: 'origin', peers: [PEER], clock: standstill, batchMs: 3_600_000, random: () => 1, fetch, ...options };
}

/** Every row by its bytes and storage classes, and every tombstone. */
function state(db: TestDatabase): string[] {
  const cells = ['id', 'v', 'w'].map((name) => `typeof(${name}) || ' ' || hex(${name})`).join(" || ', ' || ");
  const rows = rowsOf(db, `SELECT ${cells} || ' at ' || updated_at AS line FROM items ORDER BY id`);
  const gone = rowsOf(
    db,
    "SELECT 'gone ' || hex(row_id) || ' at ' || version AS line FROM _tombstones " +
      'WHERE row_id NOT IN (SELECT id FROM items) ORDER BY row_id',
  );
  return [...rows, ...gone].map(({ line }) => String(line));
}

async function pair(schema = SCHEMA, options: NodeOptions = {}): Promise<[TestNode, TestNode]> {
  const other = await node({ schema });
  return [await node({ schema, ...shipping(() => other.manager, options) }), other];
}

describe('two ids that JavaScript could not tell apart', () => {
  const WRITES =
    `INSERT INTO items VALUES (${text(ONE)}, 'one', 1, 1000), (${text(TWO)}, 'two', 2, 1000), ` +
    `(${text(THREE)}, ${text(ONE)}, ${text(TWO)}, 1000), ('plain', ${text('24626c6f623aff')}, x'ff', 1000)`;

  test('stay two rows, written, updated, renamed and deleted', async () => {
    const [origin, other] = await pair();
    origin.db.exec(WRITES);
    await origin.manager.flush();
    expect(state(other.db)).toEqual(state(origin.db));
    expect(rowsOf(other.db, 'SELECT count(*) AS n FROM items')).toEqual([{ n: 4 }]);
    origin.db.exec(
      `UPDATE items SET v = 'again' WHERE id = ${text(TWO)}; DELETE FROM items WHERE id = ${text(ONE)}; ` +
        `UPDATE items SET id = ${text('fd')} WHERE id = ${text(THREE)}`,
    );
    await origin.manager.flush();
    writeStamps(origin.manager);
    expect(state(other.db)).toEqual(state(origin.db));
    expect(rowsOf(other.db, 'SELECT hex(row_id) AS id FROM _tombstones ORDER BY row_id')).toEqual([
      { id: THREE.toUpperCase() },
      { id: ONE.toUpperCase() },
    ]);
    expect(origin.manager.health()).toMatchObject({ ok: true, dead_letter: 0, pending_changes: 0 });
    expect(other.manager.health()).toMatchObject({ ok: true, dead_letter: 0 });
  });

  test.each([1, 2, 1_000])('are sent to a new peer in pages of %i, across a restart', async (batchSize) => {
    const db = await database(SCHEMA);
    const first = attach(db, { maxAheadMs: 0, id: 'origin', peers: [] }, ['items']);
    db.exec(WRITES);
    db.exec(`DELETE FROM items WHERE id IN (${text(ONE)}, ${text(THREE)})`);
    await first.stop();
    const other = await node({ schema: SCHEMA });
    let left = batchSize === 1 ? 2 : Number.POSITIVE_INFINITY;
    const few: Peer = {
      receive: (body, sender) =>
        left-- > 0 ? other.manager.receive(body, sender) : ({ status: 503, body: { error: 'away' } } as never),
    };
    for (let round = 0; round < 3; round++) {
      const { schema: _, ...config } = shipping(() => few, { batchSize });
      const manager = attach(db, { maxAheadMs: 0, ...config, id: 'origin', peers: [PEER] }, ['items']);
      cleanUp(() => manager.stop());
      await manager.flush();
      await manager.stop();
      left = batchSize === 1 ? 2 : Number.POSITIVE_INFINITY;
    }
    expect(state(other.db)).toEqual(state(db));
    expect(rowsOf(db, 'SELECT tail_from FROM _peer_state')).toEqual([{ tail_from: null }]);
  });

  test('go through a hub, live and deleted', async () => {
    const hubDb = await database('SELECT 1');
    const other = await node({ schema: SCHEMA });
    const edge = await serveManager(other.manager);
    const hub = await createHub(hubDb, { maxAheadMs: 0, id: 'hub', edges: [edge], batchMs: 5 });
    cleanUp(() => hub.stop());
    const origin = await node({ schema: SCHEMA, ...shipping(() => hub) });
    origin.db.exec(WRITES);
    await origin.manager.flush();
    origin.db.exec(`DELETE FROM items WHERE id = ${text(ONE)}`);
    await origin.manager.flush();
    expect(rowsOf(hubDb, 'SELECT count(*) AS n FROM _hub_rows')).toEqual([{ n: 4 }]);
    const ready = (): boolean =>
      rowsOf(other.db, 'SELECT 1 FROM items UNION ALL SELECT 1 FROM _tombstones').length >= 4;
    await until('the edge has everything', ready);
    expect(state(other.db)).toEqual(state(origin.db));
    expect(rowsOf(hubDb, 'SELECT row_id FROM _hub_rows ORDER BY row_id')).toEqual([
      { row_id: '$bytes:8041' },
      { row_id: '$bytes:FE41' },
      { row_id: '$bytes:FF41' },
      { row_id: 'plain' },
    ]);
  });

  test('are told to the application apart, in the form in which they travel', async () => {
    const [origin, other] = await pair();
    const told: unknown[] = [];
    other.manager.on('applied', ({ rows }) => told.push(...rows.map(({ id }) => id)));
    origin.db.exec(WRITES);
    await origin.manager.flush();
    expect(told).toEqual(['$bytes:FF41', '$bytes:FE41', '$bytes:8041', 'plain']);
  });

  test('are deleted apart by a DELETE without a row', async () => {
    const [origin, other] = await pair();
    origin.db.exec(WRITES);
    await origin.manager.flush();
    const change = '{"op":"DELETE","table":"items","row":null,"old_id":"$bytes:fe41"}';
    expect(other.manager.receive(`{"batch_id":1,"changes":[${change}]}`).body).toMatchObject({ applied: 1 });
    expect(rowsOf(other.db, 'SELECT hex(row_id) AS id FROM _tombstones')).toEqual([{ id: TWO.toUpperCase() }]);
    expect(rowsOf(other.db, 'SELECT count(*) AS n FROM items')).toEqual([{ n: 3 }]);
  });

  test('get the versions that they are given, also where the application refuses one of them', async () => {
    const guard =
      `CREATE TRIGGER guard BEFORE UPDATE OF updated_at ON items WHEN OLD.id = ${text(TWO)} ` +
      "BEGIN SELECT RAISE(ABORT, 'no'); END";
    const { db, manager } = await node({ schema: `${SCHEMA}; ${guard}` });
    db.exec(`INSERT INTO items (id, v) VALUES (${text(ONE)}, 'one'), (${text(TWO)}, 'two')`);
    writeStamps(manager);
    const refused = rowsOf(db, 'SELECT hex(row_id) AS id, refused FROM _stamps');
    expect(refused).toEqual([{ id: TWO.toUpperCase(), refused: 1 }]);
    expect(rowsOf(db, 'SELECT hex(id) AS id FROM items WHERE updated_at IS NULL')).toEqual([{ id: TWO.toUpperCase() }]);
  });
});

describe('dead letters', () => {
  test('a refused row is sent as it was when it is retried', async () => {
    const other = await node({ schema: SCHEMA });
    let refuses = true;
    const peer: Peer = {
      receive: (body, sender) =>
        refuses ? ({ status: 422, body: { error: 'no' } } as never) : other.manager.receive(body, sender),
    };
    const origin = await node({ schema: SCHEMA, ...shipping(() => peer) });
    origin.db.exec(`INSERT INTO items VALUES (${text(ONE)}, ${text(TWO)}, ${text('24746578743aff')}, 1000)`);
    await origin.manager.flush();
    const letters = origin.manager.deadLetters.list();
    expect(letters.map(({ rowId, row }) => [rowId, JSON.parse(row ?? '').v])).toEqual([['$bytes:FF41', '$bytes:FE41']]);
    refuses = false;
    expect(await origin.manager.deadLetters.retry(letters[0]?.id as number)).toMatchObject({ outcome: 'queued' });
    await origin.manager.flush();
    expect(state(other.db)).toEqual(state(origin.db));
  });

  test('what such rows say of a column that is not there is filled in when it is', async () => {
    const older = await node({ schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, v TEXT, updated_at INTEGER)' });
    const origin = await node({ schema: SCHEMA, ...shipping(() => older.manager) });
    origin.db.exec(`INSERT INTO items VALUES (${text(ONE)}, 'v', ${text('ff')}, 1000), (${text(TWO)}, 'v', 2, 1000)`);
    await origin.manager.flush();
    expect(older.manager.deadLetters.list().map(({ rowId }) => rowId)).toEqual(['$bytes:FF41', '$bytes:FE41']);
    older.db.exec('ALTER TABLE items ADD COLUMN w');
    const [letter] = older.manager.deadLetters.list();
    expect(older.manager.deadLetters.retry(letter?.id as number)).toEqual({ outcome: 'applied' });
    expect(older.manager.deadLetters.list()).toEqual([]);
    expect(rowsOf(older.db, 'SELECT hex(id) AS id, hex(w) AS w FROM items ORDER BY id')).toEqual([
      { id: 'FE41', w: '32' },
      { id: 'FF41', w: 'FF' },
    ]);
  });

  test('a row without an id is listed with its bytes', async () => {
    const [origin] = await pair();
    origin.db.exec(`INSERT INTO items VALUES (NULL, ${text(ONE)}, 1, 1000)`);
    await origin.manager.flush();
    expect(origin.manager.deadLetters.list()[0]?.row).toContain('"$bytes:FF41"');
  });
});

describe('UNIQUE values', () => {
  test('of two rows that share one the stronger by its bytes is visible, on every node; the other comes back', async () => {
    const [origin, other] = await pair(UNIQUE);
    const change = (id: string, v: string): string =>
      `{"op":"INSERT","table":"items","row":{"id":"$bytes:${id}","v":"$bytes:${v}","w":1,"updated_at":1000},"old_id":null}`;
    origin.db.exec(`INSERT INTO items VALUES (${text(ONE)}, ${text('ff')}, 1, 1000)`);
    await origin.manager.flush();
    // Weaker, by one byte; another value that JavaScript reads alike is in nobody's way.
    for (const { manager } of [origin, other]) {
      const body = `{"batch_id":1,"changes":[${change(TWO, 'ff')},${change(THREE, 'fe')}]}`;
      expect(manager.receive(body, { said: 'id=x' }).body).toMatchObject({ applied: 2 });
    }
    expect(rowsOf(other.db, 'SELECT hex(id) AS id FROM items ORDER BY id')).toEqual([{ id: '8041' }, { id: 'FF41' }]);
    expect(state(other.db)).toEqual(state(origin.db));
    const [letter] = other.manager.deadLetters.list();
    expect(letter).toMatchObject({ code: 'unique', rowId: '$bytes:FE41' });
    expect(letter?.reason).toContain('"$bytes:FF41"');
    // A new peer is sent the hidden one too.
    origin.db.exec(`UPDATE items SET v = 'free', updated_at = 2000 WHERE id = ${text(ONE)}`);
    await origin.manager.flush();
    origin.manager.receive('{"batch_id":1,"changes":[]}');
    expect(rowsOf(other.db, 'SELECT hex(id) AS id, hex(v) AS v FROM items ORDER BY id')).toEqual([
      { id: '8041', v: 'FE' },
      { id: 'FE41', v: 'FF' },
      { id: 'FF41', v: Buffer.from('free').toString('hex').toUpperCase() },
    ]);
    expect(other.manager.health()).toMatchObject({ dead_letter: 0 });
    expect(rowsOf(other.db, 'SELECT count(*) AS n FROM _hidden')).toEqual([{ n: 0 }]);
  });

  test('a stronger row takes the place of one that has such an id, and a deletion gives it back', async () => {
    const [, other] = await pair(UNIQUE);
    const send = (...changes: string[]): unknown =>
      other.manager.receive(`{"batch_id":1,"changes":[${changes.join(',')}]}`, { said: 'id=x' }).body;
    const row = (id: string, at: number): string => `{"id":"${id}","v":"same","w":"$bytes:ff","updated_at":${at}}`;
    send(`{"op":"INSERT","table":"items","row":${row('$bytes:ff41', 1000)},"old_id":null}`);
    send(`{"op":"INSERT","table":"items","row":${row('b', 2000)},"old_id":null}`);
    expect(rowsOf(other.db, 'SELECT id FROM items')).toEqual([{ id: 'b' }]);
    send(`{"op":"DELETE","table":"items","row":${row('b', 2000)},"old_id":"b"}`);
    expect(state(other.db)).toEqual(['text FF41, text 73616D65, text FF at 1000', 'gone 62 at 2000']);
  });
});

test('a tie between two such contents is decided alike by nodes and by a hub, in any order', async () => {
  const bytes = fc.uint8Array({ minLength: 1, maxLength: 4 }).map((b) => Buffer.from(b).toString('hex'));
  const values = fc.oneof(
    bytes.map((hex) => `$bytes:${hex}`),
    fc.constantFrom('a', 'é', '$text:$bytes:ff', '$blob:ff'),
  );
  const change = (v: string): string =>
    `{"op":"UPDATE","table":"items","row":{"id":"a","v":${JSON.stringify(v)},"w":1,"updated_at":1000},"old_id":null}`;
  const nodes = [await node({ schema: SCHEMA }), await node({ schema: SCHEMA })] as const;
  const hubDb = await database('SELECT 1');
  const hub = await createHub(hubDb, { maxAheadMs: 0, id: 'hub', edges: [], batchMs: 5 });
  cleanUp(() => hub.stop());
  await fc.assert(
    fc.asyncProperty(values, values, async (x, y) => {
      for (const { db } of nodes) {
        db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'; DELETE FROM items; DELETE FROM _tombstones");
        db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
      }
      hubDb.exec('DELETE FROM _hub_rows');
      const said = 'id=x';
      for (const [i, order] of [
        [x, y],
        [y, x],
      ].entries()) {
        for (const v of order) {
          nodes[i]?.manager.receive(`{"batch_id":1,"changes":[${change(v)}]}`, { said });
          await hub.receive(`{"batch_id":1,"changes":[${change(v)}]}`, { said });
        }
      }
      expect(state(nodes[0].db)).toEqual(state(nodes[1].db));
      const [kept] = rowsOf(hubDb, 'SELECT row_data FROM _hub_rows');
      const again = `{"batch_id":1,"changes":[{"op":"UPDATE","table":"items","row":${kept?.row_data},"old_id":null}]}`;
      expect(nodes[0].manager.receive(again, { said }).body, 'what the hub keeps is what stands').toMatchObject({
        applied: 1,
      });
    }),
    { numRuns: draws(150) },
  );
});

test('any bytes, as ids and as values, arrive by the tail and by a snapshot', async () => {
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 6 }),
    fc
      .constantFrom('$text:', '$bytes:', '$blob:00', '"\\', '\0')
      .chain((head) => fc.uint8Array({ maxLength: 3 }).map((tail) => Uint8Array.from([...Buffer.from(head), ...tail]))),
  );
  const hex = bytes.map((b) => Buffer.from(b).toString('hex'));
  await fc.assert(
    fc.asyncProperty(fc.uniqueArray(hex, { maxLength: 8 }), hex, async (ids, value) => {
      const [origin, other] = await pair();
      for (const [i, id] of ids.entries())
        origin.db.exec(`INSERT INTO items VALUES (${text(id)}, ${text(value)}, ${text(id)}, ${1000 + i})`);
      await origin.manager.flush();
      expect(state(other.db)).toEqual(state(origin.db));
      await origin.manager.stop();
      const late = await node({ schema: SCHEMA });
      const { schema: _, ...config } = shipping(() => late.manager, { batchSize: 3 });
      const again = attach(origin.db, { maxAheadMs: 0, ...config, id: 'origin', peers: ['http://late.test'] }, [
        'items',
      ]);
      await again.flush();
      await again.stop();
      await late.manager.stop();
      await other.manager.stop();
      expect(state(late.db)).toEqual(state(origin.db));
    }),
    { numRuns: draws(40) },
  );
});

describe('the spelling', () => {
  test.each([
    ['$bytes:ff41', '$bytes:FF41'],
    ['$bytes:6162', 'ab'],
    ['$bytes:', ''],
    ['$bytes:c3a9', 'é'],
    ['$bytes:2462797465733a', '$text:$bytes:'],
    ['$bytes:f', '$text:$bytes:f'],
    ['$bytes:zz', '$text:$bytes:zz'],
    ['$text:$bytes:ff', '$text:$bytes:ff'],
    ['plain', 'plain'],
  ])('the id %s is %s', (came, kept) => {
    expect(inOneSpelling(came)).toBe(kept);
  });

  test('strings are told from keys, and from quotes within them', () => {
    const json = `{"k\xff" : "say \\"\xff\\\\", "n":["\xff",1,"\\u00e9\xff"], "ok":"\xc3\xa9"}`;
    expect(Buffer.from(exactText(Uint8Array.from(Buffer.from(json, 'latin1')))).toString()).toBe(
      '{"k\ufffd" : "$bytes:7361792022FF5C", "n":["$bytes:FF",1,"$bytes:C3A9FF"], "ok":"é"}',
    );
  });

  test('nested JSON, which a plain peer may send for a text, is not looked into', async () => {
    const { db, manager } = await node({ schema: SCHEMA });
    const row = '{"id":"a","v":["$bytes:61","$bytes:zz"],"w":"$bytes:61\\u0000","updated_at":1000}';
    manager.receive(`{"batch_id":1,"changes":[{"op":"INSERT","table":"items","row":${row},"old_id":null}]}`);
    expect(state(db)).toEqual([
      `text 61, text ${Buffer.from('["$bytes:61","$bytes:zz"]').toString('hex').toUpperCase()}, ` +
        `text ${Buffer.from('$bytes:61\0').toString('hex').toUpperCase()} at 1000`,
    ]);
  });

  test('a body that is UTF-8 is not touched', () => {
    const body = new TextEncoder().encode('{"row":{"id":"é"}}');
    expect(exactText(body)).toBe(body);
  });

  test('an id has one spelling, however it is received', async () => {
    const { db, manager } = await node({ schema: SCHEMA });
    const change = (id: string, at: number): string =>
      `{"op":"UPDATE","table":"items","row":{"id":"${id}","v":"v","w":1,"updated_at":${at}},"old_id":null}`;
    const ids = ['$bytes:ff', '$bytes:FF', '\\u0024bytes:fF', '$bytes:61', 'a', '$text:a'];
    const changes = ids.map((id, i) => change(id, 1000 + i)).join(',');
    expect(manager.receive(`{"batch_id":1,"changes":[${changes}]}`).body).toEqual({ applied: 6, ack: 1 });
    expect(rowsOf(db, 'SELECT hex(id) AS id, updated_at FROM items ORDER BY id')).toEqual([
      { id: '61', updated_at: 1005 },
      { id: 'FF', updated_at: 1002 },
    ]);
  });
});
