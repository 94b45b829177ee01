/**
 * A node that has forgotten deletions is put back to a backup. What it had set aside since is in nobody's letters any more, and
 * is not there; but it was not deleted, and whoever has it must not take it for that.
 */
import { expect, test } from 'vitest';
import { Aging, DAY } from '../support/aging.ts';
import { type HubMember, ids, type Member, settled, write } from '../support/cluster.ts';
import { until } from '../support/nodes.ts';

const AT_REST = { verify: false } as const;

/** It has set a row aside that was written before what it has forgotten, and came after that. */
const hasSetAside = ({ manager }: Member): boolean =>
  manager.deadLetters.list().some(({ code, rowId }) => code === 'below-floor' && rowId === 'late');

const isGivenAll = ({ manager }: Member): boolean =>
  manager.peers.list().every(({ snapshot, state }) => !snapshot && state === 'up');

/** `b` was put back to what it had before it was told of `late`, and does not know yet that it was. */
async function putBack(cluster: Aging): Promise<{ a: Member; b: Member }> {
  const early = await cluster.member('a', ['b'], AT_REST);
  const b = await cluster.member('b', ['a'], AT_REST);
  write(early, '1');
  await settled('1', early, b);
  await cluster.acquainted(early, b);
  cluster.cut.add(cluster.url('b'));
  write(early, 'late');
  await early.stop();
  cluster.offset += DAY;
  write(b, 'x');
  b.db.exec("DELETE FROM items WHERE id = 'x'");
  await b.manager.peers.remove(cluster.url('a'));
  await cluster.pass(100, b);
  await cluster.gone(b);
  const a = await cluster.member('a', ['b'], AT_REST);
  b.manager.peers.add(cluster.url('a'));
  await until('b has given it everything', () => isGivenAll(b));
  const restore = cluster.backup(b);
  cluster.cut.clear();
  await until('it is set aside', () => hasSetAside(b));
  await a.manager.flush();
  await b.stop();
  restore();
  return { a, b };
}

test('what it asks for and lacks is not deleted by whoever has not noticed yet', async () => {
  const cluster = new Aging();
  const { a } = await putBack(cluster);
  // It can ask, and cannot be asked.
  cluster.cut.add(cluster.url('b'));
  const b = await cluster.member('b', ['a'], AT_REST);
  const [result] = await b.manager.verify(cluster.url('a'), { repair: true });
  expect(result?.error).toBeUndefined();
  expect(ids(a)).toContain('late');
  expect(hasSetAside(b)).toBe(true);
  cluster.cut.clear();
  await until('a has given it everything', () => isGivenAll(a));
  expect(ids(a)).toContain('late');
});

test('what it is asked for and lacks is not deleted by whoever asks, before it knows itself', async () => {
  const cluster = new Aging();
  const { a } = await putBack(cluster);
  // It can be asked, and nobody tells it anything.
  const isQuestion = (url: string): boolean => url.startsWith(cluster.url('b')) && /\/sync\/(compare|fetch)$/.test(url);
  cluster.proxy = ({ url }) => {
    if (!isQuestion(url)) throw new Error('ECONNREFUSED');
    return undefined;
  };
  await cluster.member('b', ['a'], AT_REST);
  const [result] = await a.manager.verify(cluster.url('b'), { repair: true });
  expect(result?.error).toContain('as it was before');
  expect(ids(a)).toContain('late');
});

test('nor by a hub, whoever of the two asks', { tags: 'long' }, async () => {
  const cluster = new Aging();
  const hub = await cluster.relay('hub', ['b']);
  const b = await cluster.member('b', ['hub'], AT_REST);
  write(b, '1');
  await until('the hub has it', () => idsOn(hub) === '1');
  const before = Date.now() - 1;
  cluster.offset += DAY;
  write(b, 'x');
  await until('the hub has that, too', () => idsOn(hub) === '1 x');
  b.db.exec("DELETE FROM items WHERE id = 'x'");
  await until('and knows that it was deleted', () => idsOn(hub) === '1');
  await cluster.pass(100, b);
  await cluster.gone(b);
  const restore = cluster.backup(b);
  // By an edge that was away.
  const late = { op: 'INSERT', table: 'items', row: { id: 'late', name: 'x', updated_at: before }, old_id: null };
  await hub.hub.receive(JSON.stringify({ batch_id: 1, changes: [late] }));
  await until('it is set aside', () => hasSetAside(b));
  await b.stop();
  restore();
  cluster.proxy = ({ url }) => {
    if (!/\/sync\/(compare|fetch)$/.test(url)) throw new Error('ECONNREFUSED');
    return undefined;
  };
  const again = await cluster.member('b', ['hub'], AT_REST);
  await hub.hub.verify(cluster.url('b'), { repair: true });
  expect(idsOn(hub)).toContain('late');
  await again.manager.verify(cluster.url('hub'), { repair: true });
  expect(idsOn(hub)).toContain('late');
});

function idsOn({ db }: Pick<HubMember, 'db'>): string {
  const sql = "SELECT row_id AS id FROM _hub_rows WHERE op <> 'DELETE' ORDER BY row_id";
  return (db.prepare(sql).all() as { id: string }[]).map(({ id }) => id).join(' ');
}
