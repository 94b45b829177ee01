/** Each peer asks for health every fifteen seconds, and a hub has thousands: what they are told costs next to nothing. */
import { expect, test } from 'vitest';
import type { Incoming, Outgoing } from '../../src/http/bridge.ts';
import { respond } from '../../src/http/respond.ts';
import { node } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const said = (id: string): string => `id=${id}; inc=00000000000000${id}; boot=1-00000000; t0=0; t=1`;

async function asked() {
  const clock = new VirtualClock();
  const { manager, db } = await node({ id: 'b', peers: ['http://127.0.0.1:1'] });
  let counted = 0;
  let problem: string | undefined;
  const replica = {
    maxBodyBytes: manager.maxBodyBytes,
    receive: manager.receive.bind(manager),
    hello: manager.hello.bind(manager),
    health: () => {
      counted += 1;
      if (problem !== undefined) throw new Error(problem);
      return manager.health();
    },
  };
  const ask = (by?: string): Promise<Outgoing> => {
    const header = (name: string): string | null => (name === 'x-rowcast' && by !== undefined ? said(by) : null);
    return respond(replica, { clock }, { method: 'GET', path: '/health', header } as Incoming);
  };
  const fail = (why: string | undefined): void => {
    problem = why;
  };
  return { ask, clock, db, fail, counted: () => counted };
}

test('peers that ask within a second share one count, and are not told of each other', async () => {
  const { ask, clock, db, counted } = await asked();
  const answers = await Promise.all(['c1', 'c2', 'c3'].map((id) => ask(id)));
  expect(counted()).toBe(1);
  for (const answer of answers) {
    expect(answer.headers['x-rowcast']).toContain('id=b');
    const body = JSON.parse(answer.body) as object;
    expect(body).toMatchObject({ ok: true, node_id: 'b', item_count: 0 });
    expect(Object.keys(body)).not.toContain('peers');
    expect(Object.keys(body)).not.toContain('peer_states');
  }
  db.exec("INSERT INTO items VALUES ('a', 'n', 1, 10, 1000)");
  expect(JSON.parse((await ask('c1')).body)).toMatchObject({ item_count: 0 });
  await clock.advance(1_000);
  expect(JSON.parse((await ask('c1')).body)).toMatchObject({ item_count: 1 });
  expect(counted()).toBe(2);
});

test('whoever is no peer is told everything, as it is at that moment', async () => {
  const { ask, db, counted } = await asked();
  await ask('c1');
  for (const items of [0, 1]) {
    const body = JSON.parse((await ask()).body);
    expect(body).toMatchObject({ item_count: items, peers: ['http://127.0.0.1:1'], peer_states: [{}] });
    db.exec(`INSERT INTO items VALUES ('after ${items}', 'n', 1, 10, 1000)`);
  }
  expect(counted()).toBe(3);
});

test('a count that has failed is not shared with those who ask next', async () => {
  const { ask, fail } = await asked();
  fail('disk I/O error');
  expect((await ask('c1')).status).toBe(503);
  fail(undefined);
  expect((await ask('c2')).status).toBe(200);
});
