/**
 * A column that was dropped on a node and is there again: what the node has in it is the default, which nobody has said,
 * and other nodes may have what was written to it.
 */
import { describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/clock.ts';
import { Cluster, hurried, type Member } from '../support/cluster.ts';
import { draws } from '../support/draws.ts';
import { Random } from '../support/model.ts';
import { captured, node, rowsOf, type TestNode, until } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const schema = (fallback: string): string =>
  `CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, nick TEXT DEFAULT ${fallback}, updated_at INTEGER)`;
const DROP = 'ALTER TABLE items DROP COLUMN nick';
const add = (fallback: string): string => `ALTER TABLE items ADD COLUMN nick TEXT DEFAULT ${fallback}`;
/** As knex does it. */
const REBUILD =
  'BEGIN; CREATE TABLE made (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER); ' +
  'INSERT INTO made SELECT id, name, updated_at FROM items; DROP TABLE items; ALTER TABLE made RENAME TO items; COMMIT';

const has = ({ db }: Pick<Member, 'db'>): boolean =>
  rowsOf(db, "SELECT 1 FROM pragma_table_info('items') WHERE name = 'nick'").length > 0;

const rows = (member: Pick<Member, 'db'>): string =>
  rowsOf(
    member.db,
    `SELECT id, name, ${has(member) ? 'nick' : 'NULL'} AS nick, updated_at AS at FROM items ORDER BY id`,
  )
    .map(({ id, name, nick, at }) => `${id} ${name} ${nick} ${at}`)
    .join('\n');

const nicks = ({ db }: Pick<Member, 'db'>): string =>
  rowsOf(db, 'SELECT id, nick FROM items ORDER BY id')
    .map(({ id, nick }) => `${id}=${nick}`)
    .join(' ');

const BEGINNING = systemClock.now();

/** A table is sent again for the asking once in ten minutes: here that is a third of a second. */
const rushing: Clock = { ...hurried, now: () => BEGINNING + 2_000 * (systemClock.now() - BEGINNING) };

/** Each has sent what it has to send, and has been asked what there was to ask. */
async function quiet(members: Member[]): Promise<void> {
  const isDone = ({ db, manager }: Member): boolean =>
    manager.health().pending_changes === 0 &&
    rowsOf(db, 'SELECT 1 FROM _peer_state WHERE tail_from IS NOT NULL OR asks IS NOT NULL').length === 0 &&
    rowsOf(db, 'SELECT 1 FROM _stamps').length === 0;
  await until('all is sent', async () => {
    for (const { manager } of members) await manager.flush();
    return members.every(isDone);
  });
}

/**
 * As many rows (of that id) are on every node before it goes on: who gets one for the first time from a node without the
 * column has the default in it, see docs/migrations.md.
 */
async function known(members: Member[], count: number, id = '%'): Promise<void> {
  const sql = 'SELECT count(*) AS n FROM items WHERE id LIKE ?';
  if (members.some(({ db }) => rowsOf(db, sql, id)[0]?.n !== count)) await quiet(members);
}

/** They come to the same; what they have is in the message where they do not. */
async function alike(members: Member[]): Promise<void> {
  const [first, ...others] = members as [Member, ...Member[]];
  try {
    await until('all are alike', () => others.every((one) => rows(one) === rows(first)), 30_000);
  } catch {
    for (const one of others) expect(rows(one)).toBe(rows(first));
  }
}

async function mesh(fallback: string, names = ['a', 'b', 'c']): Promise<Member[]> {
  const cluster = new Cluster();
  const members: Member[] = [];
  for (const name of names) {
    const others = names.filter((other) => other !== name);
    members.push(await cluster.node(name, others, { schema: schema(fallback), clock: rushing }));
  }
  return members;
}

function write({ db }: Pick<Member, 'db'>, sql: string): void {
  db.exec(sql);
}

describe.each(["'zzz'", 'NULL'])('with the default %s', (fallback) => {
  test.each(['migrate', 'another tool'])(
    'dropped and added on one node, by %s: the real values come back',
    async (by) => {
      const [a, b, c] = (await mesh(fallback)) as [Member, Member, Member];
      for (const one of [a, b, c]) {
        write(
          one,
          `INSERT INTO items VALUES ('${one.name}1', 'n', 'real ${one.name}', ${T}), ('${one.name}2', 'n', 'x', ${T})`,
        );
      }
      await quiet([a, b, c]);
      await alike([a, b, c]);
      a.manager.migrate(DROP);
      write(b, `UPDATE items SET nick = 'meanwhile', updated_at = ${T + 1} WHERE id = 'c2'`);
      write(a, `UPDATE items SET name = 'of a', updated_at = ${T + 2} WHERE id = 'b2'`);
      await quiet([a, b, c]);
      if (by === 'migrate') a.manager.migrate(add(fallback));
      else write(a, add(fallback));
      // Before anybody could be asked: nobody has said anything of the column by that.
      write(a, `UPDATE items SET name = 'edited', updated_at = ${T + 5} WHERE id = 'b1'`);
      await quiet([a, b, c]);
      await alike([a, b, c]);
      expect(nicks(a)).toBe('a1=real a a2=x b1=real b b2=x c1=real c c2=meanwhile');
      expect(rowsOf(a.db, 'SELECT * FROM _unsaid')).toEqual([]);
    },
  );
});

test('around a hub', async () => {
  const cluster = new Cluster();
  await cluster.hub('hub', ['a', 'b']);
  const members = [];
  for (const name of ['a', 'b'])
    members.push(await cluster.node(name, ['hub'], { schema: schema("'zzz'"), clock: rushing }));
  const [a, b] = members as [Member, Member];
  write(b, `INSERT INTO items VALUES ('r', 'n', 'real', ${T})`);
  await until('a has it', () => rows(a) === rows(b));
  a.manager.migrate(DROP);
  write(b, `UPDATE items SET nick = 'meanwhile', updated_at = ${T + 1}`);
  await until('it has come', () => rowsOf(a.db, 'SELECT updated_at AS at FROM items')[0]?.at === T + 1);
  a.manager.migrate(add("'zzz'"));
  write(a, `UPDATE items SET name = 'edited', updated_at = ${T + 5}`);
  await until('it has come', () => rowsOf(b.db, 'SELECT updated_at AS at FROM items')[0]?.at === T + 5);
  await alike([a, b]);
  expect(nicks(b)).toBe('r=meanwhile');
});

test('dropped by rebuilding the table on two nodes, and added on both: what a letter had kept is told', {
  tags: 'long',
}, async () => {
  for (const fallback of ["'a'", "'zzz'"]) {
    const [a, b] = (await mesh(fallback, ['a', 'b'])) as [Member, Member];
    write(a, REBUILD);
    await quiet([a, b]);
    write(b, `INSERT INTO items VALUES ('r', 'n', 'nick of b', ${T})`);
    await quiet([a, b]);
    expect(a.manager.deadLetters.list()).toMatchObject([{ code: 'unknown-column' }]);
    write(b, REBUILD);
    await quiet([a, b]);
    // First where nobody has kept it: what it asks for then is not there to be told yet.
    write(b, add(fallback));
    await quiet([a, b]);
    write(a, add(fallback));
    await quiet([a, b]);
    await alike([a, b]);
    expect(nicks(b)).toBe('r=nick of b');
  }
});

describe('on one node', () => {
  async function back(name = 'name TEXT'): Promise<TestNode> {
    const it = await node({ schema: schema("'zzz'").replace('name TEXT', name) });
    const other = name === 'name TEXT' ? 'n' : 'of s';
    it.db.exec(`INSERT INTO items VALUES ('r', 'n', 'real', ${T}), ('s', '${other}', 'zzz', ${T})`);
    it.manager.migrate(DROP);
    it.manager.migrate(add("'zzz'"));
    it.db.exec('DELETE FROM _changes');
    return it;
  }
  const told = ({ db }: TestNode): unknown[] => captured(db).map(({ row }) => row);
  const receive = ({ manager }: TestNode, row: object): void => {
    const changes = [{ op: 'UPDATE', table: 'items', row, old_id: null }];
    expect(manager.receive(JSON.stringify({ batch_id: 1, changes }))).toMatchObject({ status: 200 });
  };

  test('a row is told without it, until the application has written something there', async () => {
    const it = await back();
    it.db.exec(`UPDATE items SET name = 'new', updated_at = ${T + 1} WHERE id = 'r'`);
    it.db.exec(`UPDATE items SET nick = 'mine', updated_at = ${T + 2} WHERE id = 'r'`);
    it.db.exec(`UPDATE items SET nick = 'zzz', updated_at = ${T + 3} WHERE id = 'r'`);
    it.db.exec(`UPDATE items SET name = 'last', updated_at = ${T + 4} WHERE id = 'r'`);
    // Without a time of its own, and a row that is new.
    it.db.exec("UPDATE items SET name = 'untimed' WHERE id = 's'");
    it.db.exec(`INSERT INTO items (id, name, updated_at) VALUES ('t', 'n', ${T})`);
    expect(told(it)).toMatchObject([
      { id: 'r', name: 'new', updated_at: T + 1 },
      { id: 'r', name: 'new', nick: 'mine', updated_at: T + 2 },
      { id: 'r', name: 'new', nick: 'zzz', updated_at: T + 3 },
      { id: 'r', name: 'last', nick: 'zzz', updated_at: T + 4 },
      { id: 's', name: 'untimed' },
      { id: 't', name: 'n', nick: 'zzz', updated_at: T },
    ]);
    expect(told(it).map((row) => 'nick' in (row as object))).toEqual([false, true, true, true, false, true]);
  });

  test('of one time, what others say of it wins, whatever the default is; and it is known from then on', async () => {
    const it = await back();
    receive(it, { id: 'r', name: 'n', nick: 'real', updated_at: T });
    expect(it.all("SELECT nick FROM items WHERE id = 'r'")).toEqual([{ nick: 'real' }]);
    // Now the greater one wins, as ever.
    receive(it, { id: 'r', name: 'n', nick: 'aaa', updated_at: T });
    expect(it.all("SELECT nick FROM items WHERE id = 'r'")).toEqual([{ nick: 'real' }]);
    receive(it, { id: 's', name: 'n', nick: 'zzz', updated_at: T });
    receive(it, { id: 's', name: 'n', nick: 'real', updated_at: T });
    expect(it.all("SELECT nick FROM items WHERE id = 's'")).toEqual([{ nick: 'zzz' }]);
  });

  test('NULL is something that others may have said', async () => {
    const it = await back();
    receive(it, { id: 'r', name: 'n', nick: null, updated_at: T });
    expect(it.all("SELECT nick FROM items WHERE id = 'r'")).toEqual([{ nick: null }]);
  });

  test('what says nothing of it, and what is older, changes nothing of that', async () => {
    const it = await back();
    receive(it, { id: 'r', name: 'n', nick: 'old', updated_at: T - 1 });
    receive(it, { id: 'r', name: 'z', updated_at: T });
    receive(it, { id: 'r', name: 'a', nick: 'lesser', updated_at: T });
    expect(it.all("SELECT name, nick FROM items WHERE id = 'r'")).toEqual([{ name: 'z', nick: 'zzz' }]);
    receive(it, { id: 'r', name: 'z', nick: 'real', updated_at: T });
    expect(it.all("SELECT name, nick FROM items WHERE id = 'r'")).toEqual([{ name: 'z', nick: 'real' }]);
  });

  test('a row that another keeps out of its table is filled in there', async () => {
    const it = await back('name TEXT UNIQUE');
    receive(it, { id: 'x', name: 'n', nick: 'of x', updated_at: T + 1 });
    expect(it.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: 's' }, { id: 'x' }]);
    expect(it.all('SELECT row_data FROM _hidden')).toEqual([{ row_data: `{"id":"r","name":"n","updated_at":${T}}` }]);
    receive(it, { id: 'r', name: 'n', nick: 'real', updated_at: T });
    it.db.exec("DELETE FROM items WHERE id = 'x'");
    receive(it, { id: 'y', name: 'y', nick: 'y', updated_at: T });
    expect(it.all("SELECT nick FROM items WHERE id = 'r'")).toEqual([{ nick: 'real' }]);
  });

  test('where a trigger may keep changes out, what is in place has not been kept out', async () => {
    const it = await back();
    it.db.exec("CREATE TRIGGER mine BEFORE UPDATE ON items WHEN NEW.name = 'never' BEGIN SELECT RAISE(IGNORE); END");
    receive(it, { id: 'r', name: 'n', nick: 'real', updated_at: T });
    receive(it, { id: 's', name: 'n', nick: 'zzz', updated_at: T });
    expect(it.manager.deadLetters.list()).toEqual([]);
    expect(it.all('SELECT * FROM _unsaid')).toEqual([]);
  });

  test('a change that waits and lacks it for that reason is not recorded once more', async () => {
    const it = await back();
    it.db.exec(`UPDATE items SET name = 'new', updated_at = ${T + 1} WHERE id = 'r'`);
    it.db.exec('CREATE INDEX by_name ON items (name)');
    expect(it.all('SELECT updated_at FROM items WHERE id = ?', 'r')).toEqual([{ updated_at: T + 1 }]);
    receive(it, { id: 's', name: 'n', nick: 'zzz', updated_at: T });
    expect(told(it)).toEqual([{ id: 'r', name: 'new', updated_at: T + 1 }]);
  });

  test('it may be renamed, its table as well, and it may go again', async () => {
    const it = await back();
    it.manager.migrate('ALTER TABLE items RENAME COLUMN nick TO alias', { rename: { items: { nick: 'alias' } } });
    it.manager.migrate('ALTER TABLE items RENAME TO things', { renameTable: { items: 'things' } });
    receive(it, { id: 'r', name: 'n', nick: 'real', updated_at: T });
    expect(it.all('SELECT id, alias FROM things ORDER BY id')).toEqual([
      { id: 'r', alias: 'real' },
      { id: 's', alias: 'zzz' },
    ]);
    expect(it.all('SELECT * FROM _unsaid')).toEqual([{ table_name: 'things', column_name: 'alias', row_id: 's' }]);
    it.manager.migrate('ALTER TABLE things DROP COLUMN alias');
    expect(it.all('SELECT * FROM _unsaid')).toEqual([]);
  });

  test('a column that was renamed to the name of a dropped one is not that one', async () => {
    const it = await node({ schema: schema('NULL') });
    it.db.exec(`INSERT INTO items VALUES ('r', NULL, 'real', ${T})`);
    it.manager.migrate(DROP);
    it.db.exec('ALTER TABLE items RENAME COLUMN name TO nick');
    expect(it.all('SELECT * FROM _unsaid')).toEqual([]);
  });
});

test('when all peers have been compared with, and none knows better, the default is what it is', async () => {
  const [a, b] = (await mesh("'zzz'", ['a', 'b'])) as [Member, Member];
  write(a, `INSERT INTO items VALUES ('r', 'n', 'real', ${T})`);
  await quiet([a, b]);
  for (const one of [a, b]) one.manager.migrate(DROP);
  await quiet([a, b]);
  for (const one of [a, b]) one.manager.migrate(add("'zzz'"));
  await quiet([a, b]);
  expect(rowsOf(a.db, 'SELECT row_id FROM _unsaid')).toEqual([{ row_id: 'r' }]);
  await a.manager.verify(undefined, { repair: true });
  expect(rowsOf(a.db, 'SELECT row_id FROM _unsaid')).toEqual([]);
  write(a, `UPDATE items SET name = 'new', updated_at = ${T + 1}`);
  await quiet([a, b]);
  expect(rows(b)).toBe(`r new zzz ${T + 1}`);
  expect(rowsOf(b.db, 'SELECT row_id FROM _unsaid')).toEqual([]);
});

test('in any order: a value that one node has kept is lost by nobody, and all come to the same', {
  tags: 'long',
}, async () => {
  const FALLBACKS = ["'zzz'", "'m'", 'NULL'];
  for (let seed = 1; seed <= draws(16); seed++) {
    const random = new Random(seed);
    const fallback = FALLBACKS[(seed - 1) % 3] as string;
    const members = await mesh(fallback);
    const [keeper, ...others] = members as [Member, ...Member[]];
    let time = T;
    let made = 0;
    for (let step = 0; step < 30; step++) {
      time += 1;
      const one = members[random.below(members.length)] as Member;
      const kind = random.below(10);
      if (kind < 3 && has(one))
        write(
          one,
          `INSERT INTO items (id, name, nick, updated_at) VALUES ('r${++made}', 'n', 'real ${made}', ${time})`,
        );
      else if (kind < 6 && made > 0) {
        const id = `r${1 + random.below(made)}`;
        await known(members, 1, id);
        write(one, `UPDATE items SET name = '${one.name} ${step}', updated_at = ${time} WHERE id = '${id}'`);
      } else if (kind < 8) {
        const other = others[random.below(others.length)] as Member;
        const isRebuilt = random.below(3) === 0;
        // Who has the column back asks for the table: also those who have rows without it, before their writer has told of them.
        await known(members, made);
        // What waits there is told after the table that has no such column any more; and where it is not noticed that the
        // column was gone, nobody can tell: see docs/migrations.md.
        if (has(other) && isRebuilt) {
          await quiet(members);
          write(other, REBUILD);
          await other.manager.flush();
        } else if (has(other)) other.manager.migrate(DROP);
        else if (isRebuilt) write(other, add(fallback));
        else other.manager.migrate(add(fallback));
      } else await quiet(members);
    }
    for (const other of others) if (!has(other)) write(other, add(fallback));
    await quiet(members);
    await alike(members);
    const expected = rowsOf(keeper.db, "SELECT id, 'real ' || substr(id, 2) AS nick FROM items ORDER BY id");
    expect(rowsOf(keeper.db, 'SELECT id, nick FROM items ORDER BY id'), `seed ${seed}`).toEqual(expected);
    for (const { stop } of members) await stop();
  }
});
