/** What a comparison prepares: to prepare a statement may block for longer than to run it, so only what is needed is. */
import { expect, test } from 'vitest';
import { attached, database, ITEMS, recording } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { silently } from './pairs.ts';

const COLUMNS = { id: 'TEXT', name: 'TEXT', value: 'INTEGER', created_at: 'INTEGER', updated_at: 'INTEGER' };
const T = 1_700_000_000_000;

async function watched(fill: string) {
  const db = await database(ITEMS);
  const { handle, sql } = recording(db);
  const manager = attached(handle, { clock: new VirtualClock(() => true) });
  silently([db], () => db.exec(fill));
  /** The answer, the statements that were run, and those of them that spell lines. */
  const ask = async (question: object) => {
    sql.length = 0;
    const all = { table: 'items', columns: COLUMNS, ...question };
    const { status, body } = await manager.answer('/sync/compare', JSON.stringify(all));
    expect([status, body]).toEqual([200, body]);
    const asked = [...new Set(sql)];
    return { answer: JSON.parse(body), asked, spelt: asked.filter((one) => one.includes('json_array')) };
  };
  return { db, ask };
}

const row = (id: string, name = "'x'"): string => `INSERT INTO items VALUES ('${id}', ${name}, 1, 1, ${T});`;
const HALVES = [
  [null, 'm'],
  ['m', null],
];
const tombstone = (id: string): string => `INSERT INTO _tombstones VALUES ('items', '${id}', ${T});`;
const hidden = (id: string): string =>
  `INSERT INTO _hidden (table_name, row_id, version, row_data) VALUES ('items', '${id}', ${T}, '{"id":"${id}","updated_at":${T}}');`;
const readsHidden = (spelt: string[]): boolean => spelt.some((one) => one.includes('row_data'));

test('of ranges that touch every part of the order, only the part that has rows is read', async () => {
  const { ask } = await watched(row('a') + row('b') + row('z'));
  const { answer, spelt } = await ask({ want: 'hash', ranges: HALVES });
  expect(answer.hashes.map((hash: string) => hash.split(':')[0])).toEqual(['2', '1']);
  expect(spelt.length).toBe(2);
});

test('of ranges that touch every part of the order, all parts but the last are asked about by one statement', async () => {
  const { ask } = await watched(row('a') + row('b') + row('z'));
  const { asked } = await ask({ want: 'hash', ranges: HALVES });
  // The last part as a whole, and the half of it that is read in a turn of its own.
  const presences = asked.filter((one) => one.includes('AS besides'));
  expect(presences.map((one) => one.split(' AS besides').length - 1).sort()).toEqual([1, 1, 2]);
});

test.each([
  ["x'00'", '$blob:00'],
  ["'#'", '#'],
  ["'$c'", '$c'],
  ["'$int:1'", '$text:$int:1'],
])('%s comes before the last part of the order, and is found where it is alone', async (id, wire) => {
  const kinds = [
    `INSERT INTO items VALUES (${id}, 'x', 1, 1, ${T})`,
    `INSERT INTO _tombstones VALUES ('items', ${id}, ${T})`,
    `INSERT INTO _hidden (table_name, row_id, version, row_data) VALUES ('items', ${id}, ${T}, '{}')`,
  ];
  for (const kind of kinds) {
    const { ask } = await watched(kind);
    const whole = await ask({ want: 'hash', ranges: [[null, null]] });
    expect([kind, whole.answer.hashes[0].split(':')[0]]).toEqual([kind, '1']);
    const listed = await ask({ want: 'rows', ranges: [[null, null]] });
    expect(listed.answer.rows.map(([found]: [string]) => found)).toEqual([wire]);
    const { tables } = (await ask({ want: 'tables' })).answer;
    expect(tables[0].last).toBe(wire);
  }
});

test('hidden rows are read where there are any, and tombstones without them', async () => {
  const { db, ask } = await watched(row('a') + row('b'));
  const ids = ['a', 'b', 'c', 'd'];
  const looked = async () => {
    const { answer, spelt } = await ask({ want: 'rows', ids });
    const listed = await ask({ want: 'rows', ranges: HALVES });
    expect(listed.answer.rows).toEqual(answer.rows);
    const hashed = await ask({ want: 'hash', ranges: [[null, null]] });
    expect(hashed.answer.hashes[0].split(':')[0]).toBe(String(answer.rows.length));
    const all = [spelt, listed.spelt, hashed.spelt];
    return { states: answer.rows.map(([id, , dead]: [string, number, number]) => id + dead), all };
  };
  const rows = await looked();
  expect(rows.states).toEqual(['a0', 'b0']);
  expect(rows.all.map(readsHidden)).toEqual([false, false, false]);
  silently([db], () => db.exec(tombstone('c')));
  const dead = await looked();
  expect(dead.states).toEqual(['a0', 'b0', 'c1']);
  expect(dead.all.map(readsHidden)).toEqual([false, false, false]);
  silently([db], () => db.exec(hidden('d')));
  const all = await looked();
  expect(all.states).toEqual(['a0', 'b0', 'c1', 'd0']);
  expect(all.all.map(readsHidden)).toEqual([true, true, true]);
});

test('a row that is too large to be read among others is noticed, and a NUL character is no such row', async () => {
  const counts = (spelt: string[]): boolean => spelt.some((one) => one.includes('count(line)'));
  const whole = { want: 'hash', ranges: [[null, null]] };
  const plain = await watched(row('a') + row('b', "'x' || char(0) || 'y'") + row('c'));
  const ordinary = await plain.ask(whole);
  expect(counts(ordinary.spelt)).toBe(false);
  expect(ordinary.answer.hashes[0]).toMatch(/^3:/);
  const { ask } = await watched(row('a') + row('b', "printf('%.*c', 5000, 'x')") + row('c'));
  const large = await ask(whole);
  expect(counts(large.spelt)).toBe(true);
  expect(large.answer.hashes[0]).toMatch(/^3:/);
  const { ask: other } = await watched(row('a') + row('b', "printf('%.*c', 5000, 'y')") + row('c'));
  expect((await other(whole)).answer.hashes[0]).not.toBe(large.answer.hashes[0]);
});
