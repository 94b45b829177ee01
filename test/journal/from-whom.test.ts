/** From whom a row came: also through hubs, after a restart, however its columns are spelt, and whatever a peer claims. */
import { describe, expect, test } from 'vitest';
import { Cluster, type Member } from '../support/cluster.ts';
import { node, rowsOf, until } from '../support/nodes.ts';

const insert = (member: Member, id: string, version: number, table = 'items'): void =>
  void member.db.exec(`INSERT INTO ${table} (id, updated_at) VALUES ('${id}', ${version})`);

const has = (member: Member, id: string, version: number) => (): boolean =>
  member.manager.why('items', id).version === version;

const from = (member: Member, id: string): unknown => member.manager.why('items', id).lastFrom;

describe('through hubs', () => {
  test('an insert and a deletion have their writer as an update has', async () => {
    const cluster = new Cluster();
    await cluster.hub('h', ['a', 'b', 'c']);
    const [a, b, c] = [await cluster.node('a', ['h']), await cluster.node('b', ['h']), await cluster.node('c', ['h'])];
    insert(a, 'r', 100);
    insert(b, 's', 100);
    await until('c has both', () => has(c, 'r', 100)() && has(c, 's', 100)());
    expect(from(c, 'r')).toMatchObject({ node: 'a', via: 'h', at: expect.any(Number) });
    expect(from(c, 's')).toMatchObject({ node: 'b', via: 'h' });
    await until('b has it', has(b, 'r', 100));
    b.db.exec("UPDATE items SET name = 'x', updated_at = 200 WHERE id = 'r'");
    await until('a has it', has(a, 'r', 200));
    await until('c has it', has(c, 'r', 200));
    c.db.exec("DELETE FROM items WHERE id = 'r'");
    await until('a has lost it', () => a.manager.why('items', 'r').state === 'deleted');
    expect(from(a, 's')).toMatchObject({ node: 'b', via: 'h' });
    // A deletion has the version of what it deletes: it is the one who deleted that is asked for.
    expect(from(a, 'r')).toMatchObject({ node: 'c', via: 'h' });
    // Which the outbox may have let go of by now.
    await until('everybody has it', () => rowsOf(c.db, 'SELECT 1 FROM _changes').length === 0);
    expect(from(c, 'r')).toEqual({ node: 'self', at: null });
    expect(from(b, 's')).toEqual({ node: 'self', at: null });
  });

  test('two hubs that are linked', async () => {
    const cluster = new Cluster();
    const { hub: left } = await cluster.hub('left', ['a', 'right']);
    const { hub: right } = await cluster.hub('right', ['b', 'c', 'left']);
    const [a, b, c] = [
      await cluster.node('a', ['left']),
      await cluster.node('b', ['right']),
      await cluster.node('c', ['right']),
    ];
    insert(a, 'r', 100);
    insert(b, 's', 150);
    await until('all have both', () => [a, b, c].every((one) => has(one, 'r', 100)() && has(one, 's', 150)()));
    expect(from(b, 'r')).toMatchObject({ node: 'a', via: 'right' });
    expect(from(c, 'r')).toMatchObject({ node: 'a', via: 'right' });
    expect(from(c, 's')).toMatchObject({ node: 'b', via: 'right' });
    expect(from(a, 's')).toMatchObject({ node: 'b', via: 'left' });
    expect((await right.why('items', 'r')).lastFrom).toEqual({ node: 'a', via: 'left', at: null });
    expect((await left.why('items', 'r')).lastFrom).toEqual({ node: 'a', at: null });
    // And the edit that wins is told by its writer, where it makes another lose.
    cluster.cut.add(cluster.url('right'));
    a.db.exec("UPDATE items SET name = 'of a', updated_at = 300 WHERE id = 'r'");
    b.db.exec("UPDATE items SET name = 'of b', updated_at = 200 WHERE id = 'r'");
    cluster.cut.clear();
    await until('b has lost', () => b.manager.conflicts.list().length === 1);
    expect(b.manager.conflicts.list()).toMatchObject([{ lostVersion: 200, wonVersion: 300, wonBy: 'a' }]);
  });

  test('of what a hub sends again, or to one who comes later', async () => {
    const cluster = new Cluster();
    const { hub } = await cluster.hub('h', ['a', 'b']);
    const [a, b] = [await cluster.node('a', ['h']), await cluster.node('b', ['h'])];
    insert(a, 'r', 100);
    insert(b, 's', 100);
    await until('both have both', () => has(a, 's', 100)() && has(b, 'r', 100)());
    await hub.edges.add(cluster.url('c'));
    const c = await cluster.node('c', ['h']);
    await until('c has both', () => has(c, 'r', 100)() && has(c, 's', 100)());
    expect([from(c, 'r'), from(c, 's')]).toMatchObject([
      { node: 'a', via: 'h' },
      { node: 'b', via: 'h' },
    ]);
  });

  test('of more writers than one header can name', async () => {
    const cluster = new Cluster();
    const { hub } = await cluster.hub('h', []);
    const names = Array.from({ length: 150 }, (_, i) => `writer-${i}-${'%'.repeat(30)}`);
    for (const [i, name] of names.entries()) {
      const row = { id: `r${i}`, name, value: 1, created_at: 1, updated_at: 100 + i };
      const body = JSON.stringify({ batch_id: i + 1, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] });
      await hub.receive(body, { from: name, said: `id=${name}` });
    }
    const c = await cluster.node('c', []);
    await hub.edges.add(cluster.url('c'));
    await until('c has all', () => Number(rowsOf(c.db, 'SELECT count(*) AS n FROM items')[0]?.n) === names.length);
    expect(names.map((_, i) => from(c, `r${i}`))).toMatchObject(names.map((name) => ({ node: name, via: 'h' })));
    const headers = cluster.requests.flatMap(({ headers: sent }) => sent['x-origins'] ?? []);
    expect(headers.length).toBeGreaterThan(1);
    expect(Math.max(...headers.map(({ length }) => length))).toBeLessThanOrEqual(4_000);
  });

  test('nothing is told to a peer that has shown to be a plain one', async () => {
    const cluster = new Cluster();
    cluster.at.set(cluster.url('plain'), {
      maxBodyBytes: 1_000_000,
      health: () => ({ ok: true, node_id: 'plain' }),
      receive: (body) => {
        const ack = JSON.parse(Buffer.from(body).toString()).batch_id;
        return { status: 200, body: { applied: 1, ack }, headers: {} };
      },
    });
    await cluster.hub('h', ['a', 'plain']);
    const a = await cluster.node('a', ['h', 'plain']);
    const toPlain = () => cluster.requests.filter(({ url }) => url === `${cluster.url('plain')}/sync`);
    const senders = (): unknown[] => [...new Set(toPlain().map(({ headers }) => headers['x-node-id']))].sort();
    insert(a, 'r', 100);
    await until('it has answered both', () => senders().length === 2);
    const before = toPlain().length;
    insert(a, 's', 100);
    await until(
      'both have sent it more',
      () =>
        toPlain()
          .slice(before)
          .filter(({ body }) => body.includes('"s"')).length >= 2,
    );
    expect(
      toPlain()
        .slice(before)
        .filter(({ headers }) => 'x-origins' in headers),
    ).toEqual([]);
  });
});

describe('what a node passes on', () => {
  test('it does not say that it has written', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b', 'c']);
    const b = await cluster.node('b', ['a']);
    insert(a, 'r', 100);
    await until('b has it', has(b, 'r', 100));
    await a.stop();
    // A new node is given everything by b, who has not written this.
    const c = await cluster.node('c', ['b']);
    insert(c, 'known', 50);
    await until('b knows c', has(b, 'known', 50));
    b.manager.peers.add(cluster.url('c'));
    await until('c has it', has(c, 'r', 100));
    expect(from(c, 'r')).toMatchObject({ node: null, via: 'b' });
  });
});

describe('after a restart', () => {
  test('who brought what is known, and where it was killed, all but the last second', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b']);
    const b = await cluster.node('b', []);
    insert(a, 'r', 100);
    await until('b has it', has(b, 'r', 100));
    const { at } = from(b, 'r') as { at: number };
    await b.stop();
    const again = await cluster.node('b', []);
    expect(from(again, 'r')).toEqual({ node: 'a', at });
    insert(a, 's', 100);
    await until('b has the second', has(again, 's', 100));
    await until('it is written down', () => rowsOf(again.db, 'SELECT count(*) AS n FROM _arrivals')[0]?.n === 2);
    expect(from(again, 's')).toMatchObject({ node: 'a' });
    // And what was written here is known to have been, when it is not in the outbox any more.
    await until('b has both', () => rowsOf(a.db, 'SELECT 1 FROM _changes').length === 0);
    await a.stop();
    expect(from(await cluster.node('a', ['b']), 'r')).toEqual({ node: 'self', at: null });
  });

  test('what is no JSON in the outbox stops nothing', async () => {
    const cluster = new Cluster();
    const b = await cluster.node('b', []);
    const a = await cluster.node('a', ['b']);
    const errors: string[] = [];
    a.manager.on('error', ({ message }) => errors.push(message));
    const broken = "INSERT INTO _changes (op, table_name, row_id, row_data) VALUES ('UPDATE', 'items', 'x', 'no json')";
    a.db.exec(broken);
    insert(a, 'r', 100);
    await until('b has it', has(b, 'r', 100));
    await until('it is let go of', () => rowsOf(a.db, 'SELECT 1 FROM _changes').length === 0);
    await a.stop();
    expect(errors).toEqual([]);
  });

  test('not where there is to be no journal', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b']);
    const b = await cluster.node('b', [], { conflicts: false });
    insert(a, 'r', 100);
    await until('b has it', has(b, 'r', 100));
    expect(from(b, 'r')).toMatchObject({ node: 'a' });
    await b.stop();
    const again = await cluster.node('b', [], { conflicts: false });
    expect(from(again, 'r')).toBe(null);
  });
});

describe.each([
  ['as is', 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)'],
  ['another case', 'CREATE TABLE "Items" ("ID" TEXT PRIMARY KEY, "Name" TEXT, "Updated_At" INTEGER)'],
  [
    'STRICT, WITHOUT ROWID',
    'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INT) STRICT, WITHOUT ROWID',
  ],
  [
    'generated columns',
    'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, up TEXT AS (upper(name)) STORED, updated_at INTEGER, v AS (1))',
  ],
])('of a table: %s', (_, schema) => {
  test('a row, whatever its id', async () => {
    const cluster = new Cluster();
    const tables = [/TABLE "?(\w+)/.exec(schema)?.[1] as string];
    const a = await cluster.node('a', ['b'], { schema, tables });
    const b = await cluster.node('b', [], { schema, tables });
    const ids = [
      'plain',
      '$text:x',
      'with "quotes" and \\',
      'Zoë 🦊',
      "o'clock",
      '{"id":1}',
      '$blob:00',
      'tab\tline\n',
    ];
    ids.forEach((id, i) => void a.db.prepare('INSERT INTO items VALUES (?, ?, ?)').run(id, `n${i}`, 100 + i));
    await a.manager.flush();
    const stories = () => rowsOf(b.db, 'SELECT id FROM items').length;
    await until('b has them', () => stories() === ids.length);
    const wire = (id: string): string => (/^\$(text|blob):/.test(id) ? `$text:${id}` : id);
    const known = ids.map((id) => b.manager.why('items', wire(id)));
    expect(known.map(({ state }) => state)).toEqual(ids.map(() => 'live'));
    expect(known.map(({ lastFrom }) => lastFrom?.node)).toEqual(ids.map(() => 'a'));
    await b.stop();
    const again = await cluster.node('b', [], { schema, tables });
    expect(ids.map((id) => again.manager.why('items', wire(id)).lastFrom?.node)).toEqual(ids.map(() => 'a'));
  });
});

describe('what a peer claims', () => {
  const row = { id: 'r', name: 'x', value: 1, created_at: 1, updated_at: 100 };
  const body = (...rows: object[]): string =>
    JSON.stringify({
      batch_id: 1,
      changes: rows.map((one) => ({ op: 'INSERT', table: 'items', row: one, old_id: null })),
    });

  test.each([
    ['names another', 'b;0', { node: 'b', via: 'peer' }],
    ['names nobody', ';0', { node: null, via: 'peer' }],
    ['names itself', 'peer;0', { node: 'peer' }],
    ['says that it was written here', 'self;0', { node: null, via: 'peer' }],
    ['is about more changes', 'b;0x2', { node: 'peer' }],
    ['is nothing that anybody would write', 'b', { node: 'peer' }],
    ['would draw on a terminal', 'b%1B%5B2J;0', { node: 'peer' }],
  ])('who brought it is told, where the header %s', async (_, origins, expected) => {
    const it = await node();
    expect(it.manager.receive(body(row), { from: 'peer', said: 'id=peer', origins }).status).toBe(200);
    expect(it.manager.why('items', 'r').lastFrom).toEqual({ ...expected, at: expect.any(Number) });
    // One that does not introduce itself has nothing to say of others.
    it.manager.receive(body({ ...row, id: 's' }), { from: 'plain', origins });
    expect(it.manager.why('items', 's').lastFrom).toEqual({ node: 'plain', at: expect.any(Number) });
  });

  test('of changes that it may not make it has not brought any', async () => {
    const other = 'CREATE TABLE other (id TEXT PRIMARY KEY, updated_at INTEGER)';
    const it = await node({
      schema: `CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER); ${other}`,
      tables: ['items', 'other'],
    });
    it.db.exec("INSERT INTO items VALUES ('r', 'x', 100)");
    await it.manager.flush();
    it.db.exec('DELETE FROM _changes');
    const changes = [
      { op: 'INSERT', table: 'items', row: { id: 'r', name: 'x', updated_at: 100 }, old_id: null },
      { op: 'INSERT', table: 'other', row: { id: 'o', updated_at: 100 }, old_id: null },
    ];
    const rights = { write: new Set(['other']), rowless: false };
    const sent = JSON.stringify({ batch_id: 1, changes });
    it.manager.receive(sent, { from: 'peer', said: 'id=peer', rights, origins: 'x,y;0,1' });
    expect(it.manager.why('items', 'r').lastFrom).toBe(null);
    expect(it.manager.why('other', 'o').lastFrom).toMatchObject({ node: 'y', via: 'peer' });
  });

  test('a row of many megabytes has come from somebody, too', { tags: 'long' }, async () => {
    const it = await node();
    it.manager.receive(body({ ...row, name: 'x'.repeat(9 * 1024 * 1024) }), { from: 'b', said: 'id=b' });
    expect(it.manager.why('items', 'r').lastFrom).toMatchObject({ node: 'b' });
    await it.manager.stop();
    expect(rowsOf(it.db, 'SELECT sender, brought FROM _arrivals')).toEqual([
      { sender: 'b', brought: '[["items","r",100,0]]' },
    ]);
  });

  test('whoever brings most makes room, and nobody else', { tags: 'long' }, async () => {
    const it = await node();
    it.manager.receive(body(row), { from: 'quiet', said: 'id=quiet' });
    const large = (i: number): string =>
      body(...Array.from({ length: 400 }, (_, n) => ({ ...row, id: `${i}-${n}-${'x'.repeat(1_000)}` })));
    for (let i = 0; i < 40; i++) it.manager.receive(large(i), { from: 'loud', said: 'id=loud' });
    expect(it.manager.why('items', 'r').lastFrom).toMatchObject({ node: 'quiet' });
    const last = `39-399-${'x'.repeat(1_000)}`;
    expect(it.manager.why('items', last).lastFrom).toMatchObject({ node: 'loud' });
    await it.manager.stop();
    const [{ bytes, loud }] = rowsOf(
      it.db,
      "SELECT sum(octet_length(brought)) AS bytes, sum(sender = 'loud') AS loud FROM _arrivals",
    ) as [{ bytes: number; loud: number }];
    expect(bytes).toBeLessThan(4 * 1024 * 1024);
    expect(loud).toBeGreaterThan(0);
    expect(rowsOf(it.db, "SELECT count(*) AS n FROM _arrivals WHERE sender = 'quiet'")).toEqual([{ n: 1 }]);
  });
});
