/** A node for which nobody waited, and that has lost its disk since: what it told to one alone is not taken for deleted. */
import { expect, test } from 'vitest';
import { Aging, DAY } from '../support/aging.ts';
import { ids, write } from '../support/cluster.ts';
import { until } from '../support/nodes.ts';

test('another database under its name has not delivered what it had', async () => {
  const cluster = new Aging();
  const more = { verify: false } as const;
  const lost = await cluster.member('a', ['b', 'c'], more);
  const b = await cluster.member('b', ['a', 'c'], more);
  const c = await cluster.member('c', ['a', 'b'], { ...more, tombstones: { keep: 'forever' } });
  write(lost, '1');
  await until('all have it', () => [b, c].every((one) => ids(one) === '1'));
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
