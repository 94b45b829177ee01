/** A file of which some pages are damaged: whoever meets one first, health is not ok from then on, and says what to do. */
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ItemStore } from '../../src/cli/items/store.ts';
import { createHub } from '../../src/hub/hub.ts';
import { attach, type Manager } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database, ITEMS, scratchFolder } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const PAGE = 4096;
const PEER = 'http://peer.test';
const ROWS = 3_000;
const FILLING = 'x'.repeat(300);
const DAMAGED = [expect.stringMatching(/^the database file is damaged: .*put back a backup.*the other nodes fill it/)];

/** Pages that hold rows, and not those of an index: to count the rows is not to meet them. It returns what mends them. */
function damage(path: string): () => void {
  const pages = readFileSync(path);
  const places = Array.from({ length: pages.length / PAGE }, (_, i) => i * PAGE).filter((at) => {
    const page = pages.subarray(at, at + PAGE);
    return page.includes('r01') && page.includes(FILLING);
  });
  const write = (page: (at: number) => Buffer): void => {
    const file = openSync(path, 'r+');
    for (const at of places) writeSync(file, page(at), 0, PAGE, at);
    closeSync(file);
  };
  expect(places.length).toBeGreaterThan(10);
  write(() => Buffer.alloc(PAGE, 0xee));
  return () => write((at) => pages.subarray(at, at + PAGE));
}

interface One {
  db: TestDatabase;
  manager: Manager;
  clock: VirtualClock;
  mend(): void;
}

async function damagedNode(peers: string[] = []): Promise<One> {
  const clock = new VirtualClock();
  const path = join(scratchFolder(), 'a.db');
  const before = await database(ITEMS, path);
  await attach(before, { id: 'a', peers: [], maxAheadMs: 0 }, ['items']).stop();
  const many = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS})`;
  before.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
  before.exec(`${many} INSERT INTO items SELECT printf('r%05d', i), '${FILLING}', 1, i, 1000 FROM n`);
  before.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
  before.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  before.close();
  const mend = damage(path);
  const db = await database('SELECT 1', path);
  const config = { id: 'a', peers, clock, maxAheadMs: 0, verify: false as const };
  const manager = attach(db, { ...config, fetch: async (_, { body }) => acknowledged(body) }, ['items']);
  cleanUp(() => manager.stop());
  return { db, manager, clock, mend };
}

function acknowledged(body: Uint8Array | string) {
  const { batch_id: ack } = JSON.parse(typeof body === 'string' ? body : new TextDecoder().decode(body));
  return { status: 200, text: async () => JSON.stringify({ applied: 1, ack }) };
}

function batch(): string {
  const changes = Array.from({ length: ROWS }, (_, i) => ({
    op: 'UPDATE',
    table: 'items',
    row: { id: `r${String(i + 1).padStart(5, '0')}`, name: 'new', value: 2, created_at: 1, updated_at: 2_000 },
    old_id: null,
  }));
  return JSON.stringify({ batch_id: 1, changes });
}

const meetings: [what: string, peers: string[], meet: (one: One) => unknown][] = [
  ['what is received', [], ({ manager }) => expect(manager.receive(batch()).status).toBe(503)],
  ['what is sent', [PEER], ({ clock }) => clock.advance(2_000)],
  [
    'a comparison that is answered',
    [],
    async ({ manager, clock }) => {
      const ids = Array.from({ length: 900 }, (_, i) => `r0${1_000 + i}`);
      const question = JSON.stringify({ want: 'rows', table: 'items', columns: { name: 'TEXT' }, ids });
      const answered = manager.answer('/sync/compare', question).catch(() => {});
      await clock.advance(2_000);
      await answered;
    },
  ],
  [
    'the routes of the items',
    [],
    ({ db, clock }) => {
      const store = new ItemStore(db, 'a', clock);
      for (let i = 1; i <= ROWS; i++) {
        try {
          store.get(`r${String(i).padStart(5, '0')}`);
        } catch {
          break;
        }
      }
      store.release();
    },
  ],
];

test.each(meetings)('%s', async (_, peers, meet) => {
  const one = await damagedNode(peers);
  if (peers.length === 0) expect(one.manager.health().problems).toEqual([]);
  await meet(one);
  expect(one.manager.health()).toMatchObject({ ok: false, problems: expect.arrayContaining(DAMAGED) });
  // Whoever has met it may not come there again.
  one.clock.shift(65_000);
  expect(one.manager.health()).toMatchObject({ ok: false, problems: expect.arrayContaining(DAMAGED) });
});

test('it is over when a backup was put back under the process', async () => {
  const { db, manager, clock, mend } = await damagedNode();
  await clock.advance(1_000);
  expect(manager.receive(batch()).status).toBe(503);
  expect(manager.health().problems).toEqual(expect.arrayContaining(DAMAGED));
  // As much of it as a process can tell: its pages are whole, and it is an earlier state of itself.
  mend();
  db.exec('PRAGMA shrink_memory');
  db.exec("UPDATE _nodes SET boot = '0-00000000', tick = 0 WHERE self = 1");
  await clock.advance(1_000);
  clock.shift(65_000);
  expect(manager.health().problems).toEqual([]);
});

test('a hub', async () => {
  const clock = new VirtualClock();
  const path = join(scratchFolder(), 'hub.db');
  const db = await database('SELECT 1', path);
  const hub = await createHub(db, { id: 'hub', edges: [], clock, maxAheadMs: 0, verify: false });
  cleanUp(() => hub.stop());
  expect((await hub.receive(batch().replaceAll('"new"', `"${FILLING}"`), { from: 'a' })).status).toBe(200);
  db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  const mend = damage(path);
  db.exec('PRAGMA shrink_memory');
  expect((await hub.receive(batch().replaceAll('2000', '3000'), { from: 'a' })).status).toBe(503);
  expect(await hub.health()).toMatchObject({ ok: false });
  // What reads there may have it in its memory, and another look finds nothing.
  mend();
  db.exec('PRAGMA shrink_memory');
  clock.shift(65_000);
  expect(await hub.health()).toMatchObject({ ok: false, problems: DAMAGED });
});
