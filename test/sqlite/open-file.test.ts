/** A file that is moved, deleted or replaced under a running node: SQLite notices nothing, and the node must. */
import { copyFileSync, existsSync, mkdirSync, renameSync, rmSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ItemStore } from '../../src/cli/items/store.ts';
import { systemClock } from '../../src/clock.ts';
import { createHub } from '../../src/hub/hub.ts';
import { attach } from '../../src/index.ts';
import { cleanUp, database, ITEMS, node, scratchFolder } from '../support/nodes.ts';

const change = (id: string) => ({
  op: 'INSERT',
  table: 'items',
  row: { id, name: 'n', value: 1, created_at: 1, updated_at: 1000 },
  old_id: null,
});
const batch = (id: string): string => JSON.stringify({ batch_id: 1, changes: [change(id)] });

/** What an operator may do to the file, and what is said of it. */
const done: [string, RegExp, (file: string) => () => void][] = [
  ['moved away', /was moved or deleted/, (file) => moved(file)],
  [
    'deleted',
    /was moved or deleted/,
    (file) => {
      rmSync(file);
      return () => {};
    },
  ],
  [
    'replaced by a copy',
    /is another file now/,
    (file) => {
      const back = moved(file);
      copyFileSync(`${file}.old/main`, file);
      return () => {
        rmSync(file);
        back();
      };
    },
  ],
];

function moved(file: string): () => void {
  mkdirSync(`${file}.old`);
  renameSync(file, `${file}.old/main`);
  return () => renameSync(`${file}.old/main`, file);
}

describe.each(done)('a database file that is %s', (what, said, disturb) => {
  test('is a problem of the node, which acknowledges nothing until the file is back', async () => {
    const path = join(scratchFolder(), 'node.db');
    const { manager, all } = await node({ path });
    expect(manager.receive(batch('before')).status).toBe(200);
    const undo = disturb(path);
    expect(manager.receive(batch('after'))).toMatchObject({
      status: 503,
      body: { error: expect.stringMatching(said) },
    });
    const { ok, problems } = manager.health();
    expect(ok).toBe(false);
    expect(problems).toEqual([expect.stringMatching(said)]);
    expect(all('SELECT id FROM items')).toEqual([{ id: 'before' }]);
    undo();
    if (what === 'deleted') return;
    expect(manager.health()).toMatchObject({ ok: true, problems: [] });
    expect(manager.receive(batch('after')).status).toBe(200);
  });

  test('is a problem of a hub as well', async () => {
    const path = join(scratchFolder(), 'hub.db');
    const hub = await createHub(await database('SELECT 1', path), { id: 'hub', edges: [], maxAheadMs: 0 });
    cleanUp(() => hub.stop());
    expect((await hub.receive(batch('before'))).status).toBe(200);
    disturb(path);
    expect(await hub.receive(batch('after'))).toMatchObject({ status: 503 });
    const { ok, problems } = await hub.health();
    expect(ok).toBe(false);
    expect(problems).toEqual([expect.stringMatching(said)]);
  });

  test('takes no item of the routes', async () => {
    const path = join(scratchFolder(), 'items.db');
    const { db } = await node({ path });
    const store = new ItemStore(db, 'here', systemClock);
    cleanUp(() => store.release());
    const id = '01890a5d-ac96-774b-bcce-b302099a8057';
    const item = { name: 'n', value: null };
    store.create({ id, ...item });
    disturb(path);
    expect(() => store.create(item)).toThrow(said);
    expect(() => store.createAll([item])).toThrow(said);
    expect(() => store.update(id, { name: 'm' })).toThrow(said);
    expect(() => store.delete(id)).toThrow(said);
    expect(store.get(id)).toMatch(/"name":"n"/);
  });
});

/** What an operator may do to the WAL beside it. */
const toTheWal: [string, RegExp, (wal: string) => void][] = [
  ['deleted', /node\.db-wal was moved or deleted.* Stop it with SIGTERM/, (wal) => rmSync(wal)],
  [
    'replaced by a copy',
    /node\.db-wal is another file now/,
    (wal) => {
      copyFileSync(wal, `${wal}.copy`);
      renameSync(`${wal}.copy`, wal);
    },
  ],
  ['emptied', /node\.db-wal was emptied.* End it with kill -9/, (wal) => truncateSync(wal)],
];

describe.each(toTheWal)('a WAL that is %s', (_, said, disturb) => {
  test('is a problem of the node, which acknowledges nothing any more', async () => {
    const path = join(scratchFolder(), 'node.db');
    const { manager, db } = await node({ path });
    db.exec('PRAGMA journal_mode = WAL');
    const store = new ItemStore(db, 'here', systemClock);
    cleanUp(() => store.release());
    expect(manager.receive(batch('before')).status).toBe(200);
    expect(manager.health()).toMatchObject({ ok: true, problems: [] });
    disturb(`${path}-wal`);
    expect(manager.receive(batch('after'))).toMatchObject({
      status: 503,
      body: { error: expect.stringMatching(said) },
    });
    expect(manager.health()).toMatchObject({ ok: false, problems: [expect.stringMatching(said)] });
    expect(() => store.create({ name: 'n', value: null })).toThrow(said);
  });
});

/** Other processes would make another one, and go by that. */
const toItsIndex: [string, RegExp, (shm: string) => void][] = [
  ['deleted', /node\.db-shm was moved or deleted.* every process that has it open with kill -9/, (shm) => rmSync(shm)],
  [
    'replaced by a copy',
    /node\.db-shm is another file now/,
    (shm) => {
      copyFileSync(shm, `${shm}.copy`);
      renameSync(`${shm}.copy`, shm);
    },
  ],
];

describe.each(toItsIndex)('the index of a WAL that is %s', (_, said, disturb) => {
  test('is a problem of the node, which acknowledges nothing any more', async () => {
    const path = join(scratchFolder(), 'node.db');
    const { manager, db } = await node({ path });
    db.exec('PRAGMA journal_mode = WAL');
    expect(manager.receive(batch('before')).status).toBe(200);
    expect(manager.health()).toMatchObject({ ok: true, problems: [] });
    disturb(`${path}-shm`);
    expect(manager.health()).toMatchObject({ ok: false, problems: [expect.stringMatching(said)] });
    expect(manager.receive(batch('after'))).toMatchObject({
      status: 503,
      body: { error: expect.stringMatching(said) },
    });
  });
});

test('a connection that has the database for itself alone has no index to lose', async () => {
  const path = join(scratchFolder(), 'node.db');
  const db = await database(`PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; ${ITEMS}`, path);
  const manager = attach(db, { id: 'here', peers: [], maxAheadMs: 0 }, ['items']);
  cleanUp(() => manager.stop());
  expect(manager.receive(batch('before')).status).toBe(200);
  expect(existsSync(`${path}-shm`)).toBe(false);
  expect(manager.health()).toMatchObject({ ok: true, problems: [] });
});

test('a WAL that is deleted is a problem of a hub as well', async () => {
  const path = join(scratchFolder(), 'hub.db');
  const hub = await createHub(await database('PRAGMA journal_mode = WAL', path), {
    id: 'hub',
    edges: [],
    maxAheadMs: 0,
  });
  cleanUp(() => hub.stop());
  expect((await hub.receive(batch('before'))).status).toBe(200);
  rmSync(`${path}-wal`);
  expect(await hub.receive(batch('after'))).toMatchObject({ status: 503 });
  expect((await hub.health()).problems).toEqual([expect.stringMatching(/hub\.db-wal was moved or deleted/)]);
});

test('a WAL that was emptied and then written to begins with a hole, and is a problem', async () => {
  const path = join(scratchFolder(), 'node.db');
  const { manager, db } = await node({ path });
  db.exec('PRAGMA journal_mode = WAL');
  expect(manager.receive(batch('before')).status).toBe(200);
  truncateSync(`${path}-wal`);
  db.exec("INSERT INTO items VALUES ('a', 'n', 1, 1, 1000)");
  expect(manager.health()).toMatchObject({ ok: false, problems: [expect.stringMatching(/node\.db-wal was emptied/)] });
  expect(manager.receive(batch('after'))).toMatchObject({ status: 503 });
});

test('a WAL that a checkpoint leaves empty is no problem', async () => {
  const path = join(scratchFolder(), 'node.db');
  const { manager, db } = await node({ path });
  const other = await database('PRAGMA journal_mode = WAL', path);
  for (const [i, one] of [db, other, db].entries()) {
    expect(manager.receive(batch(`before-${i}`)).status).toBe(200);
    expect(manager.health()).toMatchObject({ ok: true, problems: [] });
    one.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    expect(statSync(`${path}-wal`).size).toBe(0);
    expect(manager.health()).toMatchObject({ ok: true, problems: [] });
    expect(manager.receive(batch(`after-${i}`)).status).toBe(200);
  }
});

test('a database file that is emptied is a problem of the node', async () => {
  const path = join(scratchFolder(), 'node.db');
  const { manager } = await node({ path });
  expect(manager.health()).toMatchObject({ ok: true, problems: [] });
  truncateSync(path);
  expect(manager.health()).toMatchObject({ ok: false, problems: [expect.stringMatching(/node\.db was emptied/)] });
  expect(manager.receive(batch('after'))).toMatchObject({ status: 503 });
});

test('a journal that is changed to and fro by the application is no problem', async () => {
  const path = join(scratchFolder(), 'node.db');
  const { manager, db } = await node({ path });
  for (const mode of ['WAL', 'DELETE', 'WAL', 'TRUNCATE', 'WAL']) {
    db.exec(`PRAGMA journal_mode = ${mode}`);
    expect(manager.health(), mode).toMatchObject({ ok: true, problems: [] });
    expect(manager.receive(batch(mode)).status).toBe(200);
  }
  // Between two looks.
  db.exec('PRAGMA journal_mode = DELETE; PRAGMA journal_mode = WAL');
  expect(manager.receive(batch('last')).status).toBe(200);
  expect(manager.health()).toMatchObject({ ok: true, problems: [] });
});

test('a database in memory has no file to lose', async () => {
  const { manager } = await node();
  expect(manager.health()).toMatchObject({ ok: true, problems: [] });
});
