/** `flush` of a hub: it says of an edge that it has everything where that is so, and ends whatever happens meanwhile. */
import type { RequestListener } from 'node:http';
import { expect, test } from 'vitest';
import { deliver, hub, live, plainAck, T } from '../support/hubs.ts';
import { serve, until } from '../support/nodes.ts';
import { settle } from '../support/virtual-clock.ts';

/** An edge that takes its time to say who it is. */
async function reticent() {
  const bodies: string[] = [];
  let asked = 0;
  let say: () => void = () => {};
  const said = new Promise<void>((resolve) => {
    say = resolve;
  });
  const listener: RequestListener = (request, response) => {
    if (request.url !== '/health') return plainAck(request, response, bodies);
    asked += 1;
    void said.then(() => response.end('{"ok":true,"node_id":"e"}'));
  };
  return { url: await serve(listener), bodies, say, asked: () => asked };
}

/** A promise, and whether it is over. */
function watch<T>(promise: Promise<T>) {
  const it = { promise, isOver: false };
  const over = (): void => {
    it.isOver = true;
  };
  promise.then(over, over);
  return it;
}

test.each(['at the start', 'while it runs'])(
  'an edge that was named %s does not count as delivered before it was asked who it is',
  async (when) => {
    const edge = await reticent();
    const made = await hub({ edges: when === 'at the start' ? [edge.url] : [] });
    await deliver(made.hub, [live('x', T)], 'a');
    if (when !== 'at the start') await made.hub.edges.add(edge.url);
    const flushed = watch(made.hub.flush());
    await until('it is asked', () => edge.asked() > 0);
    await settle();
    expect([flushed.isOver, edge.bodies]).toEqual([false, []]);
    edge.say();
    expect(await flushed.promise).toEqual({ delivered: [edge.url], unreachable: [] });
    expect(edge.bodies.join()).toContain('"x"');
  },
);

test.each(['is stopped', 'pauses it', 'takes it out'])(
  'who waits for an edge that never says who it is has an answer when the hub %s',
  async (what) => {
    const edge = await reticent();
    const made = await hub({ edges: [edge.url] });
    await deliver(made.hub, [live('x', T)], 'a');
    const flushed = made.hub.flush();
    await until('it is asked', () => edge.asked() > 0);
    if (what === 'is stopped') await made.hub.stop();
    if (what === 'pauses it') await made.hub.edges.pause(edge.url);
    if (what === 'takes it out') await made.hub.edges.remove(edge.url);
    expect(await flushed).toEqual({ delivered: [], unreachable: [edge.url] });
    expect(edge.bodies).toEqual([]);
  },
);

test('flush of a hub ends although nodes never stop writing', async () => {
  const bodies: string[] = [];
  let written = 0;
  const url = await serve((request, response) => {
    if (request.url !== '/sync') return plainAck(request, response, bodies);
    // Whenever the edge has something, there is more; for the sake of the test not for ever.
    const more = written < 300 ? deliver(made.hub, [live(`more-${written++}`, T)], 'a') : Promise.resolve();
    const answer = (): void => plainAck(request, response, bodies);
    // When the test is over, the hub takes nothing any more.
    void more.then(answer, answer);
  });
  const made = await hub({ edges: [url] });
  await deliver(made.hub, [live('x', T)], 'a');
  expect(await made.hub.flush()).toEqual({ delivered: [url], unreachable: [] });
  expect(bodies.join()).toContain('"x"');
  expect(written).toBeLessThan(100);
});
