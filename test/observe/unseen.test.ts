/** An iterator that the application leaves open: its connection goes on seeing what was there before. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { TICK_MS } from '../../src/attach.ts';
import { attach, type Manager } from '../../src/index.ts';
import { cleanUp, database, ITEMS, scratchFolder } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const SAID = expect.stringMatching(/^nothing could be written for half a minute: .* in the middle of a query/);
const INSERT = 'INSERT INTO items (id, updated_at) VALUES';

/** A node without peers, and another connection to its file. */
async function beside(fill = `${INSERT} ('a', 1), ('b', 1)`) {
  const path = join(scratchFolder(), 'node.db');
  const db = await database(`PRAGMA journal_mode = WAL; ${ITEMS}; ${fill}`, path);
  const clock = new VirtualClock();
  const manager = attach(db, { id: 'here', peers: [], clock }, ['items']);
  cleanUp(() => manager.stop());
  return { db, clock, manager, other: await database('PRAGMA busy_timeout = 0', path) };
}

async function pass(clock: VirtualClock, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= TICK_MS) await clock.advance(TICK_MS);
}

const problemsOf = (manager: Manager): string[] => manager.health().problems;

test('what others write behind it is a problem, as long as it is open', async () => {
  const { db, clock, manager, other } = await beside();
  await pass(clock, 2_000);
  const rows = (db.prepare('SELECT id FROM items') as unknown as { iterate(): Iterator<unknown> }).iterate();
  rows.next();
  await pass(clock, 40_000);
  // Nothing that it does not see.
  expect(problemsOf(manager)).toEqual([]);
  other.exec(`${INSERT} ('c', 2)`);
  await pass(clock, 40_000);
  expect(manager.health()).toMatchObject({ ok: false, problems: [SAID] });
  rows.return?.();
  await pass(clock, 2_000);
  expect(manager.health()).toMatchObject({ ok: true, item_count: 3, problems: [] });
});

test('what was taken back, and what is written while nobody reads, is none', async () => {
  const { clock, manager, other } = await beside();
  await pass(clock, 2_000);
  other.exec('PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN');
  const many = 'WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)';
  other.exec(`${many} INSERT INTO items (id, name, updated_at) SELECT 'x' || i, hex(zeroblob(100)), 1 FROM n`);
  other.exec('ROLLBACK');
  await pass(clock, 40_000);
  expect(problemsOf(manager)).toEqual([]);
  other.exec(`${INSERT} ('c', 2)`);
  await pass(clock, 40_000);
  expect(problemsOf(manager)).toEqual([]);
});

test('what others write behind a transaction of the application is a problem as well', async () => {
  const { db, clock, manager, other } = await beside();
  await pass(clock, 2_000);
  db.exec('BEGIN');
  db.prepare('SELECT count(*) AS n FROM items').all();
  await pass(clock, 40_000);
  expect(problemsOf(manager)).toEqual([]);
  other.exec(`${INSERT} ('c', 2)`);
  await pass(clock, 40_000);
  expect(problemsOf(manager)).toEqual([expect.stringMatching(/^nothing could be written .* has a transaction open/)]);
  db.exec('COMMIT');
  await pass(clock, 2_000);
  expect(manager.health()).toMatchObject({ ok: true, item_count: 3, problems: [] });
});

test('what another one is still writing is none: it is not there yet', async () => {
  const { clock, manager, other } = await beside();
  await pass(clock, 2_000);
  other.exec('PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN');
  const many = 'WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)';
  other.exec(`${many} INSERT INTO items (id, name, updated_at) SELECT 'x' || i, hex(zeroblob(100)), 1 FROM n`);
  await pass(clock, 40_000);
  expect(problemsOf(manager)).toEqual([]);
  other.exec('COMMIT');
  await pass(clock, 40_000);
  expect(problemsOf(manager)).toEqual([]);
});
