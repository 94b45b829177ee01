/** A peer that nobody writes to: it is asked how it is, where it has shown itself to be a Rowcast. */
import { describe, expect, test } from 'vitest';
import type { Config, RowcastEvents } from '../../src/index.ts';
import { IDLE_MS } from '../../src/send/shipper.ts';
import { connectionError, never } from '../support/bad-servers.ts';
import { node, type TestNode } from '../support/nodes.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

const PEER = 'http://peer.test';
const HEALTH = '{"ok":true,"node_id":"b"}';

type Answer = { status: number; text(): Promise<string>; headers?: { get(name: string): string | null } };
const answer = (status: number, body: string, headers: Record<string, string> = {}): Answer => ({
  status,
  text: async () => body,
  headers: { get: (name) => headers[name] ?? null },
});

interface Watched extends TestNode {
  clock: VirtualClock;
  /** Every request in order: `POST` or `GET`, and when. */
  asked: [string, number][];
  events: string[];
  state(): unknown;
}

/** A sender whose first change was acknowledged with `headers`, and whose `GET /health` is answered by `health`. */
async function watched(
  headers: Record<string, string>,
  health: () => Answer | Promise<Answer> | undefined,
  extra: Partial<Config> = {},
): Promise<Watched> {
  const clock = new VirtualClock();
  const begin = clock.now();
  const asked: [string, number][] = [];
  const sender = await node({
    id: 'a',
    peers: [PEER],
    clock,
    random: () => 0,
    fetch: async (url, { body }) => {
      expect(url).toBe(`${PEER}/sync`);
      asked.push(['POST', clock.now() - begin]);
      return answer(200, `{"ack":${JSON.parse(new TextDecoder().decode(body)).batch_id}}`, headers);
    },
    get: async (url) => {
      expect(url).toBe(`${PEER}/health`);
      asked.push(['GET', clock.now() - begin]);
      return (await health()) ?? connectionError();
    },
    ...extra,
  });
  const events: string[] = [];
  sender.manager.on('peer-up', () => events.push(`up ${clock.now() - begin}`));
  sender.manager.on('peer-down', () => events.push(`down ${clock.now() - begin}`));
  write(sender, 'first');
  await clock.advance(100);
  if (!extra.fetch) expect(asked.map(([method]) => method)).toEqual(['POST']);
  return { ...sender, clock, asked, events, state: () => sender.manager.health().peer_states[0]?.state };
}

/** Acknowledges the first batch, and never says anything of another. */
function deafAfterFirst(): NonNullable<Config['fetch']> {
  let batches = 0;
  return async (_url, { body }) => {
    batches += 1;
    if (batches > 1) return never();
    return answer(200, `{"ack":${JSON.parse(new TextDecoder().decode(body)).batch_id}}`, { 'x-apply-ms': '3' });
  };
}

function write(one: TestNode, id: string): void {
  one.db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(id, id);
}

const gets = ({ asked }: Watched): number[] => asked.filter(([method]) => method === 'GET').map(([, at]) => at);

describe('a quiet peer', () => {
  test.each([{ 'x-apply-ms': '3' }, { 'x-any-order': '1' }, { 'accept-encoding': 'gzip' }])(
    'that answers with %o is asked every quarter of a minute, and no more often',
    async (headers) => {
      const it = await watched(headers, () => answer(200, HEALTH));
      await it.clock.advance(IDLE_MS - 200);
      expect(gets(it)).toEqual([]);
      await it.clock.advance(3 * IDLE_MS);
      expect(gets(it).length).toBe(3);
      gets(it).reduce((before, at) => {
        expect(at - before).toBeGreaterThan(IDLE_MS - 50);
        return at;
      }, 0);
      expect(it.events).toEqual(['up 0']);
    },
  );

  test('is asked as often by a clock that is set back by a day, and its silence is noticed as soon', async () => {
    let alive = true;
    const it = await watched({ 'x-apply-ms': '3' }, () => (alive ? answer(200, HEALTH) : never()));
    it.clock.setBack(86_400_000);
    await it.clock.advance(3 * IDLE_MS + 200);
    expect(gets(it).length).toBeGreaterThanOrEqual(3);
    expect(gets(it).length).toBeLessThanOrEqual(4);
    alive = false;
    it.clock.setBack(86_400_000);
    await it.clock.advance(30_000);
    expect(it.state()).toBe('down');
  });

  test('that has died is down after five failures, and up again when it answers', async () => {
    let alive = false;
    const it = await watched({ 'x-apply-ms': '3' }, () => (alive ? answer(200, HEALTH) : undefined));
    await it.clock.advance(IDLE_MS);
    expect(gets(it).length).toBeGreaterThan(0);
    await it.clock.advance(1_550);
    const began = gets(it)[0] as number;
    expect(gets(it).map((at) => at - began)).toEqual([0, 50, 150, 350, 750]);
    expect(it.state()).toBe('down');
    expect(it.events).toEqual(['up 0', `down ${began + 1_550}`]);
    expect(it.manager.health().peer_states[0]?.last_error).toMatch(/ECONNREFUSED/);
    alive = true;
    await it.clock.advance(IDLE_MS + 100);
    expect(it.state()).toBe('up');
    expect(it.manager.health().peer_states[0]?.last_error).toBeNull();
    expect(it.events.length).toBe(3);
  });

  test.each([
    ['refuses connections', 50, () => undefined],
    ['says nothing', 50, () => never()],
    ['says nothing, of a node that looks once in five seconds', 5_000, () => never()],
    ['says nothing, of a node that looks four times a minute', IDLE_MS, () => never()],
  ])('that %s is down within half a minute of its last word', async (_name, batchMs, health) => {
    const it = await watched({ 'x-apply-ms': '3' }, health, { batchMs });
    const [, answered] = it.asked[0] as [string, number];
    await it.clock.advance(answered + 30_000 - 100);
    expect(it.state()).toBe('down');
    expect(gets(it).length).toBeGreaterThanOrEqual(5);
  });

  test.each([
    ['at once', 100],
    ['a while later', 10_000],
    ['just before it would have been asked', IDLE_MS - 200],
  ])(
    'that says nothing is down within half a minute, though a batch is under way to it that was written %s',
    async (_name, ms) => {
      const it = await watched({ 'x-apply-ms': '3' }, () => never(), { fetch: deafAfterFirst() });
      const answered = it.clock.now();
      await it.clock.advance(ms - 100);
      write(it, 'second');
      await it.clock.advance(30_000 - (it.clock.now() - answered) - 100);
      expect(it.state()).toBe('down');
      expect(it.manager.health().peer_states[0]).toMatchObject({ pending: 1, last_error: 'no answer within 2500 ms' });
    },
  );

  test('that is slow with a batch, and answers questions, is up', async () => {
    const it = await watched({ 'x-apply-ms': '3' }, () => answer(200, HEALTH), { fetch: deafAfterFirst() });
    write(it, 'second');
    await it.clock.advance(4 * IDLE_MS);
    expect(it.state()).toBe('up');
    expect(gets(it).length).toBeGreaterThan(0);
    expect(gets(it).length).toBeLessThanOrEqual(4);
    expect(it.events).toEqual(['up 0']);
  });

  test('that hangs does not keep a change from leaving, whose acknowledgement then counts', async () => {
    const it = await watched({ 'x-apply-ms': '3' }, () => never());
    await it.clock.advance(IDLE_MS + 100);
    expect(gets(it).length).toBe(1);
    write(it, 'second');
    await it.clock.advance(100);
    expect(it.asked.at(-1)?.[0]).toBe('POST');
    await it.clock.advance(IDLE_MS - 1_000);
    expect(it.state()).toBe('up');
    expect(gets(it).length).toBe(1);
  });

  test.each([
    ['a captive portal', answer(200, '<!doctype html>'), 'down'],
    ['a proxy in its place', answer(502, 'bad gateway'), 'down'],
    ['a node that was stopped', answer(503, '{"error":"this manager was stopped"}'), 'down'],
    ['a node that is not well', answer(503, '{"ok":false,"node_id":"b"}'), 'up'],
    ['somebody who asks for a password', answer(401, ''), 'up'],
  ])('in whose place answers %s', async (_name, said, state) => {
    const it = await watched({ 'x-apply-ms': '3' }, () => said);
    await it.clock.advance(IDLE_MS + 2_000);
    expect(it.state()).toBe(state);
  });

  test('that has no /health is asked once', { tags: 'long' }, async () => {
    const it = await watched({ 'x-apply-ms': '3' }, () => answer(404, 'not found'));
    await it.clock.advance(5 * IDLE_MS);
    write(it, 'second');
    await it.clock.advance(5 * IDLE_MS);
    expect(gets(it).length).toBe(1);
    expect(it.state()).toBe('up');
  });

  describe('where something on the way has said once that it has no /health', () => {
    const SELF = 'id=b; inc=aaaaaaaaaaaaaaaa; boot=1-aaaaaaaa; t0=0; t=1';
    const OTHER = 'id=b; inc=bbbbbbbbbbbbbbbb; boot=1-bbbbbbbb; t0=0; t=1';
    const lost = answer(200, HEALTH, { 'x-rowcast': OTHER });

    /** Says so once, and then that it has lost everything. */
    function once(status: number): () => Answer {
      let asked = 0;
      return () => (asked++ === 0 ? answer(status, 'not found') : lost);
    }

    test.each([404, 405])('and which has introduced itself is asked again a while after a %i', async (status) => {
      const it = await watched({ 'x-any-order': '1', 'x-rowcast': SELF }, once(status));
      const replaced: string[] = [];
      it.manager.on('peer-replaced', ({ peer }) => replaced.push(peer));
      await it.clock.advance(3 * IDLE_MS);
      expect([gets(it).length, replaced]).toEqual([1, []]);
      await it.clock.advance(4 * IDLE_MS);
      expect(gets(it).length).toBeGreaterThan(1);
      expect(replaced).toEqual([PEER]);
    });

    test('is asked again when it has introduced itself after that', async () => {
      const clock = new VirtualClock();
      let asked = 0;
      const { manager, db } = await node({
        id: 'a',
        peers: [PEER],
        clock,
        random: () => 0,
        fetch: async (_url, { body }) =>
          answer(200, `{"ack":${JSON.parse(new TextDecoder().decode(body)).batch_id}}`, { 'x-rowcast': SELF }),
        get: async () => {
          asked += 1;
          return asked === 1 ? answer(404, 'not found') : lost;
        },
      });
      const replaced: string[] = [];
      manager.on('peer-replaced', ({ peer }) => replaced.push(peer));
      // Among nodes that introduce themselves each is asked.
      manager.receive('{"batch_id":0,"changes":[]}', {
        from: 'c',
        said: SELF.replaceAll('a', 'c').replace('id=b', 'id=c'),
      });
      await clock.advance(2 * IDLE_MS);
      expect(asked).toBe(1);
      db.exec("INSERT INTO items VALUES ('x', 'n', 1, 10, 1000)");
      await clock.advance(6 * IDLE_MS);
      expect(replaced).toEqual([PEER]);
    });

    test('and which answers batches as a plain peer does since then is not asked again', { tags: 'long' }, async () => {
      const headers: Record<string, string> = { 'x-any-order': '1', 'x-rowcast': SELF };
      const it = await watched(headers, () => answer(404, 'not found'));
      await it.clock.advance(IDLE_MS);
      delete headers['x-rowcast'];
      delete headers['x-any-order'];
      write(it, 'second');
      await it.clock.advance(20 * IDLE_MS);
      expect(gets(it).length).toBe(1);
    });
  });

  test('that is none of ours is sent nothing but batches', { tags: 'long' }, async () => {
    const it = await watched({ 'content-type': 'application/json', server: 'nginx' }, () => answer(200, HEALTH));
    await it.clock.advance(10 * IDLE_MS);
    expect(it.asked.length).toBe(1);
  });

  test('is not asked by a fetch of the caller that came without a get', async () => {
    const it = await watched({ 'x-apply-ms': '3' }, () => answer(200, HEALTH), { get: undefined } as never);
    await it.clock.advance(10 * IDLE_MS);
    expect(it.asked.length).toBe(1);
  });

  test('is no longer asked when the manager has stopped', async () => {
    const it = await watched({ 'x-apply-ms': '3' }, () => never());
    await it.clock.advance(IDLE_MS + 100);
    await it.manager.stop();
    expect(it.clock.pending).toBe(0);
    expect(it.state).toThrow(/stopped/);
  });
});

test('every attempt is an event, and one that was answered says how', async () => {
  const clock = new VirtualClock((ms) => ms <= 800);
  const attempts: RowcastEvents['attempt'][] = [];
  const script: (Answer | undefined)[] = [
    undefined,
    answer(503, ''),
    answer(413, ''),
    answer(422, '{"error":"no"}'),
    answer(200, '{"ack":1}'),
  ];
  const sender = await node({
    id: 'a',
    peers: [PEER],
    clock,
    fetch: async (_url, { body }) => {
      const { batch_id } = JSON.parse(new TextDecoder().decode(body));
      return script.length > 0 ? (script.shift() ?? connectionError()) : answer(200, `{"ack":${batch_id}}`);
    },
  });
  const unsubscribe = sender.manager.on('attempt', (attempt) => attempts.push(attempt));
  write(sender, 'one');
  write(sender, 'two');
  await sender.manager.flush();
  await settle();
  expect(attempts.map(({ result, changes }) => `${result} ${changes}`)).toEqual([
    'unreachable 2',
    'unreachable 2',
    'too-large 2',
    'refused 1',
    'acked 1',
    'acked 1',
  ]);
  expect(attempts[0]).toMatchObject({ peer: PEER, batchId: 2, encoding: 'identity', ms: expect.any(Number) });
  expect(attempts[0]?.bytes).toBeGreaterThan(200);
  unsubscribe();
  write(sender, 'three');
  await sender.manager.flush();
  expect(attempts.length).toBe(6);
});
