/** Triggers of the application without a guard fire for received rows as they would for an INSERT or UPDATE of its own. */
import { describe, expect, test } from 'vitest';
import { database, node, rowsOf, type TestNode, writeStamps } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const ITEMS = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';
const STRANGER = { op: 'DELETE', table: 'items', row: null, old_id: 'nobody' };

const put = (id: string, name: string, at: number) => ({
  op: 'UPDATE',
  table: 'items',
  row: { id, name, updated_at: T + at },
  old_id: null,
});

const log = ({ db }: TestNode): unknown[] => rowsOf(db, 'SELECT what FROM log ORDER BY what').map(({ what }) => what);
const items = ({ db }: TestNode): unknown[] =>
  rowsOf(db, 'SELECT id, name FROM items ORDER BY id').map(({ id, name }) => `${id} ${name}`);

describe.each([
  ['as sets', [] as unknown[]],
  ['beside a deletion without a row', [STRANGER]],
])('%s', (_, beside) => {
  function give({ manager }: TestNode, ...changes: unknown[]): void {
    const body = { batch_id: 1, changes: [...beside, ...changes] };
    const answer = manager.receive(JSON.stringify(body), { said: 'id=x' });
    expect(answer).toMatchObject({ status: 200, body: { ack: 1 } });
    expect(answer.body).not.toHaveProperty('rejected');
  }

  const UNIQUE = 'CREATE TABLE log (what TEXT UNIQUE)';
  const CLAUSES: [string, string, string][] = [
    ['INSERT OR IGNORE', UNIQUE, 'INSERT OR IGNORE INTO log VALUES (NEW.name)'],
    ['OR and a comment', UNIQUE, 'INSERT OR -- twice\n IGNORE INTO log VALUES (NEW.name)'],
    ['REPLACE', UNIQUE, 'REPLACE INTO log VALUES (NEW.name)'],
    ['UPDATE OR REPLACE', UNIQUE, "INSERT INTO log VALUES (''); UPDATE OR REPLACE log SET what = NEW.name"],
    [
      'a table that says so itself',
      'CREATE TABLE log (what TEXT UNIQUE ON CONFLICT IGNORE)',
      'INSERT INTO log VALUES (NEW.name)',
    ],
    [
      'a trigger that it fires',
      'CREATE TABLE log (what TEXT); CREATE TABLE once (w TEXT UNIQUE); ' +
        "CREATE TRIGGER next AFTER INSERT ON log BEGIN INSERT OR IGNORE INTO once VALUES ('w'); END",
      'INSERT INTO log SELECT NEW.name WHERE NEW.name NOT IN (SELECT what FROM log)',
    ],
  ];
  test.each(CLAUSES)('what a trigger says of conflicts counts: %s', async (_what, logs, body) => {
    const of = (event: string): string => `CREATE TRIGGER on_${event} AFTER ${event} ON items BEGIN ${body}; END;`;
    const one = await node({ schema: `${ITEMS}; ${logs}; ${of('INSERT')} ${of('UPDATE')}` });
    give(one, put('a', 'x', 1), put('b', 'x', 1));
    expect(log(one)).toEqual(['x']);
    give(one, put('a', 'y', 2), put('b', 'y', 2), put('c', 'y', 2));
    expect(items(one)).toEqual(['a y', 'b y', 'c y']);
    expect(log(one)).toContain('y');
  });

  const EVENTS = ['BEFORE INSERT', 'AFTER INSERT', 'BEFORE UPDATE', 'AFTER UPDATE', 'AFTER UPDATE OF id'];
  const watched = async (more = '') => {
    const triggers = EVENTS.map(
      (event, i) =>
        `CREATE TRIGGER t${i} ${event} ON items BEGIN INSERT INTO log VALUES ('${event} ' || NEW.id || NEW.name); END;`,
    );
    return node({ schema: `${ITEMS}; CREATE TABLE log (what TEXT); ${triggers.join(' ')} ${more}` });
  };

  test('an insert fires what an INSERT fires, an update what an UPDATE does, and what is stale nothing', async () => {
    const one = await watched();
    give(one, put('a', 'x', 1), put('b', 'x', 1));
    expect(log(one)).toEqual(['AFTER INSERT ax', 'AFTER INSERT bx', 'BEFORE INSERT ax', 'BEFORE INSERT bx']);
    one.db.exec('DELETE FROM log');
    give(one, put('a', 'old', 0), put('b', 'y', 2), put('c', 'z', 2));
    expect(log(one)).toEqual(['AFTER INSERT cz', 'AFTER UPDATE by', 'BEFORE INSERT cz', 'BEFORE UPDATE by']);
    one.db.exec('DELETE FROM log');
    give(one, put('a', 'x', 1), put('b', 'y', 2), put('c', 'z', 2));
    expect(log(one)).toEqual([]);
  });

  test('of several changes to one row they see the newest alone', async () => {
    const one = await watched();
    give(one, put('a', 'two', 2), put('a', 'three', 3), put('a', 'one', 1));
    expect(log(one)).toEqual(['AFTER INSERT athree', 'BEFORE INSERT athree']);
    one.db.exec('DELETE FROM log');
    give(one, put('a', 'old', 1), put('a', 'five', 5), put('a', 'four', 4));
    expect(log(one)).toEqual(['AFTER UPDATE afive', 'BEFORE UPDATE afive']);
    expect(items(one)).toEqual(['a five']);
  });

  test.each([
    ['in one order', ['m', 'z', 'b']],
    ['in another', ['z', 'b', 'm']],
  ])('two of one time: the greater content is what stands, %s', async (_order, names) => {
    const one = await watched();
    give(one, ...names.map((name) => put('a', name, 5)));
    expect(items(one)).toEqual(['a z']);
    give(one, ...names.map((name) => put('a', `${name}${name}`, 6)), put('a', 'older', 4));
    expect(items(one)).toEqual(['a zz']);
  });

  test('a row that a trigger makes or takes away while others are updated becomes what was received', async () => {
    const one = await watched(
      "CREATE TRIGGER odd AFTER UPDATE ON items WHEN NEW.id = 'a' BEGIN " +
        "INSERT INTO items VALUES ('made', 'by a trigger', 1); DELETE FROM items WHERE id = 'z'; END",
    );
    give(one, put('a', 'x', 1), put('z', 'x', 1));
    give(one, put('a', 'y', 2), put('made', 'y', 2), put('z', 'y', 2));
    expect(items(one)).toEqual(['a y', 'made y', 'z y']);
  });

  test('a deletion and a row that one of these brings back: what is below the tombstone stays out', async () => {
    const one = await watched(
      `CREATE TRIGGER back AFTER DELETE ON items BEGIN INSERT INTO items VALUES (OLD.id, 'back', ${T}); END`,
    );
    give(one, put('a', 'x', 1));
    give(one, { op: 'DELETE', table: 'items', row: { id: 'a', updated_at: T + 5 }, old_id: 'a' }, put('a', 'y', 3));
    expect(items(one)).toEqual(['a back']);
    give(one, put('a', 'z', 6));
    expect(items(one)).toEqual(['a z']);
  });
});

test('a hidden row that comes back, and one that is refused by itself', async () => {
  const one = await node({
    schema:
      'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE CHECK (length(name) < 9), updated_at INTEGER); ' +
      "CREATE TABLE log (what TEXT UNIQUE); CREATE TRIGGER t BEFORE INSERT ON items BEGIN INSERT OR IGNORE INTO log VALUES ('seen'); END",
  });
  const give = (...changes: unknown[]) =>
    one.manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=x' }).body;
  give(put('a', 'x', 1), put('b', 'x', 2), put('c', 'far too long', 2), put('d', 'd', 3));
  expect(items(one)).toEqual(['b x', 'd d']);
  give({ op: 'DELETE', table: 'items', row: { id: 'b', updated_at: T + 5 }, old_id: 'b' });
  expect(items(one)).toEqual(['a x', 'd d']);
  expect(one.manager.deadLetters.list()).toMatchObject([{ code: 'constraint', rowId: 'c' }]);
});

test('where the table itself says ON CONFLICT, that removes no row, and counts for its triggers', async () => {
  const one = await node({
    schema:
      'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE ON CONFLICT REPLACE, updated_at INTEGER); ' +
      'CREATE TABLE log (what TEXT UNIQUE); CREATE TRIGGER t AFTER INSERT ON items BEGIN INSERT OR IGNORE INTO log VALUES (1); END',
  });
  const give = (...changes: unknown[]) =>
    one.manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=x' }).body;
  give(put('a', 'x', 1));
  expect(give(put('b', 'x', 2))).toMatchObject({ ack: 1 });
  expect(
    rowsOf(one.db, 'SELECT count(*) AS n FROM (SELECT id FROM items UNION ALL SELECT row_id FROM _hidden)'),
  ).toEqual([{ n: 2 }]);
});

test('a version is written into its row though triggers count on OR IGNORE and another constraint says ON CONFLICT', async () => {
  const one = await node({
    schema:
      'CREATE TABLE items (id TEXT PRIMARY KEY ON CONFLICT IGNORE, name TEXT UNIQUE ON CONFLICT REPLACE, updated_at INTEGER); ' +
      'CREATE TABLE log (what TEXT UNIQUE); CREATE TRIGGER t AFTER UPDATE ON items BEGIN INSERT OR IGNORE INTO log VALUES (1); END',
  });
  one.db.exec("INSERT INTO items (id, name) VALUES ('a', 'x'), ('b', 'y')");
  writeStamps(one.manager);
  expect(rowsOf(one.db, 'SELECT id FROM items WHERE updated_at IS NULL')).toEqual([]);
  expect(rowsOf(one.db, 'SELECT * FROM _stamps')).toEqual([]);
});

test('a key that says ON CONFLICT itself removes and keeps out nothing, and leaves triggers their own clauses', async () => {
  for (const key of ['id TEXT PRIMARY KEY ON CONFLICT', 'id TEXT, PRIMARY KEY (id) /* the key */ ON CONFLICT']) {
    for (const clause of ['REPLACE', 'IGNORE', 'ROLLBACK', 'FAIL']) {
      const columns = key.includes(',')
        ? `${key.replace(',', ', name TEXT, updated_at INTEGER,')} ${clause}`
        : `${key} ${clause}, name TEXT, updated_at INTEGER`;
      const one = await node({
        schema:
          `CREATE TABLE items (${columns}); CREATE TABLE log (what TEXT UNIQUE); ` +
          ['INSERT', 'UPDATE', 'DELETE']
            .map(
              (e) => `CREATE TRIGGER t_${e} AFTER ${e} ON items BEGIN INSERT OR IGNORE INTO log VALUES ('${e}'); END;`,
            )
            .join(' '),
      });
      const give = (...changes: unknown[]) =>
        one.manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=x' }).body;
      expect(give(put('a', 'x', 1), put('b', 'x', 1))).toEqual({ applied: 2, ack: 1 });
      expect(give(put('a', 'y', 2), put('c', 'y', 2), put('b', 'old', 0), put('c', 'z', 2))).toMatchObject({ ack: 1 });
      expect(items(one)).toEqual(['a y', 'b x', 'c z']);
      expect(log(one)).toEqual(['INSERT', 'UPDATE']);
    }
  }
});

const HAS_FTS5 = rowsOf(await database('SELECT 1'), "SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").length > 0;

/** The manual's own triggers, without the 'rebuild' that it asks for where there are rows already. */
test.skipIf(!HAS_FTS5)(
  'a full-text index that lacks a row keeps out what is about that row, and nothing is damaged',
  async () => {
    const one = await node({ schema: ITEMS });
    one.db.exec(`INSERT INTO items VALUES ('a', 'old', ${T})`);
    one.db.exec("CREATE VIRTUAL TABLE found USING fts5(name, content='items', content_rowid='rowid')");
    const gone = "INSERT INTO found (found, rowid, name) VALUES ('delete', old.rowid, old.name);";
    const come = 'INSERT INTO found (rowid, name) VALUES (new.rowid, new.name);';
    for (const [event, body] of [
      ['INSERT', come],
      ['DELETE', gone],
      ['UPDATE', gone + come],
    ]) {
      one.db.exec(`CREATE TRIGGER on_${event} AFTER ${event} ON items BEGIN ${body} END`);
    }
    const give = (...changes: unknown[]) =>
      one.manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=x' });
    const answer = give(put('a', 'new', 1), put('b', 'other', 1));
    expect(answer).toMatchObject({ status: 200, body: { rejected: [{ index: 0, code: 'constraint' }] } });
    expect(items(one)).toEqual(['a old', 'b other']);
    expect(one.manager.health()).toMatchObject({ ok: true, dead_letter: 1 });
    one.db.exec("INSERT INTO found (found) VALUES ('rebuild')");
    const [letter] = one.manager.deadLetters.list();
    expect(one.manager.deadLetters.retry(letter?.id ?? 0)).toMatchObject({ outcome: 'applied' });
    expect(items(one)).toEqual(['a new', 'b other']);
  },
);
