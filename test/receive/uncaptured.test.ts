/** A change that meets a row which was written unseen and shows no time: the row gets a version, and the greater one stands. */
import { describe, expect, test } from 'vitest';
import { captured, ITEMS, node, rowsOf, type TestNode, writeStamps } from '../support/nodes.ts';
import { receivedInParts } from '../support/received.ts';
import { asTabular, type PlainChange } from '../support/tabular.ts';

const T = 1_700_000_000_000;
const LATER = Date.UTC(2100, 0);
const TIMES = ['NULL', "'2026-01-01'", '1.5', `${T}000`, "x'00'", '-9000000000000000', '9e999'];
const ROWLESS = { op: 'DELETE', table: 'items', row: null, old_id: 'nobody' };

function change(op: string, id: string, at: number): PlainChange {
  const row = { id, name: 'received', value: null, created_at: 1, updated_at: at };
  return { op, table: 'items', row, old_id: op === 'DELETE' ? id : null };
}

const give = ({ manager }: TestNode, changes: unknown[]) =>
  manager.receive(JSON.stringify({ batch_id: 1, changes }), { said: 'id=x' }).body;

/** `a` was written unseen; `b` is a row like any other. */
async function unseen(time: string, schema = ITEMS) {
  const one = await node({ schema });
  const warnings: string[] = [];
  one.manager.on('warning', ({ code }) => warnings.push(code));
  one.db.exec(`INSERT INTO items VALUES ('b', 'here', NULL, 1, ${T})`);
  one.db.exec("DELETE FROM _changes; UPDATE _meta SET value = 1 WHERE key = 'syncing'");
  one.db.exec(`INSERT INTO items VALUES ('a', 'unseen', NULL, 1, ${time})`);
  one.db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
  const rows = () => {
    writeStamps(one.manager);
    return rowsOf(one.db, 'SELECT id, name, updated_at FROM items ORDER BY id');
  };
  return { one, warnings, rows };
}

describe.each(TIMES)('a row that shows %s', (time) => {
  test.each([
    ['INSERT', []],
    ['UPDATE', []],
    ['DELETE', []],
    ['INSERT', [ROWLESS]],
    ['UPDATE', [ROWLESS]],
    ['DELETE', [ROWLESS]],
  ])('an older %s beside %j loses, and what stands is told to all', async (op, beside) => {
    const { one, warnings, rows } = await unseen(time);
    const changes = [change(op, 'a', T + 5), change(op, 'b', T + 5), ...beside];
    const answer = { applied: 1 + beside.length, ack: 1 };
    expect(give(one, changes)).toEqual(answer);
    const [a, ...others] = rows();
    expect(a).toEqual({ id: 'a', name: 'unseen', updated_at: expect.any(Number) });
    const at = Number(a?.updated_at);
    expect(at).toBeGreaterThan(T + 5);
    expect(at).toBeLessThan(LATER);
    expect(others).toEqual(op === 'DELETE' ? [] : [{ id: 'b', name: 'received', updated_at: T + 5 }]);
    expect(captured(one.db)).toEqual([
      { op: 'UPDATE', row_id: 'a', row: expect.objectContaining({ name: 'unseen', updated_at: at }) },
    ]);
    expect(rowsOf(one.db, "SELECT * FROM _tombstones WHERE row_id = 'a'")).toEqual([]);
    await Promise.resolve();
    expect(warnings).toEqual(['uncaptured']);
    expect(one.manager.deadLetters.list()).toEqual([]);
    // It is a row like any other now, and the same batch has the same answer.
    expect(give(one, changes)).toEqual(answer);
    expect(captured(one.db)).toHaveLength(1);
    expect(give(one, [change(op, 'a', LATER)])).toEqual({ applied: 1, ack: 1 });
    expect(rows()[0]?.name).not.toBe('unseen');
  });

  test.each(['INSERT', 'UPDATE', 'DELETE'])('an %s that is newer than the present wins', async (op) => {
    const { one, rows } = await unseen(time);
    expect(give(one, [change(op, 'a', LATER)])).toEqual({ applied: 1, ack: 1 });
    const [first] = rows();
    if (op === 'DELETE') expect(first?.id).toBe('b');
    else expect(first).toEqual({ id: 'a', name: 'received', updated_at: LATER });
    expect(rowsOf(one.db, 'SELECT * FROM _stamps')).toEqual([]);
  });

  test.each([undefined, 2])('in the tabular form, at once or in parts of %s', async (atOnce) => {
    const { one, rows } = await unseen(time);
    const changes = ['c', 'd', 'b', 'a', 'e'].map((id) => change('UPDATE', id, T + 5));
    const body = Buffer.from(asTabular({ batch_id: 1, changes }));
    const { received } = receivedInParts(one.manager, body, { said: 'id=x', ...(atOnce && { atOnce }) });
    expect(received.body).toEqual({ applied: 4, ack: 1 });
    expect(rows().map(({ name }) => name)).toEqual(['unseen', ...Array(4).fill('received')]);
  });
});

test('where the application forbids to write its version, that counts all the same', async () => {
  const no = "CREATE TRIGGER no BEFORE UPDATE ON items BEGIN SELECT RAISE(ABORT, 'append only'); END";
  const { one, rows } = await unseen("'2026-01-01'", `${ITEMS}; ${no}`);
  for (const op of ['DELETE', 'INSERT']) expect(give(one, [change(op, 'a', T + 5)])).toMatchObject({ applied: 0 });
  expect(rows()[0]).toEqual({ id: 'a', name: 'unseen', updated_at: '2026-01-01' });
  expect(captured(one.db)).toHaveLength(1);
  expect(give(one, [change('DELETE', 'a', LATER)])).toEqual({ applied: 1, ack: 1 });
  expect(rows().map(({ id }) => id)).toEqual(['b']);
});
