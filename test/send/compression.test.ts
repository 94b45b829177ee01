/** Compression where a slow link earns it, and with a peer that has said that it reads it: nowhere else. */

import { gunzipSync, gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import type { Clock } from '../../src/clock.ts';
import { createHandler, createListener, type HttpOptions, type Replica } from '../../src/http/index.ts';
import { createHub } from '../../src/hub/hub.ts';
import type { Fetch } from '../../src/index.ts';
import { Link, type Packed, plain } from '../../src/send/link.ts';
import { BACKOFF_MS } from '../../src/send/rest.ts';
import { type Bytes, unpack } from '../../src/wire/gzip.ts';
import { lane } from '../support/lane.ts';
import { cleanUp, database, exactRows, type NodeOptions, node, serve, type TestNode } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const PEER = 'http://peer.test';

/** A body of so many bytes that compresses well. */
const text = (bytes: number): Bytes => new Uint8Array(bytes).fill(97);
const BIG = text(20_000);

/** 20,000 bytes in 1,000 ms are 0.02 MB/s; in 2 ms 10 MB/s. */
const SLOW_MS = 1_000;
const FAST_MS = 2;

/** What a body takes on a link that is slow: compressed, it is as much faster as it is smaller. */
const onSlowLink = ({ gzip }: Packed): number => (gzip ? SLOW_MS / 10 : SLOW_MS);

/** A link whose peer announces gzip and whose first answers were slow. */
function slowLink(): Link {
  const link = new Link();
  link.heard('gzip');
  link.acked(plain(BIG), SLOW_MS);
  link.acked(plain(BIG), SLOW_MS);
  return link;
}

describe('a link', () => {
  const compresses = async (link: Link, body = BIG, attempt = 0): Promise<boolean> =>
    (await link.pack(body, attempt)).gzip;

  /** Sends bodies, answered after `ms` each, and says which of them were compressed. */
  async function sends(link: Link, count: number, ms: (sent: Packed) => number): Promise<boolean[]> {
    const sent: boolean[] = [];
    for (let i = 0; i < count; i++) {
      const packed = await link.pack(BIG, 0);
      link.acked(packed, ms(packed));
      sent.push(packed.gzip);
    }
    return sent;
  }

  test('that is slow compresses from the third body on', async () => {
    const link = new Link();
    link.heard('gzip');
    expect(await sends(link, 9, onSlowLink)).toEqual([false, false, ...Array(7).fill(true)]);
  });

  test('that is fast never does', async () => {
    const link = new Link();
    link.heard('gzip');
    expect(await sends(link, 200, () => FAST_MS)).not.toContain(true);
  });

  test.each<[number, number, boolean]>([
    [100_000, 20, false],
    [100_000, 21, true],
    [4_096, 11, false],
    [4_096, 12, true],
  ])('that takes %i bytes in %i ms: is it slow? %s', async (bytes, ms, expected) => {
    const link = new Link();
    link.heard('gzip');
    for (let i = 0; i < 30; i++) link.acked(plain(text(bytes)), ms);
    expect([link.isSlow, await compresses(link)]).toEqual([expected, expected]);
  });

  test.each<[number, number]>([
    [2, 100],
    [3, 99],
    [4, 50],
    [17, 12],
  ])('is taken for slow after %i answers of %i ms, and not before', async (answers, ms) => {
    const link = new Link();
    link.heard('gzip');
    const body = text(4_096);
    for (let i = 0; i < answers; i++) {
      expect(await compresses(link)).toBe(false);
      link.acked(plain(body), ms);
    }
    expect(await compresses(link)).toBe(true);
  });

  test('to a machine that is busy is tried with four bodies, and then more and more rarely', async () => {
    const link = new Link();
    link.heard('gzip');
    const sent = await sends(link, 2_000, () => 60);
    const tried = sent.flatMap((gzip, i) => (gzip ? [i] : []));
    const trial = (at: number): number[] => [at, at + 1, at + 2, at + 3];
    expect(tried).toEqual([4, 72, 204, 464, 980].flatMap(trial));
  });

  test('on which some answers of a busy machine are fast is never taken for slow', async () => {
    const link = new Link();
    link.heard('gzip');
    let i = 0;
    expect(await sends(link, 2_000, () => (i++ % 4 === 3 ? FAST_MS : 60))).not.toContain(true);
  });

  test.each<[number, boolean]>([
    [500, true],
    [501, false],
  ])('on which compressed bodies take %i ms instead of 1,000: goes it on? %s', async (ms, expected) => {
    const link = slowLink();
    const sent = await sends(link, 5, ({ gzip }) => (gzip ? ms : SLOW_MS));
    expect(sent).toEqual([true, true, true, true, expected]);
  });

  test('that has become slow after trials that failed is found out by the next', async () => {
    const link = slowLink();
    expect(await sends(link, 68, () => SLOW_MS)).toEqual([...Array(4).fill(true), ...Array(64).fill(false)]);
    expect(await sends(link, 20, onSlowLink)).toEqual(Array(20).fill(true));
  });

  test('without a clock that moves never does', async () => {
    const link = new Link();
    link.heard('gzip');
    expect(await sends(link, 200, () => 0)).not.toContain(true);
    expect(await sends(link, 200, () => -5_000)).not.toContain(true);
  });

  test('that stalls once in a while never does', async () => {
    const link = new Link();
    link.heard('gzip');
    let i = 0;
    expect(await sends(link, 200, () => (i++ % 2 === 0 ? SLOW_MS : FAST_MS))).not.toContain(true);
  });

  test('to a peer that takes long is not slow', async () => {
    const link = new Link();
    link.heard('gzip');
    for (let i = 0; i < 10; i++) link.acked(plain(BIG), SLOW_MS, SLOW_MS - FAST_MS);
    expect(await compresses(link)).toBe(false);
    link.acked(plain(BIG), SLOW_MS);
    link.acked(plain(BIG), SLOW_MS);
    expect(await compresses(link)).toBe(true);
  });

  test('is not judged by small bodies, and does not compress them', async () => {
    const link = new Link();
    link.heard('gzip');
    for (let i = 0; i < 10; i++) link.acked(plain(text(4_095)), SLOW_MS);
    expect(await compresses(link)).toBe(false);
    expect(await compresses(slowLink(), text(4_095))).toBe(false);
    expect(await compresses(slowLink(), text(4_096))).toBe(true);
  });

  test.each<[string | null | undefined, boolean]>([
    ['gzip', true],
    ['GZIP', true],
    ['br, gzip;q=0.5', true],
    ['identity,gzip', true],
    ['gzip;q=0', false],
    ['gzip; q=0.000, identity', false],
    ['br', false],
    ['x-gzipped', false],
    ['', false],
    [null, false],
    [undefined, false],
  ])('to a peer that says it reads %j', async (announced, expected) => {
    const link = slowLink();
    link.heard(announced);
    expect(await compresses(link)).toBe(expected);
  });

  test('sends now and then a plain body, more and more rarely while the link stays slow', async () => {
    const sent = await sends(slowLink(), 2_000, onSlowLink);
    const plainOnes = sent.flatMap((gzip, i) => (gzip ? [] : [i]));
    expect(plainOnes).toEqual([64, 193, 450, 963, 1_988]);
  });

  test('switches back when such a body was fast, and begins anew', async () => {
    const link = slowLink();
    const sent = await sends(link, 300, ({ gzip }) => (gzip ? SLOW_MS / 10 : FAST_MS));
    expect(sent.filter((gzip) => gzip).length).toBe(64);
    expect(sent.slice(64)).not.toContain(true);
    expect(await sends(link, 70, onSlowLink)).toEqual([false, false, ...Array(64).fill(true), false, true, true, true]);
  });

  test('sends every other attempt plain', async () => {
    const link = slowLink();
    const attempts = [0, 1, 2, 3, 4].map((attempt) => compresses(link, BIG, attempt));
    expect(await Promise.all(attempts)).toEqual([true, false, true, false, true]);
  });

  test('gives it up where three bodies failed compressed and passed plain, and not where the peer was away', async () => {
    const away = slowLink();
    for (let i = 0; i < 10; i++) {
      const packed = await away.pack(BIG, 0);
      away.failed(packed);
      const again = await away.pack(BIG, 1);
      away.failed(again);
      const third = await away.pack(BIG, 2);
      expect(third.gzip).toBe(true);
      away.acked(third, onSlowLink(third));
    }
    const blocked = slowLink();
    for (let i = 0; i < 3; i++) {
      expect(await compresses(blocked)).toBe(true);
      blocked.failed(await blocked.pack(BIG, 0));
      blocked.acked(await blocked.pack(BIG, 1), SLOW_MS);
    }
    expect(await compresses(blocked)).toBe(false);
    const torn = slowLink();
    for (let i = 0; i < 9; i++) {
      torn.failed(await torn.pack(BIG, 0));
      torn.acked(await torn.pack(BIG, 1), SLOW_MS);
      if (i % 2 === 1) torn.acked(await torn.pack(BIG, 0), SLOW_MS / 10);
    }
    expect(await compresses(torn)).toBe(true);
  });

  test('sends what gzip does not make smaller as it is', async () => {
    const random = crypto.getRandomValues(new Uint8Array(8_192));
    expect(await slowLink().pack(random, 0)).toEqual(plain(random));
  });

  test('packs what can be unpacked', async () => {
    const { body, headers } = await slowLink().pack(BIG, 0);
    expect(headers).toEqual({ 'content-encoding': 'gzip' });
    expect(body.byteLength).toBeLessThan(2_000);
    // Not by toEqual, which looks at each of the bytes in turn.
    expect(Buffer.compare((await unpack(body, BIG.byteLength)) as Uint8Array, BIG)).toBe(0);
  });
});

/** Writes rows in one transaction. */
function write({ db }: TestNode, count: number, updatedAt = 1_000): void {
  db.exec('BEGIN');
  const insert = db.prepare('INSERT OR REPLACE INTO items VALUES (?, ?, 1, 10, ?)');
  for (let i = 0; i < count; i++) insert.run(`row-${String(i).padStart(5, '0')}`, 'the name of a row', updatedAt);
  db.exec('COMMIT');
}

interface Wire {
  gzip: boolean;
  bytes: number;
}

/** A clock that only the bytes on the wire move; whoever pauses wakes up at once, and no request runs out of its time. */
class WireClock implements Clock {
  at = 1_700_000_000_000;
  /** Every requested sleep, in order. */
  readonly slept: number[] = [];
  readonly #sleepers = new VirtualClock((ms) => ms < 10_000);

  now(): number {
    return this.at;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    this.slept.push(ms);
    return this.#sleepers.sleep(ms, signal);
  }
}

/** A sender, and a network in place of `fetch` on which a virtual millisecond lets so many bytes through. */
async function overLink(
  bytesPerMs: number,
  answer: (body: Uint8Array<ArrayBuffer>, headers: Record<string, string>) => ReturnType<Fetch>,
  options: NodeOptions = {},
): Promise<TestNode & { wire: Wire[]; clock: WireClock; drained(): Promise<void> }> {
  const clock = new WireClock();
  const wire: Wire[] = [];
  const sender = await node({
    id: 'sender',
    peers: [PEER],
    clock,
    random: () => 0,
    batchMs: 7,
    batchSize: 50,
    fetch: async (_, init) => {
      wire.push({ gzip: init.headers['content-encoding'] === 'gzip', bytes: init.body.byteLength });
      clock.at += init.body.byteLength / bytesPerMs;
      return answer(init.body, init.headers);
    },
    ...options,
  });
  return {
    ...sender,
    wire,
    clock,
    drained: async () => {
      expect(await sender.manager.flush()).toEqual({ delivered: [PEER], unreachable: [] });
      expect(sender.all('SELECT count(*) AS n FROM _dead_letter')).toEqual([{ n: 0 }]);
    },
  };
}

/** Hands a body to the receiver's own handler, as the network would. All bodies are of one length unless they may be tabular. */
function into(
  receiver: TestNode,
  form: 'plain' | 'tabular' = 'plain',
): (body: Uint8Array<ArrayBuffer>, headers: Record<string, string>) => ReturnType<Fetch> {
  const handler = createHandler(receiver.manager);
  return async (body, headers) => {
    const response = await handler(new Request(`${PEER}/sync`, { method: 'POST', body, headers }));
    const said = response.headers.get('x-rowcast');
    if (said !== null && form === 'plain') response.headers.set('x-rowcast', said.replace('; reads=tabular', ''));
    return response;
  };
}

const SLOW_LINK = 62;
const FAST_LINK = 125_000;

describe('a sender', () => {
  test('compresses over a slow link, and everything arrives as it was', async () => {
    const receiver = await node({ id: 'receiver', clock: new VirtualClock() });
    const sender = await overLink(SLOW_LINK, into(receiver));
    write(sender, 1_000);
    await sender.drained();
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
    expect(sender.wire.map(({ gzip }) => gzip)).toEqual([false, false, ...Array(18).fill(true)]);
    const [first, , third] = sender.wire as [Wire, Wire, Wire];
    expect(third.bytes).toBeLessThan(first.bytes / 4);
  });

  test('compresses the tabular form as well', async () => {
    const receiver = await node({ id: 'receiver', clock: new VirtualClock() });
    // Fewer rows would be too few bytes in this form to be worth it.
    const sender = await overLink(SLOW_LINK, into(receiver, 'tabular'), { batchSize: 100 });
    write(sender, 2_000);
    await sender.drained();
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
    expect(sender.wire.slice(6).filter(({ gzip }) => !gzip)).toEqual([]);
    // The first is plain, the second tabular.
    const [first, second] = sender.wire as [Wire, Wire];
    expect(second.bytes).toBeLessThan(first.bytes * 0.6);
  });

  test('does not over a fast one', async () => {
    const receiver = await node({ id: 'receiver', clock: new VirtualClock() });
    const sender = await overLink(FAST_LINK, into(receiver));
    write(sender, 1_000);
    await sender.drained();
    expect(sender.wire.length).toBe(20);
    expect(sender.wire.filter(({ gzip }) => gzip)).toEqual([]);
    expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
  });

  test('does not where it is the peer that takes long, as it says', async () => {
    const receiver = await node({ id: 'receiver', clock: new VirtualClock() });
    const deliver = into(receiver);
    const sender = await overLink(FAST_LINK, async (body, headers) => {
      const response = await deliver(body, headers);
      const said = await response.text();
      sender.clock.at += SLOW_MS;
      return {
        status: response.status,
        text: async () => said,
        headers: new Headers({ 'accept-encoding': 'gzip', 'x-apply-ms': `${SLOW_MS}` }),
      };
    });
    write(sender, 1_000);
    await sender.drained();
    expect(sender.wire.filter(({ gzip }) => gzip)).toEqual([]);
  });

  test.each(['a peer that does not announce it', 'a fetch without headers'])('does not with %s', async (which) => {
    const receiver = await node({ id: 'receiver', clock: new VirtualClock() });
    const deliver = into(receiver);
    const sender = await overLink(SLOW_LINK, async (body, headers) => {
      const {
        status,
        headers: answered,
        text,
      } = await deliver(body, headers).then(async (response) => {
        const said = await response.text();
        return { status: response.status, headers: response.headers as Headers, text: async () => said };
      });
      if (which === 'a fetch without headers') return { status, text };
      answered.delete('accept-encoding');
      return { status, text, headers: answered };
    });
    write(sender, 500);
    await sender.drained();
    expect(sender.wire.length).toBe(10);
    expect(sender.wire.filter(({ gzip }) => gzip)).toEqual([]);
  });

  test.each([400, 415, 422, 200])(
    'sends a compressed body that is answered with %i again, plain, and never compresses again',
    async (status) => {
      const receiver = await node({ id: 'receiver', clock: new VirtualClock() });
      const deliver = into(receiver);
      const sender = await overLink(SLOW_LINK, (body, headers) =>
        headers['content-encoding'] === undefined
          ? deliver(body, headers)
          : Promise.resolve(new Response('{"error":"what is this?","ack":0}', { status, headers: ANNOUNCED })),
      );
      write(sender, 500);
      await sender.drained();
      expect(sender.wire.map(({ gzip }) => gzip)).toEqual([false, false, true, ...Array(8).fill(false)]);
      // At once: it was no failed attempt, after which one waits.
      expect(sender.clock.slept).not.toContain(BACKOFF_MS[0]);
      write(sender, 500, 2_000);
      await sender.drained();
      expect(sender.wire.filter(({ gzip }) => gzip).length).toBe(1);
      expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
    },
  );

  test.each([200, 403, 415, 500, 'a torn connection'])(
    'gets through where somebody on the way answers compressed bodies with %s, and stops trying',
    async (answer) => {
      const receiver = await node({ id: 'receiver', clock: new VirtualClock() });
      const deliver = into(receiver);
      const sender = await overLink(SLOW_LINK, (body, headers) => {
        if (headers['content-encoding'] === undefined) return deliver(body, headers);
        if (typeof answer === 'string') return Promise.reject(new Error('ECONNRESET'));
        return Promise.resolve(new Response('no', { status: answer, headers: ANNOUNCED }));
      });
      write(sender, 1_000);
      await sender.drained();
      expect(sender.wire.filter(({ gzip }) => gzip).length).toBe(3);
      expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
    },
  );

  test('still finds the one change that is refused', async () => {
    const receiver = await node({ id: 'receiver', clock: new VirtualClock() });
    const deliver = into(receiver);
    const sender = await overLink(SLOW_LINK, (body, headers) => {
      const packed = headers['content-encoding'] === 'gzip';
      const said = new TextDecoder().decode(packed ? gunzipSync(body) : body);
      if (!said.includes('row-00555')) return deliver(body, headers);
      return Promise.resolve(new Response('{"error":"not this one"}', { status: 400, headers: ANNOUNCED }));
    });
    write(sender, 600);
    expect((await sender.manager.flush()).delivered).toEqual([PEER]);
    expect(sender.all('SELECT row_id FROM _dead_letter')).toEqual([{ row_id: 'row-00555' }]);
    expect(receiver.all('SELECT count(*) AS n FROM items')).toEqual([{ n: 599 }]);
  });
});

const ANNOUNCED = { 'accept-encoding': 'gzip' };

const batch = (id: string): string =>
  JSON.stringify({
    batch_id: 7,
    changes: [
      { op: 'INSERT', table: 'items', row: { id, name: id, value: 1, created_at: 1, updated_at: 1_000 }, old_id: null },
    ],
  });

/** A body whose last change is one; the rest of it is nothing but blanks. */
const padded = (bytes: number): Buffer => Buffer.from(batch('padded').padEnd(bytes, ' '));

type Post = (body: Uint8Array | string, headers?: Record<string, string>) => Promise<Response>;

/** Every way in: the listener over a socket, the handler, and on Bun its own server. */
const ways: Record<string, (replica: Replica, options?: HttpOptions) => Promise<Post>> = {
  createListener: async (replica, options) => posting(await serve(createListener(replica, options)), fetch),
  createHandler: async (replica, options) => {
    const handler = createHandler(replica, options);
    return posting(PEER, (url, init) => handler(new Request(url, init)));
  },
};
if (lane === 'bun-sqlite') {
  ways['Bun.serve'] = async (replica, options) => {
    const server = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: createHandler(replica, options) });
    cleanUp(() => server.stop(true));
    return posting(`http://127.0.0.1:${server.port}`, fetch);
  };
}

function posting(url: string, ask: (url: string, init: RequestInit) => Promise<Response>): Post {
  return (body, headers = {}) =>
    ask(`${url}/sync`, {
      method: 'POST',
      body: body as BodyInit,
      headers: { 'content-type': 'application/json', 'x-node-id': 'sender', ...headers },
    });
}

const GZIP = { 'content-encoding': 'gzip' };
/** Made once for all ways: to pack it is a third of what the test takes. */
let bomb: Uint8Array | undefined;

describe.each(Object.entries(ways))('%s', (_, way) => {
  test('takes gzip, in any case, and what is not compressed, and says with every answer that it does', async () => {
    const receiver = await node({ id: 'receiver', clock: new VirtualClock() });
    const post = await way(receiver.manager);
    const answers = [
      await post(batch('plain')),
      await post(batch('identity'), { 'content-encoding': 'identity' }),
      await post(gzipSync(batch('packed')), GZIP),
      await post(gzipSync(batch('shouted')), { 'content-encoding': ' GZip ' }),
      await post('no batch'),
      await post(batch('other'), { 'content-type': 'text/plain' }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 400, 415]);
    expect(answers.map(({ headers }) => headers.get('accept-encoding'))).toEqual(Array(6).fill('gzip'));
    expect(await answers[2]?.json()).toEqual({ applied: 1, ack: 7 });
    const ids = receiver.all('SELECT id FROM items ORDER BY id').map(({ id }) => id);
    expect(ids).toEqual(['identity', 'packed', 'plain', 'shouted']);
  });

  test.each(['br', 'deflate', 'gzip, gzip', 'x-unknown'])('refuses %s by name', async (encoding) => {
    const receiver = await node({ id: 'receiver', clock: new VirtualClock() });
    const post = await way(receiver.manager);
    const answer = await post(gzipSync(batch('a')), { 'content-encoding': encoding });
    expect(answer.status).toBe(415);
    expect(answer.headers.get('accept-encoding')).toBe('gzip');
    expect(await answer.json()).toEqual({ error: `content-encoding must be gzip or identity, not ${encoding}` });
    expect(receiver.all('SELECT * FROM items')).toEqual([]);
  });

  const whole = gzipSync(batch('a'));
  const damaged = Uint8Array.from(whole);
  damaged[whole.length - 6] = (damaged[whole.length - 6] as number) ^ 1;
  test.each<[string, Uint8Array]>([
    ['not gzip at all', Buffer.from(batch('a'))],
    ['empty', new Uint8Array()],
    ['cut in the middle', whole.subarray(0, whole.length >> 1)],
    ['cut before its last byte', whole.subarray(0, -1)],
    ['damaged', damaged],
    ['followed by something else', Buffer.concat([whole, Buffer.from('something')])],
  ])('answers 400 to a body that is %s', async (_name, body) => {
    const receiver = await node({ id: 'receiver', clock: new VirtualClock() });
    const post = await way(receiver.manager);
    const answer = await post(body, GZIP);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toEqual({ error: 'the body is not gzip, or breaks off' });
    expect(receiver.all('SELECT * FROM items')).toEqual([]);
    expect((await post(gzipSync(batch('a')), GZIP)).status).toBe(200);
  });

  test('counts what a body unpacks to, and what it is, against maxBodyBytes', async () => {
    const receiver = await node({ id: 'receiver', maxBodyBytes: 50_000 });
    const post = await way(receiver.manager);
    const noise = crypto.getRandomValues(new Uint8Array(60_000));
    const answers = [
      await post(gzipSync(padded(50_000)), GZIP),
      await post(gzipSync(padded(50_001)), GZIP),
      await post(gzipSync(noise), GZIP),
      await post(padded(50_001)),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 413, 413, 413]);
    expect(await answers[1]?.json()).toEqual({ error: 'the body is larger than 50000 bytes' });
  });

  test('is not filled by bombs, many at once', async () => {
    const receiver = await node({ id: 'receiver', maxBodyBytes: 2 ** 20 });
    const post = await way(receiver.manager);
    bomb ??= gzipSync(Buffer.alloc(16 * 2 ** 20, ' '));
    const packed = bomb;
    const answers = await Promise.all(Array.from({ length: 20 }, () => post(packed, GZIP)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([413]));
    expect((await post(batch('a'))).status).toBe(200);
  });
});

test('bodies are unpacked one at a time, so that a crowd of small ones cannot become a crowd of large ones', async () => {
  const large = gzipSync(Buffer.alloc(8 * 2 ** 20), { level: 0 });
  const ended: string[] = [];
  const end = (name: string) => (unpacked: Uint8Array | string) =>
    ended.push(`${name} ${typeof unpacked === 'string' ? unpacked : unpacked.byteLength}`);
  await Promise.all([
    unpack(large, 2 ** 24).then(end('large')),
    unpack(gzipSync('small'), 2 ** 24).then(end('small')),
    unpack(large, 2 ** 22).then(end('large')),
    unpack(Buffer.from('no gzip'), 2 ** 22).then(end('wrong')),
    unpack(gzipSync('small'), 2 ** 22).then(end('small')),
  ]);
  // Side by side, the small ones would be done long before.
  expect(ended).toEqual(['large 8388608', 'small 5', 'large too-large', 'wrong garbage', 'small 5']);
});

test('a hub takes gzip, says so, and sends it over a slow link', async () => {
  const edge = await node({ id: 'edge', clock: new VirtualClock() });
  const clock = new WireClock();
  const wire: boolean[] = [];
  const deliver = into(edge);
  const hub = await createHub(await database('SELECT 1'), {
    id: 'hub',
    edges: [PEER],
    clock,
    maxAheadMs: 0,
    batchSize: 100,
    get: async () => new Response(JSON.stringify({ ok: true, node_id: 'edge' })),
    fetch: async (_, init) => {
      wire.push(init.headers['content-encoding'] === 'gzip');
      clock.at += init.body.byteLength / SLOW_LINK;
      return deliver(init.body, init.headers);
    },
  });
  cleanUp(() => hub.stop());
  const changes = Array.from({ length: 1_000 }, (_, i) => ({
    op: 'INSERT',
    table: 'items',
    row: { id: `row-${i}`, name: 'the name of a row of the hub', value: i, created_at: 1, updated_at: 1_000 },
    old_id: null,
  }));
  const post = posting(await serve(createListener(hub)), fetch);
  const answer = await post(gzipSync(JSON.stringify({ batch_id: 3, changes })), GZIP);
  expect(await answer.json()).toEqual({ applied: 1_000, ack: 3 });
  expect(answer.headers.get('accept-encoding')).toBe('gzip');
  await hub.flush();
  expect(edge.all('SELECT count(*) AS n FROM items')).toEqual([{ n: 1_000 }]);
  expect(wire).toEqual([false, false, ...Array(8).fill(true)]);
});

test('over real connections the bytes on the wire are a fraction, and both sides end up the same', async () => {
  const receiver = await node({ id: 'receiver', clock: new VirtualClock() });
  const clock = new WireClock();
  const wire: Wire[] = [];
  const listener = createListener(receiver.manager);
  const url = await serve((request, response) => {
    const { 'content-encoding': encoding, 'content-length': length } = request.headers;
    wire.push({ gzip: encoding === 'gzip', bytes: Number(length) });
    clock.at += Number(length) / SLOW_LINK;
    listener(request, response);
  });
  const sender = await node({ id: 'sender', peers: [url], batchSize: 100, clock });
  write(sender, 2_000);
  expect(await sender.manager.flush()).toEqual({ delivered: [url], unreachable: [] });
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
  expect(wire.map(({ gzip }) => gzip)).toEqual([false, false, ...Array(wire.length - 2).fill(true)]);
  const plainBytes = (wire[0] as Wire).bytes * wire.length;
  expect(wire.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThan(plainBytes / 3);
});
