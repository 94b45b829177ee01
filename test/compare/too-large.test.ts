/** A row that is too large for one side keeps no other one from being compared, repaired and seeded, and is told of. */
import { describe, expect, test } from 'vitest';
import { createHub } from '../../src/hub/hub.ts';
import { deliver, live } from '../support/hubs.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database, ITEMS, rowsOf } from '../support/nodes.ts';
import { settle } from '../support/virtual-clock.ts';
import { pair, silently, THERE, wayTo } from './pairs.ts';

const T = 1_700_000_000_000;
const SMALL = { maxBodyBytes: 4_096 };
const IDS = Array.from({ length: 9 }, (_, i) => `r${i}`);
/** The rows that are not too large. */
const OTHERS = IDS.filter((id) => id !== 'r4');
const LONG = 'n'.repeat(5_000);
const TWO = `${ITEMS}; ${ITEMS.replace('items', 'later')}`;

function fill(db: TestDatabase, table = 'items', ids = IDS): void {
  for (const id of ids) db.prepare(`INSERT INTO ${table} VALUES (?, ?, 1, 1, ${T})`).run(id, id === 'r4' ? LONG : 'n');
}

const ids = (db: TestDatabase, table = 'items'): unknown[] =>
  rowsOf(db, `SELECT id FROM ${table} ORDER BY id`).map(({ id }) => id);

describe('a row that is too large for the peer', () => {
  test('is a dead letter, and the others are repaired, those of later tables as well', async () => {
    const the = await pair({
      here: TWO,
      tables: ['items', 'later'],
      thereConfig: SMALL,
      fill: (here) => {
        fill(here);
        fill(here, 'later', ['a']);
      },
    });
    const told: unknown[] = [];
    the.manager.on('dead-letter', ({ direction, code, peer, rows }) => told.push([direction, code, peer, rows]));
    the.link.up = true;
    const [result] = await the.manager.verify(THERE, { repair: true });
    expect(result).toMatchObject({ equal: false, differences: 10, repaired: 9 });
    expect(result?.error).toBeUndefined();
    expect([ids(the.there), ids(the.there, 'later')]).toEqual([OTHERS, ['a']]);
    expect(told).toMatchObject([['out', 'refused', THERE, [{ table: 'items', id: 'r4' }]]]);
    // Found once more, it is the same letter.
    await the.manager.verify(THERE, { repair: true });
    expect(the.manager.deadLetters.list()).toMatchObject([
      { direction: 'out', code: 'refused', rowId: 'r4', peer: THERE },
    ]);
    expect(the.manager.health().dead_letter).toBe(1);
  });

  test('does not end a seed', async () => {
    const the = await pair({ here: ITEMS, thereConfig: SMALL });
    the.link.up = true;
    await the.manager.flush();
    silently([the.here], () => fill(the.here));
    silently([the.there], () => fill(the.there, 'items', ['r0', 'r8']));
    the.manager.peers.reseed(THERE);
    for (let i = 0; i < 20 && the.manager.health().peer_states[0]?.snapshot; i++) {
      await the.clock.advance(10_000);
      await the.manager.flush();
    }
    expect(the.manager.health().peer_states).toMatchObject([{ snapshot: false }]);
    expect(ids(the.there)).toEqual(OTHERS);
    expect(the.manager.deadLetters.list()).toMatchObject([{ direction: 'out', code: 'refused', rowId: 'r4' }]);
  });
});

describe('a row of the peer that is too large for this side', () => {
  test('is a problem in health until it is gone, and the others are repaired', async () => {
    const the = await pair({
      here: TWO,
      tables: ['items', 'later'],
      config: SMALL,
      thereConfig: { maxBodyBytes: 1_000_000 },
      fill: (_, there) => {
        fill(there);
        fill(there, 'later', ['a']);
      },
    });
    const warnings: unknown[] = [];
    the.manager.on('warning', ({ code }) => warnings.push(code));
    the.link.up = true;
    const [result] = await the.manager.verify(THERE, { repair: true });
    expect(result?.error).toBeUndefined();
    expect(result).toMatchObject({ equal: false, differences: 10, repaired: 9 });
    expect([ids(the.here), ids(the.here, 'later')]).toEqual([OTHERS, ['a']]);
    const problem = expect.stringMatching(/^row "r4" of "items" at http:\/\/there\.test cannot .*maxBodyBytes/);
    expect(the.manager.health()).toMatchObject({ ok: false, problems: [problem] });
    await the.manager.verify(THERE, { repair: true });
    expect(the.manager.health().problems).toEqual([problem]);
    expect(warnings.filter((code) => code === 'too-large')).toHaveLength(1);
    await the.clock.advance(60_000);
    silently([the.there], () => the.there.exec("DELETE FROM items WHERE id = 'r4'"));
    await the.manager.verify(THERE, { repair: true });
    expect(the.manager.health()).toMatchObject({ ok: true });
  });

  test('does not end a seed', async () => {
    const the = await pair({ here: ITEMS, config: SMALL, thereConfig: { maxBodyBytes: 1_000_000 } });
    the.link.up = true;
    await the.manager.flush();
    silently([the.there], () => fill(the.there));
    silently([the.here], () => fill(the.here, 'items', ['r0', 'r9']));
    the.manager.peers.reseed(THERE);
    for (let i = 0; i < 20 && the.manager.health().peer_states[0]?.snapshot; i++) {
      await the.clock.advance(10_000);
      await the.manager.flush();
    }
    expect(the.manager.health().peer_states).toMatchObject([{ snapshot: false }]);
    expect(ids(the.here)).toEqual([...OTHERS, 'r9']);
    expect(ids(the.there)).toEqual([...IDS, 'r9']);
    expect(the.manager.health().problems).toEqual([expect.stringContaining('row "r4"')]);
  });
});

test('rows that cannot be applied here do not keep those behind them from being fetched', {
  tags: 'long',
}, async () => {
  const name = 'n'.repeat(700_000);
  const schema = `CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER`;
  const the = await pair({
    here: `${schema}, CHECK (id > 'r2'))`,
    there: `${schema})`,
    fill: (_, there) => {
      for (const id of IDS) there.prepare(`INSERT INTO items VALUES (?, ?, ${T})`).run(id, name);
    },
  });
  the.link.up = true;
  const [result] = await the.manager.verify(THERE, { repair: true });
  expect(ids(the.here)).toEqual(IDS.slice(3));
  expect(result).toMatchObject({ differences: 9, repaired: 6 });
});

test('a hub compares the other rows as well', async () => {
  const link = { up: true };
  const the = await pair({ here: ITEMS, config: SMALL });
  const db = await database('SELECT 1');
  const hub = await createHub(db, {
    id: 'hub',
    edges: [THERE],
    clock: the.clock,
    fetch: wayTo(link)(() => the.other),
    ...SMALL,
  });
  cleanUp(() => hub.stop());
  await settle();
  // A hub compares the tables of which it has something.
  await deliver(hub, [live('r0', T)], 'a');
  silently([the.there], () => fill(the.there));
  const [result] = await hub.verify(THERE, { repair: true });
  expect(result?.error).toBeUndefined();
  expect(rowsOf(db, 'SELECT row_id FROM _hub_rows ORDER BY row_id').map(({ row_id }) => row_id)).toEqual(OTHERS);
  expect(await hub.health()).toMatchObject({ ok: false, problems: [expect.stringContaining('row "r4"')] });
});
