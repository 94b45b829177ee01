/** A body with a large row is merged by other statements, which copy less; what comes of it is the same. */
import { describe, expect, test } from 'vitest';
import { hub } from '../support/hubs.ts';
import { node, rowsOf } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const SCHEMA =
  'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, "odd ""name" INTEGER CHECK ("odd ""name" <> 13), data BLOB, ratio REAL, updated_at INTEGER)';

const row = (id: string, more: object = {}): object => ({
  ...{ id, name: `name of ${id}`, 'odd "name': 1, data: null, ratio: 0.5, updated_at: T },
  ...more,
});
const put = (id: string, more: object = {}, also: object = {}): object => ({
  ...{ op: 'INSERT', table: 'items', row: row(id, more), old_id: null },
  ...also,
});

/** So much that the body counts as large, where there is any. */
const filler = (bytes: number): object[] => (bytes === 0 ? [] : [put('filler', { name: 'x'.repeat(bytes) })]);

const BATCHES: Record<string, object[][]> = {
  'of the usual form': [
    [put('a'), put('b', { data: '$blob:00FF', ratio: '$real:Inf' }), put('c', { 'odd "name': '$int:9007199254740993' })],
    [put('a', { name: 'newer', updated_at: T + 5 }), put('b', { name: 'older', updated_at: T - 5 }), put('c')],
    [put('c', { name: 'zz tie' }), { op: 'DELETE', table: 'items', row: row('b', { updated_at: T + 1 }), old_id: 'b' }],
  ],
  'of another form': [
    [put('a', { extra: 1 }), { op: 'INSERT', table: 'items', row: { id: 'b', updated_at: T }, old_id: null }],
    [put('c', { 'odd "name': 13 }), put('d', { updated_at: 'x' }), put('e', {}, { op: 'GUESS' }), put('f', {}, { table: 'nowhere' })],
    [{ op: 'UPDATE', table: 'ITEMS', row: { ID: 'a', NAME: 'by another case', updated_at: T + 2 }, old_id: null, base: T - 1 }],
    [{ op: 'DELETE', table: 'items', row: null, old_id: 'b' }, put('g', { updated_at: 1 }), put('h', { name: { nested: [1] } })],
  ],
}; // biome-ignore format: a change a line

const receivers = {
  node: async () => {
    const { manager, db } = await node({ schema: SCHEMA });
    const columns = ['id', 'name', '"odd ""name"', 'data', 'ratio', 'updated_at'].map((name) => `quote(${name})`);
    const sql = `SELECT ${columns.join(" || ' ' || ")} AS line FROM items ORDER BY id`;
    return { replica: manager, db, contents: () => rowsOf(db, sql).map(({ line }) => String(line)) };
  },
  hub: async () => {
    const { hub: relay, db } = await hub();
    const sql = 'SELECT op, table_name, row_id, updated_at, base, row_data FROM _hub_rows ORDER BY table_name, row_id';
    return { replica: relay, db, contents: () => rowsOf(db, sql).map((one) => JSON.stringify(one)) };
  },
};

describe.each(['node', 'hub'] as const)('at a %s', (kind) => {
  test.each(Object.entries(BATCHES))('batches %s', async (_, batches) => {
    const outcomes = [];
    for (const bytes of [0, 300_000]) {
      const { replica, db, contents } = await receivers[kind]();
      const acks = [];
      for (const changes of batches) {
        const body = JSON.stringify({ batch_id: 1, changes: [...changes, ...filler(bytes)] });
        const { body: ack } = await replica.receive(body, { from: 'a', said: 'id=a' });
        if (!('ack' in ack)) throw new Error(JSON.stringify(ack));
        acks.push({ ...ack, applied: ack.applied - (bytes === 0 ? 0 : 1) });
      }
      const letters = rowsOf(
        db,
        'SELECT code, reason, row_data FROM _dead_letter JOIN _dead_letter_info USING (dead_id)',
      );
      const others = contents().filter((line) => !line.includes('filler'));
      const tombstones = kind === 'node' ? rowsOf(db, 'SELECT row_id, version FROM _tombstones ORDER BY row_id') : [];
      outcomes.push({ acks, others, letters, tombstones });
    }
    expect(outcomes[0]?.others.length).toBeGreaterThan(1);
    expect(outcomes[1]).toEqual(outcomes[0]);
  });
});
