/** What a second look at capture, apply, letters and the transport has found: one test for each way it went wrong. */
import { describe, expect, test } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import { attach, type Database, type Statement } from '../../src/index.ts';
import { acknowledged, badSocket, recordingFetch } from '../support/bad-servers.ts';
import { meetings } from '../support/draws.ts';
import type { TestDatabase } from '../support/lane.ts';
import { attached, cleanUp, database, ITEMS, node, rowsOf, serve, serveManager, until } from '../support/nodes.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

type Row = Record<string, unknown>;

/** Later than any time at which a test runs. */
const T = 4_000_000_000_000;
const MINUTE = 60_000;
/** More than the longest pause after which a letter is tried again. */
const LONG = 3 * MINUTE;

function put(row: Row): Row {
  return { op: 'UPDATE', table: 'items', row, old_id: null };
}

function batch(...changes: Row[]): string {
  return JSON.stringify({ batch_id: 1, changes });
}

/** Everything captured, as one body. The rows go as they are: parsing them here would round what is not exact in JSON. */
function wire(db: TestDatabase): string {
  const changes = rowsOf(db, 'SELECT op, table_name, row_id, row_data FROM _changes ORDER BY change_id').map(
    ({ op, table_name, row_id, row_data }) =>
      `{"op":"${op}","table":"${table_name}","row":${row_data},"old_id":${op === 'DELETE' ? JSON.stringify(row_id) : 'null'}}`,
  );
  return `{"batch_id":1,"changes":[${changes.join(',')}]}`;
}

/** A table of items with an id, a name, a time and whatever a test adds. */
function items(...more: string[]): string {
  return `CREATE TABLE items (${['id TEXT PRIMARY KEY', 'name TEXT', 'updated_at INTEGER', ...more].join(', ')})`;
}

function permutations<V>(values: V[]): V[][] {
  if (values.length <= 1) return [values];
  return values.flatMap((value, i) => permutations(values.toSpliced(i, 1)).map((rest) => [value, ...rest]));
}

/** A handle that fails where a test says so: before an exec, or instead of a statement's run. */
function faulty(db: TestDatabase, faults: { exec?: (sql: string) => void; run?: (sql: string) => void }): Database {
  return {
    exec: (sql) => {
      faults.exec?.(sql);
      return db.exec(sql);
    },
    prepare: (sql) => {
      const statement = db.prepare(sql);
      const through: Statement & { finalize(): void } = {
        run: (...params: unknown[]) => {
          faults.run?.(sql);
          return statement.run(...params);
        },
        get: (...params: unknown[]) => statement.get(...params),
        all: (...params: unknown[]) => statement.all(...params),
        // bun:sqlite wants its statements closed before the database.
        finalize: () => (statement as { finalize?: () => void }).finalize?.(),
      };
      return through;
    },
    transaction: (fn) => db.transaction(fn),
  };
}

/** As SQLite reports it, under the name of its result code. */
function sqliteError(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}

/** The pauses between ticks and attempts are skipped; no request ever times out, and the slow loop never wakes. */
function impatient(): VirtualClock {
  return new VirtualClock((ms) => ms <= 800);
}

describe('a node whose schema lags behind', () => {
  test('never lets a parked value overwrite what was written later by someone who knows the column', async () => {
    const a = await node({ id: 'a', schema: items('c', 'd') });
    const r = await node({ id: 'r', schema: items() });
    a.db.exec(`INSERT INTO items VALUES ('x', 'n', ${T}, 1, 1)`);
    r.manager.receive(wire(a.db));
    r.db.exec('ALTER TABLE items ADD COLUMN c');
    r.manager.receive(batch());
    r.db.exec(`UPDATE items SET c = 50, updated_at = ${T + 5}`);
    r.manager.receive(batch());
    a.manager.receive(wire(r.db));
    r.db.exec('ALTER TABLE items ADD COLUMN d');
    r.manager.receive(batch());
    a.manager.receive(wire(r.db));
    r.manager.receive(wire(a.db));
    const all = 'SELECT id, name, updated_at, c, d FROM items';
    expect(r.all(all)).toEqual(a.all(all));
    expect(r.all(all)).toMatchObject([{ id: 'x', c: 50 }]);
  });

  test('ends like the others after a migration that adds a column and fills it in one go', async () => {
    const a = await node({ id: 'a', schema: items('c') });
    const r = await node({ id: 'r', schema: items() });
    a.db.exec(`INSERT INTO items VALUES ('x', 'n', ${T}, 1)`);
    r.manager.receive(wire(a.db));
    r.db.exec(`ALTER TABLE items ADD COLUMN c; UPDATE items SET c = 50, updated_at = ${T + 5}`);
    r.manager.receive(batch());
    a.manager.receive(wire(r.db));
    r.manager.receive(wire(a.db));
    const all = 'SELECT id, name, updated_at, c FROM items';
    expect(r.all(all)).toHaveLength(1);
    expect(r.all(all)).toEqual(a.all(all));
  });

  test.each(['while it runs', 'while it is stopped'])(
    'that is migrated %s does not tell a row of its own that was received anew since',
    async (when) => {
      const a = await node({ id: 'a', schema: items('c') });
      const r = await node({ id: 'r', schema: items() });
      r.db.exec(`INSERT INTO items VALUES ('x', 'of r', ${T})`);
      a.manager.receive(wire(r.db));
      a.db.exec(`UPDATE items SET name = 'of a', c = 1, updated_at = ${T + 5}`);
      r.manager.receive(wire(a.db));
      const before = wire(r.db);
      // Just above that: what r would tell as its own, with the value filled in, would be above this write.
      a.db.exec(`UPDATE items SET name = 'later', c = 2, updated_at = ${T + 6}`);
      if (when === 'while it runs') {
        r.db.exec('ALTER TABLE items ADD COLUMN c');
        r.manager.receive(batch());
      } else {
        await r.manager.stop();
        r.db.exec('ALTER TABLE items ADD COLUMN c');
        r.manager = attached(r.db, { id: 'r' });
      }
      expect(r.all('SELECT name, updated_at, c FROM items')).toEqual([{ name: 'of a', updated_at: T + 5, c: 1 }]);
      expect(wire(r.db)).toBe(before);
      a.manager.receive(wire(r.db));
      r.manager.receive(wire(a.db));
      for (const { all } of [a, r])
        expect(all('SELECT name, updated_at, c FROM items')).toEqual([{ name: 'later', updated_at: T + 6, c: 2 }]);
    },
  );

  test('does not tell a row of its own in the place of which it has received another of the same time', async () => {
    const a = await node({ id: 'a', schema: items('c') });
    const r = await node({ id: 'r', schema: items() });
    r.db.exec(`INSERT INTO items VALUES ('x', 'of r', ${T})`);
    a.db.exec(`INSERT INTO items VALUES ('x', 'stronger', ${T}, 1)`);
    r.manager.receive(wire(a.db));
    const before = wire(r.db);
    r.db.exec('ALTER TABLE items ADD COLUMN c');
    r.manager.receive(batch());
    expect(r.all('SELECT name, updated_at, c FROM items')).toEqual([{ name: 'stronger', updated_at: T, c: 1 }]);
    expect(wire(r.db)).toBe(before);
  });

  test('ends with the same value in the new column as two others that had it before', async () => {
    const a = await node({ id: 'a', schema: items('c') });
    const b = await node({ id: 'b', schema: items() });
    const c = await node({ id: 'c', schema: items('c') });
    a.db.exec(`INSERT INTO items VALUES ('x', 'n', ${T}, 9)`);
    b.manager.receive(wire(a.db));
    b.db.exec(`UPDATE items SET name = 'b', updated_at = ${T + 2}`);
    c.manager.receive(wire(b.db));
    b.db.exec('ALTER TABLE items ADD COLUMN c');
    const nodes = [a, b, c];
    for (let round = 0; round < 3; round++) {
      for (const from of nodes) for (const to of nodes) if (from !== to) to.manager.receive(wire(from.db));
    }
    const all = 'SELECT id, name, updated_at, c FROM items';
    expect(a.all(all)).toHaveLength(1);
    expect(b.all(all)).toEqual(a.all(all));
    expect(c.all(all)).toEqual(a.all(all));
  });

  test('sends several rows without the column, and each that is put together here is a change of its own', async () => {
    const a = await node({ id: 'a', schema: items('c') });
    a.db.exec(`INSERT INTO items VALUES ('x', 'n', ${T}, 8), ('y', 'n', ${T}, 9)`);
    // As after a drain: the table of changes is empty, and it is one statement that fills it.
    a.db.exec('DELETE FROM _changes');
    const rows = ['x', 'y'].map((id) => put({ id, name: 'b', updated_at: T + 1 }));
    expect(a.manager.receive(batch(...rows))).toMatchObject({ status: 200, body: { applied: 2 } });
    expect(a.all("SELECT row_id, row_data ->> '$.c' AS c FROM _changes ORDER BY change_id")).toEqual([
      { row_id: 'x', c: 8 },
      { row_id: 'y', c: 9 },
    ]);
  });

  test('that wrote a row without the column, and migrated before the value arrived, gets it all the same', async () => {
    const a = await node({ id: 'a', schema: items('c') });
    const b = await node({ id: 'b', schema: items() });
    const seed = batch(put({ id: 'x', name: 'n', updated_at: T }));
    a.manager.receive(seed);
    b.manager.receive(seed);
    a.db.exec(`UPDATE items SET c = 9, updated_at = ${T + 1}`);
    b.db.exec(`UPDATE items SET name = 'b', updated_at = ${T + 2}`);
    const partial = wire(b.db);
    expect(a.manager.receive(partial)).toMatchObject({ status: 200, body: { applied: 1 } });
    const told = a.all('SELECT change_id FROM _changes').length;
    // Sent again it gets the same answer, and is not told to the others once more.
    expect(a.manager.receive(partial)).toMatchObject({ status: 200, body: { applied: 1 } });
    expect(a.all('SELECT change_id FROM _changes')).toHaveLength(told);
    // Acknowledged and pruned, so that nothing but what A says can help.
    b.db.exec('DELETE FROM _changes');
    await b.manager.stop();
    b.db.exec('ALTER TABLE items ADD COLUMN c');
    const again = attach(b.db, { maxAheadMs: 0, id: 'b', peers: [] }, ['items']);
    cleanUp(() => again.stop());
    again.receive(wire(a.db));
    a.manager.receive(wire(b.db));
    const all = 'SELECT id, name, updated_at, c FROM items';
    expect(a.all(all)).toEqual([{ id: 'x', name: 'b', updated_at: T + 2, c: 9 }]);
    expect(b.all(all)).toEqual(a.all(all));
  });

  describe('decides between versions of one time as those do that have the column', () => {
    const version = (name: string, more: Row): Row => put({ id: 'x', name, updated_at: T, ...more });
    const cases: [string, Row[]][] = [
      ['two that differ in it alone', [version('n', { c: 'x' }), version('n', { c: 'y' })]],
      ['two that it decides otherwise', [version('a', { c: 'y' }), version('b', { c: 'x' })]],
      ['two, one of them without a value', [version('a', { c: 'y' }), version('b', { c: null })]],
      ['with one that was written without it', [version('a', { c: 'y' }), version('b', { c: 'x' }), version('d', {})]],
      ['with a lesser one that was written without it', [version('d', { c: 'x' }), version('b', {})]],
    ];
    test.each(cases)('%s', async (_name, versions) => {
      const moments = Array.from({ length: versions.length + 1 }, (_, i) => i);
      for (const [order, migrates] of meetings(permutations(versions), moments)) {
        const a = await node({ id: 'a', schema: items('c') });
        const b = await node({ id: 'b', schema: items() });
        const said = { from: 'z', said: 'id=z' };
        for (const change of versions) a.manager.receive(batch(change), said);
        for (const [i, change] of [...order, undefined].entries()) {
          if (i === migrates) b.db.exec('ALTER TABLE items ADD COLUMN c');
          b.manager.receive(change ? batch(change) : batch(), said);
        }
        await b.manager.flush();
        for (let round = 0; round < 2; round++) {
          b.manager.receive(wire(a.db), said);
          a.manager.receive(wire(b.db), said);
        }
        const all = 'SELECT id, name, updated_at, c FROM items';
        const told = `${JSON.stringify(order)}, migrates at ${migrates}`;
        expect({ told, rows: b.all(all) }).toEqual({ told, rows: a.all(all) });
        expect(b.manager.health().dead_letter).toBe(0);
      }
    });
  });

  test('fills a parked value in where the key is spelled ID', async () => {
    const columns = 'ID TEXT PRIMARY KEY, name TEXT, updated_at INTEGER';
    const a = await node({ id: 'a', schema: `CREATE TABLE items (${columns}, c TEXT)` });
    const b = await node({ id: 'b', schema: `CREATE TABLE items (${columns})` });
    a.db.exec(`INSERT INTO items VALUES ('x', 'n', ${T}, 'a')`);
    b.manager.receive(wire(a.db));
    b.db.exec(`UPDATE items SET name = 'b', updated_at = ${T + 2}`);
    b.manager.receive(batch());
    a.manager.receive(wire(b.db));
    b.db.exec('ALTER TABLE items ADD COLUMN c TEXT');
    b.manager.receive(batch());
    a.manager.receive(wire(b.db));
    b.manager.receive(wire(a.db));
    const all = 'SELECT ID, name, updated_at, c FROM items';
    expect(b.all(all)).toEqual(a.all(all));
    expect(b.all(all)[0]?.c).toBe('a');
  });

  test('has the whole of a change that met a constraint and an unknown column once both are mended', async () => {
    const columns = 'id TEXT PRIMARY KEY, name TEXT UNIQUE, updated_at INTEGER';
    const clock = new VirtualClock();
    const a = await node({ id: 'a', schema: `CREATE TABLE items (${columns}, c TEXT DEFAULT 'z')` });
    const b = await node({ id: 'b', schema: `CREATE TABLE items (${columns})`, clock });
    b.manager.receive(batch({ ...put({ id: 'x', name: 'n', updated_at: T + 1 }), op: 'INSERT' }));
    a.db.exec(`INSERT INTO items VALUES ('y', 'n', ${T}, 'a')`);
    b.manager.receive(wire(a.db));
    const codes = b.manager.deadLetters.list().map(({ rowId, code }) => `${rowId} ${code}`);
    expect(codes.sort()).toEqual(['y unique', 'y unknown-column']);
    b.db.exec('DELETE FROM items');
    await clock.advance(LONG);
    expect(b.all('SELECT id FROM items')).toEqual([{ id: 'y' }]);
    b.db.exec("ALTER TABLE items ADD COLUMN c TEXT DEFAULT 'z'");
    await clock.advance(LONG);
    expect(b.manager.deadLetters.list()).toEqual([]);
    const all = 'SELECT id, name, updated_at, c FROM items';
    expect(b.all(all)).toEqual(a.all(all));
  });
});

describe('letters', () => {
  test('a refused row whose key is spelled ID can be retried', async () => {
    let healthy = false;
    const { fetch } = recordingFetch((sent) => (healthy ? acknowledged(sent) : { status: 400, body: '{}' }));
    const a = await node({
      schema: 'CREATE TABLE items (ID TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)',
      peers: ['http://peer.test'],
      clock: impatient(),
      fetch,
    });
    a.db.exec(`INSERT INTO items VALUES ('x', 'n', ${T})`);
    await until('the row is a dead letter', () => a.manager.deadLetters.list().length === 1);
    healthy = true;
    const [letter] = a.manager.deadLetters.list();
    expect(letter).toMatchObject({ rowId: 'x' });
    expect(a.manager.deadLetters.retry(letter?.id ?? 0)).toEqual({ outcome: 'queued' });
  });

  test('two hundred hopeless ones do not keep the others from being tried again', async () => {
    const clock = new VirtualClock();
    const b = await node({
      schema: "CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE CHECK (name <> 'bad'), updated_at INTEGER)",
      clock,
    });
    const hopeless = Array.from({ length: 200 }, (_, i) => put({ id: `b${i}`, name: 'bad', updated_at: T }));
    b.manager.receive(batch(...hopeless));
    b.manager.receive(batch(put({ id: 'x', name: 'n', updated_at: T })));
    b.manager.receive(batch(put({ id: 'y', name: 'n', updated_at: T })));
    b.db.exec("DELETE FROM items WHERE id = 'x'");
    await clock.advance(MINUTE);
    expect(b.all('SELECT id FROM items')).toEqual([{ id: 'y' }]);
  });

  test('a replay that a lock interrupts is resumed', async () => {
    const db = await database(items());
    const clock = new VirtualClock();
    /** Which of the coming transactions fails to begin; 0 when none does. */
    let failing = 0;
    const handle = faulty(db, {
      exec: (sql) => {
        if (sql !== 'BEGIN IMMEDIATE' || failing === 0 || --failing > 0) return;
        throw sqliteError('SQLITE_READONLY', 'attempt to write a readonly database');
      },
    });
    const manager = attach(handle, { maxAheadMs: 0, id: 'a', peers: [], clock }, ['items']);
    cleanUp(() => manager.stop());
    manager.receive(
      batch(put({ id: 'x', name: 'n', updated_at: T, c: 'v' }), put({ id: 'y', name: 'n', updated_at: T, c: 'v' })),
    );
    db.exec('ALTER TABLE items ADD COLUMN c');
    const rows = (): Row[] => rowsOf(db, 'SELECT id, c FROM items ORDER BY id');
    // The first one refreshes the triggers, the second one is the first letter's.
    failing = 2;
    manager.receive(batch());
    expect(failing).toBe(0);
    expect(rows()).not.toContainEqual({ id: 'y', c: 'v' });
    await clock.advance(LONG);
    manager.receive(batch());
    expect(rows()).toEqual([
      { id: 'x', c: 'v' },
      { id: 'y', c: 'v' },
    ]);
  });

  test('an I/O error that ends the transaction is not parked as a constraint and acknowledged', async () => {
    const db = await database();
    let broken = false;
    const handle = faulty(db, {
      run: (sql) => {
        if (!broken || !sql.includes('INTO main."items"')) return;
        // As SQLite does by itself for an error of this kind.
        db.exec('ROLLBACK');
        throw sqliteError('SQLITE_IOERR_WRITE', 'disk I/O error');
      },
    });
    const manager = attach(handle, { maxAheadMs: 0, id: 'a', peers: [] }, ['items']);
    cleanUp(() => manager.stop());
    const body = batch(put({ id: 'x', name: 'n', value: 1, created_at: 1, updated_at: T }));
    broken = true;
    expect(manager.receive(body).status).toBe(503);
    expect(manager.deadLetters.list()).toEqual([]);
    broken = false;
    expect(manager.receive(body)).toEqual({ status: 200, body: { applied: 1, ack: 1 }, headers: expect.any(Object) });
  });
});

describe('unique constraints', () => {
  const all = 'SELECT * FROM items ORDER BY id';

  test.each([
    ['a partial index', 'CREATE UNIQUE INDEX u ON items (name) WHERE name IS NOT NULL', 'n'],
    ['an index on an expression', 'CREATE UNIQUE INDEX u ON items (lower(name))', 'N'],
  ])('REPLACE over %s removes the other row everywhere', async (_kind, index, name) => {
    const a = await node({ id: 'a', schema: `${items()}; ${index}` });
    const b = await node({ id: 'b', schema: `${items()}; ${index}` });
    a.db.exec(`INSERT INTO items VALUES ('x', 'n', ${T})`);
    a.db.exec(`INSERT OR REPLACE INTO items VALUES ('y', '${name}', ${T})`);
    b.manager.receive(wire(a.db));
    expect(a.all(all)).toMatchObject([{ id: 'y', name }]);
    expect(b.all(all)).toEqual(a.all(all));
  });

  test.each([
    "CREATE UNIQUE INDEX \"u (,) WHERE\" ON items (name COLLATE NOCASE DESC, coalesce(value, 'a,)(')) WHERE value > 0 AND name <> ')'",
    'CREATE UNIQUE INDEX u ON items (lower(name) COLLATE NOCASE ASC) -- a remark',
    'CREATE UNIQUE INDEX u ON items (name, value) WHERE (value > 0)',
    'CREATE UNIQUE INDEX u ON items (json_array(name, value)) /* ( */',
  ])('what REPLACE removes over %s is removed everywhere', async (index) => {
    const a = await node({ id: 'a', schema: `${items('value INTEGER')}; ${index}` });
    const b = await node({ id: 'b', schema: `${items('value INTEGER')}; ${index}` });
    a.db.exec(`INSERT INTO items VALUES ('x', 'n', ${T}, 1), ('z', 'm', ${T}, 1), ('q', 'p', ${T}, -1)`);
    a.db.exec(`INSERT OR REPLACE INTO items VALUES ('y', 'n', ${T}, 1)`);
    a.db.exec("UPDATE OR REPLACE items SET name = 'm' WHERE id = 'y'");
    b.manager.receive(wire(a.db));
    expect(a.all(all).map(({ id }) => id)).toEqual(['q', 'y']);
    expect(b.all(all)).toEqual(a.all(all));
  });

  const withUniqueName = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, updated_at INTEGER)';

  test('REPLACE over a row whose id is NULL does not fail because of capture', async () => {
    const it = await node({ schema: withUniqueName });
    it.db.exec("INSERT INTO items VALUES (NULL, 'n', 5)");
    it.db.exec("INSERT OR REPLACE INTO items VALUES ('x', 'n', 6)");
    expect(it.all('SELECT id, name FROM items')).toEqual([{ id: 'x', name: 'n' }]);
  });

  test('UPSERT over a row whose id is NULL does not fail because of capture', async () => {
    const it = await node({ schema: withUniqueName });
    it.db.exec("INSERT INTO items VALUES (NULL, 'n', 5)");
    it.db.exec("INSERT INTO items VALUES ('x', 'n', 6) ON CONFLICT (name) DO UPDATE SET updated_at = 7");
    expect(it.all('SELECT id, name FROM items')).toEqual([{ id: null, name: 'n' }]);
  });

  test('an insert into a table that has two looks rows up instead of walking the table', async () => {
    const it = await node({
      schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, value INTEGER UNIQUE, updated_at INTEGER)',
    });
    const triggers = it.all("SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name LIKE '%clash'");
    expect(triggers).toHaveLength(2);
    for (const { sql } of triggers) {
      const victims = /IS NOT 1\) AND EXISTS \((.*?)\) AND \(SELECT value FROM _meta/s.exec(String(sql))?.[1];
      const plan = it.all(`EXPLAIN QUERY PLAN ${victims?.replace(/(NEW|OLD)\.("\w+"|rowid)/g, "'x'")}`);
      const steps = plan.map(({ detail }) => String(detail));
      expect(steps.filter((step) => /^SCAN t\b/.test(step))).toEqual([]);
      expect(steps.filter((step) => /^SEARCH t\b/.test(step))).not.toEqual([]);
    }
  });
});

describe('the transport', () => {
  test('tries a peer again that answers 101, and stop() ends', async () => {
    const bad = await badSocket((socket) =>
      socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n'),
    );
    const a = await node({ peers: [bad.url], clock: impatient() });
    a.db.exec(`INSERT INTO items (id, updated_at) VALUES ('x', ${T})`);
    await until('the peer has been asked three times', () => bad.answered() > 2);
    await a.manager.stop();
  });

  test('takes the answer to a batch of which every change is parked, however long the reasons are', async () => {
    const long = Array.from({ length: 40 }, (_, i) => `a_rather_long_column_${i} TEXT`);
    const b = await node({ id: 'b', schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER)' });
    const url = await serveManager(b.manager);
    const schema = `CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER, ${long.join(', ')})`;
    const a = await node({ id: 'a', schema, peers: [url] });
    a.db.exec(
      'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) ' +
        `INSERT INTO items (id, updated_at) SELECT 'r' || i, ${T} FROM n`,
    );
    expect(await a.manager.flush()).toEqual({ delivered: [url], unreachable: [] });
    expect(b.manager.health()).toMatchObject({ dead_letter: 2000 });
  });

  test('does not bring the process down when the application has answered already', async () => {
    const a = await node();
    const listener = createListener(a.manager);
    const rejections: unknown[] = [];
    const note = (reason: unknown): void => {
      rejections.push(reason);
    };
    process.on('unhandledRejection', note);
    cleanUp(() => process.off('unhandledRejection', note));
    const url = await serve((request, response) => {
      listener(request, response);
      response.writeHead(503);
      response.end('too slow');
    });
    const answer = await fetch(`${url}/health`);
    expect([answer.status, await answer.text()]).toEqual([503, 'too slow']);
    await settle();
    expect(rejections).toEqual([]);
  });
});

describe('limits that attach knows', () => {
  test('a database in UTF-16 is refused, because bodies are made and read as bytes of its encoding', async () => {
    const db = await database(`PRAGMA encoding = 'UTF-16'; ${ITEMS}`);
    expect(() => attach(db, { id: 'a', peers: [] }, ['items'])).toThrow(/UTF-16/);
  });

  test('a table with more columns than a merge can handle is refused at once, not with every batch for ever', async () => {
    const columns = Array.from({ length: 1996 }, (_, i) => `c${i}`).join(', ');
    const db = await database(`CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER, ${columns})`);
    expect(() => attach(db, { id: 'a', peers: [] }, ['items'])).toThrow(/columns/);
  });
});
