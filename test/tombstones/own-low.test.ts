/** What a node promises of itself: nothing that was captured before is still to come. Whoever believes it forgets deletions. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Config } from '../../src/index.ts';
import { readIntroduction } from '../../src/wire/introduction.ts';
import { ITEMS, node, scratchFolder, type TestNode } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const DAY = 86_400_000;

/** A node whose peer is down, and what it promises with each attempt to reach it. */
function promising(clock: VirtualClock): { config: Partial<Config>; promises: (number | undefined)[] } {
  const promises: (number | undefined)[] = [];
  const attempt = async (_url: string, { headers }: { headers: Record<string, string> }): Promise<never> => {
    promises.push(readIntroduction(headers['x-rowcast'])?.low);
    throw new Error('ECONNREFUSED');
  };
  return { config: { clock, peers: ['http://b.test'], fetch: attempt, get: attempt, batchMs: 50 }, promises };
}

function insert({ db }: TestNode, id: string): void {
  db.exec(`INSERT INTO items (id, updated_at) VALUES ('${id}', 1000)`);
}

/** What a node promises that is started again three days after it ended, which was so long after it had written something. */
async function startedAgain(afterMs: number): Promise<{ written: number; promises: (number | undefined)[] }> {
  const clock = new VirtualClock();
  const path = join(scratchFolder(), 'a.db');
  const one = await node({ ...promising(clock).config, path, schema: ITEMS });
  await clock.advance(60_400);
  const written = clock.now();
  insert(one, 'a');
  await clock.advance(afterMs);
  await one.manager.stop();
  one.db.close();
  clock.shift(3 * DAY);
  const { config, promises } = promising(clock);
  await node({ ...config, path, schema: 'SELECT 1' });
  await clock.advance(30_000);
  expect(promises.length).toBeGreaterThan(1);
  return { written, promises };
}

test('of what was written just before the machine slept for days', async () => {
  const clock = new VirtualClock();
  const { config, promises } = promising(clock);
  const one = await node(config);
  await clock.advance(60_400);
  const written = clock.now();
  insert(one, 'a');
  clock.shift(3 * DAY);
  await clock.advance(5_000);
  expect(promises.length).toBeGreaterThan(1);
  for (const low of promises) expect(low).toBeLessThanOrEqual(written);
  expect(promises.at(-1)).toBeGreaterThan(written - 5_000);
});

test('of what was written just before the process died, and is there when it is started days later', async () => {
  const { written, promises } = await startedAgain(0);
  for (const low of promises) expect(low).toBeLessThanOrEqual(written);
});

test('of a backlog that has lasted, after a restart as before it', { tags: 'long' }, async () => {
  const { written, promises } = await startedAgain(60_000);
  for (const low of promises) {
    expect(low).toBeLessThanOrEqual(written);
    expect(low).toBeGreaterThan(written - 5_000);
  }
});

test('to a peer that was taken out and still sends, as to anybody: nothing is on its way to it that could end', async () => {
  const clock = new VirtualClock();
  const said = (id: string): string => `id=${id}; inc=${id.repeat(16)}; boot=1-aaaaaaaa; t0=0; t=1`;
  const [B, C] = ['http://b.test', 'http://c.test'];
  const headers = (url: string) => ({
    get: (name: string) => (name === 'x-rowcast' ? said(url.startsWith(B) ? 'b' : 'c') : null),
  });
  const one = await node({
    clock,
    peers: [B, C],
    verify: false,
    fetch: async (url, { body }) => {
      if (!url.endsWith('/sync')) return { status: 404, text: async () => '', headers: headers(url) };
      const { batch_id } = JSON.parse(new TextDecoder().decode(body));
      return { status: 200, text: async () => `{"applied":1,"ack":${batch_id}}`, headers: headers(url) };
    },
    get: async (url) => ({ status: 200, text: async () => '{"ok":true}', headers: headers(url) }),
  });
  insert(one, 'a');
  await clock.advance(30_000);
  const toldToC = (): number | undefined => readIntroduction(one.manager.hello(said('c'))['x-rowcast'])?.low;
  expect(toldToC()).toBeGreaterThan(clock.now() - 5_000);
  const removing = one.manager.peers.remove(C);
  await clock.advance(30_000);
  await removing;
  expect(one.all('SELECT peer_url FROM _peer_state WHERE again IS NOT NULL')).toEqual([{ peer_url: C }]);
  expect(toldToC()).toBeGreaterThan(clock.now() - 5_000);
});
