/** What is noted of nodes in `_meta` has a bound: whoever can be heard can be any number of them, one after the other. */
import { expect, test } from 'vitest';
import { isNobodyAwaited, note, noted } from '../../src/identity/last-heard.ts';
import { STRANGERS_KEPT } from '../../src/identity/strangers.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { node, rowsOf, type TestNode } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const EMPTY = '{"batch_id":1,"changes":[]}';
const PEER = 'http://peer.test';
let made = 0;

const another = (): { id: string; said: string } => {
  made += 1;
  const inc = made.toString(16).padStart(16, '0');
  return { id: `s${made}`, said: `id=s${made}; inc=${inc}; boot=1-aaaaaaaa; t0=0; t=1; low=1` };
};

const marks = ({ db }: TestNode, what: string): number =>
  Number(rowsOf(db, 'SELECT count(*) AS n FROM _meta WHERE key LIKE ?', `${what}:%`)[0]?.n);

test('when strangers were heard is noted of those alone who are remembered', { tags: 'long' }, async () => {
  const clock = new VirtualClock();
  const it = await node({ id: 'a', clock, tombstones: { keep: '90d' } });
  for (let round = 0; round < 2; round++) {
    for (let i = 0; i < STRANGERS_KEPT; i++) {
      const { id, said } = another();
      it.manager.receive(EMPTY, { from: id, said });
    }
    await clock.advance(120_000);
    expect(marks(it, 'heard')).toBe(STRANGERS_KEPT);
  }
});

test('who is behind a URL no more is noted up to a bound; beyond it of nobody is it known what was delivered', async () => {
  const clock = new VirtualClock();
  const it = await node({
    id: 'a',
    peers: [PEER],
    clock,
    verify: false,
    fetch: async (_url, { body }) => {
      const { batch_id: ack } = JSON.parse(new TextDecoder().decode(body)) as { batch_id: number };
      const headers = new Map([['x-rowcast', another().said]]);
      return {
        status: 200,
        text: async () => JSON.stringify({ ack }),
        headers: { get: (name) => headers.get(name) ?? null },
      };
    },
  });
  const db = new Connection(it.db);
  db.transaction(() => {
    for (let i = 0; i < 1_000; i++) note(db, 'forgotten', `old ${i}`, i);
    // A peer that has never said who it is has no other name; a person has said that nobody waits for it.
    note(db, 'forgotten', PEER, 0);
  });
  for (let i = 0; i < 2; i++) {
    it.db.exec(`INSERT INTO items VALUES ('x${i}', 'x', 1, 10, 1000)`);
    await clock.advance(5_000);
  }
  expect(marks(it, 'forgotten')).toBeLessThanOrEqual(1_000);
  expect([noted(db, 'forgotten', PEER), noted(db, 'forgotten', 'old 999')]).toEqual([0, 999]);
  expect([noted(db, 'forgotten', 'old 0'), isNobodyAwaited(db)]).toEqual([undefined, true]);
});
