/** The version order: what wins, on every node, in whatever order it arrives. */
import { describe, expect, test } from 'vitest';
import { attach, type Manager, type Statement } from '../../src/index.ts';
import { draws } from '../support/draws.ts';
import type { TestDatabase } from '../support/lane.ts';
import { Model, Random, type WireChange } from '../support/model.ts';
import { captured, cleanUp, database, exactRows, ITEMS, node, rowsOf, writeStamps } from '../support/nodes.ts';

/** Far in the future: SQLite's own clock, which stamps forgotten times, never reaches it, and seeds replay exactly. */
const FUTURE = 4_000_000_000_000;

function live(updatedAt: number, name: string | null = 'n', value: number | null = 1, op = 'UPDATE'): object {
  return { op, table: 'items', row: { id: 'a', name, value, created_at: 1, updated_at: updatedAt }, old_id: null };
}

function gone(updatedAt: number): object {
  return {
    op: 'DELETE',
    table: 'items',
    row: { id: 'a', name: 'old', value: 0, created_at: 1, updated_at: updatedAt },
    old_id: 'a',
  };
}

function deliver(manager: Manager, ...changes: object[]): number {
  const answer = manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=sender' });
  if (answer.status !== 200) throw new Error(answer.body.error);
  expect(answer.body.rejected).toBeUndefined();
  return answer.body.applied;
}

/** The same change in another spelling of the table's name, which the fast way of applying leaves to the careful one. */
function spelt(change: object): object {
  return { ...change, table: 'ITEMS' };
}

function tombstones(db: TestDatabase): unknown[] {
  return rowsOf(db, 'SELECT row_id, version FROM _tombstones ORDER BY row_id');
}

/** A write that had to be advanced may be recorded with both of its times; the greater one is what peers end up with. */
function newestCaptured(db: TestDatabase): unknown {
  const rows = captured(db).map(({ row }) => row);
  return rows.sort((a, b) => Number(b.updated_at) - Number(a.updated_at))[0];
}

const ALIVE = (name: string | null, value: number | null, updatedAt: number): string[] => [
  `text:'a'|${name === null ? 'null:NULL' : `text:'${name}'`}|${value === null ? 'null:NULL' : `integer:${value}`}|integer:1|integer:${updatedAt}`,
];

describe('two versions of a row end the same way whichever arrives first', () => {
  const cases: [string, object, object, string[]][] = [
    ['the greater updated_at wins', live(1000, 'z', 9), live(1001, 'a', 1), ALIVE('a', 1, 1001)],
    ['a time before 1970 loses to one after', live(-5, 'z'), live(5, 'a'), ALIVE('a', 1, 5)],
    ['0 and 1 are times like any other', live(0, 'z'), live(1, 'a'), ALIVE('a', 1, 1)],
    ['the content decides a tie', live(1000, 'ant'), live(1000, 'bee'), ALIVE('bee', 1, 1000)],
    ['a tie is decided by bytes, not by a language', live(1000, 'Zoe'), live(1000, 'amy'), ALIVE('amy', 1, 1000)],
    ['a shorter text loses to one that goes on', live(1000, 'a'), live(1000, 'aa'), ALIVE('aa', 1, 1000)],
    ['something beats nothing in a tie', live(1000, null, 9), live(1000, 'a', 9), ALIVE('a', 9, 1000)],
    ['a later column decides when the earlier are equal', live(1000, 'n', 1), live(1000, 'n', 2), ALIVE('n', 2, 1000)],
    ['INSERT and UPDATE weigh the same', live(1000, 'b', 1, 'INSERT'), live(1000, 'a', 1), ALIVE('b', 1, 1000)],
    ['a DELETE wins a tie', live(1000, 'zzz', 99), gone(1000), []],
    ['a DELETE loses to a later write', gone(1000), live(1001), ALIVE('n', 1, 1001)],
    ['a DELETE wins over an earlier write', live(999), gone(1000), []],
  ];
  for (const [name, first, second, expected] of cases) {
    test(name, async () => {
      for (const form of [(c: object) => c, spelt]) {
        const forth = await node();
        const back = await node();
        const together = await node();
        const reversed = await node();
        deliver(forth.manager, form(first));
        deliver(forth.manager, form(second));
        deliver(back.manager, form(second));
        deliver(back.manager, form(first));
        deliver(together.manager, form(first), form(second));
        deliver(reversed.manager, form(second), form(first));
        for (const { db } of [forth, back, together, reversed]) {
          expect(exactRows(db, 'items')).toEqual(expected);
          expect(captured(db)).toEqual([]);
        }
      }
    });
  }
});

describe('tombstones', () => {
  test('a DELETE of a row that is not there leaves one, and the row it meant stays dead when it comes late', async () => {
    for (const form of [(c: object) => c, spelt]) {
      const { db, manager } = await node();
      expect(deliver(manager, form(gone(1000)))).toBe(1);
      expect(tombstones(db)).toEqual([{ row_id: 'a', version: 1000 }]);
      expect(deliver(manager, form(live(999)))).toBe(0);
      expect(deliver(manager, form(live(1000, 'zzz', 99, 'INSERT')))).toBe(0);
      expect(exactRows(db, 'items')).toEqual([]);
    }
  });

  test('a write above one lives, and a late copy of the deletion does not take it away', async () => {
    for (const form of [(c: object) => c, spelt]) {
      const { db, manager } = await node();
      deliver(manager, form(gone(1000)));
      expect(deliver(manager, form(live(1001, 'again')))).toBe(1);
      expect(deliver(manager, form(gone(1000)))).toBe(0);
      expect(exactRows(db, 'items')).toEqual(ALIVE('again', 1, 1001));
    }
  });

  test('only ever rise', async () => {
    for (const form of [(c: object) => c, spelt]) {
      const { db, manager } = await node();
      deliver(manager, form(gone(1000)));
      deliver(manager, form(gone(900)));
      expect(tombstones(db)).toEqual([{ row_id: 'a', version: 1000 }]);
      deliver(manager, form(gone(1100)), form(gone(1050)));
      expect(tombstones(db)).toEqual([{ row_id: 'a', version: 1100 }]);
    }
  });

  test('a local deletion leaves one at the version of the row', async () => {
    const { db, manager } = await node();
    deliver(manager, live(1000));
    db.exec("DELETE FROM items WHERE id = 'a'");
    expect(tombstones(db)).toEqual([{ row_id: 'a', version: 1000 }]);
    expect(deliver(manager, live(1000, 'zzz', 99))).toBe(0);
    expect(deliver(manager, live(1001))).toBe(1);
  });

  test('a local re-insert at or below one is lifted above it', async () => {
    const { db, manager } = await node();
    deliver(manager, gone(FUTURE));
    db.exec(`INSERT INTO items VALUES ('a', 'again', 1, 1, 1000)`);
    writeStamps(manager);
    expect(exactRows(db, 'items')).toEqual(ALIVE('again', 1, FUTURE + 1));
    expect(newestCaptured(db)).toMatchObject({ name: 'again', updated_at: FUTURE + 1 });
    expect(deliver(manager, gone(FUTURE))).toBe(0);
    expect(exactRows(db, 'items')).toEqual(ALIVE('again', 1, FUTURE + 1));
  });
});

describe('an incoming time is never changed', () => {
  const times = [-8_640_000_000_000_000, -1, 0, 1, 2, FUTURE, 7_258_118_400_000];
  test.each(times)('%d arrives as it is', async (time) => {
    const { db, manager } = await node();
    expect(deliver(manager, live(time))).toBe(1);
    expect(exactRows(db, 'items')).toEqual(ALIVE('n', 1, time));
  });
  test.each(times)('a deletion at %d buries at that time', async (time) => {
    const { db, manager } = await node();
    expect(deliver(manager, gone(time))).toBe(1);
    expect(tombstones(db)).toEqual([{ row_id: 'a', version: time }]);
  });
});

describe('a local write always advances the row', () => {
  const local: [string, string, number][] = [
    ['an UPDATE behind the row', 'UPDATE items SET name = ?, updated_at = 1000', FUTURE + 1],
    ['an UPDATE that forgets updated_at', 'UPDATE items SET name = ?', FUTURE + 1],
    ['an UPDATE with NULL for a time', 'UPDATE items SET name = ?, updated_at = NULL', FUTURE + 1],
    ['an UPDATE with text for a time', "UPDATE items SET name = ?, updated_at = 'soon'", FUTURE + 1],
    ['an UPDATE with a time out of range', 'UPDATE items SET name = ?, updated_at = 8640000000000001', FUTURE + 1],
    [
      'an UPDATE ahead of the row, which keeps its own time',
      `UPDATE items SET name = ?, updated_at = ${FUTURE + 7}`,
      FUTURE + 7,
    ],
    ['REPLACE behind the row', "INSERT OR REPLACE INTO items VALUES ('a', ?, 1, 1, 1000)", FUTURE + 1],
    ['REPLACE at the row', `INSERT OR REPLACE INTO items VALUES ('a', ?, 1, 1, ${FUTURE})`, FUTURE + 1],
    [
      'REPLACE without a time',
      "INSERT OR REPLACE INTO items (id, name, value, created_at) VALUES ('a', ?, 1, 1)",
      FUTURE + 1,
    ],
    [
      'an UPSERT behind the row',
      "INSERT INTO items VALUES ('a', ?, 1, 1, 5) ON CONFLICT (id) DO UPDATE SET name = excluded.name, updated_at = excluded.updated_at",
      FUTURE + 1,
    ],
  ];
  test.each(local)('%s', async (_name, sql, expected) => {
    const { db, manager } = await node();
    deliver(manager, live(FUTURE, 'zzz'));
    db.prepare(sql).run('mine');
    writeStamps(manager);
    expect(exactRows(db, 'items')).toEqual(ALIVE('mine', 1, expected));
    expect(newestCaptured(db)).toMatchObject({ name: 'mine', updated_at: expected });
    // The version it had is beaten for good.
    expect(deliver(manager, live(FUTURE, 'zzz'))).toBe(0);
    expect(exactRows(db, 'items')).toEqual(ALIVE('mine', 1, expected));
  });

  test('a forgotten updated_at on an old row becomes the present time', async () => {
    const { db, manager } = await node();
    deliver(manager, live(1000));
    const before = Date.now() - 1;
    db.exec("UPDATE items SET name = 'mine'");
    const after = Date.now() + 1;
    writeStamps(manager);
    const [row] = rowsOf(db, 'SELECT updated_at FROM items');
    expect(row?.updated_at).toBeGreaterThanOrEqual(before);
    expect(row?.updated_at).toBeLessThanOrEqual(after);
  });

  test('SET id ends the old row and lifts the new one above what its id has been', async () => {
    const { db, manager } = await node();
    deliver(manager, live(1000));
    deliver(manager, { op: 'DELETE', table: 'items', row: { id: 'b', updated_at: FUTURE }, old_id: 'b' });
    db.exec("UPDATE items SET id = 'b', updated_at = 2000");
    writeStamps(manager);
    expect(rowsOf(db, 'SELECT id, updated_at FROM items')).toEqual([{ id: 'b', updated_at: FUTURE + 1 }]);
    expect(deliver(manager, live(1000, 'zzz'))).toBe(0);
  });
});

/** What a mutation does to the SQL that Rowcast hands to the database. */
type Rewrite = (sql: string) => string;

interface Site {
  db: TestDatabase;
  manager: Manager;
  /** Its statements, each prepared once. */
  prepared(sql: string): Statement;
  /** Changes up to here are on their way. */
  read: number;
  inbox: string[];
}

/** Three nodes without peers; the test itself carries their changes. `rewrite` sees every statement of Rowcast's. */
async function threeSites(rewrite?: Rewrite): Promise<Site[]> {
  const sites: Site[] = [];
  for (const id of ['one', 'two', 'three']) {
    const db = await database(
      `${ITEMS}; CREATE TABLE _nowhere (table_name, row_id, version, PRIMARY KEY (table_name, row_id))`,
    );
    // No keys to enforce here, and switching enforcement off and on for each batch would take most of the time.
    db.exec('PRAGMA foreign_keys = OFF');
    const handle = rewrite
      ? {
          exec: (sql: string) => db.exec(rewrite(sql)),
          prepare: (sql: string) => db.prepare(rewrite(sql)),
          transaction: (fn: () => unknown) => db.transaction(fn),
        }
      : db;
    const manager = attach(handle, { maxAheadMs: 0, id, peers: [] }, ['items']);
    cleanUp(() => manager.stop());
    const statements = new Map<string, Statement>();
    const prepared = (sql: string): Statement => {
      const statement = statements.get(sql) ?? db.prepare(sql);
      statements.set(sql, statement);
      return statement;
    };
    sites.push({ db, manager, prepared, read: 0, inbox: [] });
  }
  return sites;
}

/** Forty local writes on four rows, with times so close that ties are common, and deliveries in between. */
function simulate(sites: Site[], seed: number, check: boolean): string | undefined {
  const random = new Random(seed);
  const models = new Map(sites.map((site) => [site, new Model()]));
  const ids = [0, 1, 2, 3].map((n) => `${String(seed).padStart(5, '0')}-${n}`);
  const state = (site: Site): unknown[] =>
    plain(site.prepared('SELECT * FROM items WHERE id >= ? AND id <= ? ORDER BY id').all(ids[0], ids[3]));
  const verify = (site: Site, when: string): void => {
    if (check) expect(state(site), `seed ${seed}, ${when}`).toEqual(models.get(site)?.rows());
  };
  const send = (site: Site, count: number): void => {
    random.shuffle(site.inbox);
    const taken = site.inbox.splice(0, count);
    for (let start = 0; start < taken.length; ) {
      const size = 1 + random.below(Math.min(24, taken.length - start));
      const part = taken.slice(start, start + size);
      start += size;
      // A quarter arrives twice: in the same batch, or once more later.
      for (const change of [...part]) {
        if (random.chance(0.25)) (random.chance(0.5) ? part : site.inbox).push(change);
      }
      const answer = site.manager.receive(`{"batch_id":${start},"changes":[${part.join(',')}]}`, { said: 'id=sender' });
      if (answer.status !== 200) throw new Error(answer.body.error);
      const expected = models.get(site)?.mergeBatch(part.map((change) => JSON.parse(change) as WireChange));
      if (check) expect(answer.body, `seed ${seed}`).toEqual({ applied: expected, ack: start });
      verify(site, `after ${part.join('\n')}`);
    }
  };

  for (let operation = 0; operation < 40; operation++) {
    const site = random.pick(sites);
    const sql = writeLocally(site, random, ids);
    for (const change of collect(site)) {
      models.get(site)?.merge(JSON.parse(change) as WireChange);
      for (const other of sites) if (other !== site) other.inbox.push(change);
    }
    writeStamps(site.manager);
    verify(site, `after ${sql}`);
    const receiver = random.pick(sites);
    if (random.chance(0.3) && receiver.inbox.length > 0) send(receiver, 1 + random.below(12));
  }
  for (const site of sites) while (site.inbox.length > 0) send(site, 1 + random.below(60));

  const states = sites.map((site) => JSON.stringify(state(site)));
  return states.every((one) => one === states[0]) ? undefined : `seed ${seed} diverged:\n${states.join('\n')}`;
}

type Local = [sql: string, ...params: (string | number | null)[]];

/** Statements with parameters, each prepared once: to compile one with its triggers takes longer than all that it does. */
function writeLocally(site: Site, random: Random, ids: string[]): string {
  const id = random.pick(ids);
  const other = random.pick(ids);
  const name = random.pick(['ant', 'bee', 'cat', 'ant\u00e9', '']);
  const value = random.below(3) === 0 ? null : random.below(12);
  const time = FUTURE + random.below(6);
  const row = [id, name, value, time];
  const ITEM = 'items VALUES (?, ?, CAST(? AS INTEGER), 1, CAST(? AS INTEGER))';
  const TIMELESS = 'items (id, name, value) VALUES (?, ?, CAST(? AS INTEGER))';
  const SET = 'UPDATE items SET name = ?, value = CAST(? AS INTEGER)';
  const remove: Local = ['DELETE FROM items WHERE id = ?', id];
  const insert: Local = [`INSERT INTO ${ITEM}`, ...row];
  const statements = random.pick<Local[]>([
    [[`INSERT OR IGNORE INTO ${ITEM}`, ...row]],
    [[`INSERT OR IGNORE INTO ${ITEM}`, ...row]],
    [[`INSERT OR IGNORE INTO ${TIMELESS}`, id, name, value]],
    [
      [
        `INSERT INTO ${ITEM} ON CONFLICT (id) DO UPDATE SET name = excluded.name, updated_at = excluded.updated_at`,
        ...row,
      ],
    ],
    [[`INSERT OR REPLACE INTO ${ITEM}`, ...row]],
    [[`INSERT OR REPLACE INTO ${TIMELESS}`, id, name, value]],
    [[`${SET}, updated_at = CAST(? AS INTEGER) WHERE id = ?`, name, value, time, id]],
    [[`${SET}, updated_at = CAST(? AS INTEGER) WHERE id = ?`, name, value, time, id]],
    [
      [
        `${SET}, updated_at = CAST(? AS INTEGER) WHERE id BETWEEN ? AND ?`,
        ...[name, value, time, ids[0] as string, ids[3] as string],
      ],
    ],
    [[`${SET} WHERE id = ?`, name, value, id]],
    [
      [
        `UPDATE items SET value = CAST(? AS INTEGER), updated_at = ${random.pick(['NULL', "'soon'", '9e15', '1.5'])} WHERE id = ?`,
        value,
        id,
      ],
    ],
    [['UPDATE OR REPLACE items SET id = ?, updated_at = CAST(? AS INTEGER) WHERE id = ?', other, time, id]],
    [['UPDATE OR IGNORE items SET id = ? WHERE id = ?', other, id]],
    [remove],
    [remove],
    [['BEGIN'], remove, insert, ['COMMIT']],
    [['BEGIN'], remove, insert, ['ROLLBACK']],
  ]);
  for (const [sql, ...params] of statements) site.prepared(sql).run(...params);
  return JSON.stringify(statements);
}

const plain = (rows: unknown[]): Record<string, unknown>[] => rows.map((row) => ({ ...(row as object) }));

/** What the node captured since the last time, as it goes onto the wire. */
function collect(site: Site): string[] {
  const sql = 'SELECT change_id, op, row_id, row_data FROM _changes WHERE change_id > ? ORDER BY change_id';
  const rows = plain(site.prepared(sql).all(site.read));
  site.read = Math.max(site.read, ...rows.map((row) => Number(row.change_id)));
  return rows.map(
    ({ op, row_id, row_data }) =>
      `{"op":"${op}","table":"items","row":${row_data},"old_id":${op === 'DELETE' ? JSON.stringify(row_id) : 'null'}}`,
  );
}

const SEEDS = draws(200);

test(`three nodes that write, lose the order and repeat themselves converge on each of ${SEEDS} seeds`, async () => {
  const sites = await threeSites();
  for (let seed = 1; seed <= SEEDS; seed++) expect(simulate(sites, seed, true)).toBeUndefined();
  const [first, ...others] = sites.map(({ db }) => exactRows(db, 'items'));
  expect(first?.length).toBeGreaterThan(SEEDS);
  for (const other of others) expect(other).toEqual(first);
  for (const { db } of sites) expect(rowsOf(db, 'SELECT * FROM _dead_letter')).toEqual([]);
});

describe('the same three nodes diverge', () => {
  const TIE = /( WHERE \(\S+\."updated_at" )>=( excluded\."updated_at"\) IS NOT 1) OR \(excluded\..*$/s;
  const mutations: [string, Rewrite][] = [
    ['when only a greater time wins and a tie is left as it is', (sql) => sql.replace(TIE, '$1>=$2')],
    ['when a tie goes to what arrives last', (sql) => sql.replace(TIE, '$1>$2')],
    ['when there are no tombstones', (sql) => sql.replaceAll('INSERT INTO _tombstones (', 'INSERT INTO _nowhere (')],
    [
      'when a local write does not advance the row',
      (sql) =>
        sql.startsWith('CREATE TRIGGER')
          ? sql
              .replaceAll('NEW."updated_at" > OLD."updated_at"', '1')
              .replaceAll('AND version >= NEW."updated_at"', 'AND 0')
          : sql,
    ],
  ];
  test.each(mutations)('%s', async (_name, mutate) => {
    let rewritten = 0;
    const sites = await threeSites((sql) => {
      const mutated = mutate(sql);
      if (mutated !== sql) rewritten++;
      return mutated;
    });
    let diverged = 0;
    for (let seed = 1; seed <= 200 && diverged < 3; seed++) {
      if (simulate(sites, seed, false)) diverged++;
      expect(rewritten, 'the mutation no longer finds what it is to change').toBeGreaterThan(0);
    }
    expect(diverged).toBe(3);
  });
});
