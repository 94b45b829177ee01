/** Nodes with keys: what goes between them, what they believe, and whom. */
import { describe, expect, test } from 'vitest';
import type { AuthOptions } from '../../src/auth/index.ts';
import type { Config } from '../../src/index.ts';
import type { FetchResponse } from '../../src/send/transport.ts';
import { silently } from '../compare/pairs.ts';
import { Cluster, hurried, ids, type Member, settled, write } from '../support/cluster.ts';
import { rowsOf, until } from '../support/nodes.ts';
import { OTHER_SECRET, SECRET } from './messages.ts';

const AUTH: AuthOptions = { keys: [{ id: 'k1', secret: SECRET }] };

const signedOf = ({ manager }: Member): unknown =>
  manager.health().peer_states.map(({ signed, pinned }) => ({ signed, pinned }));

describe('two nodes with one key', () => {
  test('sync, and every request and answer of theirs is signed', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b'], { auth: AUTH });
    const b = await cluster.node('b', ['a'], { auth: AUTH });
    write(a, 'x1');
    write(b, 'y1');
    await settled('x1 y1', a, b);
    await until('both are up', () => [a, b].every(({ manager }) => manager.peers.list()[0]?.state === 'up'));
    expect(cluster.requests.length).toBeGreaterThan(3);
    for (const { headers } of cluster.requests) {
      expect(headers.signature).toMatch(/^rowcast=:/);
      expect(headers['accept-encoding']).toBe('identity');
    }
    expect(signedOf(a)).toEqual([{ signed: 'yes', pinned: 'b' }]);
    expect(rowsOf(a.db, 'SELECT pinned FROM _peer_state')).toEqual([{ pinned: 'b' }]);
    expect(await a.manager.verify(undefined)).toMatchObject([{ equal: true }]);
    const paths = new Set(cluster.requests.map(({ url }) => new URL(url).pathname));
    expect(paths).toContain('/sync/compare');
  });

  test('say hello before any data', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b'], { auth: AUTH });
    write(a, 'x1');
    const b = await cluster.node('b', [], { auth: AUTH });
    await settled('x1', a, b);
    const toB = cluster.requests.filter(({ url }) => url.startsWith(cluster.url('b')));
    expect(toB[0]).toMatchObject({ method: 'GET' });
  });
});

test('without keys nothing of it is on the wire', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b']);
  const b = await cluster.node('b', ['a']);
  write(a, 'x1');
  await settled('x1', a, b);
  await a.manager.verify(undefined);
  expect(cluster.requests.length).toBeGreaterThan(1);
  for (const { headers, method } of cluster.requests) {
    const names = Object.keys(headers).filter((name) => name !== 'x-send-again');
    expect(names.sort()).toEqual(method === 'GET' ? ['x-rowcast'] : ['content-type', 'x-node-id', 'x-rowcast']);
  }
  for (const { headers } of cluster.answers) {
    expect(Object.keys(headers).filter((name) => /signature|digest|cache-control/.test(name))).toEqual([]);
  }
  expect(JSON.stringify(a.manager.health())).not.toMatch(/signed|pinned|clock_offset/);
});

describe('who has not the key', () => {
  test('is sent no row, and not believed', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b'], { auth: AUTH });
    await cluster.node('b', [], { auth: { keys: [{ id: 'k1', secret: OTHER_SECRET }] } });
    write(a, 'x1');
    await until('b is down', () => a.manager.peers.list()[0]?.state === 'down');
    expect(cluster.requests.filter(({ method }) => method === 'POST')).toEqual([]);
    expect(rowsOf(a.db, 'SELECT count(*) AS n FROM _changes')).toEqual([{ n: 1 }]);
    expect(a.manager.health().dead_letter).toBe(0);
  });

  test('is not let in, and learns nothing; nor does whoever has none at all', async () => {
    const cluster = new Cluster();
    const b = await cluster.node('b', [], { auth: AUTH });
    const warnings: string[] = [];
    b.manager.on('warning', ({ code, message }) => warnings.push(`${code}: ${message}`));
    const a = await cluster.node('a', ['b']);
    write(a, 'x1');
    await until('b is down', () => a.manager.peers.list()[0]?.state === 'down');
    expect(ids(b)).toBe('');
    expect(a.manager.health().peer_states[0]?.last_error).toContain('not authenticated');
    expect(warnings.filter((one) => one.startsWith('not-authenticated'))).toHaveLength(1);
  });
});

/** Somebody between the nodes, who has no key and changes what goes by. */
type Tamper = (answer: FetchResponse & { body: string }, url: string, method: string) => FetchResponse;

function answer(status: number, body: string, headers: Record<string, string> = {}): FetchResponse {
  return { status, text: async () => body, headers: { get: (name) => headers[name] ?? null } };
}

const FORGERIES: [string, Tamper][] = [
  ['acknowledges in the name of the peer', () => answer(200, '{"applied":1,"ack":1}', { 'x-node-id': 'b' })],
  ['refuses in its name', () => answer(422, '{"error":"no"}', { 'x-node-id': 'b' })],
  ['says that it is too large', () => answer(413, '{"error":"no"}')],
  ['says 400', () => answer(400, '{"error":"no"}')],
  ['says 404', () => answer(404, 'not found')],
  [
    'changes the acknowledgement',
    (given) => answer(given.status, given.body.replace(/"ack":\d+/, '"ack":7'), headersOf(given)),
  ],
  ['changes the status', (given) => answer(given.status === 200 ? 422 : 200, given.body, headersOf(given))],
  ['takes the signature away', (given) => answer(given.status, given.body, without(headersOf(given), 'signature'))],
];

function headersOf(given: FetchResponse): Record<string, string> {
  const names = [
    'content-digest',
    'x-node-id',
    'signature',
    'signature-input',
    'x-rowcast',
    'x-apply-ms',
    'x-any-order',
  ];
  return Object.fromEntries(
    names.flatMap((name) => (given.headers?.get(name) ? [[name, given.headers.get(name) as string]] : [])),
  );
}

function without(headers: Record<string, string>, name: string): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([key]) => key !== name));
}

const FORGED = FORGERIES.flatMap(([what, tamper]) =>
  (['require', 'accept'] as const).map((mode) => ({ what, tamper, mode })),
);
test.each(FORGED)(
  'somebody on the way who $what prunes nothing and buries nothing; in mode $mode',
  async ({ tamper, mode }) => {
    const cluster = new Cluster();
    const auth: AuthOptions = { ...AUTH, mode };
    const a = await cluster.node('a', ['b'], { auth, requestTimeoutMs: 1_000 });
    const b = await cluster.node('b', [], { auth });
    write(a, 'x1');
    await settled('x1', a, b);
    await a.manager.flush();
    cluster.tamper = tamper;
    write(a, 'x2');
    write(a, 'x3');
    await until('b is down', () => a.manager.peers.list()[0]?.state === 'down');
    expect(a.manager.health()).toMatchObject({ dead_letter: 0, pending_changes: 2 });
    cluster.tamper = undefined;
    await settled('x1 x2 x3', a, b);
    await until('nothing is left', () => a.manager.health().pending_changes === 0);
  },
);

describe('a proxy that takes no large bodies, and says so without a key', () => {
  const LIMIT = 4_000;
  const names = (n: number): string[] => Array.from({ length: n }, (_, i) => `x${String(i).padStart(3, '0')}`);

  async function behindProxy(): Promise<{ cluster: Cluster; a: Member; b: Member }> {
    const cluster = new Cluster();
    const [a, b] = [await cluster.node('a', ['b'], { auth: AUTH }), await cluster.node('b', ['a'], { auth: AUTH })];
    write(a, 'first');
    await settled('first', a, b);
    cluster.proxy = ({ body }) => (body.length > LIMIT ? answer(413, '<h1>Request Entity Too Large</h1>') : undefined);
    return { cluster, a, b };
  }

  test('is sent smaller batches, as by the word of the peer', { tags: 'long' }, async () => {
    const { a, b } = await behindProxy();
    // Fifty of them are too many: no batch is smaller than that because it takes long.
    const long = names(200).map((id) => id.padEnd(150, '-'));
    a.db.exec('BEGIN');
    write(a, ...long);
    a.db.exec('COMMIT');
    await settled(['first', ...long].join(' '), a, b);
    await until('nothing is left', () => a.manager.health().pending_changes === 0);
    expect(a.manager.health().dead_letter).toBe(0);
  });

  test('keeps a single change that is too large waiting, says what to do, and buries nothing', async () => {
    const { cluster, a, b } = await behindProxy();
    const reasons: string[] = [];
    a.manager.on('peer-down', ({ reason }) => reasons.push(reason));
    a.db.exec(`INSERT INTO items VALUES ('large', '${'z'.repeat(LIMIT)}', 1, 10, ${Date.now()})`);
    write(a, 'small');
    await until('b is down', () => a.manager.peers.list()[0]?.state === 'down');
    expect(reasons.at(-1)).toMatch(/^HTTP 413 without a signature, for a single change.*client_max_body_size/);
    expect(a.manager.health()).toMatchObject({ dead_letter: 0, pending_changes: 2 });
    cluster.proxy = undefined;
    await settled('first large small', a, b);
  });

  test('is sent the deletion of a row that is too large, without the row', async () => {
    const { cluster, a, b } = await behindProxy();
    const { proxy } = cluster;
    cluster.proxy = undefined;
    a.db.exec(`INSERT INTO items VALUES ('large', '${'z'.repeat(LIMIT)}', 1, 10, ${Date.now()})`);
    await settled('first large', a, b);
    cluster.proxy = proxy;
    a.db.exec("DELETE FROM items WHERE id = 'large'");
    await settled('first', a, b);
    await until('nothing is left', () => a.manager.health().pending_changes === 0);
    expect(a.manager.health().dead_letter).toBe(0);
  });

  test('does not keep a comparison from mending what differs', { tags: 'long' }, async () => {
    const { a, b } = await behindProxy();
    a.db.exec('BEGIN');
    write(a, ...names(100));
    a.db.exec('COMMIT');
    await settled(['first', ...names(100)].join(' '), a, b);
    await until('nothing is left', () => a.manager.health().pending_changes === 0);
    silently([b.db], () => b.db.exec("DELETE FROM items WHERE id LIKE 'x%'"));
    expect(await a.manager.verify(undefined, { repair: true })).toMatchObject([{ differences: 100, equal: true }]);
    await settled(['first', ...names(100)].join(' '), a, b);
  });
});

test('an answer to one batch is no answer to another, though the same node has given it', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b'], { auth: AUTH });
  const b = await cluster.node('b', [], { auth: AUTH });
  write(a, 'x1');
  await settled('x1', a, b);
  await a.manager.flush();
  const recorded: (FetchResponse & { body: string })[] = [];
  cluster.tamper = (given, _url, method) => {
    if (method === 'POST') recorded.push(given);
    return answer(given.status, given.body, headersOf(given));
  };
  write(a, 'x2');
  await settled('x1 x2', a, b);
  await a.manager.flush();
  const kept = recorded[0];
  cluster.tamper = (given, _url, method) =>
    method === 'POST' && kept
      ? answer(kept.status, kept.body, headersOf(kept))
      : answer(given.status, given.body, headersOf(given));
  // Gone again, it is the same batch to the protocol: the next id is another, and the old answer names the old one.
  write(a, 'x3');
  await until('b is down', () => a.manager.peers.list()[0]?.state === 'down');
  expect(a.manager.health()).toMatchObject({ dead_letter: 0, pending_changes: 1 });
});

describe('accept', () => {
  const accept: AuthOptions = { ...AUTH, mode: 'accept' };

  test('syncs with a node that has no keys, in both directions', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b'], { auth: accept });
    const b = await cluster.node('b', ['a']);
    write(a, 'x1');
    write(b, 'y1');
    await settled('x1 y1', a, b);
    expect(signedOf(a)).toEqual([{ signed: 'not-yet', pinned: null }]);
  });

  test('believes nothing unsigned of a node that has signed once, after a restart as well', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b'], { auth: accept });
    const b = await cluster.node('b', [], { auth: accept });
    write(a, 'x1');
    await settled('x1', a, b);
    await a.manager.flush();
    await a.stop();
    const again = await cluster.node('a', ['b'], { auth: accept });
    expect(signedOf(again)).toEqual([{ signed: 'yes', pinned: 'b' }]);
    await b.stop();
    await cluster.node('b', []);
    write(again, 'x2');
    await until('b is down', () => again.manager.peers.list()[0]?.state === 'down');
    expect(again.manager.health().pending_changes).toBe(1);
  });

  test('a peer that cannot sign is exempt by name, and health says so', async () => {
    const cluster = new Cluster();
    const auth: AuthOptions = { ...AUTH, sign: { [cluster.url('b')]: null } };
    const a = await cluster.node('a', ['b'], { auth });
    const b = await cluster.node('b', []);
    write(a, 'x1');
    await settled('x1', a, b);
    expect(signedOf(a)).toEqual([{ signed: 'exempt', pinned: null }]);
    expect(cluster.requests.every(({ headers }) => headers.signature === undefined)).toBe(true);
  });

  test('what such a peer sends is anybody\u2019s: it is taken where all that is not signed is, and nowhere else', async () => {
    const cluster = new Cluster();
    const exempt = { ...AUTH, sign: { [cluster.url('b')]: null } };
    const a = await cluster.node('a', ['b'], { auth: exempt });
    const c = await cluster.node('c', ['b'], { auth: { ...exempt, mode: 'accept' } });
    const b = await cluster.node('b', ['a', 'c']);
    write(b, 'x1');
    await settled('x1', b, c);
    const atA = (): object | undefined => b.manager.peers.list().find(({ url }) => url === cluster.url('a'));
    await until('a is down', () => (atA() as { state: string }).state === 'down');
    expect(ids(a)).toBe('');
    write(a, 'x2');
    await settled('x1 x2', b);
  });
});

describe('which node answers', () => {
  const warningsOf = ({ manager }: Member): string[] => {
    const codes: string[] = [];
    manager.on('warning', ({ code }) => codes.push(code));
    return codes;
  };

  test('is kept to: another one with the same key is sent nothing, until the peer was taken out once', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b'], { auth: AUTH });
    const codes = warningsOf(a);
    const b = await cluster.node('b', [], { auth: AUTH });
    write(a, 'x1');
    await settled('x1', a, b);
    await a.manager.flush();
    await b.stop();
    write(a, 'x2');
    await until('b is down', () => a.manager.peers.list()[0]?.state === 'down');
    const c = await cluster.node('c', [], { auth: AUTH, url: cluster.url('b') });
    await until('another one is noticed', () => codes.includes('other-node'));
    expect(ids(c)).toBe('');
    expect(a.manager.health().pending_changes).toBe(1);
    await a.manager.peers.remove(cluster.url('b'));
    a.manager.peers.add(cluster.url('b'));
    await settled('x1 x2', a, c);
    expect(signedOf(a)).toEqual([{ signed: 'yes', pinned: 'c' }]);
  });

  test('likewise where a restart has the peer taken out and put back', async () => {
    const cluster = new Cluster();
    const b = await cluster.node('b', [], { auth: AUTH });
    let a = await cluster.node('a', ['b'], { auth: AUTH });
    write(a, 'x1');
    await settled('x1', a, b);
    await a.manager.flush();
    for (const peers of [[], ['b']]) {
      await a.stop();
      a = await cluster.node('a', peers, { auth: AUTH });
      expect(rowsOf(a.db, 'SELECT pinned FROM _peer_state')).toEqual([{ pinned: null }]);
    }
  });

  test('is the configured one and no other', async () => {
    const cluster = new Cluster();
    const auth: AuthOptions = { ...AUTH, peerIds: { [cluster.url('b')]: 'b' } };
    const c = await cluster.node('c', [], { auth: AUTH, url: cluster.url('b') });
    const a = await cluster.node('a', ['b'], { auth });
    const codes = warningsOf(a);
    write(a, 'x1');
    await until('b is down', () => a.manager.peers.list()[0]?.state === 'down');
    expect(ids(c)).toBe('');
    expect(codes).toContain('other-node');
  });

  test('at two URLs, is sent nothing at either; when they are apart again, both go on', async () => {
    const cluster = new Cluster();
    const b = await cluster.node('b', [], { auth: AUTH });
    const c = await cluster.node('c', [], { auth: AUTH });
    const a = await cluster.node('a', ['b'], { auth: AUTH });
    const codes = warningsOf(a);
    write(a, 'x1');
    await settled('x1', a, b);
    // Somebody has pointed the name of c at b, from the beginning.
    cluster.at.set(cluster.url('c'), b.manager);
    a.manager.peers.add(cluster.url('c'));
    await until('both are seen to be one', () => codes.includes('same-id'));
    write(a, 'x2');
    await until('both are down', () => a.manager.peers.list().every(({ state }) => state === 'down'));
    cluster.at.set(cluster.url('c'), c.manager);
    await settled('x1 x2', a, b, c);
  });

  test('must not be the sender itself, by whom its own words would be acknowledged', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b'], { auth: AUTH });
    const codes = warningsOf(a);
    cluster.at.set(cluster.url('b'), a.manager);
    write(a, 'x1');
    await until('b is down', () => a.manager.peers.list()[0]?.state === 'down');
    expect(codes).toContain('own-peer');
    expect(a.manager.health().pending_changes).toBe(1);
  });
});

test('a clock that is an hour off does not keep a node from being believed, and is told of', async () => {
  const cluster = new Cluster();
  const ahead: NonNullable<Config['clock']> = { now: () => hurried.now() + 3_600_000, sleep: hurried.sleep };
  const a = await cluster.node('a', ['b'], { auth: AUTH });
  const codes: string[] = [];
  a.manager.on('warning', ({ code }) => codes.push(code));
  const b = await cluster.node('b', ['a'], { auth: AUTH, clock: ahead });
  write(a, 'x1');
  write(b, 'y1');
  await settled('x1 y1', a, b);
  expect(codes).toContain('clock-skew');
  const offset = a.manager.health().peer_states[0]?.clock_offset_ms ?? 0;
  expect(Math.abs(offset - 3_600_000)).toBeLessThan(60_000);
});

test('keys are exchanged for others while nodes run, without a batch that is refused', async () => {
  const cluster = new Cluster();
  const [old, next] = [
    { id: 'old', secret: SECRET },
    { id: 'new', secret: OTHER_SECRET },
  ];
  const a = await cluster.node('a', ['b'], { auth: { keys: [old] } });
  const b = await cluster.node('b', ['a'], { auth: { keys: [old] } });
  const failed: string[] = [];
  for (const { manager } of [a, b]) manager.on('attempt', ({ result }) => result !== 'acked' && failed.push(result));
  let n = 0;
  for (const keys of [[old, next], [next, old], [next]]) {
    for (const { manager } of [a, b]) {
      manager.configure({ auth: { keys } });
      write(a, `x${n}`);
      write(b, `y${n++}`);
      await until('both have it', () => ids(a) === ids(b) && ids(a).includes(`y${n - 1}`));
    }
  }
  expect(failed).toEqual([]);
  expect(cluster.requests.at(-1)?.headers['signature-input']).toContain('keyid="new"');
  expect(() => a.manager.configure({ auth: { keys: [] } })).toThrow(/at least one key/);
  const plain = await cluster.node('c', []);
  expect(() => plain.manager.configure({ auth: { keys: [old] } })).toThrow(/start again/);
});

test('a fetch that can only POST is refused at the start, with keys', async () => {
  const cluster = new Cluster();
  await expect(cluster.node('a', [], { auth: AUTH, get: undefined as never })).rejects.toThrow(/"get" is needed/);
});
