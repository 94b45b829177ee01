/** Edges that do not introduce themselves, and whoever takes their place. */
import type { RequestListener } from 'node:http';
import { expect, test } from 'vitest';
import { count, deliver, door, edge, gone, hub, live, plainAck, T } from '../support/hubs.ts';
import { until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

/** A plain peer that says its id, and acknowledges everything. */
function plain(id: string, bodies: string[]): RequestListener {
  return (request, response) => {
    if (request.url === '/health') return void response.end(JSON.stringify({ ok: true, node_id: id }));
    const chunks: Buffer[] = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => {
      bodies.push(Buffer.concat(chunks).toString());
      response.end(JSON.stringify({ applied: 0, ack: JSON.parse(bodies.at(-1) as string).batch_id }));
    });
  };
}

for (const id of ['a', 'b']) {
  test(`a Rowcast node "${id}" in the place of the plain "a" is given everything`, async () => {
    const at = await door();
    at.open(plain('a', []));
    const { hub: made } = await hub({ edges: [at.url] });
    await deliver(made, [live('x', T)]);
    await until('the plain one has it', async () => {
      const { pending_changes: pending, peer_states: states } = await made.health();
      return pending === 0 && states[0]?.node_id === 'a';
    });
    const fresh = await edge(id, [], at);
    await deliver(made, [live('y', T)]);
    await until('it has all', () => count(fresh) === 2);
  });
}

test('another plain one at a known address is given everything, though nothing new comes in', async () => {
  const clock = new VirtualClock();
  const sent: string[] = [];
  let id = 'old';
  const { hub: made } = await hub({
    edges: ['http://edge.test'],
    clock,
    get: async () => ({ status: 200, text: async () => JSON.stringify({ node_id: id }) }),
    fetch: async (_, { body }) => {
      const text = Buffer.from(body).toString();
      sent.push(text);
      return { status: 200, text: async () => JSON.stringify({ applied: 1, ack: JSON.parse(text).batch_id }) };
    },
  });
  const pass = async (ms: number): Promise<void> => {
    await clock.advance(ms);
    await clock.advance(0);
  };
  await pass(20);
  await deliver(made, [live('x', T)]);
  await pass(20);
  expect(sent).toHaveLength(1);
  id = 'new';
  for (let i = 0; i < 40; i++) await pass(1_000);
  expect((await made.health()).peer_states[0]).toMatchObject({ node_id: 'new', pending: 0 });
  expect(sent).toHaveLength(2);
});

test('what a plain edge once sent in vain goes to it as well when it is tried again', async () => {
  const at = await door();
  const bodies: string[] = [];
  at.open(plain('a', bodies));
  const { hub: made } = await hub({ edges: [at.url] });
  await until('it is known', async () => (await made.health()).peer_states[0]?.node_id === 'a');
  await deliver(made, [{ op: 'DELETE', table: 'items', row: null, old_id: 'x' }], 'a');
  await deliver(made, [live('x', T)], 'b');
  await until('it has the row', () => bodies.length === 1);
  const [letter] = await made.deadLetters.list();
  expect((await made.deadLetters.retry(letter?.id as number)).outcome).toBe('applied');
  await until('it has the deletion', () => bodies.length === 2);
  expect(JSON.parse(bodies[1] as string).changes).toEqual([gone('x', T)]);
});

test('of two plain edges that send under one id, each has what the other wrote, whether or not it says who it is', async () => {
  const [known, silent] = [await door(), await door()];
  const bodies: Record<'known' | 'silent', string[]> = { known: [], silent: [] };
  known.open(plain('x', bodies.known));
  silent.open((request, response) => plainAck(request, response, bodies.silent));
  const { hub: made } = await hub({ edges: [known.url, silent.url] });
  await until('one is known', async () => (await made.health()).peer_states.some(({ node_id: id }) => id === 'x'));
  await deliver(made, [live('of the silent one', T)], 'x');
  await deliver(made, [live('of the known one', T)], 'x');
  for (const sent of [bodies.known, bodies.silent]) {
    await until('it has both', () => ['silent', 'known'].every((of) => sent.join().includes(`of the ${of} one`)));
  }
});

test('what came under the id of a plain edge before another one was known to have it is sent to the first as well', async () => {
  const [one, two] = [await door(), await door()];
  const bodies: Record<'one' | 'two', string[]> = { one: [], two: [] };
  one.open(plain('x', bodies.one));
  const { hub: made } = await hub({ edges: [one.url] });
  await until('one is known', async () => (await made.health()).peer_states[0]?.node_id === 'x');
  // The other one is not an edge yet, and sends already.
  await deliver(made, [live('of the other', T)], 'x');
  await until('it is passed', async () => (await made.health()).pending_changes === 0);
  expect(bodies.one).toEqual([]);
  two.open(plain('x', bodies.two));
  await made.edges.add(two.url);
  for (const sent of [bodies.one, bodies.two]) await until('it has it', () => sent.join().includes('of the other'));
});
