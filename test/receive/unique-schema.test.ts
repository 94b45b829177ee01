/** UNIQUE constraints and the schema: what becomes of hidden rows when it changes, and declarations that are hard to read. */
import { describe, expect, test } from 'vitest';
import type { Change } from '../../src/index.ts';
import { node, rowsOf, type TestNode } from '../support/nodes.ts';

const T = 1_700_000_000_000;

const put = (id: string, at: number, email: string, more: Record<string, unknown> = {}): Change => ({
  op: 'INSERT',
  table: 'users',
  row: { id, email, ...more, updated_at: T + at },
  old_id: null,
});
const gone = (id: string, at: number): Change => ({
  op: 'DELETE',
  table: 'users',
  row: { id, updated_at: T + at },
  old_id: id,
});

const INDEXED = 'CREATE TABLE users (id TEXT PRIMARY KEY, email TEXT, updated_at INTEGER)';
const users = (schema: string) => node({ schema, tables: ['users'] });

function give({ manager }: TestNode, ...changes: Change[]): void {
  const { status, body } = manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=x' });
  expect(body).not.toHaveProperty('error');
  expect(status).toBe(200);
}

const visible = ({ db }: TestNode): unknown[] => rowsOf(db, 'SELECT id FROM users ORDER BY id').map(({ id }) => id);
const hidden = ({ db }: TestNode): unknown[] => rowsOf(db, 'SELECT row_id AS id FROM _hidden').map(({ id }) => id);
const letters = ({ manager }: TestNode): unknown[] =>
  manager.deadLetters.list().map(({ code, rowId }) => [code, rowId]);

describe('the constraint goes while a row is hidden by it', () => {
  const indexed = () => users(`${INDEXED}; CREATE UNIQUE INDEX emails ON users (email)`);

  test('with the next batch the row comes back before anything is compared with it', async () => {
    const a = await indexed();
    give(a, put('ann', 5, 'x'), put('bob', 9, 'x'));
    expect(hidden(a)).toEqual(['ann']);
    a.db.exec('DROP INDEX emails');
    give(a, put('ann', 1, 'an older version'), put('cid', 1, 'x'));
    expect(rowsOf(a.db, 'SELECT id, email FROM users ORDER BY id')).toEqual([
      { id: 'ann', email: 'x' },
      { id: 'bob', email: 'x' },
      { id: 'cid', email: 'x' },
    ]);
    expect([hidden(a), letters(a)]).toEqual([[], []]);
  });

  test('and without one, by itself', async () => {
    const a = await indexed();
    give(a, put('ann', 5, 'x'), put('bob', 9, 'x'));
    a.db.exec('DROP INDEX emails');
    await expect.poll(() => visible(a)).toEqual(['ann', 'bob']);
    expect([hidden(a), letters(a)]).toEqual([[], []]);
  });
});

describe('the columns change while a row is hidden', () => {
  const NICKS = 'CREATE TABLE users (id TEXT PRIMARY KEY, email TEXT UNIQUE, nick TEXT, updated_at INTEGER)';

  test('a row comes back with the value of a column that was renamed', async () => {
    const a = await users(NICKS);
    give(a, put('ann', 1, 'x', { nick: 'precious' }), put('bob', 2, 'x', { nick: null }));
    a.db.exec('ALTER TABLE users RENAME COLUMN nick TO label');
    give(a, gone('bob', 3));
    expect(a.all('SELECT id, label FROM users')).toEqual([{ id: 'ann', label: 'precious' }]);
    expect(a.manager.deadLetters.list()).toEqual([]);
  });

  test('the value of a column that is gone is kept in a letter when the row comes back', async () => {
    const a = await users(NICKS);
    give(a, put('ann', 1, 'x', { nick: 'precious' }), put('bob', 2, 'x', { nick: null }));
    a.db.exec(
      `CREATE TABLE made (id TEXT PRIMARY KEY, email TEXT UNIQUE, updated_at INTEGER);
       INSERT INTO made SELECT id, email, updated_at FROM users; DROP TABLE users; ALTER TABLE made RENAME TO users`,
    );
    give(a, gone('bob', 3));
    expect(visible(a)).toEqual(['ann']);
    expect(a.manager.deadLetters.list()).toMatchObject([
      { code: 'unknown-column', rowId: 'ann', row: expect.stringContaining('precious') },
    ]);
  });

  test('a row that the table would not take any more stays hidden and listed, and holds nothing up', async () => {
    const a = await users(INDEXED.replace('email TEXT', 'email TEXT UNIQUE'));
    give(a, put('ann', 1, 'x'), put('bob', 2, 'x'));
    a.db.exec(
      `CREATE TABLE made (id TEXT PRIMARY KEY, email TEXT UNIQUE, nick TEXT NOT NULL, updated_at INTEGER);
       INSERT INTO made SELECT id, email, 'none', updated_at FROM users; DROP TABLE users; ALTER TABLE made RENAME TO users`,
    );
    give(a, gone('bob', 3), put('cid', 3, 'y', { nick: 'c' }));
    expect([visible(a), hidden(a)]).toEqual([['cid'], ['ann']]);
    give(a, put('ann', 0, 'older', { nick: 'o' }));
    expect([visible(a), hidden(a), letters(a)]).toEqual([['cid'], ['ann'], [['unique', 'ann']]]);
    give(a, put('ann', 4, 'x', { nick: 'a' }));
    expect([visible(a), hidden(a), letters(a)]).toEqual([['ann', 'cid'], [], []]);
  });

  test('a transaction that is taken back takes the look at the new columns back with it', async () => {
    const a = await users(INDEXED.replace('email TEXT', 'email TEXT UNIQUE'));
    give(a, put('ann', 1, 'x'), put('bob', 2, 'x'));
    a.db.exec('ALTER TABLE users ADD COLUMN nick TEXT');
    a.db.exec(
      "CREATE TRIGGER never BEFORE INSERT ON users WHEN NEW.nick = 'poison' BEGIN SELECT RAISE(ROLLBACK, 'never'); END",
    );
    give(a, put('ann', 3, 'x', { nick: 'a' }), put('eve', 3, 'e', { nick: 'poison' }));
    expect(rowsOf(a.db, 'SELECT id, nick FROM users ORDER BY id')).toEqual([{ id: 'ann', nick: 'a' }]);
    expect([hidden(a), letters(a)]).toEqual([['bob'], expect.arrayContaining([['constraint', 'eve']])]);
  });
});

describe('declarations as people write them', () => {
  test.each([
    [
      'a comment before the bracket',
      'users /* (people) */ -- all of them\n (id TEXT PRIMARY KEY, email TEXT UNIQUE, updated_at INTEGER)',
    ],
    [
      'a CHECK that names the table',
      '"Users" (id TEXT PRIMARY KEY, email TEXT UNIQUE, updated_at INTEGER, ' +
        'CHECK (users.email <> \'users.email\' AND "Users" . "email" <> \'\' AND [users].updated_at > 1.5))',
    ],
  ])('%s', async (_, declaration) => {
    const a = await users(`CREATE TABLE ${declaration}`);
    give(a, put('ann', 1, 'x'));
    give(a, put('bob', 2, 'x'));
    expect([visible(a), hidden(a)]).toEqual([['bob'], ['ann']]);
  });

  test.each([
    'users.dead = 0',
    'main.users.dead = 0 -- of users.dead',
    '"Users" . dead = 0 AND \'users.x\' <> [users]/* . */."email"',
  ])('a partial index that names the table: WHERE %s', async (condition) => {
    const a = await users(
      'CREATE TABLE users (id TEXT PRIMARY KEY, email TEXT, dead INTEGER, updated_at INTEGER); ' +
        `CREATE UNIQUE INDEX live ON users (email) WHERE ${condition}`,
    );
    a.db.exec("INSERT INTO users VALUES ('old', 'x', 1, 1), ('ann', 'x', 0, 1); UPDATE users SET email = 'x'");
    give(a, put('bob', 2, 'x', { dead: 0 }));
    expect([visible(a), hidden(a)]).toEqual([['ann', 'old'], ['bob']]);
    a.db.exec("REPLACE INTO users VALUES ('cid', 'x', 0, 1)");
    expect(rowsOf(a.db, "SELECT row_id FROM _changes WHERE op = 'DELETE'")).toEqual([{ row_id: 'ann' }]);
  });

  test('an expression that fails for rows that its partial index does not have', async () => {
    const a = await users(
      'CREATE TABLE users (id TEXT PRIMARY KEY, email TEXT, updated_at INTEGER); ' +
        "CREATE UNIQUE INDEX kept ON users (json_extract(email, '$.at')) WHERE json_valid(email)",
    );
    a.db.exec(`INSERT INTO users VALUES ('ann', 'no JSON', 1), ('bob', '{"at":"x"}', 1), ('cid', '{"at":"y"}', 1)`);
    a.db.exec("UPDATE users SET email = 'none either' WHERE id = 'cid'");
    give(a, put('dan', 2, '{"at":"x"}'), put('eve', 2, 'no JSON'));
    give(a, put('dan', 3, 'no JSON'), put('fay', 3, '{"at":"x"}'));
    expect([visible(a), hidden(a), letters(a)]).toEqual([
      ['ann', 'cid', 'dan', 'eve', 'fay'],
      ['bob'],
      [['unique', 'bob']],
    ]);
    const reason =
      'hidden: the row "fay" has the same json_extract(email, \'$.at\') and is the stronger; change one of the two';
    expect(a.manager.deadLetters.list()[0]?.reason).toBe(reason);
    a.db.exec(`REPLACE INTO users VALUES ('gus', '{"at":"x"}', 9)`);
    expect(rowsOf(a.db, "SELECT row_id FROM _changes WHERE op = 'DELETE'")).toEqual([{ row_id: 'fay' }]);
  });

  test('a comment before the condition of a partial index', async () => {
    const a = await users(
      'CREATE TABLE users (id TEXT PRIMARY KEY, email TEXT, dead INTEGER, updated_at INTEGER); ' +
        'CREATE UNIQUE INDEX live ON users (email) -- the living\n /* only */ WHERE dead = 0',
    );
    give(a, put('old', 0, 'x', { dead: 1 }), put('ann', 1, 'x', { dead: 0 }));
    give(a, put('bob', 2, 'x', { dead: 0 }));
    expect([visible(a), hidden(a)]).toEqual([['bob', 'old'], ['ann']]);
  });
});

/** It keeps what it has in the column that the sender lacks: a state that no other node has seen. */
describe('a row that a node whose schema is behind has changed', () => {
  const coloured = (colour: string) =>
    users(`CREATE TABLE users (id TEXT PRIMARY KEY, email TEXT UNIQUE, colour ${colour}, updated_at INTEGER)`);
  const told = ({ db }: TestNode): unknown[] =>
    rowsOf(db, 'SELECT row_data AS d FROM _changes ORDER BY change_id').map(({ d }) => JSON.parse(String(d)));

  test.each([
    ['hides another', 100, 'b'],
    ['is hidden', 300, 'a'],
  ])('and that %s by its new value is told to all, once', async (_, other, isHidden) => {
    const one = await coloured('TEXT');
    give(one, put('a', 150, 'x', { colour: 'red' }), put('b', other, 'y', { colour: null }));
    for (let i = 0; i < 3; i++) {
      give(one, put('a', 200, 'y'));
      expect(told(one)).toEqual([{ id: 'a', email: 'y', colour: 'red', updated_at: T + 200 }]);
    }
    expect(hidden(one)).toEqual([isHidden]);
  });

  test('and that is hidden, with nothing in that column, is told to nobody', async () => {
    const one = await coloured("TEXT DEFAULT 'none'");
    give(one, put('a', 150, 'x', { colour: 'none' }), put('b', 300, 'y', { colour: 'red' }));
    give(one, put('a', 200, 'y'));
    expect(hidden(one)).toEqual(['a']);
    expect(told(one)).toEqual([]);
  });
});
