/** UNIQUE constraints beside the primary key: every node ends with the same rows, whatever arrived first. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Change } from '../../src/index.ts';
import { draws } from '../support/draws.ts';
import { node, rowsOf, type TestNode, until } from '../support/nodes.ts';
import { visibleOf } from '../support/unique-kernel.ts';

const T = 1_700_000_000_000;
const USERS =
  'CREATE TABLE users (id TEXT PRIMARY KEY, email TEXT UNIQUE, nick TEXT COLLATE NOCASE, updated_at INTEGER); ' +
  'CREATE UNIQUE INDEX nicks ON users (nick)';

interface User {
  id: string;
  email: string | null;
  nick: string | null;
  updated_at: number;
}

const put = (id: string, at: number, email: string | null, nick: string | null = null): Change => ({
  op: 'INSERT',
  table: 'users',
  row: { id, email, nick, updated_at: T + at },
  old_id: null,
});
const gone = (id: string, at: number): Change => ({
  op: 'DELETE',
  table: 'users',
  row: { id, updated_at: T + at },
  old_id: id,
});

const users = () => node({ schema: USERS, tables: ['users'] });

function give({ manager }: TestNode, ...changes: Change[]): unknown {
  const { status, body } = manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=x' });
  expect(status).toBe(200);
  return body;
}

const visible = ({ db }: TestNode): unknown[] => rowsOf(db, 'SELECT id, email FROM users ORDER BY id');
const hidden = ({ db }: TestNode): unknown[] => rowsOf(db, 'SELECT row_id AS id FROM _hidden ORDER BY row_id');

describe('two people take one address on two nodes at once', () => {
  test('the later one is visible on both, the other is hidden and listed on both', async () => {
    const [a, b] = [await users(), await users()];
    const events: unknown[] = [];
    a.manager.on('dead-letter', ({ code, rows }) => events.push([code, rows]));
    a.db.exec(`INSERT INTO users VALUES ('ann', 'x@y', NULL, ${T + 1})`);
    b.db.exec(`INSERT INTO users VALUES ('bob', 'x@y', NULL, ${T + 2})`);
    expect(give(a, put('bob', 2, 'x@y'))).toEqual({ applied: 1, ack: 1 });
    expect(give(b, put('ann', 1, 'x@y'))).toEqual({ applied: 1, ack: 1 });
    for (const one of [a, b]) {
      expect(visible(one)).toEqual([{ id: 'bob', email: 'x@y' }]);
      expect(hidden(one)).toEqual([{ id: 'ann' }]);
      expect(one.manager.deadLetters.list()).toMatchObject([
        { direction: 'in', code: 'unique', table: 'users', rowId: 'ann', reason: expect.stringContaining('"bob"') },
      ]);
      expect(one.manager.health()).toMatchObject({ ok: true, dead_letter: 1 });
    }
    expect(events).toEqual([['unique', [{ op: 'UPDATE', table: 'users', id: 'ann' }]]]);
  });

  test('its letter lists what is hidden now, and what hides it now', async () => {
    const a = await users();
    give(a, put('bob', 2, 'x@y'), put('ann', 1, 'x@y', 'first'));
    const [first] = a.manager.deadLetters.list();
    expect(first).toMatchObject({ rowId: 'ann', reason: expect.stringContaining('"bob"') });
    give(a, put('ann', 2, 'x@y', 'second'));
    give(a, put('cid', 9, 'x@y'), gone('bob', 9));
    const list = a.manager.deadLetters.list();
    expect(list).toMatchObject([{ id: first?.id, rowId: 'ann', reason: expect.stringContaining('"cid"') }]);
    expect(JSON.parse(String(list[0]?.row))).toEqual({ id: 'ann', email: 'x@y', nick: 'second', updated_at: T + 2 });
  });

  test('the answer to the same batch is the same, however often it comes', async () => {
    const a = await users();
    const batch = [put('ann', 1, 'x@y'), put('bob', 2, 'x@y'), put('cid', 3, 'c@y')];
    const first = give(a, ...batch);
    expect(first).toEqual({ applied: 3, ack: 1 });
    expect(give(a, ...batch)).toEqual(first);
    expect(give(a, put('ann', 0, 'old'))).toEqual({ applied: 0, ack: 1 });
    expect(hidden(a)).toEqual([{ id: 'ann' }]);
  });

  test('its letter cannot be discarded, and a retry says what is in the way', async () => {
    const a = await users();
    give(a, put('ann', 1, 'x@y'), put('bob', 2, 'x@y'));
    const [letter] = a.manager.deadLetters.list();
    expect(() => a.manager.deadLetters.discard(letter?.id as number)).toThrow(/another one hides/);
    expect(a.manager.deadLetters.retry(letter?.id as number)).toMatchObject({ outcome: 'kept' });
    expect(hidden(a)).toEqual([{ id: 'ann' }]);
  });
});

describe('a hidden row comes back', () => {
  test('when the row that hides it is deleted, moved on or renamed elsewhere', async () => {
    for (const change of [gone('bob', 3), put('bob', 3, 'b@y')]) {
      const a = await users();
      give(a, put('ann', 1, 'x@y'), put('bob', 2, 'x@y'));
      give(a, change);
      expect(visible(a)).toContainEqual({ id: 'ann', email: 'x@y' });
      expect(hidden(a)).toEqual([]);
      expect(a.manager.deadLetters.list()).toEqual([]);
    }
  });

  test.each([
    "DELETE FROM users WHERE id = 'bob'",
    "UPDATE users SET email = 'b@y' WHERE id = 'bob'",
    "UPDATE users SET id = 'rob', email = NULL WHERE id = 'bob'",
    "INSERT OR REPLACE INTO users (id, email) VALUES ('bob', 'z@y')",
  ])('within a tick of %s here', async (sql) => {
    const a = await users();
    give(a, put('ann', 1, 'x@y'), put('bob', 2, 'x@y'));
    a.db.exec(sql);
    await expect.poll(() => hidden(a)).toEqual([]);
    expect(visible(a)).toContainEqual({ id: 'ann', email: 'x@y' });
    // Nothing of this was captured: every node comes to it by itself.
    expect(rowsOf(a.db, "SELECT 1 FROM _changes WHERE row_id = 'ann'")).toEqual([]);
  });

  test('when the row that hides it loses the value to another version of the same time', async () => {
    const a = await users();
    give(a, put('ann', 1, 'p'), put('bob', 2, 'p'));
    give(a, put('bob', 2, 'r'));
    expect(visible(a)).toEqual([
      { id: 'ann', email: 'p' },
      { id: 'bob', email: 'r' },
    ]);
  });

  test('a swap of two values is no special case', async () => {
    const a = await users();
    give(a, put('ann', 1, 'p'), put('bob', 1, 'q'));
    give(a, put('ann', 2, 'q'), put('bob', 2, 'p'));
    expect(visible(a)).toEqual([
      { id: 'ann', email: 'q' },
      { id: 'bob', email: 'p' },
    ]);
    expect(hidden(a)).toEqual([]);
    expect(a.manager.deadLetters.list()).toEqual([]);
  });
});

describe('as if it were there', () => {
  test('a deletion makes a tombstone of it, an older deletion does not', async () => {
    const a = await users();
    give(a, put('ann', 5, 'x@y'), put('bob', 6, 'x@y'));
    give(a, gone('ann', 4));
    expect(hidden(a)).toEqual([{ id: 'ann' }]);
    give(a, gone('ann', 5));
    expect(hidden(a)).toEqual([]);
    give(a, put('ann', 5, 'free'));
    expect(visible(a)).toEqual([{ id: 'bob', email: 'x@y' }]);
    expect(a.manager.deadLetters.list()).toEqual([]);
  });

  test('a deletion without a row takes it as it is', async () => {
    const a = await users();
    give(a, put('ann', 5, 'x@y'), put('bob', 6, 'x@y'));
    give(a, { op: 'DELETE', table: 'users', row: null, old_id: 'ann' });
    expect(hidden(a)).toEqual([]);
    expect(rowsOf(a.db, "SELECT version FROM _tombstones WHERE row_id = 'ann'")).toEqual([{ version: T + 5 }]);
  });

  test("the application's own INSERT of its id, with an older time, ends above it and reaches the others", async () => {
    const [a, b] = [await users(), await users()];
    for (const one of [a, b]) give(one, put('ann', 5, 'x@y'), put('bob', 6, 'x@y'));
    a.db.exec(`INSERT INTO users VALUES ('ann', 'new@y', NULL, ${T + 1})`);
    const [change] = rowsOf(a.db, "SELECT row_data FROM _changes WHERE row_id = 'ann' ORDER BY change_id DESC LIMIT 1");
    const row = JSON.parse(String(change?.row_data)) as User;
    expect(row.updated_at).toBeGreaterThan(T + 5);
    give(b, { op: 'INSERT', table: 'users', row: { ...row }, old_id: null });
    await expect.poll(() => hidden(a)).toEqual([]);
    expect(hidden(b)).toEqual([]);
    expect(visible(b)).toEqual(visible(a));
  });

  test('a row that the application has renamed to its id is not undone by the next batch', async () => {
    const a = await users();
    give(a, put('ann', 5, 'x@y'), put('bob', 6, 'x@y'));
    a.db.exec(`UPDATE users SET id = 'ann', updated_at = ${T + 9} WHERE id = 'bob'`);
    give(a, put('ann', 7, 'z@y'));
    expect(rowsOf(a.db, 'SELECT id, email, updated_at FROM users')).toEqual([
      { id: 'ann', email: 'x@y', updated_at: T + 9 },
    ]);
    expect(hidden(a)).toEqual([]);
  });

  test('another constraint is still a dead letter of its own', async () => {
    const a = await node({
      schema: `CREATE TABLE users (id TEXT PRIMARY KEY, email TEXT UNIQUE CHECK (email <> 'bad'), nick TEXT, updated_at INTEGER)`,
      tables: ['users'],
    });
    expect(give(a, put('ann', 1, 'bad'))).toMatchObject({ applied: 0, rejected: [{ code: 'constraint' }] });
    expect(hidden(a)).toEqual([]);
  });
});

const change = fc
  .record({
    id: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
    at: fc.integer({ min: 1, max: 9 }),
    email: fc.constantFrom('p', 'q', 'r', null),
    nick: fc.constantFrom('k', 'K', 'm', null),
    live: fc.boolean(),
  })
  .map(({ id, at, email, nick, live }) => (live || at % 3 > 0 ? put(id, at, email, nick) : gone(id, at)));

test('any changes, in any batches and any order, leave what the rule names, on every node', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(change, { maxLength: 12 }),
      fc.array(fc.nat(), { minLength: 40 }),
      async (all, chance) => {
        const expected = oracle(all);
        for (const order of [0, 1, 2]) {
          const one = await users();
          let at = order * 13;
          const next = (n: number): number => (chance[at++ % chance.length] as number) % n;
          const mixed = [...all];
          for (let i = mixed.length - 1; i > 0; i--) {
            const j = next(i + 1);
            [mixed[i], mixed[j]] = [mixed[j] as Change, mixed[i] as Change];
          }
          while (mixed.length > 0) give(one, ...mixed.splice(0, 1 + next(4)));
          expect(rowsOf(one.db, 'SELECT * FROM users ORDER BY id')).toEqual(expected.visible);
          expect(hidden(one)).toEqual(expected.hidden);
          await one.manager.stop();
        }
      },
    ),
    { numRuns: draws(60) },
  );
});

/** The version order first, then the rule. */
function oracle(all: Change[]): { visible: User[]; hidden: { id: string }[] } {
  const key = ({ row, op }: Change): string => {
    const { updated_at, email, nick } = row as unknown as User;
    const text = (value: string | null | undefined): string => (value == null ? '' : JSON.stringify(value));
    const content = `${text(email)}\n\n${text(nick)}`;
    return `${updated_at} ${op === 'DELETE' ? 1 : 0} ${op === 'DELETE' ? '' : content}`;
  };
  const newest = new Map<string, Change>();
  for (const one of all) {
    const id = String(one.row?.id);
    const known = newest.get(id);
    if (!known || Buffer.compare(Buffer.from(key(one)), Buffer.from(key(known))) > 0) newest.set(id, one);
  }
  const live = [...newest.values()]
    .filter(({ op }) => op !== 'DELETE')
    .map(({ row }) => row as unknown as User)
    .map((row) => ({ id: row.id, updatedAt: row.updated_at, row: row as unknown as Record<string, unknown> }));
  const lower = (value: unknown): unknown => (typeof value === 'string' ? value.toLowerCase() : value);
  const shown = visibleOf(
    live,
    (p, q) =>
      (p.row.email !== null && p.row.email === q.row.email) ||
      (p.row.nick !== null && lower(p.row.nick) === lower(q.row.nick)),
  );
  const byId = (p: { id: string }, q: { id: string }): number => (p.id < q.id ? -1 : 1);
  return {
    visible: shown.map(({ row }) => row as unknown as User).sort(byId),
    hidden: live
      .filter((one) => !shown.includes(one))
      .map(({ id }) => ({ id }))
      .sort(byId),
  };
}

describe('a row that comes back', () => {
  async function clash(): Promise<{ one: TestNode; told: unknown[] }> {
    const one = await users();
    const told: unknown[] = [];
    one.manager.on('visible', ({ rows }) => told.push(...rows));
    give(one, put('ann', 1, 'x@y'), put('bob', 2, 'x@y'));
    expect(hidden(one)).toEqual([{ id: 'ann' }]);
    // Which of two stands is no coming back, though one of them was put aside to find out.
    give(one, put('cid', 3, 'x@y'));
    expect(hidden(one)).toEqual([{ id: 'ann' }, { id: 'bob' }]);
    expect(told).toEqual([]);
    return { one, told };
  }

  test('by a batch is told', async () => {
    const { one, told } = await clash();
    give(one, gone('cid', 4));
    expect(visible(one)).toEqual([{ id: 'bob', email: 'x@y' }]);
    expect(told).toEqual([{ table: 'users', id: 'bob' }]);
  });

  test('by a write of the application is told with the next tick', async () => {
    const { one, told } = await clash();
    one.db.exec(`UPDATE users SET email = 'c@y', updated_at = ${T + 5} WHERE id = 'cid'`);
    await until('it is told', () => told.length > 0);
    expect(told).toEqual([{ table: 'users', id: 'bob' }]);
  });

  test('in a transaction that fails is not told', async () => {
    const { one, told } = await clash();
    const pages = Number(Object.values(rowsOf(one.db, 'PRAGMA page_count')[0] ?? {})[0]);
    one.db.exec(`PRAGMA max_page_count = ${pages}`);
    const many = Array.from({ length: 50 }, (_, i) => put(`m${i}`, 9, `${'m'.repeat(1_000)}${i}`));
    const body = JSON.stringify({ batch_id: 2, changes: [gone('cid', 4), ...many] });
    expect(one.manager.receive(body, { said: 'id=x' }).status).toBe(503);
    one.db.exec('PRAGMA max_page_count = 100000');
    give(one, put('dan', 5, 'd@y'));
    expect(told).toEqual([]);
    expect(hidden(one)).toEqual([{ id: 'ann' }, { id: 'bob' }]);
  });
});
