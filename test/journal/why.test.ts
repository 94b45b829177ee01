/** The story of one row, at a node and at a hub. */
import { describe, expect, test } from 'vitest';
import { createAdminHandler } from '../../src/admin/index.ts';
import { Cluster } from '../support/cluster.ts';
import { node, until } from '../support/nodes.ts';

describe('of a row', () => {
  test('that was written here: who lacks it, and that it was written here', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b', 'c']);
    await cluster.node('b', []);
    cluster.cut.add(cluster.url('c'));
    a.db.exec("INSERT INTO items VALUES ('r', 'first', 1, 1, 100)");
    await a.manager.flush();
    a.db.exec("UPDATE items SET name = 'second', updated_at = 200");
    expect(a.manager.why('items', 'r')).toMatchObject({
      table: 'items',
      id: 'r',
      state: 'live',
      version: 200,
      row: { name: 'second' },
      tombstone: null,
      floor: null,
      hiddenBy: null,
      lastFrom: { node: 'self' },
      letters: [],
      conflicts: [],
    });
    const { pending } = a.manager.why('items', 'r');
    expect(pending.at(-1)).toMatchObject({ op: 'UPDATE', version: 200 });
    expect(pending.at(-1)?.peersMissing).toEqual([cluster.url('b'), cluster.url('c')]);
    await a.manager.flush();
    expect(a.manager.why('items', 'r').pending.at(-1)?.peersMissing).toEqual([cluster.url('c')]);
  });

  test('that came: from whom, and what it has beaten; and that it was deleted', async () => {
    const it = await node();
    it.db.exec("INSERT INTO items VALUES ('r', 'mine', 1, 1, 200)");
    const row = { id: 'r', name: 'theirs', value: 2, created_at: 1, updated_at: 300 };
    const bring = (change: Record<string, unknown>): void => {
      it.manager.receive(JSON.stringify({ batch_id: 1, changes: [change] }), { from: 'hub', said: 'id=hub' });
    };
    bring({ op: 'UPDATE', table: 'items', row, old_id: null, base: 100, origin: 'b' });
    expect(it.manager.why('items', 'r')).toMatchObject({
      state: 'live',
      version: 300,
      lastFrom: { node: 'b', via: 'hub', at: expect.any(Number) },
      conflicts: [{ conflictId: 1, lostVersion: 200, wonVersion: 300, wonBy: 'b' }],
    });
    bring({ op: 'DELETE', table: 'items', row, old_id: 'r' });
    const why = it.manager.why('ITEMS', 'r');
    expect(why).toMatchObject({ state: 'deleted', version: 300, row: null, tombstone: 300 });
    // Who deleted it, not who wrote what it was.
    expect(why.lastFrom).toMatchObject({ node: 'hub' });
    expect(it.manager.why('items', 'never')).toMatchObject({ state: 'absent', version: null, lastFrom: null });
  });

  test('that another hides, and that waits as a dead letter', async () => {
    const schema =
      'CREATE TABLE items (id TEXT PRIMARY KEY, email TEXT UNIQUE, n INTEGER CHECK (n < 5), updated_at INTEGER)';
    const it = await node({ schema });
    it.db.exec("INSERT INTO items VALUES ('r', 'x@y', 1, 100)");
    const put = (row: Record<string, unknown>) => ({ op: 'UPDATE', table: 'items', row, old_id: null, base: 50 });
    const changes = [
      put({ id: 's', email: 'x@y', n: 1, updated_at: 200 }),
      put({ id: 's', email: 'z', n: 9, updated_at: 300 }),
    ];
    it.manager.receive(JSON.stringify({ batch_id: 1, changes }), { from: 'b', said: 'id=b' });
    expect(it.manager.why('items', 'r')).toMatchObject({
      state: 'hidden',
      version: 100,
      row: { email: 'x@y' },
      hiddenBy: { id: 's', version: 200 },
      letters: [{ code: 'unique' }],
    });
    expect(it.manager.why('items', 's').letters).toMatchObject([{ code: 'constraint', peer: 'b' }]);
    expect(it.manager.conflicts.list()).toEqual([]);
    // The hidden row is as live as any: an edit of it that has not seen it makes it lose.
    it.manager.receive(
      JSON.stringify({ batch_id: 2, changes: [put({ id: 'r', email: 'q', n: 1, updated_at: 400 })] }),
      {
        from: 'b',
        said: 'id=b',
      },
    );
    expect(it.manager.conflicts.get(1)).toMatchObject({ id: 'r', lostVersion: 100, lost: { email: 'x@y' } });
  });

  test('of which there is no table', async () => {
    const it = await node();
    expect(() => it.manager.why('itmes', 'r')).toThrow(/table "itmes" is not synced; did you mean items\?/);
    expect(() => it.manager.why('items', 5 as never)).toThrow(/an id, as text/);
  });
});

describe('through a hub', () => {
  async function lost() {
    const cluster = new Cluster();
    const { hub } = await cluster.hub('h', ['a', 'b']);
    const a = await cluster.node('a', ['h']);
    const b = await cluster.node('b', ['h']);
    const settled = async (): Promise<void> => {
      await a.manager.flush();
      await b.manager.flush();
      await hub.flush();
    };
    a.db.exec("INSERT INTO items VALUES ('r', 'first', 1, 1, 100)");
    b.db.exec("INSERT INTO items VALUES ('of b', 'first', 1, 1, 100)");
    await settled();
    await until('b has it', () => b.manager.why('items', 'r').state === 'live');
    cluster.cut.add(cluster.url('h'));
    a.db.exec("UPDATE items SET name = 'of a', updated_at = 200 WHERE id = 'r'");
    b.db.exec("UPDATE items SET name = 'of b', updated_at = 300 WHERE id = 'r'");
    cluster.cut.clear();
    await settled();
    await until('a has it', () => a.manager.why('items', 'r').version === 300);
    return { cluster, hub, a, b };
  }

  test('the edit that lost is noted where it was written, and the winner is named', async () => {
    const { a, b, hub } = await lost();
    expect(a.manager.conflicts.list()).toMatchObject([{ lostVersion: 200, wonVersion: 300, wonBy: 'b' }]);
    expect(b.manager.conflicts.list()).toEqual([]);
    expect(a.manager.why('items', 'r').lastFrom).toMatchObject({ node: 'b', via: 'h' });
    expect(await hub.why('items', 'r')).toMatchObject({
      state: 'live',
      version: 300,
      row: { name: 'of b' },
      lastFrom: { node: 'b' },
      pending: [],
    });
  });

  test('the hub knows which edges lack it', async () => {
    const { cluster, hub, b } = await lost();
    await hub.edges.pause(cluster.url('a'));
    b.db.exec("UPDATE items SET name = 'later', updated_at = 400");
    await b.manager.flush();
    expect((await hub.why('ITEMS', 'r')).pending).toMatchObject([
      { op: 'UPDATE', version: 400, peersMissing: [cluster.url('a')] },
    ]);
    expect(await hub.why('items', 'never')).toMatchObject({ state: 'absent', pending: [] });
    const handler = createAdminHandler(hub);
    const asked = async (path: string): Promise<Response> =>
      handler(new Request(`http://localhost/_rowcast/api/${path}`));
    expect(await (await asked('why?table=items&id=r')).json()).toMatchObject({ version: 400 });
    expect((await asked('conflicts')).status).toBe(404);
  });
});
