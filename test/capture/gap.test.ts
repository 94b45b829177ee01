/** Tables that were without their triggers for a while: rebuilt, tampered with, renamed, or off the list. */
import { describe, expect, test } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import { attach, type Config, type Manager } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import {
  cleanUp,
  database,
  exactRows,
  ITEMS,
  node,
  rowsOf,
  serve,
  serveManager,
  type TestNode,
  until,
} from '../support/nodes.ts';
import { batchIn } from '../support/tabular.ts';

const NOTES = 'CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT, updated_at INTEGER)';

interface Attached {
  db: TestDatabase;
  manager: Manager;
  warnings: { code: string; message: string }[];
}

function attached(db: TestDatabase, config: Partial<Config> = {}, tables = ['items']): Attached {
  const manager = attach(db, { id: 'node', peers: [], batchMs: 3_600_000, ...config }, tables);
  cleanUp(() => manager.stop());
  const warnings: Attached['warnings'] = [];
  manager.on('warning', (warning) => warnings.push(warning));
  return { db, manager, warnings };
}

const gaps = ({ warnings }: Attached): string[] =>
  warnings.filter(({ code }) => code === 'capture-gap').map(({ message }) => message);

/** What drizzle, prisma and rails generate to change a column. */
const REBUILD =
  `BEGIN; ${ITEMS.replace('items', 'new_items')}; INSERT INTO new_items SELECT * FROM items; DROP TABLE items; ` +
  'ALTER TABLE new_items RENAME TO items; COMMIT';

const write = (db: TestDatabase, id: string, name = 'n'): unknown =>
  db.exec(`INSERT INTO items VALUES ('${id}', '${name}', 1, 1, 1000)`);

/** Two nodes that send to each other. */
async function mesh(): Promise<{ one: Attached; other: TestNode; converge(): Promise<void> }> {
  const address: { of?: Manager } = {};
  const url = await serve((request, response) => createListener(address.of as Manager)(request, response));
  const other = await node({ id: 'other', peers: [url], batchMs: 3_600_000 });
  const one = attached(await database(), { id: 'one', peers: [await serveManager(other.manager)] });
  address.of = one.manager;
  const converge = async (): Promise<void> => {
    await one.manager.flush();
    await other.manager.flush();
  };
  return { one, other, converge };
}

describe('a table that was rebuilt while attached', () => {
  test('is noticed by the next tick, without peers and without traffic, and said once', async () => {
    const it = attached(await database());
    it.db.exec(REBUILD);
    write(it.db, 'unseen');
    await until('the gap is told', () => gaps(it).length > 0);
    expect(gaps(it)).toEqual([expect.stringContaining('table "items"')]);
    expect(it.manager.health().ok).toBe(true);
    write(it.db, 'seen');
    expect(rowsOf(it.db, 'SELECT row_id FROM _changes')).toEqual([{ row_id: 'seen' }]);
  });

  test('what was written to it meanwhile reaches the peer, and what is invalid there gets a time', async () => {
    const receiver = await node({ id: 'receiver' });
    const it = attached(await database(), { peers: [await serveManager(receiver.manager)] });
    write(it.db, 'before');
    await it.manager.flush();
    it.db.exec(REBUILD);
    write(it.db, 'unseen');
    it.db.exec("INSERT INTO items VALUES ('timeless', 'n', 1, 1, NULL)");
    it.db.exec("UPDATE items SET name = 'unseen too', updated_at = 2000 WHERE id = 'before'");
    await it.manager.flush();
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(it.db, 'items'));
    expect(receiver.all('SELECT id FROM items ORDER BY id').map(({ id }) => id)).toEqual([
      'before',
      'timeless',
      'unseen',
    ]);
  });

  test('also where the process that noticed has ended before it could send anything', async () => {
    const receiver = await node({ id: 'receiver' });
    const peers = [await serveManager(receiver.manager)];
    const db = await database();
    const first = attached(db, { peers });
    write(db, 'before');
    await first.manager.flush();
    await first.manager.stop();
    db.exec(REBUILD);
    write(db, 'unseen');
    // Installs, and is gone.
    await attached(db, { peers }).manager.stop();
    await attached(db, { peers }).manager.flush();
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(db, 'items'));
  });

  test('both nodes end the same: what was changed at its old time, and what was deleted, included', async () => {
    const { one, other, converge } = await mesh();
    for (const id of ['a', 'b', 'c', 'd']) write(one.db, id, 'm');
    await converge();
    const walks = (): number => Number(other.all('SELECT snapshot_run FROM _peer_state')[0]?.snapshot_run);
    const walked = walks();
    one.db.exec(REBUILD);
    one.db.exec("UPDATE items SET name = 'a smaller text' WHERE id = 'a'; UPDATE items SET name = 'z' WHERE id = 'b'");
    one.db.exec("DELETE FROM items WHERE id = 'c'");
    await converge();
    await until('what was asked for is on its way', () => walks() > walked);
    await converge();
    await converge();
    expect(exactRows(one.db, 'items')).toEqual(exactRows(other.db, 'items'));
    // Nothing says that it was deleted: it comes back rather than being lost.
    expect(other.all('SELECT id, name FROM items ORDER BY id')).toEqual([
      { id: 'a', name: 'm' },
      { id: 'b', name: 'z' },
      { id: 'c', name: 'm' },
      { id: 'd', name: 'm' },
    ]);
    expect(rowsOf(one.db, 'SELECT asks, tail_from FROM _peer_state')).toEqual([{ asks: null, tail_from: null }]);
  });

  test('other tables are not sent again', async () => {
    const bodies: string[] = [];
    const fetch: Config['fetch'] = async (_url, { body }) => {
      bodies.push(new TextDecoder().decode(body));
      return { status: 200, text: async () => `{"applied":1,"ack":${JSON.parse(bodies.at(-1) as string).batch_id}}` };
    };
    const it = attached(await database(`${ITEMS};${NOTES}`), { peers: ['http://peer.test'], fetch }, [
      'items',
      'notes',
    ]);
    write(it.db, 'a');
    it.db.exec("INSERT INTO notes VALUES ('n', 'x', 1)");
    await it.manager.flush();
    bodies.length = 0;
    it.db.exec(REBUILD);
    await it.manager.flush();
    // The table, and then the question for the peer's own, which is a batch without changes.
    expect(bodies.map((body) => JSON.parse(body).changes.map(({ table }: { table: string }) => table))).toEqual([
      ['items'],
      [],
    ]);
  });

  test('in the middle of a walk: the walk begins again, and nothing of it is passed over', async () => {
    const held: { release?: () => void } = {};
    const seen = new Set<string>();
    let hold = true;
    const fetch: Config['fetch'] = async (_url, { body }) => {
      const batch = JSON.parse(new TextDecoder().decode(body));
      if (hold) await new Promise<void>((resolve) => Object.assign(held, { release: resolve }));
      hold = false;
      for (const { row } of batch.changes) seen.add(row.id);
      return { status: 200, text: async () => `{"applied":1,"ack":${batch.batch_id}}` };
    };
    const db = await database();
    const before = ['m1', 'm2', 'm3', 'm4', 'm5', 'm6', 'm7', 'm8'];
    for (const id of before) write(db, id);
    const it = attached(db, { peers: ['http://peer.test'], fetch, batchSize: 2 });
    const flushed = it.manager.flush();
    await until('a page is under way', () => held.release !== undefined);
    db.exec(REBUILD);
    write(db, 'a-before-the-page');
    await until('it is noticed', () => gaps(it).length === 1);
    held.release?.();
    await flushed;
    await it.manager.flush();
    expect([...seen].sort()).toEqual(['a-before-the-page', ...before]);
  });
});

describe('triggers that somebody has touched', () => {
  test.each([
    ['one is missing', 'DROP TRIGGER _rowcast_items_delete'],
    [
      'one is another',
      'DROP TRIGGER _rowcast_items_delete; CREATE TRIGGER _rowcast_items_delete AFTER DELETE ON items BEGIN SELECT 1; END',
    ],
  ])('%s: one warning, while attached', async (_what, sql) => {
    const it = attached(await database());
    it.db.exec(sql);
    await until('the gap is told', () => gaps(it).length > 0);
    expect(gaps(it)).toHaveLength(1);
  });

  test('between two attaches: one warning', async () => {
    const db = await database();
    await attached(db).manager.stop();
    for (const { name } of rowsOf(db, "SELECT name FROM sqlite_schema WHERE type = 'trigger'")) {
      db.exec(`DROP TRIGGER "${name}"`);
    }
    const it = attached(db);
    await Promise.resolve();
    expect(gaps(it)).toHaveLength(1);
  });

  test.each([
    ['a new column', 'ALTER TABLE items ADD COLUMN colour TEXT'],
    ['a renamed column', 'ALTER TABLE items RENAME COLUMN value TO worth'],
    ['a table of its own', NOTES],
    ['a new index', 'CREATE INDEX by_name ON items (name)'],
  ])('%s is no gap', async (_what, sql) => {
    const it = attached(await database());
    it.db.exec(sql);
    await it.manager.applyChanges([]);
    await Promise.resolve();
    expect(gaps(it)).toEqual([]);
  });

  test('texts that another build has made are no gap', async () => {
    const db = await database();
    await attached(db).manager.stop();
    db.exec('DROP TRIGGER _rowcast_items_delete');
    db.exec('CREATE TRIGGER _rowcast_items_delete AFTER DELETE ON items BEGIN SELECT 1; END');
    db.exec("DELETE FROM _meta WHERE key LIKE 'capture:%'");
    const it = attached(db);
    await Promise.resolve();
    expect(gaps(it)).toEqual([]);
  });
});

describe('a UNIQUE constraint that the triggers did not know yet', () => {
  const INDEX = 'CREATE UNIQUE INDEX names ON items (name)';
  const replace = (db: TestDatabase): unknown => db.exec("REPLACE INTO items VALUES ('winner', 'n', 1, 1, 2000)");

  test.each([
    ['while attached', false],
    ['with nobody attached', true],
  ])('what a REPLACE removes by it, %s, is not missing here alone', async (_when, isAway) => {
    const { one, other, converge } = await mesh();
    write(one.db, 'removed');
    await converge();
    other.db.exec(INDEX);
    const walks = (): number => Number(other.all('SELECT snapshot_run FROM _peer_state')[0]?.snapshot_run);
    const walked = walks();
    const { peers } = one.manager.health();
    if (isAway) await one.manager.stop();
    one.db.exec(INDEX);
    replace(one.db);
    expect(rowsOf(one.db, 'SELECT id FROM items')).toEqual([{ id: 'winner' }]);
    const then = isAway ? attached(one.db, { id: 'one', peers }) : one;
    await then.manager.flush();
    await until('the gap is told', () => gaps(then).length > 0);
    expect(gaps(then)).toEqual([expect.stringContaining('a UNIQUE constraint that its capture triggers did not know')]);
    if (isAway) return;
    await until('what was asked for is on its way', () => walks() > walked);
    await converge();
    await converge();
    expect(exactRows(one.db, 'items')).toEqual(exactRows(other.db, 'items'));
    const hidden = 'SELECT row_id, version FROM _hidden';
    expect(rowsOf(one.db, hidden)).toEqual([{ row_id: 'removed', version: 1000 }]);
    expect(other.all(hidden)).toEqual(rowsOf(one.db, hidden));
  });

  test('is no gap where nothing was written under it, nor where one of its columns is renamed', async () => {
    const receiver = await node({ id: 'receiver' });
    const it = attached(await database(), { peers: [await serveManager(receiver.manager)] });
    write(it.db, 'before');
    await it.manager.flush();
    it.db.exec(INDEX);
    await it.manager.flush();
    // Now they know it, and what is removed by it is recorded.
    replace(it.db);
    expect(rowsOf(it.db, "SELECT row_id FROM _changes WHERE op = 'DELETE'")).toEqual([{ row_id: 'before' }]);
    it.db.exec("ALTER TABLE items RENAME COLUMN name TO title; UPDATE items SET title = 'other'");
    await it.manager.flush();
    expect(gaps(it)).toEqual([]);
  });
});

describe('a table that goes away', () => {
  test('renamed while attached: one warning, which says what to do', async () => {
    const it = attached(await database());
    it.db.exec('ALTER TABLE items RENAME TO things');
    await until('it is told', () => it.warnings.length > 0);
    it.db.exec('CREATE TABLE something_else (a)');
    it.manager.applyChanges([]);
    await Promise.resolve();
    expect(it.warnings).toEqual([
      { code: 'table-lost', message: expect.stringContaining('"items" was renamed to "things"') },
    ]);
    expect(it.warnings[0]?.message).toContain("migrate('', { renameTable: { items: 'things' } })");
  });

  test.each(['attached', 'stopped'])(
    'changing names with another, %s: both are captured as what they are now',
    async (when) => {
      const db = await database(ITEMS);
      db.exec(NOTES);
      const first = attached(db, {}, ['items', 'notes']);
      db.exec("INSERT INTO items VALUES ('a', 'n', 1, 1, 1000); INSERT INTO notes VALUES ('b', 'n', 1000)");
      if (when === 'stopped') await first.manager.stop();
      db.exec('ALTER TABLE items RENAME TO t; ALTER TABLE notes RENAME TO items; ALTER TABLE t RENAME TO notes');
      const one = when === 'stopped' ? attached(db, {}, ['items', 'notes']) : first;
      const since = rowsOf(db, 'SELECT max(change_id) AS n FROM _changes')[0]?.n;
      one.manager.applyChanges([]);
      await Promise.resolve();
      expect(gaps(one)).toHaveLength(2);
      db.exec("INSERT INTO items VALUES ('c', 'n', 2000); INSERT INTO notes VALUES ('d', 'n', 1, 1, 2000)");
      expect(rowsOf(db, `SELECT table_name, row_id FROM _changes WHERE change_id > ${since} AND row_id > 'b'`)).toEqual(
        [
          { table_name: 'items', row_id: 'c' },
          { table_name: 'notes', row_id: 'd' },
        ],
      );
      expect(one.manager.health()).toMatchObject({ ok: true });
    },
  );

  test.each(['ADD COLUMN rowid TEXT', 'RENAME COLUMN name TO rowid'])(
    '%s: a row that waits for its time is found by another name of its rowid',
    async (alter) => {
      const db = await database(ITEMS);
      const first = attached(db);
      await first.manager.stop();
      db.exec(`ALTER TABLE items ${alter}; INSERT INTO items (id) VALUES ('untimed')`);
      const one = attached(db);
      await Promise.resolve();
      expect(gaps(one)).toHaveLength(1);
      expect(rowsOf(db, "SELECT row_id FROM _changes WHERE row_id = 'untimed'")).toHaveLength(1);
      expect(rowsOf(db, 'SELECT id FROM items WHERE updated_at > 1')).toEqual([{ id: 'untimed' }]);
      await one.manager.stop();
      const again = attached(db);
      await Promise.resolve();
      expect(gaps(again)).toEqual([]);
    },
  );

  test('taken off the list: one warning', async () => {
    const db = await database(`${ITEMS};${NOTES}`);
    await attached(db, {}, ['items', 'notes']).manager.stop();
    const it = attached(db, {}, ['items']);
    await Promise.resolve();
    expect(it.warnings.map(({ code }) => code)).toEqual(['table-dropped']);
  });

  test('taken off and put back: what was written meanwhile reaches the peer, below a tombstone too', async () => {
    const receiver = await node({ id: 'receiver', schema: `${ITEMS};${NOTES}`, tables: ['items', 'notes'] });
    const peers = [await serveManager(receiver.manager)];
    const db = await database(`${ITEMS};${NOTES}`);
    const first = attached(db, { peers }, ['items', 'notes']);
    write(db, 'again');
    write(db, 'changed');
    await first.manager.flush();
    db.exec("DELETE FROM items WHERE id = 'again'");
    await first.manager.flush();
    await first.manager.stop();
    const without = attached(db, { peers }, ['notes']);
    write(db, 'again', 'below its tombstone');
    db.exec("UPDATE items SET name = 'unseen', updated_at = 2000 WHERE id = 'changed'");
    await without.manager.flush();
    await without.manager.stop();
    const it = attached(db, { peers }, ['items', 'notes']);
    await it.manager.flush();
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(db, 'items'));
    expect(receiver.all('SELECT id, name FROM items ORDER BY id')).toEqual([
      { id: 'again', name: 'below its tombstone' },
      { id: 'changed', name: 'unseen' },
    ]);
    expect(gaps(it)).toEqual([]);
  });
});

test.each([1, 2])('a peer is asked although the application never stops writing: one of %i', async (peers) => {
  /** How much was written when a peer was first asked. */
  const asked = new Map<string, number>();
  let written = 0;
  const it = attached(await database(), {
    peers: ['http://one.test', 'http://two.test'].slice(0, peers),
    batchMs: 1,
    fetch: async (url, { body, headers }) => {
      if (new Headers(headers).has('x-send-again') && !asked.has(url)) asked.set(url, written);
      await new Promise((resolve) => setImmediate(resolve));
      // Whenever a peer has something, there is more, before what a walk has passed; for the sake of the test not for ever.
      if (written < 300) write(it.db, `a-${500 - written++}`);
      return { status: 200, text: async () => JSON.stringify({ applied: 0, ack: batchIn(body).batch_id }) };
    },
  });
  write(it.db, 'before');
  it.db.exec(REBUILD);
  await until('all are asked', () => asked.size === peers);
  for (const before of asked.values()) expect(before).toBeLessThan(100);
});

describe('a table that has another gap', () => {
  /** A node that sends one change at a time, and what its peer was sent: ids, and `?` where it was asked for its rows. */
  async function oneByOne(meanwhile: (it: Attached, sent: string[]) => void): Promise<string[]> {
    const sent: string[] = [];
    const it = attached(await database(), {
      peers: ['http://one.test'],
      batchSize: 1,
      fetch: async (_, { body, headers }) => {
        const { batch_id, changes } = batchIn(body);
        sent.push(...changes.map(({ row }) => String(row?.id)));
        if (new Headers(headers).has('x-send-again')) {
          sent.push('?');
          meanwhile(it, sent);
        }
        return { status: 200, text: async () => JSON.stringify({ applied: 0, ack: batch_id }) };
      },
    });
    write(it.db, 'a');
    unseen(it);
    meanwhile(it, sent);
    await it.manager.flush();
    return sent;
  }

  /** What was captured is deleted while nobody looks; then that is noticed. */
  function unseen({ db, manager }: Attached): void {
    db.exec(`${REBUILD}; DELETE FROM items`);
    manager.receive('{"batch_id":1,"changes":[]}');
  }

  function again(it: Attached): void {
    for (const id of ['b', 'c', 'd']) write(it.db, id);
    unseen(it);
  }

  test('before its peer was asked: the peer must have what was captured until then', async () => {
    const sent = await oneByOne((it, sent) => sent.length === 0 && again(it));
    expect(sent).toEqual(['a', 'b', 'c', 'd', '?']);
  });

  test('while the question is on its way: the peer is asked again', async () => {
    const sent = await oneByOne((it, sent) => sent.length > 0 && !sent.includes('b') && again(it));
    expect(sent).toEqual(['a', '?', 'b', 'c', 'd', '?']);
  });

  test('while the question is on its way, and nothing was captured in between: the peer is asked again', async () => {
    const sent = await oneByOne((it, sent) => sent.length === 2 && unseen(it));
    expect(sent).toEqual(['a', '?', '?']);
  });
});

test('a table is sent again for the asking at most once in ten minutes, whoever asks', async () => {
  const { one, other, converge } = await mesh();
  write(one.db, 'a');
  await converge();
  const ask = (from: string): unknown =>
    other.manager.receive('{"batch_id":1,"changes":[]}', {
      from,
      sendAgain: encodeURIComponent('["items","nothing"]'),
    });
  const runs = (): unknown => other.all('SELECT snapshot_run FROM _peer_state')[0]?.snapshot_run;
  const before = Number(runs());
  ask('one');
  await until('it is served', () => Number(runs()) === before + 1);
  for (let i = 0; i < 20; i++) ask(`somebody ${i}`);
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(runs()).toBe(before + 1);
  // It is not forgotten either.
  expect(other.all("SELECT value FROM _meta WHERE key = 'asked_for'")).toEqual([{ value: '["items"]' }]);
  for (const nonsense of ['', '%', '[', '{}', '[1]', 'null', '"items"']) {
    expect(other.manager.receive('{"batch_id":1,"changes":[]}', { sendAgain: nonsense }).status).toBe(200);
  }
});

describe("a table of replication's own that somebody has dropped, as a tool does that knows its own tables alone", () => {
  test('what was waiting in _changes reaches the peer all the same, deletions included', async () => {
    const receiver = await node({ id: 'receiver' });
    const it = attached(await database(), { peers: [await serveManager(receiver.manager)] });
    for (const id of ['a', 'b']) write(it.db, id);
    await it.manager.flush();
    write(it.db, 'pending');
    it.db.exec("DELETE FROM items WHERE id = 'a'");
    it.db.exec('DROP TABLE _changes');
    await it.manager.flush();
    expect(gaps(it)).toEqual([expect.stringMatching(/somebody has dropped _changes,.* table "items"/)]);
    expect(receiver.all('SELECT id FROM items ORDER BY id')).toEqual([{ id: 'b' }, { id: 'pending' }]);
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(it.db, 'items'));
    write(it.db, 'later');
    await it.manager.flush();
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(it.db, 'items'));
    expect(gaps(it)).toHaveLength(1);
  });

  test('and so it does where that was done while nobody was attached', async () => {
    const receiver = await node({ id: 'receiver' });
    const peers = [await serveManager(receiver.manager)];
    const db = await database();
    const first = attached(db, { peers });
    write(db, 'a');
    await first.manager.flush();
    await first.manager.stop();
    write(db, 'pending');
    db.exec('DROP TABLE _changes');
    const second = attached(db, { peers });
    await second.manager.flush();
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(db, 'items'));
  });

  test('deletions that _tombstones told of are asked of the peers', async () => {
    const { one, other, converge } = await mesh();
    for (const id of ['a', 'b']) write(one.db, id);
    one.db.exec("DELETE FROM items WHERE id = 'a'");
    await converge();
    one.db.exec('DROP TABLE _tombstones');
    await converge();
    await until('the deletion is known again', async () => {
      await converge();
      return rowsOf(one.db, 'SELECT row_id FROM _tombstones').length > 0;
    });
    expect(exactRows(one.db, 'items')).toEqual(exactRows(other.db, 'items'));
  });
});
