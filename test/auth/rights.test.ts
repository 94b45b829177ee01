/** Rights by key: at the door of a node and of a hub, and where they ask for rows themselves. */
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { type AuthOptions, createKeyring, type KeyOptions } from '../../src/auth/index.ts';
import { Cluster, hubIds, ids, settled, write } from '../support/cluster.ts';
import { until } from '../support/nodes.ts';

const key = (id: string, nodes: string[], more: Partial<KeyOptions> = {}): KeyOptions => ({
  ...{ id, secret: createHash('sha256').update(id).digest('base64'), nodes },
  ...more,
});
const keys = (...list: KeyOptions[]): { auth: AuthOptions } => ({ auth: { keys: list } });

describe('a reader', () => {
  test('is sent everything, and what it writes stays with it, also where it is asked for it', async () => {
    const cluster = new Cluster();
    const verify = false as const;
    const a = await cluster.node('a', ['b'], { ...keys(key('ka', ['a']), key('kb', ['b'], { write: [] })), verify });
    const b = await cluster.node('b', ['a'], { ...keys(key('kb', ['b']), key('ka', ['a'])), verify });
    const warnings: string[] = [];
    a.manager.on('warning', ({ code }) => warnings.push(code));
    write(a, 'of-a');
    await until('b has it', () => ids(b) === 'of-a');
    await b.manager.flush();
    write(b, 'of-b');
    await until('b keeps it as a letter', () => b.manager.deadLetters.list().length === 1);
    expect(b.manager.deadLetters.list()).toMatchObject([{ direction: 'out', code: 'forbidden', rowId: 'of-b' }]);
    expect([ids(a), warnings.includes('forbidden')]).toEqual(['of-a', true]);
    expect([a.manager.health().dead_letter, b.manager.health().pending_changes]).toEqual([0, 0]);
    const [found] = await a.manager.verify(cluster.url('b'), { repair: true });
    expect(found).toMatchObject({ equal: false, differences: 1 });
    expect(ids(a)).toBe('of-a');
    // Nor by a seed, which compares and fetches what is newer there.
    a.manager.peers.reseed(cluster.url('b'));
    await a.manager.flush();
    await until('it is over', () => a.manager.health().peer_states[0]?.snapshot === false);
    expect(ids(a)).toBe('of-a');
  });

  test('may write again when its key allows it, without a restart', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', [], keys(key('ka', ['a']), key('kb', ['b'], { write: ['other'] })));
    const b = await cluster.node('b', ['a'], keys(key('kb', ['b']), key('ka', ['a'])));
    await b.manager.flush();
    write(b, 'x');
    await until('b keeps it as a letter', () => b.manager.deadLetters.list().length === 1);
    a.manager.configure(keys(key('ka', ['a']), key('kb', ['b'], { write: ['ITEMS'] })));
    b.manager.deadLetters.retry(b.manager.deadLetters.list()[0]?.id as number);
    await settled('x', a, b);
  });
});

test('the rights of an edge are those that its hub gives it', async () => {
  const cluster = new Cluster();
  const own = (id: string, more?: Partial<KeyOptions>): KeyOptions => key(`k-${id}`, [id, 'hub'], more);
  const names = ['a', 'b'];
  const sign = Object.fromEntries(names.map((name) => [cluster.url(name), `k-${name}`]));
  const auth = { keys: [own('a', { write: [] }), own('b')], sign };
  const hub = await cluster.hub('hub', names, { auth, verify: false });
  const a = await cluster.node('a', ['hub'], { ...keys(own('a')), verify: false });
  const b = await cluster.node('b', ['hub'], { ...keys(own('b')), verify: false });
  write(b, 'of-b');
  await settled('of-b', a, b);
  await a.manager.flush();
  write(a, 'of-a');
  await until('a keeps it as a letter', () => a.manager.deadLetters.list().length === 1);
  expect(hubIds(hub)).toBe('of-b');
  expect(await hub.hub.verify(cluster.url('a'), { repair: true })).toMatchObject([{ equal: false, differences: 1 }]);
  expect([hubIds(hub), ids(b)]).toEqual(['of-b', 'of-b']);
  expect((await hub.hub.health()).dead_letter).toBe(0);
});

describe('a reader that answers under the id of another', () => {
  const verify = false as const;

  test('is not believed where its key names those who may use it', async () => {
    const cluster = new Cluster();
    const [shared, readers] = [key('k', ['a', 'b']), key('kr', ['a', 'reader'], { write: [] })];
    const sign = { [cluster.url('reader')]: 'kr' };
    const a = await cluster.node('a', ['reader'], { auth: { keys: [shared, readers], sign }, verify });
    const reader = await cluster.node('reader', [], { ...keys(key('kr', ['a', 'b', 'reader'])), verify, id: 'b' });
    write(reader, 'forged');
    const [found] = await a.manager.verify(cluster.url('reader'), { repair: true });
    expect(found?.error).toMatch(/node "b" answers with the key "kr", which is not for it: name it in "nodes"/);
    expect([ids(a), a.manager.health().peer_states[0]?.pinned]).toEqual(['', null]);
  });

  test('is held to the least of all keys where that names nobody but who asks', async () => {
    const cluster = new Cluster();
    const all = [key('ka', ['a']), key('kb', ['b']), key('kr', ['reader'], { write: [] })];
    const a = await cluster.node('a', ['reader'], { ...keys(...all), verify });
    const reader = await cluster.node('reader', [], { ...keys(key('ka', ['a'])), verify, id: 'b' });
    write(reader, 'forged');
    const [found] = await a.manager.verify(cluster.url('reader'), { repair: true });
    expect(found).toMatchObject({ equal: false, differences: 1 });
    expect(ids(a)).toBe('');
  });
});

test('a node that is refused at one URL does not stop the one that it says it is', async () => {
  const cluster = new Cluster();
  const auth = { keys: [key('k', ['*'])], peerIds: { [cluster.url('b')]: 'b', [cluster.url('c')]: 'c' } };
  const a = await cluster.node('a', ['b', 'c'], { auth, verify: false });
  const b = await cluster.node('b', [], { ...keys(key('k', ['*'])), verify: false });
  await cluster.node('c', [], { ...keys(key('k', ['*'])), verify: false, id: 'b' });
  write(a, 'first');
  await until('c is refused', () => a.manager.peers.list().some(({ state }) => state === 'down'));
  write(a, 'second');
  await until('b has both', () => ids(b) === 'first second');
});

test('a change that names no table is not kept of a sender that may not write all', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', [], { verify: false });
  const rights = { write: new Set(['notes']), rowless: false };
  const row = { id: 'x', name: 'n', value: 1, created_at: 1, updated_at: 1_000 };
  const changes = [null, ['items'], 7, {}, undefined].map((table) => ({ op: 'INSERT', table, row, old_id: null }));
  const answer = a.manager.receive(JSON.stringify({ batch_id: 1, changes }), { from: 'reader', rights });
  expect(answer.body).toMatchObject({ applied: 0, rejected: changes.map(() => ({ code: 'forbidden' })) });
  expect(a.manager.deadLetters.list()).toEqual([]);
});

describe('what a node may write that is asked for rows', () => {
  const PEER = 'http://peer.test';
  const rightsOf = (id: string, auth: AuthOptions): unknown => createKeyring(auth).rightsOf(id, PEER);
  const everybody = key('all', ['*'], { write: ['shared'] });
  const some = key('some', ['b', 'c'], { write: ['Items'], rowless: true });
  const more = key('more', ['b'], { write: ['notes'] });

  test('is what the keys that name it allow, where one of them is what it answers with', () => {
    const sign = { [PEER]: 'some' };
    const both = { write: new Set(['items', 'notes']), rowless: true };
    expect(rightsOf('b', { keys: [everybody, some, more], sign })).toEqual(both);
    expect(rightsOf('c', { keys: [everybody, some, more], sign })).toEqual({
      write: new Set(['items']),
      rowless: true,
    });
    // Or where that is the node which must be there.
    expect(rightsOf('b', { keys: [everybody, some, more], peerIds: { [PEER]: 'b' } })).toEqual(both);
  });

  test('is what a key for everybody allows, where it answers with that', () => {
    const shared = { write: new Set(['shared']), rowless: false };
    expect(rightsOf('b', { keys: [everybody, some, more] })).toEqual(shared);
    expect(rightsOf('d', { keys: [everybody, some, more] })).toEqual(shared);
    expect(rightsOf('d', { keys: [key('k', ['*'])] })).toEqual({ write: undefined, rowless: false });
  });

  test('is what all keys allow, where it answers with one that does not name it', () => {
    const own = key('own', ['a']);
    expect(rightsOf('b', { keys: [own, more] })).toEqual({ write: new Set(['notes']), rowless: false });
    expect(rightsOf('b', { keys: [own, some, more] })).toEqual({ write: new Set(), rowless: false });
    expect(rightsOf('d', { keys: [some] })).toEqual({ write: new Set(), rowless: false });
  });

  test('of a key that is written wrongly is an error', () => {
    const wrong =
      (more: object): unknown =>
      () =>
        createKeyring({ keys: [{ ...key('k', ['*']), ...more }] });
    expect(wrong({ write: 'items' })).toThrow(/"write" of key "k" must be an array of names of tables/);
    expect(wrong({ write: [''] })).toThrow(/"write" of key "k"/);
    expect(wrong({ rowless: 'yes' })).toThrow(/"rowless" of key "k" must be true or false/);
  });
});
