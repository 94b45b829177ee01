/** A row whose version the application does not let in: it shows an older one, and what is between the two must not win. */
import { describe, expect, test } from 'vitest';
import { ITEMS, node, rowsOf, type TestNode, writeStamps } from '../support/nodes.ts';

const T = 1_700_000_000_000;

const row = (id: string, name: string, at: number) => ({ id, name, value: null, created_at: 1, updated_at: at });
const change = (op: string, id: string, at: number) => ({
  op,
  table: 'items',
  row: row(id, 'received', at),
  old_id: op === 'DELETE' ? id : null,
});

const ROWLESS = { op: 'DELETE', table: 'items', row: null, old_id: 'nobody' };

function give({ manager }: TestNode, changes: unknown[]) {
  return manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=x' }).body;
}

/** One that was written here without a time; a trigger forbids to write the version that it got. */
async function withRefused(trigger = 'WHEN NEW.name = OLD.name') {
  const one = await node({ schema: ITEMS });
  one.db.exec(`INSERT INTO items VALUES ('a', 'first', NULL, 1, ${T}); UPDATE items SET name = 'here'`);
  one.db.exec(`CREATE TRIGGER no BEFORE UPDATE ON items ${trigger} BEGIN SELECT RAISE(ABORT, 'no'); END`);
  writeStamps(one.manager);
  const [stamp] = rowsOf(one.db, 'SELECT version, refused FROM _stamps');
  expect(stamp).toEqual({ version: expect.any(Number), refused: 1 });
  return { one, version: Number(stamp?.version), shown: () => rowsOf(one.db, 'SELECT name, updated_at FROM items') };
}

describe.each([
  ['as sets', []],
  ['carefully', [ROWLESS]],
])('%s', (_, beside) => {
  test.each(['DELETE', 'INSERT', 'UPDATE'])('a %s below its version is stale, and another row is not', async (op) => {
    const { one, version, shown } = await withRefused();
    const applied = 1 + beside.length;
    for (const at of [T - 1, T, T + 5, version - 1]) {
      const changes = [...beside, change(op, 'a', at), change('INSERT', 'b', at)];
      expect(give(one, changes)).toEqual({ applied, ack: 1 });
      one.db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'; DELETE FROM items WHERE id = 'b'");
      one.db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
      expect(shown()).toEqual([{ name: 'here', updated_at: T }]);
      expect(rowsOf(one.db, "SELECT version FROM _tombstones WHERE row_id = 'a' AND version < ?", T)).toEqual([]);
    }
    expect(one.manager.deadLetters.list()).toEqual([]);
  });

  test.each(['INSERT', 'UPDATE'])('an %s above it wins', async (op) => {
    const { one, version, shown } = await withRefused();
    expect(give(one, [...beside, change(op, 'a', version + 1)])).toEqual({ applied: 1 + beside.length, ack: 1 });
    expect(shown()).toEqual([{ name: 'received', updated_at: version + 1 }]);
  });

  test.each([0, 1])('a DELETE %i above it wins', async (above) => {
    const { one, version, shown } = await withRefused('');
    expect(give(one, [...beside, change('DELETE', 'a', version + above)])).toEqual({
      applied: 1 + beside.length,
      ack: 1,
    });
    expect(shown()).toEqual([]);
    expect(rowsOf(one.db, 'SELECT version FROM _tombstones')).toEqual([{ version: version + above }]);
  });
});

test('a deletion without a row leaves a tombstone at its version', async () => {
  const { one, version, shown } = await withRefused();
  expect(give(one, [{ ...ROWLESS, old_id: 'a' }])).toEqual({ applied: 1, ack: 1 });
  expect(shown()).toEqual([]);
  expect(rowsOf(one.db, 'SELECT version FROM _tombstones')).toEqual([{ version }]);
});

describe.each([
  ['microseconds', T * 1_000],
  ['a text', "'2026-11-19 10:00'"],
])('a row that shows %s, and may not be updated', (_, time) => {
  const append = async () => {
    const one = await node({ schema: ITEMS });
    one.db.exec("CREATE TRIGGER no BEFORE UPDATE ON items BEGIN SELECT RAISE(ABORT, 'append only'); END");
    one.db.exec(`INSERT INTO items VALUES ('a', 'here', NULL, 1, ${time}), ('b', 'here', NULL, 1, ${T})`);
    writeStamps(one.manager);
    return { one, version: Number(rowsOf(one.db, "SELECT version FROM _stamps WHERE row_id = 'a'")[0]?.version) };
  };

  test('is deleted by what is above its version, and not by what is below', async () => {
    const { one, version } = await append();
    const ids = () => rowsOf(one.db, 'SELECT id FROM items').map(({ id }) => id);
    expect(give(one, [change('DELETE', 'a', version - 1)])).toMatchObject({ applied: 0 });
    expect(ids()).toEqual(['a', 'b']);
    expect(give(one, [change('DELETE', 'a', version + 1), change('DELETE', 'b', T + 1)])).toEqual({
      applied: 2,
      ack: 1,
    });
    expect(ids()).toEqual([]);
    expect(rowsOf(one.db, 'SELECT version FROM _tombstones ORDER BY 1')).toEqual([
      { version: T + 1 },
      { version: version + 1 },
    ]);
  });

  test('an update above its version is a dead letter, and once it is let in, it wins', async () => {
    const { one, version } = await append();
    expect(give(one, [change('UPDATE', 'a', version + 1)])).toMatchObject({ rejected: [{ code: 'constraint' }] });
    one.db.exec('DROP TRIGGER no');
    const [letter] = one.manager.deadLetters.list();
    one.manager.deadLetters.retry(letter?.id ?? 0);
    expect(rowsOf(one.db, "SELECT name, updated_at FROM items WHERE id = 'a'")).toEqual([
      { name: 'received', updated_at: version + 1 },
    ]);
  });
});
