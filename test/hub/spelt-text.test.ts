/** What a batch is about is told by its text as SQLite would tell it, or is left to SQLite. */
import { beforeEach, describe, expect, test } from 'vitest';
import { speltByText } from '../../src/hub/spelt-text.ts';
import { changesSql } from '../../src/hub/sqlite-merge.ts';
import { type RegularChange, readSpelt, speltSql } from '../../src/hub/sqlite-spelt.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { featuresOf } from '../../src/sqlite/features.ts';
import { readBatch } from '../../src/wire/read-batch.ts';
import { draws } from '../support/draws.ts';
import { Random } from '../support/model.ts';
import { database } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const LATEST = T + 1_000;
const ID_BYTES = 40;
const LIMITS = { bodyBytes: 10_000_000, batchChanges: 10_000 };

let db: Connection;

beforeEach(async () => {
  db = new Connection(await database('SELECT 1'));
});

/** By its text, and by SQLite. */
function both(body: string): [RegularChange[] | undefined, RegularChange[]] {
  const { jsonb } = featuresOf(db);
  const spelt = speltSql(changesSql(jsonb, false, ID_BYTES).regular);
  const document = readBatch(db, jsonb, LIMITS, body);
  return [speltByText(document, LATEST, ID_BYTES), readSpelt(db.get(spelt, document.json, LATEST))];
}

const batch = (...changes: string[]): string => `{"batch_id":7,"changes":[${changes.join(',')}]}`;
const write = (row: string, { op = 'INSERT', table = 'items', more = '' } = {}): string =>
  `{"op":"${op}","table":"${table}","row":${row},"old_id":null${more}}`;
const ROW = `{"id":"a","name":"x","updated_at":${T}}`;

/** It is told, and as SQLite does. */
function expectTold(body: string): void {
  const [byText, bySqlite] = both(body);
  expect(byText).toEqual(bySqlite);
  expect(bySqlite.length).toBeGreaterThan(0);
}

describe('what is told by its text', () => {
  test('is what nodes write: of any tables, columns and values', () => {
    expectTold(batch(write(ROW)));
    const values = ['null', 'true', '-0', '1.50', '1e2', '"\\"\\\\\\/\\b\\n"', '"é \u2028 😀 \u007f"', '""', '"$null"'];
    for (const value of values) expectTold(batch(write(`{"id":"é😀","updated_at":${T},"größe":${value}}`)));
    expectTold(batch(write(ROW), write(ROW, { table: 'été' }), write(`{"updated_at":10,"id":"b"}`), write(ROW)));
  });

  test('with what an update has seen, and a deletion, of which id and time are left', () => {
    for (const base of ['1', String(T), '-5', '0', '8000000000000', '-9000000000000000'.slice(0, 15)]) {
      for (const op of ['INSERT', 'UPDATE']) expectTold(batch(write(ROW, { op, more: `,"base":${base}` })));
      expectTold(batch(write(ROW, { op: 'UPDATE', more: `,"base":${base},"origin":"n1"` })));
    }
    const deleted = (row: string, oldId: string): string =>
      `{"op":"DELETE","table":"items","row":${row},"old_id":${oldId}}`;
    expectTold(batch(deleted(ROW, '"a"'), write(ROW), deleted(`{"updated_at":${T},"id":"\u007fé'"}`, `"\u007fé'"`)));
  });

  test('is a whole batch, and nothing that is odd', () => {
    const odd = [
      write(`{"id":"a","updated_at":${LATEST + 1}}`),
      write(`{"id":"a","updated_at":1}`),
      write(`{"id":"a","updated_at":-5}`),
      write(`{"id":"a","updated_at":1.5e12}`),
      write(`{"id":"a","updated_at":"${T}"}`),
      write(`{"id":"${'x'.repeat(ID_BYTES + 1)}","updated_at":${T}}`),
      write(`{"id":"${'é'.repeat(ID_BYTES / 2 + 1)}","updated_at":${T}}`),
      ...['"$x"', '"[1"', '"{}"', '5', 'null', '"a\\n"', '"\\u0061"'].map((id) =>
        write(`{"id":${id},"updated_at":${T}}`),
      ),
      write(`{"id":"a","id":"b","updated_at":${T}}`),
      write(`{"ID":"a","updated_at":${T}}`),
      write(`{"id":"a","updated_at":${T},"name":{"k":[1]}}`),
      write(`{"id":"a","updated_at":${T},"name":"\\ud800"}`),
      write(`{"id": "a","updated_at":${T}}`),
      write('{}'),
      write(ROW, { op: 'UPSERT' }),
      write(ROW, { table: '[x]' }),
      write(ROW, { table: 'x'.repeat(201) }),
      write(ROW, { more: ',"base":"x"' }),
      write(ROW, { more: ',"op":"DELETE"' }),
      write(ROW).replace('"old_id":null', '"old_id":"a"'),
      write(ROW, { op: 'DELETE' }),
      `{"op":"DELETE","table":"items","row":${ROW},"old_id":"b"}`,
      'null',
    ];
    for (const change of odd) {
      const bodies = [batch(change), batch(write(ROW), change), batch(change, write(ROW))];
      for (const body of bodies) expect([body, both(body)[0]]).toEqual([body, undefined]);
    }
    const whole = batch(write(ROW), write(ROW));
    for (const body of [
      `${whole} `,
      ` ${whole}`,
      whole.replace(',{', ', {'),
      whole.replace('{"batch_id":7,', '{"batch_id":7,"x":1,'),
    ])
      expect([body, both(body)[0]]).toEqual([body, undefined]);
    expect(both(whole.replace(/\}$/, ',"changes":[]}'))[0]).toBeUndefined();
    expect(both(batch())[0]).toBeUndefined();
  });

  test('is not told where each change is of other columns: to learn them takes longer than to read it', () => {
    const changes = Array.from({ length: 40 }, (_, i) => write(`{"id":"a","updated_at":${T},"made${i}":1}`));
    expect(both(batch(...changes))[0]).toBeUndefined();
    expectTold(batch(...changes.slice(0, 5)));
  });

  test('is not told where names are long or many: a pattern of each of them is made, and kept', () => {
    const wide = (kind: number, columns: number, length: number): string =>
      write(
        `{"id":"a","updated_at":${T},${Array.from({ length: columns }, (_, i) => `"${`w${kind}_${i}`.padEnd(length, 'x')}":1`)}}`,
      );
    expectTold(batch(wide(0, 150, 20)));
    expect(both(batch(wide(0, 1, 5_000)))[0]).toBeUndefined();
    expect(both(batch(wide(0, 190, 30)))[0]).toBeUndefined();
    expect(both(batch(wide(1, 150, 20), wide(2, 150, 20), wide(3, 150, 20)))[0]).toBeUndefined();
  });

  test('by chance, is never told otherwise', () => {
    const random = new Random(11);
    const pick = <V>(from: readonly V[]): V => from[Math.floor(random.next() * from.length)] as V;
    let told = 0;
    for (let i = 0; i < draws(2_000); i++) {
      const change = (): string => {
        const id = pick(['"a"', '"b"', '"é"', '""', '"a b"', '"a\\t"', '"$"', '7']);
        const time = pick([T, T, T + 1, 12, 9, LATEST, LATEST + 1, '1.0', '1e3', -7]);
        const value = (): string => pick(['"x"', '1', '-1.5E+3', 'null', '"\\"},{"', '"a\\u0000"', '[1]', '"ß"']);
        const parts = [`"id":${id}`, `"updated_at":${time}`];
        for (const key of ['n', 'N', 'größe', 'id']) if (random.next() < 0.2) parts.push(`"${key}":${value()}`);
        if (random.next() < 0.3) parts.reverse();
        const op = pick(['INSERT', 'UPDATE', 'DELETE', 'INSERT']);
        const oldId = op === 'DELETE' ? pick([id, id, 'null']) : pick(['null', 'null', 'null', id]);
        const base = random.next() < 0.3 ? `,"base":${pick([T, 0, '-0', 1.5, '"1"'])}` : '';
        return `{"op":"${op}","table":"${pick(['items', 'b'])}","row":{${parts.join(',')}},"old_id":${oldId}${base}}`;
      };
      const body = batch(...Array.from({ length: 1 + Math.floor(random.next() * 3) }, change));
      const [byText, bySqlite] = both(body);
      if (!byText) continue;
      told += 1;
      expect([body, byText]).toEqual([body, bySqlite]);
    }
    expect(told).toBeGreaterThan(0);
  });
});
