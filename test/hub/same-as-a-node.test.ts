/** The same batches to a node and to a hub: the same rows, the same deletions, the same answers. */
import { describe, expect, test } from 'vitest';
import { draws } from '../support/draws.ts';
import { gone, hub, live, T } from '../support/hubs.ts';
import { Random } from '../support/model.ts';
import { node, rowsOf } from '../support/nodes.ts';

interface Both {
  /** How many changes both have applied. */
  deliver(changes: object[], said?: string): Promise<number>;
  /** What both have of every row: its name and value, or that it is deleted. */
  state(): Record<string, unknown>;
}

/** A header of a Rowcast node that says nothing of itself. */
const ROWCAST = '';
const WHOLE = { value: null, created_at: 1 };

async function both(): Promise<Both> {
  const [one, { hub: other, rows }] = [await node(), await hub()];
  const ofNode = (): Record<string, unknown> => {
    const there = rowsOf(one.db, 'SELECT * FROM items').map(({ id, ...row }) => [id, row]);
    const deleted = rowsOf(one.db, 'SELECT row_id, version FROM _tombstones');
    const gone = deleted.map(({ row_id, version }) => [row_id, { deleted: version }]);
    // A tombstone below a live row is kept by a node, and says nothing.
    return Object.fromEntries([...gone, ...there]);
  };
  const ofHub = (): Record<string, unknown> =>
    Object.fromEntries(
      rows().map(({ op, row_id, updated_at, row_data }) => {
        if (op === 'DELETE') return [row_id, { deleted: updated_at }];
        const { id: _, ID: __, ...row } = JSON.parse(row_data as string);
        return [row_id, { name: null, value: null, created_at: null, ...row }];
      }),
    );
  return {
    async deliver(changes, said) {
      const body = JSON.stringify({ batch_id: 1, changes });
      const answers = [one.manager.receive(body, { from: 'p', said }), await other.receive(body, { from: 'p', said })];
      const [here, there] = answers.map(({ status, body }) => ({ status, ...body }));
      // Of a DELETE without a row a node counts that one, and a hub the row; and a hub sets it aside where it knows none.
      if (!body.includes('"row":null')) expect([body, there]).toEqual([body, here]);
      expect([body, ofHub()]).toEqual([body, ofNode()]);
      return (here as { applied: number }).applied;
    },
    state: ofNode,
  };
}

describe('M11: of a plain peer\u2019s changes of one row at one time the later in the batch stands', () => {
  const named = (name: string, op?: string): object => live('x', T, { name, ...WHOLE }, op);
  const x = (name: string): object => ({ x: { name, ...WHOLE, updated_at: T } });

  test.each([
    ['deleted and inserted again', [named('n', 'INSERT'), gone('x', T), named('again', 'INSERT')], x('again')],
    ['inserted again, of what was not there', [gone('x', T), named('again', 'INSERT')], x('again')],
    ['inserted and deleted', [named('n', 'INSERT'), gone('x', T)], { x: { deleted: T } }],
    ['deleted in the end', [gone('x', T), named('n', 'INSERT'), gone('x', T)], { x: { deleted: T } }],
    [
      'with columns missing',
      [named('a'), live('x', T, { name: 'b' })],
      { x: { ...WHOLE, name: 'b', updated_at: T, created_at: null } },
    ],
  ])('%s', async (_, changes, expected) => {
    const { deliver, state } = await both();
    expect(await deliver(changes)).toBe(changes.length);
    expect(state()).toEqual(expected);
    // And once more, where the answer was lost.
    expect(await deliver(changes)).toBe(changes.length);
    expect(state()).toEqual(expected);
  });

  test('against what came in a batch before, the order of versions decides, and nothing of a row that has lost counts', async () => {
    const { deliver, state } = await both();
    expect(await deliver([gone('x', T)])).toBe(1);
    expect(await deliver([gone('x', T), named('again', 'INSERT')])).toBe(0);
    expect(state()).toEqual({ x: { deleted: T } });
  });

  test('of a Rowcast node\u2019s the deletion does', async () => {
    const { deliver, state } = await both();
    expect(await deliver([named('n', 'INSERT'), gone('x', T), named('again', 'INSERT')], ROWCAST)).toBe(3);
    expect(state()).toEqual({ x: { deleted: T } });
  });
});

test('whatever is drawn', async () => {
  for (let seed = 1; seed <= draws(80); seed++) {
    const random = new Random(seed);
    const pick = <V>(from: readonly V[]): V => from[Math.floor(random.next() * from.length)] as V;
    const change = (): object => {
      const [id, at] = [pick(['x', 'y']), T + pick([0, 0, 1, 2])];
      const row = { name: pick([null, 'a', 'b', 'c']), value: pick([null, 1, 9, 10]), created_at: 1 };
      const kind = random.next();
      if (kind < 0.3) return gone(id, at);
      if (kind < 0.4) return { op: 'DELETE', table: 'items', row: null, old_id: id };
      if (kind < 0.5) return { op: 'UPDATE', table: 'ITEMS', row: { ID: id, ...row, updated_at: at }, old_id: null };
      return live(id, at, row, pick(['INSERT', 'UPDATE']));
    };
    const { deliver } = await both();
    for (let i = 0; i < 8; i++) {
      const changes = Array.from({ length: pick([1, 2, 3, 3, 5]) }, change);
      const said = pick([undefined, undefined, ROWCAST]);
      for (let times = pick([1, 1, 2]); times > 0; times--) await deliver(changes, said);
    }
  }
});
