/** What was read before a seed began acknowledges nothing of it, whoever answers: its first pages would never be sent. */
import { expect, test } from 'vitest';
import type { FetchResponse } from '../../src/send/transport.ts';
import { node, until } from '../support/nodes.ts';

const PEER = 'http://p.test';
const IDS = ['1', '2', '3', '4', '5', '6'];
const [ONE, OTHER] = ['a', 'b'].map((digit) => `id=p; inc=${digit.repeat(16)}; boot=1-aaaaaaaa; t0=0; t=1`);

/** A node with six rows whose new peer is given them one by one; `answer` is asked with each, and may take its time. */
async function seeding(answer: (id: string) => string | null | Promise<string | null>) {
  const sent: string[] = [];
  const made = await node({
    id: 'n',
    batchSize: 1,
    batchMs: 5,
    fetch: async (url, { body }): Promise<FetchResponse> => {
      if (!url.endsWith('/sync')) return { status: 404, text: async () => '{}' };
      const { batch_id: ack, changes } = JSON.parse(new TextDecoder().decode(body));
      const id = changes[0].row.id;
      sent.push(id);
      const said = await answer(id);
      const headers = { get: (name: string) => (name === 'x-rowcast' ? said : null) };
      return { status: 200, text: async () => JSON.stringify({ applied: 1, ack }), headers };
    },
    get: async () => ({ status: 404, text: async () => '{}' }),
  });
  for (const id of IDS) made.db.exec(`INSERT INTO items (id, updated_at) VALUES ('${id}', 1)`);
  const isOver = (): boolean => made.manager.peers.list().every(({ snapshot }) => !snapshot);
  return { ...made, sent, isOver };
}

test('a page that another database has got is sent again with all those before it', async () => {
  let answers = 0;
  const gotByOther = new Set<string>();
  const { manager, isOver } = await seeding((id) => {
    answers += 1;
    // It is replaced between the third page and the fourth, and nobody has noticed yet.
    if (answers <= 3) return ONE as string;
    gotByOther.add(id);
    return OTHER as string;
  });
  manager.peers.add(PEER);
  await until('it has been given everything', () => answers > 3 && isOver());
  expect([...gotByOther].sort()).toEqual(IDS);
});

test.each([
  ['Rowcast', ONE as string],
  ['a plain peer', null],
])('a page that was under way when %s was to be given everything anew does not count', async (_, said) => {
  let go: () => void = () => {};
  let asked = 0;
  const { manager, sent, isOver } = await seeding((id) => {
    if (id !== '3' || asked++ > 0) return said;
    return new Promise<string | null>((resolve) => {
      go = () => resolve(said);
    });
  });
  manager.peers.add(PEER);
  await until('a page is under way', () => asked === 1);
  manager.peers.reseed(PEER);
  const before = sent.length;
  go();
  await until('it has been given everything', () => sent.length > before && isOver());
  // One page more may have been read ahead.
  expect([...new Set(sent.slice(before))].sort()).toEqual(IDS);
});
