/** What a sender may not do is neither applied nor kept, is told in the acknowledgement, and stays with the sender. */
import { describe, expect, test } from 'vitest';
import type { Rights } from '../../src/wire/rights.ts';
import { writeRights } from '../../src/wire/rights.ts';
import { recordingFetch } from '../support/bad-servers.ts';
import { hub } from '../support/hubs.ts';
import { node, rowsOf, until } from '../support/nodes.ts';

type Row = Record<string, unknown>;

const SCHEMA = ['items', 'secrets'].map(
  (name) => `CREATE TABLE ${name} (id TEXT PRIMARY KEY, name TEXT CHECK (name <> 'bad'), updated_at INTEGER)`,
);
const TWO = { schema: SCHEMA.join(';'), tables: ['items', 'secrets'] };

const put = (table: unknown, id: string, more: Row = {}): Row => ({
  ...{ op: 'INSERT', table, row: { id, name: 'n', updated_at: 1000, ...more }, old_id: null },
});
const rowless = (table: string, id: string): Row => ({ op: 'DELETE', table, row: null, old_id: id });
const batch = (...changes: unknown[]): string => JSON.stringify({ batch_id: 7, changes });
const rights = (write: string[], mayRowless = false): Rights => ({ write: writeRights(write), rowless: mayRowless });

interface Receiver {
  receive(body: string, of: Rights | undefined): Promise<{ status: number; body: Row }>;
  rows(table: string): string[];
  letters(): Promise<string[]>;
  warnings: string[];
}

async function aNode(): Promise<Receiver> {
  const { db, manager } = await node(TWO);
  const warnings: string[] = [];
  manager.on('warning', ({ code, message }) => code === 'forbidden' && warnings.push(message));
  return {
    receive: async (body, of) => {
      const { status, body: answer } = manager.receive(body, { from: 'z', said: 'id=z', rights: of });
      return { status, body: { ...answer } };
    },
    rows: (table) => rowsOf(db, `SELECT id FROM ${table} ORDER BY id`).map(({ id }) => id as string),
    letters: async () => manager.deadLetters.list().map(({ code, rowId }) => `${code} ${rowId}`),
    warnings,
  };
}

async function aHub(): Promise<Receiver> {
  const made = await hub();
  const warnings: string[] = [];
  made.hub.on('warning', ({ code, message }) => code === 'forbidden' && warnings.push(message));
  return {
    receive: async (body, of) => {
      const { status, body: answer } = await made.hub.receive(body, { from: 'z', said: 'id=z', rights: of });
      return { status, body: { ...answer } };
    },
    rows: (table) =>
      made
        .rows()
        .filter(({ table_name, op }) => (table_name as string).toLowerCase() === table && op !== 'DELETE')
        .map(({ row_id }) => row_id as string),
    letters: async () => (await made.hub.deadLetters.list()).map(({ code, rowId }) => `${code} ${rowId}`),
    warnings,
  };
}

const RECEIVERS: [string, () => Promise<Receiver>][] = [
  ['a node', aNode],
  ['a hub', aHub],
];

describe.each(RECEIVERS)('%s', (_, make) => {
  test('takes the tables that the sender may write, and lists the others as forbidden', async () => {
    const b = await make();
    const changes = [put('items', 'a'), put('secrets', 'b'), put('ITEMS', 'c'), put('Secrets', 'd'), put('items', 'e')];
    expect(await b.receive(batch(...changes), rights(['Items']))).toMatchObject({
      status: 200,
      body: {
        applied: 3,
        ack: 7,
        rejected: [
          { index: 1, code: 'forbidden', message: 'this sender may not write the table "secrets"' },
          { index: 3, code: 'forbidden', message: 'this sender may not write the table "Secrets"' },
        ],
      },
    });
    expect([b.rows('items'), b.rows('secrets'), await b.letters()]).toEqual([['a', 'c', 'e'], [], []]);
    expect(b.warnings).toEqual([
      'node "z" has sent changes that it may not make: they were neither applied nor kept here',
    ]);
  });

  test('takes nothing of a reader, nor a table that is not known', async () => {
    const b = await make();
    const answer = await b.receive(batch(put('items', 'a'), put('elsewhere', 'b')), rights([]));
    expect(answer.body).toMatchObject({ applied: 0, ack: 7, rejected: [{ index: 0 }, { index: 1 }] });
    expect([b.rows('items'), await b.letters()]).toEqual([[], []]);
  });

  test('tells what else is rejected by its place in the batch as it came', async () => {
    const b = await make();
    const changes = [
      put('secrets', 's'),
      put('items', 'a'),
      put('items', 'x', { updated_at: 'late' }),
      put('items', 'b'),
    ];
    const { body } = await b.receive(batch(...changes), rights(['items']));
    expect(body).toMatchObject({
      applied: 2,
      rejected: [
        { index: 0, code: 'forbidden' },
        { index: 2, code: 'forbidden' },
      ],
    });
    expect([b.rows('items'), await b.letters()]).toEqual([['a', 'b'], []]);
  });

  test('keeps nothing of what only its sender can have made so', async () => {
    const b = await make();
    const faults = [
      17,
      { ...put('items', 'a'), op: 'UPSERT' },
      { ...put('items', 'a'), row: [] },
      put('items', 'a', { id: 5 }),
      put('items', 'a', { updated_at: 9e15 }),
    ];
    const { body } = await b.receive(batch(...faults), rights(['*']));
    expect(body).toMatchObject({ applied: 0, rejected: faults.map((_one, index) => ({ index, code: 'forbidden' })) });
    const messages = (body.rejected as { message: string }[]).map(({ message }) => message.split(':')[0]);
    expect(messages).toEqual(['bad-change', 'bad-op', 'bad-row', 'bad-id', 'bad-timestamp']);
    expect(await b.letters()).toEqual([]);
    // Of somebody without rights it is kept, as ever.
    expect((await b.receive(batch(...faults), undefined)).body).toHaveProperty('rejected.0.code', 'bad-change');
    expect(await b.letters()).toHaveLength(5);
  });

  test('takes a DELETE without a row only where that is allowed', async () => {
    const b = await make();
    await b.receive(batch(put('items', 'a'), put('items', 'b')), undefined);
    const refused = await b.receive(batch(rowless('items', 'a'), put('items', 'c')), rights(['*']));
    expect(refused.body).toMatchObject({ applied: 1, rejected: [{ index: 0, code: 'forbidden' }] });
    expect([b.rows('items'), await b.letters()]).toEqual([['a', 'b', 'c'], []]);
    expect((await b.receive(batch(rowless('items', 'a')), rights(['*'], true))).body).toMatchObject({ applied: 1 });
    expect(b.rows('items')).toEqual(['b', 'c']);
  });

  test('is not deceived by how the table is written', async () => {
    const b = await make();
    const escaped = batch(put('secrets', 'a')).replace('"secrets"', '"\\u0073ecrets"');
    const twice = batch(put('items', 'b')).replace('"table":"items"', '"table":"secrets","table":"items"');
    const other = batch(put('items', 'c')).replace('"table":"items"', '"table":"items","table":"secrets"');
    for (const body of [escaped, twice, other]) {
      expect((await b.receive(body, rights(['items']))).status).toBe(200);
      expect(b.rows('secrets')).toEqual([]);
    }
    expect((await b.receive(batch(put(['secrets'], 'd'), put(null, 'e')), rights(['items']))).body).toMatchObject({
      applied: 0,
    });
    expect([b.rows('secrets'), b.rows('items').includes('d')]).toEqual([[], false]);
  });
});

describe('a node', () => {
  test('still keeps what it may apply later', async () => {
    const b = await aNode();
    const changes = [put('items', 'a', { name: 'bad' }), put('later', 'b'), put('items', 'c', { color: 'red' })];
    const { body } = await b.receive(batch(...changes), rights(['items', 'later']));
    const codes = (body.rejected as { code: string }[]).map(({ code }) => code);
    expect(codes).toEqual(['constraint', 'unknown-table', 'unknown-column']);
    expect((await b.letters()).sort()).toEqual(['constraint a', 'unknown-column c', 'unknown-table b']);
  });

  test('knows a renamed table by both of its names', async () => {
    const { db, manager } = await node(TWO);
    manager.migrate('ALTER TABLE items RENAME TO things', { renameTable: { items: 'things' } });
    for (const [name, id] of [
      ['things', 'a'],
      ['items', 'b'],
    ] as const) {
      for (const table of ['items', 'things']) {
        const change = put(table, `${id} ${table}`);
        manager.receive(batch(change), { said: 'id=z', rights: rights([name]) });
      }
    }
    expect(rowsOf(db, 'SELECT id FROM things ORDER BY id').map(({ id }) => id)).toEqual([
      'a items',
      'a things',
      'b items',
      'b things',
    ]);
    manager.receive(batch(put('items', 'no')), { said: 'id=z', rights: rights(['secrets']) });
    expect(rowsOf(db, "SELECT id FROM things WHERE id = 'no'")).toEqual([]);
  });
});

describe('a sender', () => {
  test.each(['node', 'hub'] as const)('to a %s keeps what is forbidden as letters of its own', async (kind) => {
    const b = await (kind === 'node' ? aNode() : aHub());
    const network = recordingFetch(async (_sent, raw) => {
      const { status, body } = await b.receive(Buffer.from(raw).toString(), rights(['items']));
      return { status, body: JSON.stringify(body) };
    });
    const a = await node({ ...TWO, peers: ['http://b.test'], batchMs: 5, fetch: network.fetch });
    const events: unknown[] = [];
    a.manager.on('dead-letter', (letter) => events.push(letter));
    await a.manager.flush();
    a.db.exec("INSERT INTO items VALUES ('a', 'n', 1000); INSERT INTO secrets VALUES ('b', 'n', 1000)");
    a.db.exec("INSERT INTO items VALUES ('c', 'n', 1000); INSERT INTO secrets VALUES ('d', 'n', 1000)");
    await a.manager.flush();
    expect([b.rows('items'), b.rows('secrets')]).toEqual([['a', 'c'], []]);
    await until('both letters are there', () => a.manager.deadLetters.list().length === 2);
    expect(a.manager.deadLetters.list()).toMatchObject(
      ['b', 'd'].map((rowId) => ({
        ...{ direction: 'out', code: 'forbidden', table: 'secrets', rowId, peer: 'http://b.test' },
        reason: 'forbidden: this sender may not write the table "secrets"',
      })),
    );
    expect(events).toMatchObject([{ direction: 'out', code: 'forbidden', rows: [{ id: 'b' }, { id: 'd' }] }]);
    expect(a.manager.health()).toMatchObject({ ok: true, pending_changes: 0, dead_letter: 2 });
    // Once it is allowed, it is sent again.
    const { id } = a.manager.deadLetters.list()[0] as { id: number };
    expect(a.manager.deadLetters.retry(id)).toMatchObject({ outcome: 'queued' });
  });

  test('makes no second copy of rows that a new peer does not let it write', async () => {
    const b = await aNode();
    const network = recordingFetch(async (_sent, raw) => {
      const { status, body } = await b.receive(Buffer.from(raw).toString(), rights(['items']));
      return { status, body: JSON.stringify(body) };
    });
    const a = await node(TWO);
    a.db.exec("INSERT INTO items VALUES ('a', 'n', 1000); INSERT INTO secrets VALUES ('b', 'n', 1000)");
    await a.manager.stop();
    const { attached } = await import('../support/nodes.ts');
    const again = attached(a.db, { peers: ['http://b.test'], batchMs: 5, fetch: network.fetch }, TWO.tables);
    const warnings: string[] = [];
    again.on('warning', ({ code }) => warnings.push(code));
    await again.flush();
    expect([b.rows('items'), b.rows('secrets')]).toEqual([['a'], []]);
    expect(again.deadLetters.list()).toEqual([]);
    expect(warnings).toContain('forbidden');
  });

  test('takes no word for it that is none', async () => {
    const odd = [
      { index: 9 },
      { index: -1 },
      { index: 'x' },
      { index: 0.5 },
      null,
      7,
      { index: 0, code: 'constraint' },
    ];
    const rejected = odd.map((one) => (typeof one === 'object' && one ? { code: 'forbidden', ...one } : one));
    const network = recordingFetch(({ batchId }) => ({
      status: 200,
      body: JSON.stringify({ applied: 0, ack: batchId, rejected }),
    }));
    const a = await node({ ...TWO, peers: ['http://b.test'], batchMs: 5, fetch: network.fetch });
    await a.manager.flush();
    a.db.exec("INSERT INTO items VALUES ('a', 'n', 1000)");
    await a.manager.flush();
    expect(a.manager.deadLetters.list()).toEqual([]);
    expect(a.manager.health()).toMatchObject({ ok: true, pending_changes: 0 });
  });
});
