/** What an operator meets at night: a disk that is full, and a backup that has to be restored. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { attach, type Manager } from '../../src/index.ts';
import type { Fetch } from '../../src/send/transport.ts';
import { cleanUp, exactRows, node, rowsOf, scratchFolder } from '../support/nodes.ts';

test('a full disk refuses a batch without an acknowledgement or a trace, and takes it when there is room again', async () => {
  const { db, manager, all } = await node({ path: join(scratchFolder(), 'full.db') });
  const put = (id: string, name: string) => ({
    op: 'INSERT',
    table: 'items',
    row: { id, name, value: 1, created_at: 1, updated_at: 1000 },
    old_id: null,
  });
  const body = JSON.stringify({
    batch_id: 7,
    changes: Array.from({ length: 200 }, (_, i) => put(`r${i}`, 'x'.repeat(1000))),
  });
  const [{ page_count: pages } = { page_count: 0 }] = rowsOf(db, 'PRAGMA page_count');
  rowsOf(db, `PRAGMA max_page_count = ${Number(pages) + 5}`);
  expect(manager.receive(body)).toMatchObject({ status: 503, body: { error: expect.stringMatching(/full/) } });
  expect(all('SELECT count(*) AS n FROM items')).toEqual([{ n: 0 }]);
  expect(all("SELECT value FROM _meta WHERE key = 'syncing'")).toEqual([{ value: 0 }]);
  expect(manager.deadLetters.list()).toEqual([]);

  rowsOf(db, 'PRAGMA max_page_count = 1000000');
  expect(manager.receive(body)).toEqual({ status: 200, body: { applied: 200, ack: 7 }, headers: expect.any(Object) });
  expect(all('SELECT count(*) AS n FROM _changes')).toEqual([{ n: 0 }]);
});

test('a node restored from a backup gets back all it had, once its peers forget how far it was', async () => {
  const [A, B] = ['http://a.test', 'http://b.test'];
  const managers = new Map<string, Manager>();
  const fetch: Fetch = async (url, { body }) => {
    const answer = managers.get(new URL(url).origin)?.receive(body);
    if (!answer) throw new Error('nobody there');
    return { status: answer.status, text: async () => JSON.stringify(answer.body) };
  };
  const folder = scratchFolder();
  const put = (id: string) => `INSERT INTO items VALUES ('${id}', 'n', 1, 1, 1000)`;
  const a = await node({ id: 'a', path: join(folder, 'a.db'), peers: [B], fetch });
  const b = await node({ id: 'b', peers: [A], fetch });
  managers.set(A, a.manager).set(B, b.manager);
  a.db.exec(put('before'));
  a.db.exec(put('deleted later'));
  await a.manager.flush();
  a.db.exec(`VACUUM INTO '${join(folder, 'backup.db')}'`);

  a.db.exec(put('own, after the backup'));
  a.db.exec("DELETE FROM items WHERE id = 'deleted later'");
  await a.manager.flush();
  b.db.exec(put('from b, after the backup'));
  await b.manager.flush();
  const lost = exactRows(a.db, 'items');
  await a.manager.stop();

  const restored = await node({ id: 'a', schema: 'SELECT 1', path: join(folder, 'backup.db'), peers: [B], fetch });
  managers.set(A, restored.manager);
  await b.manager.stop();
  b.db.exec(`DELETE FROM _peer_state WHERE peer_url = '${A}'`);
  const again = attach(b.db, { maxAheadMs: 0, id: 'b', peers: [A], fetch }, ['items']);
  cleanUp(() => again.stop());
  managers.set(B, again);
  expect(await again.flush()).toEqual({ delivered: [A], unreachable: [] });
  expect(exactRows(restored.db, 'items')).toEqual(lost);

  restored.db.exec(put('written after the restore'));
  await restored.manager.flush();
  expect(exactRows(b.db, 'items')).toEqual(exactRows(restored.db, 'items'));
});
