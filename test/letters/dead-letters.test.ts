/** Letters about what is not here yet: which are kept, which value is filled in, and that no number of them stops a node. */
import { createRequire } from 'node:module';
import { describe, expect, test } from 'vitest';
import { betterSqlite3, lane } from '../support/lane.ts';
import { node, rowsOf } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

type Row = Record<string, unknown>;

const T = 1_700_000_000_000;
const SAID = { said: 'id=sender' };
const COLUMNS = 'id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER';

function put(id: string, at: number, more: Row = {}): Row {
  return { op: 'UPDATE', table: 'items', row: { id, name: 'n', updated_at: T + at, ...more }, old_id: null };
}

function remove(id: string, at: number): Row {
  return { op: 'DELETE', table: 'items', row: { id, updated_at: T + at }, old_id: id };
}

function batch(...changes: unknown[]): string {
  return JSON.stringify({ batch_id: 1, changes });
}

describe('a value of an unknown column is filled in', () => {
  const schema = `CREATE TABLE items (${COLUMNS})`;
  const cases: [string, unknown[][], unknown][] = [
    ['where its change stands', [[put('x', 1, { c: 9 })]], 9],
    ['where a later write did not know the column', [[put('x', 1, { c: 9 })], [put('x', 2, { name: 'b' })]], 9],
    ['where a tie was won by a change without the column', [[put('x', 1, { c: 9 })], [put('x', 1, { name: 'z' })]], 9],
    // Where the column is known, it comes before the name in the content.
    ['of a change that wins a tie by it', [[put('x', 1, { name: 'z' })], [put('x', 1, { name: 'a', c: 9 })]], 9],
    ['of the one that does', [[put('x', 1, { name: 'z', c: 8 })], [put('x', 1, { name: 'a', c: 9 })]], 9],
    ['never of a change that lost a tie', [[put('x', 1, { name: 'z', c: 9 })], [put('x', 1, { name: 'a', c: 8 })]], 9],
    ['not by arrival', [[put('x', 1, { c: 9 })], [put('x', 1, { c: 8 })]], 9],
    ['never of an older change', [[put('x', 5)], [put('x', 1, { c: 9 })]], null],
    ['of the newest change in a batch', [[put('x', 2, { c: 2 }), put('x', 3, { c: 3 }), put('x', 1, { c: 1 })]], 3],
    ['of the last of several that have won in turn', [[put('x', 1, { c: 1 }), put('x', 2, { c: 2 })]], 2],
    ['not where its sender has dropped the column since', [[put('x', 1, { c: 9 }), put('x', 2, { name: 'b' })]], null],
    ['not of a row that was deleted meanwhile', [[put('x', 1, { c: 9 })], [remove('x', 2)], [put('x', 3)]], null],
    ['of the newest, even where that is NULL', [[put('x', 1, { c: 9 })], [put('x', 2, { c: null })]], null],
    ['of a change that spoke of more columns', [[put('x', 1, { c: 9, d: 1 })], [put('x', 2, { d: 2 })]], 9],
  ];
  test.each(cases)('%s', async (_, batches, expected) => {
    const b = await node({ schema });
    for (const changes of batches) expect(b.manager.receive(batch(...changes), SAID).status).toBe(200);
    b.db.exec('ALTER TABLE items ADD COLUMN c');
    b.manager.receive(batch(), SAID);
    await b.manager.flush();
    expect(b.all("SELECT c FROM items WHERE id = 'x'")).toEqual([{ c: expected }]);
  });
});

test('there is one letter a row, and the newer version replaces the older', async () => {
  const b = await node({ schema: `CREATE TABLE items (${COLUMNS})` });
  for (let at = 1; at <= 5; at++) b.manager.receive(batch(put('x', at, { c: at }), put('y', at, { c: at })), SAID);
  b.manager.receive(batch(put('x', 9, { d: 1 })), SAID);
  expect(b.manager.health().dead_letter).toBe(2);
  const [x, y] = b.manager.deadLetters.list();
  expect(JSON.parse(x?.row ?? '')).toMatchObject({ updated_at: T + 9, c: 5, d: 1 });
  expect(JSON.parse(y?.row ?? '')).toMatchObject({ updated_at: T + 5, c: 5 });
  b.db.exec('ALTER TABLE items ADD COLUMN c; ALTER TABLE items ADD COLUMN d');
  b.manager.receive(batch(), SAID);
  expect(b.all('SELECT id, c, d FROM items ORDER BY id')).toEqual([
    { id: 'x', c: 5, d: 1 },
    { id: 'y', c: 5, d: null },
  ]);
  expect(b.manager.health().dead_letter).toBe(0);
});

describe('a change that cannot be written', () => {
  const schema =
    "CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT CHECK (name <> 'bad'), updated_at INTEGER, more TEXT DEFAULT 'none')";
  const rest = Array.from({ length: 20 }, (_, i) => put(`r${i}`, 5));

  test('is one letter, and those beside it with an unknown column are another each', async () => {
    const b = await node({ schema });
    const told: unknown[] = [];
    b.manager.on('dead-letter', ({ code, rows }) => told.push([code, rows.map(({ id }) => id)]));
    const { body } = b.manager.receive(
      batch(
        put('x', 5, { more: 'm', c: 1 }),
        put('y', 5, { name: 'bad', more: 'm', c: 2 }),
        put('x', 6, { more: 'm', c: 3 }),
      ),
      SAID,
    );
    const rejected = [0, 1, 2].map((index) => ({ index, code: index === 1 ? 'constraint' : 'unknown-column' }));
    expect(body).toMatchObject({ applied: 0, rejected });
    expect(b.manager.deadLetters.list().map(({ code, rowId }) => [code, rowId])).toEqual([
      ['unknown-column', 'x'],
      ['constraint', 'y'],
    ]);
    expect(told).toEqual([
      ['unknown-column', ['x']],
      ['constraint', ['y']],
    ]);
  });

  test('is not told to others with the rows that a node with fewer columns has brought', async () => {
    const b = await node({ schema });
    const here = ['x', 'y'].map((id) => put(id, 1, { more: 'here' }));
    b.manager.receive(batch(...here), SAID);
    const { body } = b.manager.receive(batch(put('x', 5), put('y', 5, { name: 'bad' }), ...rest), SAID);
    expect(body).toMatchObject({ applied: 21, rejected: [{ index: 1, code: 'constraint' }] });
    // Those of `rest` have nothing in the column that their sender does not know.
    expect(b.all('SELECT row_id FROM _changes')).toEqual([{ row_id: 'x' }]);
  });
});

test('a letter that the retry of another has settled is gone, and one that never was is a mistake', async () => {
  const { db, manager } = await node({ schema: `CREATE TABLE items (${COLUMNS})` });
  manager.receive(batch(put('x', 1, { c: 1 }), put('y', 1, { c: 2 })), SAID);
  const ids = manager.deadLetters.list().map(({ id }) => id);
  db.exec('ALTER TABLE items ADD COLUMN c');
  expect(ids.map((id) => manager.deadLetters.retry(id).outcome)).toEqual(['applied', 'gone']);
  for (const id of [0, -1, 3]) expect(() => manager.deadLetters.retry(id)).toThrow(`there is no dead letter ${id}`);
});

test('many letters are tried page by page when the schema has caught up, and flush waits for the last', {
  tags: 'long',
}, async () => {
  const b = await node({ schema: `CREATE TABLE items (${COLUMNS})` });
  const many = Array.from({ length: 1_000 }, (_, i) => put(`r${i}`, 1, { c: i }));
  b.manager.receive(batch(...many), SAID);
  expect(b.manager.health().dead_letter).toBe(1_000);
  b.db.exec('ALTER TABLE items ADD COLUMN c');
  b.manager.receive(batch(), SAID);
  // Not all at once: the application has its turn in between.
  expect(b.manager.health().dead_letter).toBe(800);
  await b.manager.flush();
  expect(b.manager.health().dead_letter).toBe(0);
  expect(b.all('SELECT count(*) AS n FROM items WHERE c IS NOT NULL')).toEqual([{ n: 1_000 }]);
});

test('a letter stores its change once', async () => {
  const b = await node({
    schema: `CREATE TABLE items (${COLUMNS.replace('name TEXT', 'name TEXT CHECK (length(name) < 9)')})`,
  });
  const long = 'x'.repeat(5_000);
  b.manager.receive(batch(put('x', 1, { name: long }), { ...put('y', 1, { name: long }), more: 1 }), SAID);
  expect(b.manager.deadLetters.list().map(({ code }) => code)).toEqual(['constraint', 'constraint']);
  const sizes = rowsOf(b.db, 'SELECT length(change) AS n FROM _dead_letter_info ORDER BY dead_id');
  expect(sizes).toEqual([{ n: null }, { n: expect.any(Number) }]);
  expect(sizes[1]?.n).toBeLessThan(100);
  // Tried again, it is the same letter.
  for (const { id } of b.manager.deadLetters.list()) expect(b.manager.deadLetters.retry(id).outcome).toBe('kept');
  expect(b.manager.health().dead_letter).toBe(2);
});

test('a constraint that no longer stands is tried within two seconds, however long the node was idle', {
  tags: 'long',
}, async () => {
  const clock = new VirtualClock();
  const schema =
    'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER); CREATE TABLE closed (day); ' +
    'CREATE TRIGGER shut BEFORE INSERT ON items WHEN EXISTS (SELECT 1 FROM closed) ' +
    "BEGIN SELECT RAISE(ABORT, 'closed today'); END";
  const b = await node({ schema, clock });
  await clock.advance(10 * 60_000);
  b.db.exec("INSERT INTO closed VALUES ('today')");
  b.manager.receive(batch(put('y', 1)), SAID);
  b.db.exec('DELETE FROM closed');
  expect(b.all('SELECT id FROM items')).toEqual([]);
  await clock.advance(2_000);
  expect(b.all('SELECT id FROM items')).toEqual([{ id: 'y' }]);
});

describe('a sender that is not Rowcast', () => {
  const twice = [put('x', 1, { name: 'z' }), put('x', 1, { name: 'a' })];

  test.each([
    ['as a node would send it', (changes: unknown[]) => batch(...changes)],
    ['in another form', (changes: unknown[]) => `${batch(...changes)} `],
  ])('has the later of two writes in one millisecond stand: %s', async (_, form) => {
    for (const [options, name] of [
      [{}, 'a'],
      [SAID, 'z'],
    ] as const) {
      const b = await node({ schema: `CREATE TABLE items (${COLUMNS})` });
      for (let i = 0; i < 2; i++) {
        expect(b.manager.receive(form(twice), options)).toMatchObject({ status: 200, body: { applied: 2 } });
        expect(b.all('SELECT name FROM items')).toEqual([{ name }]);
      }
    }
  });

  test('may delete a row and write it again in one millisecond', async () => {
    const b = await node({ schema: `CREATE TABLE items (${COLUMNS})` });
    b.manager.receive(batch(remove('x', 1), put('x', 1)));
    expect(b.all('SELECT id FROM items')).toEqual([{ id: 'x' }]);
  });

  test('may send more than ten thousand changes at once, but not a body of noughts', async () => {
    const b = await node({ schema: `CREATE TABLE items (${COLUMNS})` });
    const many = Array.from({ length: 10_001 }, (_, i) => put(`r${i}`, 1));
    expect(b.manager.receive(batch(...many), SAID).status).toBe(413);
    expect(b.manager.receive(batch(...many))).toMatchObject({ status: 200, body: { applied: 10_001 } });
    expect(b.manager.receive(batch(...many.map(() => 0))).status).toBe(400);
  });
});

test('letters are found where the application has a lower() of its own, which knows other alphabets', async () => {
  const { db, manager } = await node({ schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER)' });
  // bun:sqlite cannot define a function.
  (db as { function?: (name: string, lower: (text: string) => string) => void }).function?.('lower', (text) =>
    text.toLowerCase(),
  );
  const row = { id: 'a', Übel: 'x', updated_at: 1 };
  manager.applyChanges([{ op: 'INSERT', table: 'items', row } as never]);
  expect(manager.deadLetters.list()).toMatchObject([{ code: 'unknown-column' }]);
  manager.migrate('ALTER TABLE items ADD COLUMN "Übel" TEXT');
  await manager.flush();
  expect(rowsOf(db, 'SELECT "Übel" AS it FROM items')).toEqual([{ it: 'x' }]);
  expect(manager.deadLetters.list()).toEqual([]);
});

test('a page that is no number is an error that names it', async () => {
  const { manager } = await node();
  expect(() => manager.deadLetters.list({ limit: 'x' as never })).toThrow('"limit" must be a whole number, not "x"');
  expect(() => manager.deadLetters.list({ after: 1.5 })).toThrow('"after" must be a whole number, not 1.5');
});

describe('no row stops a queue', () => {
  test('a text of millions of escapes is applied', { tags: 'long' }, async () => {
    const b = await node({ schema: `CREATE TABLE items (${COLUMNS})` });
    const name = '\\n'.repeat(3_500_000);
    const body = batch(put('x', 1, { name: 'HERE' }), put('y', 1)).replace('HERE', name);
    expect(b.manager.receive(body, SAID)).toMatchObject({ status: 200, body: { applied: 2 } });
    expect(b.all("SELECT length(name) AS n FROM items WHERE id = 'x'")).toEqual([{ n: 3_500_000 }]);
  });

  test.runIf(lane === 'better-sqlite3')('a function of the application that throws costs its own row', async () => {
    const db = new (createRequire(import.meta.url)(betterSqlite3()))(':memory:');
    db.function('checked', (name: unknown) => {
      if (name === 'bad') throw new TypeError('not this one');
      return 1;
    });
    const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT CHECK (checked(name)), updated_at INTEGER)';
    db.exec(schema);
    const { attach } = await import('../../src/index.ts');
    const manager = attach(db as never, { id: 'b', peers: [] }, ['items']);
    const changes = Array.from({ length: 50 }, (_, i) => put(`r${i}`, 1, { name: i === 20 ? 'bad' : 'n' }));
    expect(manager.receive(batch(...changes), SAID)).toMatchObject({
      status: 200,
      body: { applied: 49, rejected: [{ index: 20, code: 'constraint', message: 'not this one' }] },
    });
    await manager.stop();
    db.close();
  });

  test('a trigger that is broken costs the rows of its table, and the others go on', async () => {
    const schema = `CREATE TABLE items (${COLUMNS}); CREATE TABLE notes (${COLUMNS}); CREATE TABLE gone (a);
      CREATE TRIGGER t AFTER INSERT ON items BEGIN INSERT INTO gone VALUES (1); END`;
    const clock = new VirtualClock();
    const b = await node({ schema, tables: ['items', 'notes'], clock });
    b.db.exec('DROP TABLE gone');
    const answer = b.manager.receive(batch(put('x', 1), { ...put('y', 1), table: 'notes' }), SAID);
    expect(answer).toMatchObject({ status: 200, body: { applied: 1, rejected: [{ index: 0, code: 'constraint' }] } });
    b.db.exec('CREATE TABLE gone (a)');
    await clock.advance(5_000);
    expect(b.all('SELECT id FROM items')).toEqual([{ id: 'x' }]);
    expect(b.manager.health().dead_letter).toBe(0);
  });
});

test('every batch is told, with what came of it', async () => {
  const b = await node({ schema: `CREATE TABLE items (${COLUMNS})`, clock: new VirtualClock() });
  const told: unknown[] = [];
  b.manager.on('received', (event) => told.push(event));
  const body = batch(put('x', 1), put('y', 'soon' as never));
  b.manager.receive(body, { from: 'a', ...SAID });
  b.manager.receive('{');
  expect(told).toEqual([
    { from: 'a', changes: 2, applied: 1, bytes: body.length, ms: 0, status: 200 },
    { from: undefined, changes: 0, applied: 0, bytes: 1, ms: 0, status: 400 },
  ]);
});

test.each(['before', 'after'])('a hidden row has what was said of a column that came %s it did', async (when) => {
  const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, updated_at INTEGER)';
  const { db, manager } = await node({ schema });
  manager.receive(batch(put('strong', 5), put('weak', 1, { c: 9 })), SAID);
  const codes = (): unknown[] => manager.deadLetters.list().map(({ code }) => code);
  expect(codes().sort()).toEqual(['unique', 'unknown-column']);
  const alter = (): void => {
    db.exec('ALTER TABLE items ADD COLUMN c');
    manager.receive(batch(), SAID);
  };
  if (when === 'before') alter();
  manager.receive(batch(remove('strong', 5)), SAID);
  if (when === 'after') alter();
  expect(rowsOf(db, 'SELECT id, c FROM items')).toEqual([{ id: 'weak', c: 9 }]);
  expect(codes()).toEqual([]);
});
