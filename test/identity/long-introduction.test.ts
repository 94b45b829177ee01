/** However much there is to be told, whoever introduces itself is understood: unread, it would be a plain peer. */
import { expect, test } from 'vitest';
import { introduce, readIntroduction } from '../../src/wire/introduction.ts';
import { Cluster, settled, write } from '../support/cluster.ts';
import { rowsOf, until } from '../support/nodes.ts';

const EMPTY = '{"batch_id":1,"changes":[]}';
const ATTACHES = 6;
const DATABASES = 12;

/** A database at no URL of ours, as it says of itself at one attach after the other. */
const word = (database: number, attach: number): string => {
  const inc = (0xf00 + database).toString(16).padStart(16, '0');
  const t = attach * 1_000_000_000;
  return `id=s${database}; inc=${inc}; boot=${attach}-aaaaaaaa; t0=${t}; t=${t}; seal=0123456789abcdef`;
};

test('strangers that are started again and again do not make a node look plain to a new peer', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b'], { verify: false });
  for (let attach = 1; attach <= ATTACHES; attach++) {
    for (let one = 0; one < DATABASES; one++) a.manager.receive(EMPTY, { from: `s${one}`, said: word(one, attach) });
  }
  const b = await cluster.node('b', ['a'], { verify: false });
  write(a, 'x1');
  await settled('x1', a, b);
  await a.manager.flush();
  const [first] = cluster.requests.filter(({ url, method }) => method === 'POST' && url.startsWith(cluster.url('b')));
  expect(readIntroduction(first?.headers['x-rowcast'])).toMatchObject({ id: 'a' });
  await until('a knows who is there', () => rowsOf(a.db, 'SELECT inc FROM _peer_state')[0]?.inc !== null);
});

test('what is said at the most is read as it is', () => {
  const seal = '0123456789abcdef';
  const remembered = { inc: seal, tick: 999_999_999_999_999, boot: '9999999999-aaaaaaaa', seal };
  const claims = Array.from({ length: 32 }, () => remembered);
  const self = { ...remembered, id: '$'.repeat(200), t0: remembered.tick, low: remembered.tick };
  for (const said of [
    { ...self, claims },
    { ...self, you: remembered, claims: claims.slice(0, 4), reads: 'tabular' as const },
  ]) {
    expect(readIntroduction(introduce(said))).toEqual(said);
  }
});
