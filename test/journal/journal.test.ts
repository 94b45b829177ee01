/** The conflict journal: what is noted, what is not, and what can be done with it. */
import { describe, expect, test } from 'vitest';
import { attach, type RowcastEvents } from '../../src/index.ts';
import { Cluster } from '../support/cluster.ts';
import { attached, captured, cleanUp, database, node, rowsOf, type TestNode, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

type Row = Record<string, unknown>;

function update(id: string, version: number, base: number | undefined, extra: Row = {}): Row {
  const row = { id, name: 'theirs', value: 2, created_at: 1, updated_at: version, ...extra };
  return { op: 'UPDATE', table: 'items', row, old_id: null, ...(base !== undefined && { base }) };
}

function receive({ manager }: Pick<TestNode, 'manager'>, ...changes: Row[]): void {
  const { status, body } = manager.receive(JSON.stringify({ batch_id: 1, changes }), { from: 'b', said: 'id=b' });
  expect({ status, body }).toMatchObject({ status: 200 });
}

/** A node with one row, written here at 100 and again at 200. */
async function withEdit(options: Parameters<typeof node>[0] = {}): Promise<TestNode> {
  const it = await node(options);
  it.db.exec("INSERT INTO items (id, name, value, created_at, updated_at) VALUES ('r', 'first', 1, 1, 100)");
  it.db.exec("UPDATE items SET name = 'mine', updated_at = 200 WHERE id = 'r'");
  return it;
}

/** Both ways through a batch; white space in a body is what the fast one does not read. */
const WAYS = { fast: (text: string) => text, careful: (text: string) => text.replace('"changes":', '"changes": ') };

test('a deletion of a row that another hides by now is not restored without a word', async () => {
  const it = await withEdit({
    schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, value, created_at, updated_at INTEGER)',
  });
  it.db.exec("DELETE FROM items WHERE id = 'r'");
  receive(it, update('r', 300, 100, { name: 'taken' }));
  receive(it, update('stronger', 400, undefined, { name: 'taken' }));
  expect(it.manager.conflicts.get(1)).toMatchObject({ lost: null, current: { name: 'taken' } });
  expect(it.all('SELECT id FROM items')).toEqual([{ id: 'stronger' }]);
  expect(() => it.manager.conflicts.restore(1)).toThrow(/hides this one/);
  it.db.exec("DELETE FROM items WHERE id = 'stronger'");
  await until('it is back', () => it.all('SELECT id FROM items').length === 1);
  it.manager.conflicts.restore(1);
  expect(it.all('SELECT id FROM items')).toEqual([]);
});

describe.each(Object.entries(WAYS))('the %s way', (_, spelt) => {
  function bring({ manager }: TestNode, ...changes: Row[]): void {
    const body = spelt(JSON.stringify({ batch_id: 1, changes }));
    expect(manager.receive(body, { from: 'b', said: 'id=b' })).toMatchObject({ status: 200 });
  }

  test('an edit that was not seen by the one that replaces it is kept, with its row', async () => {
    const it = await withEdit();
    const events: RowcastEvents['conflict'][] = [];
    it.manager.on('conflict', (one) => events.push(one));
    bring(it, update('r', 300, 100));
    const told = { conflictId: 1, table: 'items', id: 'r', lostVersion: 200, wonVersion: 300 };
    expect(events).toEqual([{ ...told, from: 'b' }]);
    expect(it.manager.conflicts.list()).toEqual([
      { ...told, at: expect.any(Number), lostBy: 'self', wonBy: 'b', base: 100 },
    ]);
    expect(it.manager.conflicts.get(1)).toMatchObject({
      lost: { id: 'r', name: 'mine', value: 1, created_at: 1, updated_at: 200 },
      current: { id: 'r', name: 'theirs', value: 2, updated_at: 300 },
      columns: ['name', 'value'],
    });
  });

  test('one that was seen is not, nor one that stays, nor one without a word of what it has seen', async () => {
    const it = await withEdit();
    bring(it, update('r', 150, 100));
    bring(it, update('r', 300, 200));
    bring(it, update('r', 400, 350), update('r', 500, undefined));
    bring(it, update('r', 500, 450), update('other', 600, 100));
    expect(it.manager.conflicts.list()).toEqual([]);
  });

  test('of two edits of one time the one that loses by its content is kept, and the same one again is none', async () => {
    const it = await withEdit();
    bring(it, update('r', 200, 100, { name: 'zzz', value: 1 }));
    expect(it.manager.conflicts.list()).toMatchObject([{ lostVersion: 200, wonVersion: 200 }]);
    bring(it, update('r', 200, 100, { name: 'zzz', value: 1 }));
    bring(it, update('r', 200, 100, { name: 'aaa', value: 1 }));
    expect(it.manager.conflicts.list()).toHaveLength(1);
  });

  test('a deletion that loses to an update of what it deleted is kept, and one that was seen is not', async () => {
    const it = await withEdit();
    it.db.exec("DELETE FROM items WHERE id = 'r'");
    bring(it, update('r', 300, 100));
    expect(it.manager.conflicts.get(1)).toMatchObject({ lost: null, lostVersion: 200, wonVersion: 300, columns: [] });
    it.db.exec("DELETE FROM items WHERE id = 'r'");
    bring(it, update('r', 500, 400));
    expect(it.manager.conflicts.list()).toHaveLength(1);
  });

  test('several changes of one row in one batch are one conflict', async () => {
    const it = await withEdit();
    bring(it, update('r', 150, 100), update('r', 300, 150), update('r', 400, 300));
    expect(it.manager.conflicts.list()).toMatchObject([{ wonVersion: 300, base: 150 }]);
  });

  test('what is lost to an update and then deleted, in one batch, is kept', async () => {
    const it = await withEdit();
    const gone = { id: 'r', updated_at: 300 };
    bring(it, update('r', 300, 100), { op: 'DELETE', table: 'items', row: gone, old_id: 'r' });
    expect(it.all('SELECT * FROM items')).toEqual([]);
    expect(it.manager.conflicts.get(1)).toMatchObject({ lost: { name: 'mine' }, current: null });
  });

  test('an update that the application refuses has replaced nothing', async () => {
    const it = await withEdit();
    it.db.exec(
      "CREATE TRIGGER no BEFORE UPDATE ON items WHEN NEW.name = 'theirs' BEGIN SELECT RAISE(ABORT, 'no'); END",
    );
    bring(it, update('r', 300, 100));
    expect(it.manager.deadLetters.list()).toHaveLength(1);
    it.db.exec('DROP TRIGGER no');
    it.db.exec("CREATE TRIGGER no BEFORE UPDATE ON items WHEN NEW.name = 'theirs' BEGIN SELECT RAISE(IGNORE); END");
    bring(it, update('r', 301, 100));
    expect(it.manager.conflicts.list()).toEqual([]);
    it.db.exec('DROP TRIGGER no');
    it.manager.deadLetters.retry(1);
    expect(it.manager.conflicts.list()).toMatchObject([{ lostVersion: 200, wonVersion: 300 }]);
  });
});

describe('what a change has seen', () => {
  const bases = (it: TestNode): unknown[] =>
    rowsOf(it.db, 'SELECT base FROM _changes ORDER BY change_id').map((r) => r.base);

  test('is the version of the row before, of updates alone', async () => {
    const it = await withEdit();
    it.db.exec("INSERT INTO items (id, updated_at) VALUES ('r', 250) ON CONFLICT DO UPDATE SET updated_at = 300");
    it.db.exec("INSERT OR REPLACE INTO items (id, updated_at) VALUES ('r', 400)");
    it.db.exec("DELETE FROM items WHERE id = 'r'");
    expect(bases(it)).toEqual([null, 100, 200, null, null]);
  });

  test('counts a stamp that is not yet in the row', async () => {
    const it = await node();
    it.db.exec(`BEGIN; INSERT INTO items (id, name, updated_at) VALUES ('r', 'a', 5000);
      UPDATE items SET name = 'b'; UPDATE items SET name = 'c', updated_at = 10; UPDATE items SET updated_at = 7000000000000; COMMIT`);
    const versions = captured(it.db).map(({ row }) => row.updated_at);
    expect(bases(it).slice(1)).toEqual(versions.slice(0, -1));
  });

  test('is nothing where the row had another id', async () => {
    const it = await withEdit();
    it.db.exec("UPDATE items SET id = 'q', updated_at = 300");
    it.db.exec("UPDATE items SET id = 'p'");
    expect(captured(it.db).flatMap(({ op }, i) => (op === 'UPDATE' ? [bases(it)[i]] : []))).toEqual([100, null, null]);
  });

  test('is told among Rowcast nodes, and not among plain peers alone', async () => {
    const cluster = new Cluster();
    const bodies = new Map<string, string[]>();
    const plain = (name: string): void => {
      const got: string[] = [];
      bodies.set(name, got);
      const receive = (body: string | Uint8Array) => {
        got.push(Buffer.from(body as Uint8Array).toString());
        return { status: 200, headers: {}, body: { applied: 1, ack: JSON.parse(got.at(-1) as string).batch_id } };
      };
      cluster.at.set(cluster.url(name), { receive } as never);
    };
    plain('plain');
    const a = await cluster.node('a', ['b']);
    await cluster.node('b', ['a']);
    const c = await cluster.node('c', ['plain']);
    for (const { db, manager } of [a, c]) {
      db.exec("INSERT INTO items VALUES ('r', 'first', 1, 1, 100)");
      await manager.flush();
      db.exec("UPDATE items SET name = 'second', updated_at = 200");
      await manager.flush();
    }
    const sent = cluster.requests.filter(({ url }) => url.startsWith(cluster.url('b'))).map(({ body }) => body);
    expect(sent.join()).toContain('"old_id":null,"base":100}');
    expect(bodies.get('plain')?.join()).toContain('second');
    expect(bodies.get('plain')?.join()).not.toContain('base');
  });
});

test('a database of an earlier build gets the column, and its changes stay where they are', async () => {
  const db = await database();
  const earlier = attach(db, { id: 'a', peers: [] }, ['items']);
  db.exec("INSERT INTO items VALUES ('r', 'first', 1, 1, 100)");
  await earlier.detach();
  const changes = rowsOf(db, 'SELECT change_id, op, table_name, row_id, row_data FROM _changes');
  db.exec('ALTER TABLE _changes DROP COLUMN base; DROP TABLE _conflicts');
  const now = attached(db);
  expect(rowsOf(db, 'SELECT change_id, op, table_name, row_id, row_data FROM _changes')).toEqual(changes);
  db.exec("UPDATE items SET updated_at = 200 WHERE id = 'r'");
  expect(rowsOf(db, 'SELECT base FROM _changes ORDER BY change_id DESC LIMIT 1')).toEqual([{ base: 100 }]);
  expect(now.conflicts.list()).toEqual([]);
});

describe('the ring', () => {
  const clash = async (it: TestNode, i: number): Promise<void> => {
    it.db.exec(`INSERT OR REPLACE INTO items VALUES ('r${i}', '${'x'.repeat(500)}', 1, 1, 200)`);
    receive(it, update(`r${i}`, 300, 100));
  };

  test('keeps the latest', async () => {
    const it = await node({ conflicts: { keep: 3 } });
    for (let i = 0; i < 5; i++) await clash(it, i);
    expect(it.manager.conflicts.list().map(({ id }) => id)).toEqual(['r2', 'r3', 'r4']);
    it.manager.conflicts.dismiss(5);
    await clash(it, 9);
    expect(it.manager.conflicts.list().at(-1)).toMatchObject({ conflictId: 6, id: 'r9' });
  });

  test('whoever overwrites most makes room for it, and the others keep theirs', { tags: 'long' }, async () => {
    for (const conflicts of [{ keep: 20 }, { bytes: 12_000 }]) {
      const it = await node({ conflicts });
      await clash(it, 0);
      const flood = Array.from({ length: 200 }, (_, i) => update(`f${i}`, 300, 100));
      for (let round = 0; round < 4; round++) {
        const some = flood.slice(50 * round, 50 * round + 50);
        for (const { row } of some as { row: { id: string } }[]) {
          it.db.exec(`INSERT INTO items VALUES ('${row.id}', '${'x'.repeat(500)}', 1, 1, 200)`);
        }
        it.manager.receive(JSON.stringify({ batch_id: 1, changes: some }), { from: 'loud', said: 'id=loud' });
      }
      await clash(it, 1);
      const kept = it.manager.conflicts.list().map(({ id }) => id);
      expect(kept).toEqual(expect.arrayContaining(['r0', 'r1', 'f199']));
      expect(kept.length).toBeLessThanOrEqual(20);
      expect(kept.length).toBeGreaterThan(10);
    }
  });

  test('of so many bytes, also where somebody else has written to it', async () => {
    const it = await node({ conflicts: { bytes: 4_000 } });
    for (let i = 0; i < 20; i++) await clash(it, i);
    const size = (): number => Number(rowsOf(it.db, 'SELECT sum(length(lost_row)) AS n FROM _conflicts')[0]?.n);
    expect(size()).toBeGreaterThan(1_000);
    expect(size()).toBeLessThan(4_000);
    expect(it.manager.conflicts.list().at(-1)?.id).toBe('r19');
  });

  test('for so long, give or take the hour after which it is looked again', async () => {
    const { it, kept, run } = await aging('2h');
    await clash(it, 1);
    await run(HOUR);
    await clash(it, 2);
    await run(2 * HOUR);
    await clash(it, 3);
    expect(kept()).toEqual(['r2', 'r3']);
  });

  test('not by a clock that is a year ahead for a while; by one that has run on for an hour, it is', async () => {
    const { it, clock, kept, run } = await aging('2h');
    await clash(it, 1);
    await clock.jump(365 * 24 * HOUR);
    await run(HOUR / 2);
    await clash(it, 2);
    expect(kept()).toEqual(['r1', 'r2']);
    // What was noted meanwhile does not stay for a year.
    clock.setBack(365 * 24 * HOUR);
    await run(2.5 * HOUR);
    expect(kept()).toEqual(['r2']);
    await run(3 * HOUR);
    expect(kept()).toEqual([]);
    // A machine that has slept for a year.
    await clash(it, 3);
    await clock.jump(365 * 24 * HOUR);
    await run(2 * HOUR);
    expect(kept()).toEqual([]);
  });

  test('is off on request, also while it runs', async () => {
    const it = await node({ conflicts: false });
    await clash(it, 1);
    expect(it.manager.conflicts.list()).toEqual([]);
    it.manager.configure({ conflicts: {} });
    await clash(it, 2);
    it.manager.configure({ conflicts: false });
    await clash(it, 3);
    expect(it.manager.conflicts.list().map(({ id }) => id)).toEqual(['r2']);
  });

  test.each([
    [true, /"conflicts" must be an object/],
    [{ keeep: 1 }, /no "keeep"; did you mean keep/],
    [{ keep: 0 }, /"conflicts.keep" must be an integer from 1/],
    [{ age: 'soon' }, /"conflicts.age" must be a time/],
  ])('a wrong option %j says what is wrong', async (conflicts, message) => {
    await expect(node({ conflicts: conflicts as never })).rejects.toThrow(message);
  });
});

describe('restoring', () => {
  async function lost(): Promise<TestNode> {
    const it = await withEdit();
    receive(it, update('r', 300, 100));
    return it;
  }

  test('writes the values that lost as an ordinary write', async () => {
    const it = await lost();
    expect(it.manager.conflicts.restore(1)).toEqual({ columns: ['name', 'value'] });
    const [row] = it.all('SELECT * FROM items');
    expect(row).toMatchObject({ name: 'mine', value: 1 });
    expect(row?.updated_at).toBeGreaterThan(300);
    const last = captured(it.db).at(-1);
    expect(last).toMatchObject({ op: 'UPDATE', row: { name: 'mine', updated_at: row?.updated_at } });
    expect(rowsOf(it.db, 'SELECT base FROM _changes ORDER BY change_id DESC LIMIT 1')).toEqual([{ base: 300 }]);
    expect(it.manager.conflicts.restore(1)).toEqual({ columns: [] });
    it.manager.conflicts.dismiss(1);
    expect(() => it.manager.conflicts.dismiss(1)).toThrow(/no conflict 1/);
  });

  test('or some of them', async () => {
    const it = await lost();
    it.manager.conflicts.restore(1, { columns: ['value'] });
    expect(it.all('SELECT name, value FROM items')).toEqual([{ name: 'theirs', value: 1 }]);
  });

  test.each(['is there', 'is gone'])('keeps the type of each value, where the row %s', async (where) => {
    const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, name, value, created_at NUMERIC, updated_at INTEGER)';
    const it = await withEdit({ schema });
    it.db.exec("UPDATE items SET name = 1.0, value = 9007199254740993, created_at = '1e300', updated_at = 250");
    const types = 'SELECT quote(name), quote(value), quote(created_at), typeof(name) FROM items';
    const before = it.all(types);
    expect(before[0]).toMatchObject({ 'typeof(name)': 'real' });
    receive(it, update('r', 300, 100));
    if (where === 'is gone') it.db.exec("DELETE FROM items WHERE id = 'r'");
    it.manager.conflicts.restore(1);
    expect(it.all(types)).toEqual(before);
  });

  test('of a row that is gone, all of them; of a deletion, deletes', async () => {
    const it = await lost();
    it.db.exec("DELETE FROM items WHERE id = 'r'");
    expect(() => it.manager.conflicts.restore(1, { columns: ['name'] })).toThrow(/not there any more/);
    it.manager.conflicts.restore(1);
    expect(it.all('SELECT id, name FROM items')).toEqual([{ id: 'r', name: 'mine' }]);
    it.db.exec("DELETE FROM items WHERE id = 'r'");
    const [tombstone] = rowsOf(it.db, 'SELECT version FROM _tombstones');
    receive(it, update('r', Number(tombstone?.version) + 5, 300));
    expect(it.manager.conflicts.get(2)).toMatchObject({ lost: null });
    it.manager.conflicts.restore(2);
    expect(it.all('SELECT id FROM items')).toEqual([]);
  });

  test.each([
    [['nonesuch'], /no column "nonesuch"/],
    [['id'], /cannot be restored/],
    [['updated_at'], /cannot be restored/],
    [[], /not an empty one/],
    ['name', /array of names/],
  ])('columns %j change nothing and say what is wrong', async (columns, message) => {
    const it = await lost();
    expect(() => it.manager.conflicts.restore(1, { columns: columns as never })).toThrow(message);
    expect(it.all('SELECT name FROM items')).toEqual([{ name: 'theirs' }]);
  });

  test('what the table refuses is told, and nothing is changed', async () => {
    const it = await lost();
    it.db.exec("CREATE TRIGGER no BEFORE UPDATE ON items BEGIN SELECT RAISE(ABORT, 'read only today'); END");
    expect(() => it.manager.conflicts.restore(1)).toThrow(/conflict 1 cannot be restored.*read only today/);
    expect(() => it.manager.conflicts.restore(7)).toThrow(/no conflict 7/);
  });

  test.each(['is there', 'is gone'])('what a trigger ignores is told as well, where the row %s', async (where) => {
    const it = await lost();
    if (where === 'is gone') it.db.exec("DELETE FROM items WHERE id = 'r'");
    const before = it.all('SELECT name FROM items');
    for (const event of ['INSERT', 'UPDATE']) {
      it.db.exec(`CREATE TRIGGER no_${event} BEFORE ${event} ON items BEGIN SELECT RAISE(IGNORE); END`);
    }
    receive(it);
    expect(() => it.manager.conflicts.restore(1)).toThrow(/conflict 1 cannot be restored.*RAISE\(IGNORE\)/);
    expect(it.all('SELECT name FROM items')).toEqual(before);
  });

  test('values that JSON cannot carry come back as they were', async () => {
    const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, any, big INTEGER, text TEXT, updated_at INTEGER)';
    const it = await node({ schema });
    it.db.exec("INSERT INTO items VALUES ('r', x'00ff', 9007199254740993, '$blob:no', 200)");
    const row = { id: 'r', any: 1, big: 2, text: 'x', updated_at: 300 };
    receive(it, { op: 'UPDATE', table: 'items', row, old_id: null, base: 100 });
    it.manager.conflicts.restore(1);
    expect(it.all('SELECT hex(any) AS any, typeof(any) AS t, CAST(big AS TEXT) AS big, text FROM items')).toEqual([
      { any: '00FF', t: 'blob', big: '9007199254740993', text: '$blob:no' },
    ]);
  });
});

test('by two nodes that write at the same time, on the one that lost', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b']);
  const b = await cluster.node('b', ['a']);
  a.db.exec("INSERT INTO items VALUES ('r', 'first', 1, 1, 100)");
  b.db.exec("INSERT INTO items VALUES ('of b', 'first', 1, 1, 100)");
  await a.manager.flush();
  await b.manager.flush();
  cluster.cut.add(cluster.url('a')).add(cluster.url('b'));
  a.db.exec("UPDATE items SET name = 'of a', updated_at = 200 WHERE id = 'r'");
  b.db.exec("UPDATE items SET name = 'of b', updated_at = 300 WHERE id = 'r'");
  cluster.cut.clear();
  await Promise.all([a.manager.flush(), b.manager.flush()]);
  await Promise.all([a.manager.flush(), b.manager.flush()]);
  expect(a.manager.conflicts.list()).toMatchObject([{ lostBy: 'self', lostVersion: 200, wonBy: 'b', wonVersion: 300 }]);
  expect(b.manager.conflicts.list()).toEqual([]);
  cleanUp(() => {});
});

test.each([1, 3])(
  "is told of a peer's first batch, which comes with its %d. request: it asks whom it sends to before",
  async (n) => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b']);
    // It looks for changes when it is told to, and has asked nobody by then.
    const b = await cluster.node('b', ['a'], { batchMs: 1_000_000 });
    a.db.exec("INSERT INTO items VALUES ('r', 'first', 1, 1, 100)");
    await a.manager.flush();
    await a.manager.peers.pause(cluster.url('b'));
    a.db.exec("UPDATE items SET name = 'of a', updated_at = 200");
    b.db.exec("UPDATE items SET name = 'of b', updated_at = 300");
    const toA = (): unknown[] => cluster.requests.filter(({ url }) => url.startsWith(cluster.url('a')));
    expect(toA()).toEqual([]);
    cluster.cut.add(cluster.url('a'));
    cluster.proxy = () => {
      if (toA().length === n) cluster.cut.clear();
      return undefined;
    };
    await b.manager.flush();
    expect(a.manager.conflicts.list()).toMatchObject([{ lostVersion: 200, wonBy: 'b', wonVersion: 300, base: 100 }]);
  },
);

const HOUR = 3_600_000;

interface Growing {
  it: TestNode;
  clock: VirtualClock;
  kept(): string[];
  run(ms: number): Promise<void>;
}

/** A node whose journal is kept for that long, and time that passes for it. */
async function aging(age: string): Promise<Growing> {
  const clock = new VirtualClock();
  const it = await node({ conflicts: { age }, clock });
  const run = async (ms: number): Promise<void> => {
    for (let left = ms; left > 0; left -= HOUR / 12) await clock.jump(Math.min(left, HOUR / 12));
  };
  return { it, clock, kept: () => it.manager.conflicts.list().map(({ id }) => id), run };
}
