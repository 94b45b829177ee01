/** Two edges of one node id: a problem of the hub's where they are two databases at the same time, and none otherwise. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import type { Hub } from '../../src/hub/index.ts';
import { count, type Door, door, edge, hub, insert } from '../support/hubs.ts';
import { cleanUp, scratchFolder, type TestNode, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const problem = (...urls: string[]): string =>
  `node id "a" is used by two databases: give one of them another id (edges ${urls.sort().join(', ')})`;

describe('a file is copied, and both run under one id as edges of a hub', () => {
  interface Copied {
    hub: Hub;
    a: TestNode;
    copy: TestNode;
    urls: { a: string; b: string; copy: string };
    again(id: string): Promise<TestNode>;
    stop(): void;
  }

  async function copied(): Promise<Copied> {
    const folder = scratchFolder();
    const center = await door();
    const [atA, atB, atCopy] = [await door(), await door(), await door()] as [Door, Door, Door];
    const a = await edge('a', [center.url], atA, { path: join(folder, 'a.db') });
    const b = await edge('b', [center.url], atB);
    const made = await hub({ edges: [atA, atB, atCopy].map(({ url }) => url) });
    center.open(createListener(made.hub));
    insert(a, 'x');
    await until('b has it', () => count(b) === 1);
    const path = join(folder, 'copy.db');
    a.db.exec(`VACUUM INTO '${path}'`);
    const again = (id: string): Promise<TestNode> => edge(id, [center.url], atCopy, { path, schema: 'SELECT 1' });
    const copy = await again('a');
    insert(a, 'y');
    insert(copy, 'z');
    const urls = { a: atA.url, b: atB.url, copy: atCopy.url };
    await until('the hub says so', async () => !(await made.hub.health()).ok);
    expect((await made.hub.health()).problems).toEqual([problem(urls.a, urls.copy)]);
    await until('all rows are everywhere', () => [a, b, copy].every((one) => count(one) === 3));
    return { hub: made.hub, a, copy, urls, again, stop: () => atCopy.close() };
  }

  test('it is over when one of them has another id', { tags: 'long' }, async () => {
    const { hub, copy, again, urls } = await copied();
    await copy.manager.stop();
    const other = await again('d');
    insert(other, 'w');
    await until('the hub is well', async () => (await hub.health()).ok);
    const { peer_states } = await hub.health();
    expect(peer_states.find(({ url }) => url === urls.copy)?.node_id).toBe('d');
  });

  test('it is over when one of them was removed', { tags: 'long' }, async () => {
    const { hub, copy, stop, urls } = await copied();
    await copy.manager.stop();
    stop();
    await hub.edges.remove(urls.copy);
    expect(await hub.health()).toMatchObject({ ok: true, problems: [] });
  });
});

describe('what edges say of themselves', () => {
  type Answer = { id: string; inc?: string } | 'nothing';
  const [ONE, TWO, THREE] = ['http://one.test', 'http://two.test', 'http://three.test'] as const;
  const x = { id: 'a', inc: '1' };
  const y = { id: 'a', inc: '2' };

  async function told(answers: Record<string, Answer>) {
    const clock = new VirtualClock();
    const asked: Record<string, number> = {};
    const made = await hub({
      edges: Object.keys(answers),
      clock,
      get: async (url) => {
        const host = url.replace('/health', '');
        asked[host] = (asked[host] ?? 0) + 1;
        const answer = answers[host] ?? 'nothing';
        if (answer === 'nothing') throw new Error('nobody is there');
        const { id, inc } = answer;
        const said = inc === undefined ? null : `id=${id}; inc=${inc.repeat(16)}; boot=1-aaaaaaaa; t0=0; t=1`;
        return {
          status: 200,
          text: async () => JSON.stringify({ node_id: id }),
          headers: { get: (name: string) => (name.toLowerCase() === 'x-rowcast' ? said : null) },
        };
      },
      fetch: async () => {
        throw new Error('nothing is sent');
      },
    });
    cleanUp(() => made.hub.stop());
    const pass = async (ms: number): Promise<void> => {
      for (let left = ms; left > 0; left -= 500) await clock.advance(Math.min(left, 500));
    };
    const problems = async (): Promise<string[]> => (await made.hub.health()).problems;
    return { hub: made.hub, answers, asked, pass, problems };
  }

  test('two databases are two: at once, for as long as both are there, and ten minutes after the last word', {
    tags: 'long',
  }, async () => {
    const { answers, pass, problems } = await told({ [ONE]: x, [TWO]: y });
    await pass(5_000);
    expect(await problems()).toEqual([problem(ONE, TWO)]);
    await pass(1_800_000);
    expect(await problems()).toEqual([problem(ONE, TWO)]);
    answers[TWO] = 'nothing';
    await pass(500_000);
    expect(await problems()).toEqual([problem(ONE, TWO)]);
    await pass(200_000);
    expect(await problems()).toEqual([]);
    answers[TWO] = y;
    await pass(60_000);
    expect(await problems()).toEqual([problem(ONE, TWO)]);
    answers[ONE] = y;
    await pass(30_000);
    expect(await problems()).toEqual([]);
  });

  test('of three, the two that are left are still two', async () => {
    const { hub, pass, problems } = await told({ [ONE]: x, [TWO]: y, [THREE]: { id: 'a', inc: '3' } });
    await pass(10_000);
    expect(await problems()).toEqual([problem(ONE, TWO, THREE)]);
    await hub.edges.remove(ONE);
    expect(await problems()).toEqual([problem(TWO, THREE)]);
    await hub.edges.remove(TWO);
    expect(await problems()).toEqual([]);
  });

  test.each<[string, Record<string, Answer>, Record<string, Answer>]>([
    ['two URLs of one database', { [ONE]: x, [TWO]: x }, {}],
    ['two URLs of one database that was put back, or replaced', { [ONE]: x, [TWO]: x }, { [ONE]: y, [TWO]: y }],
    ['it has moved', { [ONE]: x, [TWO]: 'nothing' }, { [ONE]: 'nothing', [TWO]: x }],
    [
      'it has moved, and another has its old URL',
      { [ONE]: x, [TWO]: 'nothing' },
      { [ONE]: { id: 'c', inc: '3' }, [TWO]: x },
    ],
    ['it was replaced by one elsewhere', { [ONE]: x, [TWO]: 'nothing' }, { [ONE]: 'nothing', [TWO]: y }],
    ['two have changed places', { [ONE]: x, [TWO]: { id: 'b', inc: '2' } }, { [ONE]: { id: 'b', inc: '2' }, [TWO]: x }],
    ['two have changed ids', { [ONE]: x, [TWO]: { id: 'b', inc: '2' } }, { [ONE]: { ...x, id: 'b' }, [TWO]: y }],
    ['plain peers', { [ONE]: { id: 'a' }, [TWO]: { id: 'a' } }, {}],
    ['a plain peer beside it', { [ONE]: x, [TWO]: { id: 'a' } }, {}],
    ['one is upgraded', { [ONE]: { id: 'a' }, [TWO]: { id: 'b' } }, { [ONE]: x, [TWO]: { id: 'b' } }],
  ])('nothing is wrong: %s', async (_, before, after) => {
    const { answers, asked, pass, problems } = await told({ ...before });
    const found = new Set<string>();
    for (const state of [before, after]) {
      Object.assign(answers, state);
      for (let i = 0; i < 200; i++) {
        await pass(1_000);
        for (const one of await problems()) found.add(one);
      }
    }
    expect([...found]).toEqual([]);
    for (const url of [ONE, TWO]) expect(asked[url]).toBeGreaterThan(5);
  });
});
