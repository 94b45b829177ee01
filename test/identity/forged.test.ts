/** What whoever can send a request may claim, and what follows from it: work that is bounded, and nothing else. */
import { describe, expect, test } from 'vitest';
import { STRANGERS_KEPT } from '../../src/identity/strangers.ts';
import { readIntroduction } from '../../src/wire/introduction.ts';
import { Cluster, hubIds, ids, incOf, type Member, seeds, settled, write } from '../support/cluster.ts';
import { node, rowsOf, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const EMPTY = '{"batch_id":1,"changes":[]}';
const SEAL = '0123456789abcdef';
let made = 0;

/** Of a database that nobody has ever heard of. */
function madeUp(id: string, extra = ''): string {
  made += 1;
  return `id=${id}; inc=${made.toString(16).padStart(16, '0')}; boot=1-aaaaaaaa; t0=0; t=1${extra}`;
}

/** How a node introduces itself to whoever asks. */
function told(member: Pick<Member, 'manager'>): NonNullable<ReturnType<typeof readIntroduction>> {
  const said = readIntroduction(member.manager.hello(madeUp('asker'))['x-rowcast']);
  if (!said) throw new Error('it does not say who it is');
  return said;
}

async function pair(): Promise<{ cluster: Cluster; a: Member; b: Member }> {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b']);
  const b = await cluster.node('b', ['a']);
  write(a, '1');
  write(b, '2');
  await settled('1 2', a, b);
  await until('each knows the other', () => [a, b].every(({ db }) => rowsOf(db, 'SELECT 1 FROM _nodes').length === 2));
  await Promise.all([a.manager.flush(), b.manager.flush()]);
  return { cluster, a, b };
}

function remembered({ db }: Pick<Member, 'db'>): number {
  return rowsOf(db, 'SELECT 1 FROM _nodes').length;
}

describe('whoever can ask for /health', () => {
  test('is told who the node is, and leaves nothing behind', async () => {
    const { a, b } = await pair();
    const before = [incOf(a), remembered(a), seeds(a)];
    const { inc, boot } = told(b);
    for (const said of [
      madeUp('b'),
      `id=b; inc=${inc}; boot=99-aaaaaaaa; t0=0; t=0; seal=${SEAL}`,
      `id=b; inc=${inc}; boot=${boot}; t0=0; t=999999; seal=${SEAL}`,
      madeUp('a'),
    ]) {
      expect(a.manager.hello(said)['x-rowcast']).toMatch(/^id=a; /);
    }
    write(a, '3');
    await settled('1 2 3', a, b);
    expect([incOf(a), remembered(a), seeds(a)]).toEqual(before);
    expect(a.manager.health()).toMatchObject({ ok: true, problems: [] });
    expect(a.events).toEqual([]);
  });

  test('makes the node ask the peer of which it speaks, at most once in two seconds', async () => {
    const clock = new VirtualClock();
    const cluster = new Cluster();
    const b = await cluster.node('b', [], { clock });
    const a = await cluster.node('a', ['b'], { clock });
    write(a, '1');
    for (let i = 0; i < 100 && ids(b) !== '1'; i++) await clock.advance(10);
    await clock.advance(5_000);
    cluster.requests.length = 0;
    for (let i = 0; i < 100; i++) {
      a.manager.hello(madeUp('b'));
      await clock.advance(50);
    }
    const asked = cluster.requests.filter(({ method }) => method === 'GET').length;
    expect(asked).toBeGreaterThanOrEqual(2);
    expect(asked).toBeLessThanOrEqual(4);
  });
});

describe('whoever can send to /sync', () => {
  test('cannot make a node take another identity: it knows its own words by their seal', async () => {
    const { a } = await pair();
    const { inc } = told(a);
    for (const you of [`${inc}.999999.99-aaaaaaaa`, `${inc}.999999.99-aaaaaaaa.${SEAL}`]) {
      expect(a.manager.receive(EMPTY, { from: 'x', said: madeUp('x', `; you=${you}`) }).status).toBe(200);
      a.manager.hello(madeUp('x', `; you=${you}`));
    }
    a.manager.receive(EMPTY, { from: 'x', said: `id=x; inc=${inc}; boot=0-aaaaaaaa; t0=0; t=999999; seal=${SEAL}` });
    expect(incOf(a)).toBe(inc);
    expect(a.events).toEqual([]);
  });

  test('cannot say of a peer that it has gone back: the peer is asked', async () => {
    const { a, b } = await pair();
    const before = a.db.prepare('SELECT snapshot_run AS n FROM _peer_state').get() as { n: number };
    const { inc } = told(b);
    for (let i = 0; i < 20; i++) {
      const said = `id=b; inc=${inc}; boot=99-${String(i).padStart(8, '0')}; t0=0; t=0; seal=${SEAL}`;
      a.manager.receive(EMPTY, { from: 'b', said });
    }
    write(a, '3');
    await settled('1 2 3', a, b);
    await a.manager.flush();
    await until('nothing waits', () => a.manager.health().peer_states[0]?.snapshot === false);
    const after = a.db.prepare('SELECT snapshot_run AS n FROM _peer_state').get() as { n: number };
    // What it may have brought is passed on, once more after that was begun; no more for however many.
    expect(after.n - before.n).toBeLessThanOrEqual(2);
    expect(a.events).toEqual([]);
  });

  test('cannot say of a peer that it is further than it is: its answers count as before, and so does its next start', async () => {
    const { cluster, a, b } = await pair();
    const { inc } = told(b);
    for (const said of [
      'boot=9999999999-aaaaaaaa; t0=999999999; t=999999999',
      `boot=9999999999-aaaaaaaa; t0=999999999; t=999999999; seal=${SEAL}`,
    ]) {
      a.manager.receive(EMPTY, { from: 'b', said: `id=b; inc=${inc}; ${said}` });
    }
    write(a, '3');
    await settled('1 2 3', a, b);
    await until('it counts', () => a.manager.health().pending_changes === 0);
    await b.stop();
    const again = await cluster.node('b', ['a']);
    write(a, '4');
    write(again, '5');
    await settled('1 2 3 4 5', a, again);
    await until('it counts', () => a.manager.health().pending_changes === 0);
    expect([...a.events, ...again.events]).toEqual([]);
  });

  test('cannot make a peer believe that it has gone back, by what is told to it of itself', async () => {
    const { cluster, a, b } = await pair();
    const before = [incOf(a), incOf(b), seeds(a), seeds(b)];
    const said = `id=b; inc=${told(b).inc}; boot=9999999999-aaaaaaaa; t0=999999999; t=999999999; seal=${SEAL}`;
    a.manager.receive(EMPTY, { from: 'b', said });
    const claim = `claim=${told(b).inc}.999999999.9999999999-aaaaaaaa.${SEAL}`;
    await until('it is told', () => cluster.requests.some(({ headers }) => headers['x-rowcast']?.endsWith(claim)));
    write(a, '3');
    write(b, '4');
    await settled('1 2 3 4', a, b);
    expect([incOf(a), incOf(b), seeds(a), seeds(b)]).toEqual(before);
    expect([...a.events, ...b.events]).toEqual([]);
  });

  test('cannot keep a seed from ending, nor what is written from being sent', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', [], { batchSize: 1 });
    write(a, ...Array.from({ length: 30 }, (_, i) => `r${String(i).padStart(2, '0')}`));
    a.manager.receive(EMPTY, { from: 'x', said: madeUp('x') });
    await cluster.node('plain', []).then(({ manager }) => cluster.at.set('http://plain.test', plainly(manager)));
    a.manager.peers.add('http://plain.test');
    const ended = (): boolean => rowsOf(a.db, 'SELECT 1 FROM _peer_state WHERE last_acked > 0').length === 1;
    // Some of them with each page of the seed.
    const sent = (): number => cluster.requests.filter(({ method }) => method === 'POST').length;
    for (let last = 0; !ended(); ) {
      await until('a page', () => sent() > last || ended());
      last = sent();
      for (let i = 0; i < 3; i++) a.manager.receive(EMPTY, { from: 'x', said: madeUp('x') });
      if (last > 200) throw new Error('the seed has begun again and again');
    }
    write(a, 'z');
    await until('it is sent', () => cluster.requests.some(({ body }) => body.includes('"z"')));
    await until('what was asked for last has begun, and ended', () => seeds(a) >= 1 && idle(a));
    expect(seeds(a)).toBeLessThanOrEqual(3);
  });

  test('what waits for a seed to end survives a restart', async () => {
    const cluster = new Cluster();
    let a = await cluster.node('a', ['b'], { batchSize: 1 });
    write(a, '1', '2', '3');
    await a.stop();
    a = await cluster.node('a', ['b'], { batchSize: 1 });
    a.db.exec("UPDATE _peer_state SET tail_from = last_acked, snapshot_table = 'rows:items', snapshot_after = '1'");
    a.manager.receive(EMPTY, { from: 'x', said: madeUp('x') });
    a.manager.receive(EMPTY, { from: 'x', said: madeUp('x') });
    expect(a.manager.health().peer_states[0]).toMatchObject({ snapshot: true, pending: 6 });
    await a.stop();
    a = await cluster.node('a', ['b'], { batchSize: 1 });
    expect(rowsOf(a.db, 'SELECT again FROM _peer_state')).toEqual([{ again: 0 }]);
    const b = await cluster.node('b', []);
    await settled('1 2 3', b);
    await until('all is over', () => idle(a));
    expect(rowsOf(a.db, 'SELECT again FROM _peer_state')).toEqual([{ again: null }]);
  });

  test('can make up databases without end, of which some are remembered', { tags: 'long' }, async () => {
    const { manager, db } = await node({ id: 'b' });
    const real = 'id=real; inc=ffffffffffffffff; boot=1-aaaaaaaa; t0=0; t=';
    manager.receive(EMPTY, { from: 'real', said: `${real}1` });
    for (let i = 0; i < STRANGERS_KEPT + 50; i++) {
      manager.receive(EMPTY, { from: 'x', said: madeUp(`x${i}`) });
      // Who goes on is not among those that were heard of longest ago.
      if (i % 100 === 0) manager.receive(EMPTY, { from: 'real', said: `${real}${i + 2}` });
    }
    expect(rowsOf(db, 'SELECT count(*) AS n FROM _nodes WHERE self IS NULL')).toEqual([{ n: STRANGERS_KEPT }]);
    expect(rowsOf(db, 'SELECT count(*) AS n FROM _names')).toEqual([{ n: STRANGERS_KEPT }]);
    expect(manager.hello(`${real}1`)['x-rowcast']).toMatch(/you=ffffffffffffffff/);
    expect(rowsOf(db, 'SELECT 1 AS n FROM _nodes WHERE self = 1')).toEqual([{ n: 1 }]);
  });
});

describe('of a hub', () => {
  test('nothing is left behind by a question, and an edge is asked before it begins anew', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['hub']);
    const hub = await cluster.hub('hub', ['a']);
    write(a, '1', '2');
    await until('the hub has it', () => hubIds(hub) === '1 2');
    const edge = (): unknown[] => rowsOf(hub.db, 'SELECT position, inc, anew_upto FROM _hub_edges');
    await until('it knows its edge', () => JSON.stringify(edge()).includes(String(incOf(a))));
    await hub.hub.flush();
    const before = [edge(), rowsOf(hub.db, 'SELECT count(*) AS n FROM _nodes'), incOf(hub)];
    const { inc } = told(a);
    await hub.hub.hello(madeUp('a'));
    await hub.hub.hello(madeUp('a', `; you=${incOf(hub)}.99999.99-aaaaaaaa.${SEAL}`));
    cluster.requests.length = 0;
    const said = `id=a; inc=${inc}; boot=99-aaaaaaaa; t0=0; t=0; seal=${SEAL}`;
    expect((await hub.hub.receive(EMPTY, { from: 'a', said })).status).toBe(200);
    await until('it is asked', () => cluster.requests.some(({ url }) => url === 'http://a.test/health'));
    await hub.hub.flush();
    expect([edge(), rowsOf(hub.db, 'SELECT count(*) AS n FROM _nodes'), incOf(hub)]).toEqual(before);
    expect(hub.events).toEqual([]);
  });
});

/** As a peer that introduces itself to nobody. */
function plainly(manager: Member['manager']): Member['manager'] {
  return {
    maxBodyBytes: manager.maxBodyBytes,
    health: () => manager.health(),
    receive: (body: Uint8Array) => ({ ...manager.receive(body), headers: {} }),
  } as unknown as Member['manager'];
}

function idle({ manager, db }: Member): boolean {
  const waiting = rowsOf(db, 'SELECT 1 FROM _peer_state WHERE tail_from IS NOT NULL OR again IS NOT NULL');
  return waiting.length === 0 && manager.health().pending_changes === 0;
}

describe('an acknowledgement from before the latest start', () => {
  const said = (boot: string, t0: number, t: number): string =>
    `id=p; inc=${'e'.repeat(16)}; boot=${boot}; t0=${t0}; t=${t}`;
  const [present, late] = [said('5-aaaaaaaa', 80, 100), said('4-bbbbbbbb', 50, 51)];

  /** A node whose peer answers so, one after the other, and goes on with the last. */
  async function answeredBy(
    answers: string[],
  ): Promise<{ clock: VirtualClock; sent: string[]; acked: number[] } & Made> {
    const clock = new VirtualClock();
    const sent: string[] = [];
    const made = await node({
      id: 'a',
      peers: ['http://p.test'],
      clock,
      random: () => 0,
      fetch: async (_, { body }) => {
        const { batch_id: ack, changes } = JSON.parse(new TextDecoder().decode(body));
        const header = answers[Math.min(sent.length, answers.length - 1)] ?? null;
        sent.push(changes.map(({ row }: { row: { id: string } }) => row.id).join());
        const headers = { get: (name: string) => (name === 'x-rowcast' ? header : null) };
        return { status: 200, text: async () => JSON.stringify({ applied: changes.length, ack }), headers };
      },
    });
    const acked: number[] = [];
    made.manager.on('acked', ({ batchId }) => acked.push(batchId));
    write(made, '1');
    await clock.advance(1_000);
    write(made, '2');
    await clock.advance(1_000);
    return { clock, sent, acked, ...made };
  }

  test('does not count: what it had may be gone', async () => {
    const { sent, acked, manager } = await answeredBy([present, late, present]);
    expect(sent).toEqual(['1', '2', '2']);
    expect(acked).toEqual([1, 2]);
    expect(manager.health()).toMatchObject({ pending_changes: 0 });
  });

  test('is no reason to send again and again without a pause', async () => {
    const { sent, acked, manager } = await answeredBy([present, late]);
    expect(sent.length).toBeGreaterThan(5);
    expect(sent.length).toBeLessThan(25);
    expect(acked).toEqual([1]);
    expect(manager.health()).toMatchObject({ pending_changes: 1 });
  });
});

type Made = Awaited<ReturnType<typeof node>>;

describe('what is said of what is still to come', () => {
  const DAY = 86_400_000;
  const FORGED = 'said by another node, in the name of the same database';

  test.each([
    ['said by itself', 'c', undefined],
    [FORGED, 'x', ['c']],
  ])('%s: tombstones wait for it or not', async (_, by, held) => {
    const clock = new VirtualClock();
    const { manager } = await node({ clock, tombstones: { keep: '7d' } });
    const began = clock.now();
    let tick = 10;
    const say = (id: string, low: number): void => {
      tick += 1;
      const said = `id=${id}; inc=00000000000000cc; boot=1-aaaaaaaa; t0=0; t=${tick}; low=${low}`;
      manager.receive(EMPTY, { said, from: id });
    };
    say('c', began);
    for (let day = 0; day < 12; day++) {
      await clock.jump(DAY);
      say('c', by === 'c' ? clock.now() : began);
      say(by, clock.now());
      await clock.advance(61_000);
    }
    expect(manager.health().tombstones_held_by).toEqual(held);
  });
});
