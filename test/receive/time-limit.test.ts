/** Changes whose time is far ahead of the clock here: they wait, are merged in their time, and are told to all. */
import { describe, expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { RegularBodies } from '../../src/receive/regular-body.ts';
import type { Table } from '../../src/sqlite/schema.ts';
import { draws } from '../support/draws.ts';
import { gone } from '../support/hubs.ts';
import { captured, cleanUp, database, type NodeOptions, node, rowsOf, type TestNode } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const NOW = 1_700_000_000_000;
const DAY = 86_400_000;
const YEAR = 365 * DAY;
const SAID = { said: 'id=sender', from: 'a' };
const SCHEMA = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';

function put(id: string, at: number, name = 'n', more: object = {}): object {
  return { op: 'UPDATE', table: 'items', row: { id, name, updated_at: at, ...more }, old_id: null };
}

function batch(...changes: unknown[]): string {
  return JSON.stringify({ batch_id: 1, changes });
}

async function careful(options: NodeOptions = {}): Promise<TestNode & { clock: VirtualClock }> {
  const clock = new VirtualClock();
  return { ...(await node({ schema: SCHEMA, maxAheadMs: DAY, clock, ...options })), clock };
}

const rows = ({ db }: TestNode): unknown[] => rowsOf(db, 'SELECT id, name FROM items ORDER BY id');
const letters = ({ manager }: TestNode): unknown[] =>
  manager.deadLetters.list().map(({ code, rowId, dueAt, peer }) => [code, rowId, dueAt, peer]);

describe('a change whose time is too far ahead', () => {
  test('is acknowledged, listed and kept, and the others of its batch are applied', async () => {
    const b = await careful();
    const told: unknown[] = [];
    b.manager.on('dead-letter', (letter) => told.push(letter));
    const answer = b.manager.receive(
      batch(put('now', NOW), put('later', NOW + YEAR), put('zone', NOW + DAY - 60_000)),
      SAID,
    );
    expect(answer).toMatchObject({
      status: 200,
      body: { applied: 2, ack: 1, rejected: [{ index: 1, code: 'future-stamp' }] },
    });
    expect(rows(b)).toEqual([
      { id: 'now', name: 'n' },
      { id: 'zone', name: 'n' },
    ]);
    expect(letters(b)).toEqual([['future-stamp', 'later', NOW + YEAR - DAY, 'a']]);
    expect(told).toMatchObject([{ code: 'future-stamp', rows: [{ id: 'later' }] }]);
    expect(b.manager.deadLetters.list()[0]?.reason).toContain(new Date(NOW + YEAR - DAY).toISOString());
    // The same batch again gets the same answer, and is the same letter.
    expect(b.manager.receive(batch(put('later', NOW + YEAR)), SAID)).toMatchObject({
      body: { applied: 0, rejected: [{ code: 'future-stamp' }] },
    });
    expect(b.manager.health()).toMatchObject({ ok: true, dead_letter: 1 });
  });

  test.each([
    ['a body of the usual form', (body: string) => body],
    ['another form', (body: string) => `${body} `],
  ])('is told to the millisecond from one that is not: %s', async (_, form) => {
    const b = await careful();
    const answer = b.manager.receive(form(batch(put('in', NOW + DAY), put('out', NOW + DAY + 1))), SAID);
    expect(answer).toMatchObject({ body: { applied: 1, rejected: [{ index: 1, code: 'future-stamp' }] } });
    await b.clock.advance(40);
    expect(rows(b)).toHaveLength(2);
  });

  test('is merged when its time has come, as if it came then, and told to all peers at its own version', async () => {
    const b = await careful();
    const applied: unknown[] = [];
    b.manager.receive(batch(put('x', NOW + YEAR, 'late'), gone('y', NOW + YEAR)), SAID);
    b.manager.receive(batch(put('x', NOW + 5, 'soon'), put('y', NOW + 5)), SAID);
    b.manager.on('applied', (event) => applied.push(event));
    await b.clock.jump(YEAR - DAY - 1_000);
    expect(rows(b)).toEqual([
      { id: 'x', name: 'soon' },
      { id: 'y', name: 'n' },
    ]);
    expect(captured(b.db)).toEqual([]);
    await b.clock.advance(1_000);
    expect(rows(b)).toEqual([{ id: 'x', name: 'late' }]);
    expect(letters(b)).toEqual([]);
    expect(captured(b.db)).toEqual([
      { op: 'UPDATE', row_id: 'x', row: { id: 'x', name: 'late', updated_at: NOW + YEAR } },
      { op: 'DELETE', row_id: 'y', row: { id: 'y', updated_at: NOW + YEAR } },
    ]);
    expect(applied).toMatchObject([{ applied: 2 }]);
  });

  test('says nothing when it has lost meanwhile', async () => {
    const b = await careful();
    b.manager.receive(batch(put('x', NOW + YEAR, 'late'), put('y', NOW + YEAR, 'late')), SAID);
    b.db.exec(`INSERT INTO items VALUES ('x', 'own', ${NOW + 2 * YEAR}), ('y', 'own', ${NOW + YEAR + 1})`);
    b.db.exec("DELETE FROM items WHERE id = 'y'");
    await b.clock.jump(YEAR);
    await b.clock.advance(40);
    expect(rows(b)).toEqual([{ id: 'x', name: 'own' }]);
    expect(captured(b.db).map(({ op, row_id }) => [op, row_id])).toEqual([
      ['INSERT', 'x'],
      ['INSERT', 'y'],
      ['DELETE', 'y'],
    ]);
    expect(letters(b)).toEqual([]);
  });

  test('is released after a restart', async () => {
    const b = await careful();
    b.manager.receive(batch(put('x', NOW + YEAR)), SAID);
    await b.manager.stop();
    const clock = new VirtualClock();
    await clock.jump(2 * YEAR);
    const again = attach(b.db, { id: 'b', peers: [], clock }, ['items']);
    cleanUp(() => again.stop());
    await clock.advance(100);
    expect(rows(b)).toHaveLength(1);
    expect(captured(b.db)).toHaveLength(1);
  });

  test('is found in place after a crash between the merge and the end of its letter, and told once more', async () => {
    const b = await careful();
    b.manager.receive(batch(put('x', NOW + YEAR)), SAID);
    b.db.exec('CREATE TABLE kept AS SELECT * FROM _dead_letter; CREATE TABLE info AS SELECT * FROM _dead_letter_info');
    await b.clock.jump(YEAR);
    await b.clock.advance(40);
    b.db.exec('INSERT INTO _dead_letter SELECT * FROM kept; INSERT INTO _dead_letter_info SELECT * FROM info');
    await b.clock.advance(40);
    expect(letters(b)).toEqual([]);
    expect(captured(b.db)).toHaveLength(2);
  });

  test('goes by the present setting: a higher one lets it in, 0 lets everything in', async () => {
    for (const [maxAheadMs, count] of [
      [YEAR, 0],
      [0, 0],
      [60_000, 1],
    ]) {
      const b = await careful();
      b.manager.receive(batch(put('x', NOW + 300 * DAY)), SAID);
      expect(letters(b)).toHaveLength(1);
      await b.manager.stop();
      const clock = new VirtualClock();
      const again = attach(b.db, { id: 'b', peers: [], clock, maxAheadMs: maxAheadMs as number }, ['items']);
      cleanUp(() => again.stop());
      await clock.advance(100);
      expect(again.deadLetters.list()).toHaveLength(count as number);
    }
  });

  test('is released in bounded pages', async () => {
    const b = await careful();
    const sizes: number[] = [];
    b.manager.receive(batch(...Array.from({ length: 450 }, (_, i) => put(`r${i}`, NOW + YEAR + i))), SAID);
    b.manager.receive(batch(...[1, 2, 3].map((i) => put(`large${i}`, NOW + 2 * YEAR, 'x'.repeat(200_000)))), SAID);
    b.manager.on('applied', ({ applied }) => sizes.push(applied));
    await b.clock.jump(YEAR);
    for (let i = 0; i < 4; i++) await b.clock.advance(40);
    expect(sizes).toEqual([200, 200, 50]);
    await b.clock.jump(YEAR);
    for (let i = 0; i < 4; i++) await b.clock.advance(40);
    expect(sizes.slice(3)).toEqual([1, 1, 1]);
    expect(letters(b)).toEqual([]);
  });

  test('may come in a form that needs a closer look', async () => {
    const b = await careful();
    const odd = { op: 'UPDATE', table: 'ITEMS', row: { ID: '[x', Name: 'n', UPDATED_AT: NOW + YEAR }, old_id: null };
    expect(b.manager.receive(batch(odd), SAID)).toMatchObject({ body: { rejected: [{ code: 'future-stamp' }] } });
    await b.clock.jump(YEAR);
    await b.clock.advance(40);
    expect(rows(b)).toEqual([{ id: '[x', name: 'n' }]);
  });

  test('of a plain peer: of two of one time in one batch the later one stands', async () => {
    const b = await careful();
    b.manager.receive(batch(put('x', NOW + YEAR, 'z'), put('x', NOW + YEAR, 'a')));
    await b.clock.jump(YEAR);
    await b.clock.advance(40);
    expect(rows(b)).toEqual([{ id: 'x', name: 'a' }]);
  });
});

describe('while it waits', () => {
  test('its table may be taken off the list and put back', async () => {
    const b = await careful({ schema: `${SCHEMA}; CREATE TABLE other (id TEXT PRIMARY KEY, updated_at INTEGER)` });
    b.manager.receive(batch(put('x', NOW + YEAR)), SAID);
    await b.manager.stop();
    const clock = new VirtualClock();
    await clock.jump(YEAR);
    const without = attach(b.db, { id: 'b', peers: [], clock }, ['other']);
    await clock.advance(100);
    expect(without.deadLetters.list()).toMatchObject([{ code: 'unknown-table' }]);
    await without.stop();
    const back = attach(b.db, { id: 'b', peers: [], clock }, ['items', 'other']);
    cleanUp(() => back.stop());
    await back.flush();
    expect(rows(b)).toHaveLength(1);
    // It has waited for its time as well, so it is told.
    expect(captured(b.db)).toHaveLength(1);
  });

  test('a change for a table that comes before its time waits for that, too', async () => {
    const b = await careful();
    b.manager.receive(batch({ ...put('x', NOW + YEAR), table: 'notes' }), SAID);
    expect(letters(b)).toEqual([['unknown-table', 'x', null, 'a']]);
    await b.manager.stop();
    b.db.exec('CREATE TABLE notes (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)');
    const clock = new VirtualClock();
    const later = attach(b.db, { id: 'b', peers: [], clock }, ['items', 'notes']);
    cleanUp(() => later.stop());
    await later.flush();
    expect(later.deadLetters.list()).toMatchObject([{ code: 'future-stamp', dueAt: NOW + YEAR - DAY }]);
    await clock.jump(YEAR);
    await clock.advance(40);
    expect(rowsOf(b.db, 'SELECT id FROM notes')).toEqual([{ id: 'x' }]);
  });

  test('its column, and its table, may be renamed', async () => {
    const b = await careful();
    b.manager.receive(batch(put('x', NOW + YEAR, 'kept')), SAID);
    b.manager.migrate('ALTER TABLE items RENAME COLUMN name TO title', { rename: { items: { name: 'title' } } });
    await b.clock.jump(YEAR);
    await b.clock.advance(40);
    expect(rowsOf(b.db, 'SELECT id, title FROM items')).toEqual([{ id: 'x', title: 'kept' }]);
    expect(letters(b)).toEqual([]);
  });

  test('another row may take its UNIQUE value: it is decided then, and the hidden one is told as well', async () => {
    const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, updated_at INTEGER)';
    const b = await careful({ schema });
    b.manager.receive(batch(put('far', NOW + 2 * YEAR, 'ann'), put('near', NOW + YEAR, 'ann')), SAID);
    b.db.exec(`INSERT INTO items VALUES ('own', 'ann', ${NOW})`);
    await b.clock.jump(YEAR);
    await b.clock.advance(40);
    expect(rowsOf(b.db, 'SELECT id FROM items')).toEqual([{ id: 'near' }]);
    await b.clock.jump(YEAR);
    await b.clock.advance(40);
    expect(rowsOf(b.db, 'SELECT id FROM items')).toEqual([{ id: 'far' }]);
    expect(captured(b.db).map(({ row_id }) => row_id)).toEqual(['own', 'near', 'far']);
    // One that comes late and is hidden at once is a row like any other.
    b.manager.receive(batch(put('weak', NOW + 2 * YEAR + 2 * DAY, 'bob'), put('zz', NOW + 3 * YEAR, 'bob')), SAID);
    await b.clock.jump(2 * YEAR);
    await b.clock.advance(40);
    const told = captured(b.db).map(({ row_id }) => row_id);
    expect(told.slice(3).sort()).toEqual(['weak', 'zz']);
  });

  test('something may come in its way: it is told when it is out of it', async () => {
    const schema =
      `${SCHEMA}; CREATE TABLE closed (day); CREATE TRIGGER shut BEFORE INSERT ON items ` +
      "WHEN EXISTS (SELECT 1 FROM closed) BEGIN SELECT RAISE(ABORT, 'closed today'); END";
    const b = await careful({ schema });
    b.manager.receive(batch(put('x', NOW + YEAR)), SAID);
    b.db.exec("INSERT INTO closed VALUES ('today')");
    await b.clock.jump(YEAR);
    await b.clock.advance(40);
    expect(letters(b)).toEqual([['constraint', 'x', null, 'a']]);
    b.db.exec('DELETE FROM closed');
    await b.clock.advance(130_000);
    expect(rows(b)).toHaveLength(1);
    expect(captured(b.db)).toHaveLength(1);
  });

  test('a person may try it, and is told when it is due; or discard it', async () => {
    const b = await careful();
    b.manager.receive(batch(put('x', NOW + YEAR), put('y', NOW + YEAR)), SAID);
    const [x, y] = b.manager.deadLetters.list().map(({ id }) => id) as [number, number];
    expect(b.manager.deadLetters.retry(x)).toMatchObject({ outcome: 'kept', reason: expect.stringContaining('2024-') });
    b.manager.deadLetters.discard(y);
    await b.clock.jump(YEAR);
    await b.clock.advance(40);
    expect(captured(b.db).map(({ row_id }) => row_id)).toEqual(['x']);
    expect(letters(b)).toEqual([]);
  });
});

test('a clock that is set back makes wait what it would have taken before', async () => {
  const b = await careful();
  await b.clock.jump(10 * DAY);
  b.manager.receive(batch(put('a', NOW + 10 * DAY)), SAID);
  expect(rows(b)).toHaveLength(1);
  await b.clock.jump(-9 * DAY);
  b.manager.receive(batch(put('b', NOW + 10 * DAY)), SAID);
  expect(rows(b)).toHaveLength(1);
  expect(letters(b)).toHaveLength(1);
});

test('a file of an earlier build gets what this needs, and keeps its letters', async () => {
  const db = await database(SCHEMA);
  const first = attach(db, { id: 'b', peers: [] }, ['items']);
  first.receive(batch(put('x', Number.NaN)), SAID);
  await first.stop();
  db.exec('DROP INDEX _dead_letter_due; ALTER TABLE _dead_letter_info DROP COLUMN version');
  const second = attach(db, { id: 'b', peers: [] }, ['items']);
  cleanUp(() => second.stop());
  expect(second.deadLetters.list()).toMatchObject([{ code: 'bad-timestamp', rowId: 'x', dueAt: null }]);
  second.receive(batch(put('x', Date.now() + YEAR)), SAID);
  expect(second.deadLetters.list()).toHaveLength(2);
});

test('times are told from the text of a body up to the one that is given, and no further', () => {
  const column = (name: string): object => ({ name, wireName: name });
  const table = {
    name: 'items',
    wireName: 'items',
    id: 'id',
    updatedAt: 'updated_at',
    columns: [column('id'), column('updated_at')],
  } as unknown as Table;
  const bodies = new RegularBodies(() => table);
  const isBefore = (time: number, before: number): boolean => {
    const change = { op: 'INSERT', table: 'items', row: { id: 'a', updated_at: time }, old_id: null };
    return bodies.recognise(batch(change), before) !== undefined;
  };
  let seed = 7;
  const random = (most: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((seed / 2_147_483_648) * most);
  };
  const wrong: number[][] = [];
  for (let i = 0; i < draws(3_000); i++) {
    const before = i % 3 === 0 ? random(7e12) : 10 ** random(13) + random(50);
    const time = i % 2 === 0 ? Math.max(0, before - 25 + random(50)) : random(7e12);
    if (isBefore(time, before) !== (time >= 10 && time < before)) wrong.push([time, before]);
  }
  expect(wrong).toEqual([]);
});
