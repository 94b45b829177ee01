/** SQLite before 3.45 has no jsonb: the same is done with text. */
import { describe, expect, test } from 'vitest';
import { Registry } from '../../src/capture/registry.ts';
import { Emitter } from '../../src/events.ts';
import { Journal } from '../../src/journal/journal.ts';
import { DeadLetters } from '../../src/letters/dead-letters.ts';
import { TimeLimit } from '../../src/letters/time-limit.ts';
import { Applier } from '../../src/receive/apply.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import type { TestDatabase } from '../support/lane.ts';
import { Random } from '../support/model.ts';
import { cleanUp, database, ITEMS, node, rowsOf } from '../support/nodes.ts';
import { ids, tombstones } from '../support/received.ts';

describe('the way through without jsonb', () => {
  test('gives the same answers and the same state as the fast one, on random batches', async () => {
    const schema = `${ITEMS}; CREATE TABLE "odd ""name" (id TEXT PRIMARY KEY, any, num NUMERIC, real REAL, bytes BLOB, text TEXT CHECK (text <> 'never'), updated_at INTEGER)`;
    const tables = ['items', 'odd "name'];
    const fast = await node({ schema, tables });
    const db = await database(schema);
    const connection = new Connection(db);
    const registry = new Registry(connection, {
      tables,
      warn: () => {},
      onRefresh: () => {},
      onUnseen: () => {},
      features: { jsonb: false },
    });
    const clock = { now: () => 1, sleep: async () => {} };
    const timeLimit = new TimeLimit(clock, 0);
    const letters = new DeadLetters(connection, clock, timeLimit);
    const journal = new Journal(connection, { clock, events: new Emitter(), limits: () => undefined });
    const applying = { bodyBytes: 1e8, self: { tick: () => {} } };
    const applier = new Applier(connection, registry, letters, journal, applying);
    registry.install();
    cleanUp(() => connection.release());
    for (const one of [fast.db, db]) one.exec('PRAGMA foreign_keys = OFF');

    const random = new Random(31);
    let parked = 0;
    for (let round = 0; round < 150; round++) {
      const dirty = random.chance(0.3);
      const changes = Array.from({ length: 1 + random.below(8) }, () =>
        randomChange(random, dirty, 2 + Math.floor(round / 5)),
      );
      const body = `{"batch_id":${round},"changes":[${changes.join(',')}]}`;
      const { ack } = applier.apply(body, { from: undefined, isRowcast: false, wantRows: true, wantLetters: true });
      expect(fast.manager.receive(body), body).toEqual({ status: 200, body: ack, headers: expect.any(Object) });
      parked += ack.rejected?.length ?? 0;
      for (const table of ['items', 'odd ""name']) expect(dump(db, table), body).toEqual(dump(fast.db, table));
      expect(tombstones(db)).toEqual(tombstones(fast.db));
    }
    const reasons = (list: { op: string | null; row: string | null; code: string | null; reason: string | null }[]) =>
      list.map(({ op, row, code, reason }) => ({ op, row, code, reason }));
    expect(reasons(letters.list())).toEqual(reasons(fast.manager.deadLetters.list()));
    expect(parked).toBeGreaterThan(10);
    expect(ids(db).length).toBeGreaterThan(0);
  });
});

/** `table` is already quoted inside. */
function dump(db: TestDatabase, table: string): unknown[] {
  const columns = rowsOf(db, 'SELECT name FROM pragma_table_info(?)', table.replaceAll('""', '"'));
  const parts = columns.map(({ name }) => `typeof("${name}") || quote("${name}")`).join(" || '|' || ");
  return rowsOf(db, `SELECT ${parts} AS line FROM "${table}" ORDER BY id`);
}

function randomChange(random: Random, dirty: boolean, from: number): string {
  const id = random.pick(['"a"', '"b"', '"c"', '"d"']);
  const time =
    dirty && random.chance(0.15) ? random.pick(['"5"', 'null', '1.5', 'true']) : String(from + random.below(5));
  const op = dirty && random.chance(0.1) ? 'UPSERT' : random.pick(['INSERT', 'UPDATE', 'UPDATE', 'DELETE']);
  const value = (): string =>
    random.pick([
      'null',
      '0',
      '-1',
      '"9007199254740993"',
      '1.25',
      '"x"',
      '"$blob:00FF"',
      '"$int:12"',
      '"9e999"',
      '"ü☃"',
    ]);
  const odd = random.chance(0.5);
  const extra = dirty && random.chance(0.2) ? ',"colour":"red"' : '';
  const text = dirty && random.chance(0.2) ? '"never"' : '"t"';
  const row = odd
    ? `{"id":${id},"any":${value()},"num":${value()},"real":${value()},"bytes":${value()},"text":${text},"updated_at":${time}${extra}}`
    : `{"id":${id},"name":${value()},${dirty && random.chance(0.2) ? '' : `"value":${value()},`}"created_at":1,"updated_at":${time}${extra}}`;
  const name = odd ? '"odd \\"name"' : dirty && random.chance(0.1) ? '"nothing"' : '"items"';
  return `{"op":"${op}","table":${name},"row":${row},"old_id":${op === 'DELETE' ? id : 'null'}}`;
}
