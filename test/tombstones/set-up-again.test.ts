/** A node that has lost its disk, or was left behind: what it told to one alone is not taken for deleted by the others. */
import { expect, test } from 'vitest';
import { Aging, DAY } from '../support/aging.ts';
import { ids, type Member, write } from '../support/cluster.ts';
import { until } from '../support/nodes.ts';

const AT_REST = { verify: false } as const;
const COLLECTS_NOTHING = { ...AT_REST, tombstones: { keep: 'forever' } } as const;

const isUp = ({ manager }: Member, besides = ''): boolean =>
  manager.peers.list().every(({ url, snapshot, state }) => url === besides || (!snapshot && state === 'up'));

/** a, b and c know each other, and have `1`. */
async function three(cluster: Aging): Promise<{ a: Member; b: Member; c: Member }> {
  const a = await cluster.member('a', ['b', 'c'], COLLECTS_NOTHING);
  const b = await cluster.member('b', ['a', 'c'], AT_REST);
  const c = await cluster.member('c', ['a', 'b'], COLLECTS_NOTHING);
  write(a, '1');
  await until('all have it', () => [b, c].every((one) => ids(one) === '1'));
  await cluster.acquainted(a, b, c);
  return { a, b, c };
}

/** b forgets a deletion that is later than all that was written before. */
async function forgets(cluster: Aging, b: Member, other: Member): Promise<void> {
  write(b, 'x');
  await until('the other has it', () => ids(other) === '1 x');
  b.db.exec("DELETE FROM items WHERE id = 'x'");
  await until('the other has heard of it', () => ids(other) === '1');
  await cluster.pass(100, b, other);
  await cluster.gone(b);
}

const lettersOf = ({ manager }: Member): unknown[] =>
  manager.deadLetters.list().map(({ code, rowId }) => [code, rowId]);

test('another database under its name has not delivered what it had', async () => {
  const cluster = new Aging();
  const more = { verify: false } as const;
  const lost = await cluster.member('a', ['b', 'c'], more);
  const b = await cluster.member('b', ['a', 'c'], more);
  const c = await cluster.member('c', ['a', 'b'], { ...more, tombstones: { keep: 'forever' } });
  write(lost, '1');
  await until('all have it', () => [b, c].every((one) => ids(one) === '1'));
  await cluster.acquainted(lost, b, c);
  for (const url of ['b', 'c']) cluster.cut.add(cluster.url(url));
  write(lost, 'late');
  await lost.stop();
  cluster.cut.clear();
  cluster.offset += DAY;
  for (const one of [b, c]) await one.manager.peers.remove(cluster.url('a'));
  write(b, 'x');
  await until('c has it', () => ids(c) === '1 x');
  b.db.exec("DELETE FROM items WHERE id = 'x'");
  await until('c has heard of it', () => ids(c) === '1');
  await cluster.pass(100, b, c);
  await cluster.gone(b);
  // It is back, and gets to c alone; then its disk is lost.
  const back = await cluster.member('a', ['c'], more);
  c.manager.peers.add(cluster.url('a'));
  await until('c has it', () => ids(c).includes('late'));
  await back.stop();
  cluster.wipe(back.path);
  // It is set up again under its name, and c has not noticed yet when b has.
  cluster.proxy = ({ url, headers }) => {
    if (url.startsWith(cluster.url('a')) && headers['x-rowcast']?.startsWith('id=c;')) throw new Error('ECONNREFUSED');
    return undefined;
  };
  await cluster.member('a', ['b'], more);
  b.manager.peers.add(cluster.url('a'));
  await until('b has noticed', () => b.events.some((event) => event.startsWith('peer-replaced')));
  await until('b has compared', () =>
    b.manager.peers.list().every(({ snapshot, state }) => !snapshot && state === 'up'),
  );
  await b.manager.verify(cluster.url('c'), { repair: true });
  expect(ids(c)).toContain('late');
  expect(b.manager.deadLetters.list().map(({ code, rowId }) => [code, rowId])).toEqual([['below-floor', 'late']]);
});

test('nor where everybody had waited for it, and it was lost before it could deliver what it had', {
  tags: 'long',
}, async () => {
  const cluster = new Aging();
  const { a, b, c } = await three(cluster);
  cluster.cut.add(cluster.url('b'));
  write(a, 'late');
  await until('c has it', () => ids(c).includes('late'));
  await c.stop();
  await a.stop();
  cluster.wipe(a.path);
  cluster.cut.clear();
  cluster.offset += DAY;
  const again = await cluster.member('a', ['b'], AT_REST);
  await until('b has noticed', () => b.events.some((event) => event.startsWith('peer-replaced')));
  await b.manager.peers.remove(cluster.url('c'));
  await forgets(cluster, b, again);
  // c is back, and has not heard that there is another a.
  cluster.proxy = ({ url, headers }) => {
    if (url.startsWith(cluster.url('a')) && headers['x-rowcast']?.startsWith('id=c;')) throw new Error('ECONNREFUSED');
    return undefined;
  };
  const back = await cluster.member('c', ['a', 'b'], COLLECTS_NOTHING);
  b.manager.peers.add(cluster.url('c'));
  await until('both have compared', () => isUp(b) && isUp(back, cluster.url('a')));
  await b.manager.verify(cluster.url('c'), { repair: true });
  expect(ids(back)).toContain('late');
  expect(lettersOf(b)).toEqual([['below-floor', 'late']]);
});

test('one that is about to give everything has not delivered it, however new what it captures is', {
  tags: 'long',
}, async () => {
  const cluster = new Aging();
  const { a, b, c } = await three(cluster);
  await a.manager.detach();
  write(a, 'late');
  await a.stop();
  cluster.offset += DAY;
  for (const one of [b, c]) await one.manager.peers.remove(cluster.url('a'));
  await forgets(cluster, b, c);
  // It is back, and finds what was written unseen. It cannot give that to b yet, but b can ask how it is.
  cluster.proxy = ({ method, url, headers }) => {
    const isOfA = headers['x-rowcast']?.startsWith('id=a;') === true;
    const isAsked = headers['x-send-again'] !== undefined;
    if (isOfA && (isAsked || (method === 'POST' && url.startsWith(cluster.url('b'))))) throw new Error('ECONNREFUSED');
    return undefined;
  };
  const back = await cluster.member('a', ['b', 'c'], COLLECTS_NOTHING);
  for (const one of [b, c]) one.manager.peers.add(cluster.url('a'));
  await until('c has it', () => ids(c).includes('late'));
  await until('both have heard it', () => isUp(b) && isUp(c));
  await b.manager.verify(cluster.url('c'), { repair: true });
  expect(ids(c)).toContain('late');
  expect(lettersOf(b)).toEqual([['below-floor', 'late']]);
  cluster.proxy = undefined;
  await until('a has given it', () => isUp(back));
  expect(ids(back)).toContain('late');
});
