/**
 * Nodes of which not all hear all: what a third has written may be below the floor of one that never had it. That is no
 * deletion, whoever compares, and nothing of it may be lost.
 */
import { expect, test } from 'vitest';
import { Cluster, ids, type Member, settled } from '../support/cluster.ts';
import { collect } from '../support/collect.ts';
import { rowsOf, until } from '../support/nodes.ts';

const T = 1_600_000_000_000;

function insert({ db }: Member, id: string, at: number): void {
  db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, ?)').run(id, id, at);
}

/** a - b - c: what a writes does not get to c. And c has forgotten a deletion that is later than that. */
async function chain(): Promise<{ cluster: Cluster; a: Member; b: Member; c: Member }> {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b'], { verify: false });
  const b = await cluster.node('b', ['a', 'c'], { verify: false });
  const c = await cluster.node('c', ['b'], { verify: false });
  insert(a, 'never-deleted', T);
  await settled('never-deleted', a, b);
  insert(b, 'gone', T + 10);
  await until('c has it', () => ids(c) === 'gone');
  b.db.exec("DELETE FROM items WHERE id = 'gone'");
  await until(
    'c has heard of the deletion',
    () => ids(c) === '' && rowsOf(c.db, 'SELECT 1 FROM _tombstones').length === 1,
  );
  await Promise.all([a, b, c].map(({ manager }) => manager.flush()));
  collect(c.db);
  return { cluster, a, b, c };
}

test.each(['b', 'c'] as const)(
  'a row that was never deleted is not deleted by a comparison that %s makes',
  async (who) => {
    const { cluster, a, b, c } = await chain();
    const asker = who === 'b' ? b : c;
    const [result] = await asker.manager.verify(cluster.url(who === 'b' ? 'c' : 'b'), { repair: true });
    expect(result?.error).toBeUndefined();
    expect([ids(a), ids(b)]).toEqual(['never-deleted', 'never-deleted']);
    // It is kept where it cannot be told from a deleted one, and a person decides.
    expect(c.manager.deadLetters.list().map(({ code, rowId }) => [code, rowId])).toEqual([
      ['below-floor', 'never-deleted'],
    ]);
    const [again] = await asker.manager.verify(cluster.url(who === 'b' ? 'c' : 'b'), { repair: true });
    expect(again?.error).toBeUndefined();
    expect(ids(b)).toBe('never-deleted');
    expect(c.manager.deadLetters.list()).toHaveLength(1);
  },
);

test('nor by a seed', async () => {
  const { cluster, a, b, c } = await chain();
  // So that there is something of its own to walk.
  insert(c, 'zz', Date.now());
  await until('b has it', () => ids(b).includes('zz'));
  c.manager.peers.reseed(cluster.url('b'));
  await until('it is over', () => c.manager.peers.list().every(({ snapshot }) => !snapshot));
  expect([ids(a), ids(b)]).toEqual(['never-deleted', 'never-deleted zz']);
  expect(c.manager.deadLetters.list().map(({ code }) => code)).toEqual(['below-floor']);
});

/** All know each other, and have one row. */
async function triangle() {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b', 'c'], { verify: false });
  const b = await cluster.node('b', ['a', 'c'], { verify: false });
  const c = await cluster.node('c', ['a', 'b'], { verify: false });
  insert(a, 'first', T);
  await settled('first', a, b, c);
  return { cluster, a, b, c };
}

test('nor where all know each other, and the one that wrote it was forgotten before it could deliver it', async () => {
  const { cluster, a, b, c } = await triangle();
  cluster.cut.add(cluster.url('c'));
  insert(a, 'never-deleted', T + 1);
  await settled('first never-deleted', a, b);
  await a.stop();
  cluster.cut.clear();
  insert(b, 'gone', T + 10);
  b.db.exec("DELETE FROM items WHERE id = 'gone'");
  await until('c has heard of the deletion', () => rowsOf(c.db, 'SELECT 1 FROM _tombstones').length === 1);
  await until('and all is noted', () => rowsOf(b.db, 'SELECT inc FROM _peer_state WHERE inc IS NOT NULL').length === 2);
  c.manager.forget('a');
  collect(c.db);
  const [result] = await b.manager.verify(cluster.url('c'), { repair: true });
  expect(result?.error).toBeUndefined();
  expect(ids(b)).toBe('first never-deleted');
  expect(c.manager.deadLetters.list().map(({ code, rowId }) => [code, rowId])).toEqual([
    ['below-floor', 'never-deleted'],
  ]);
});

test('nor where the one that wrote it was forgotten, and is heard again before it has delivered it', async () => {
  const { cluster, a, b, c } = await triangle();
  await a.manager.peers.pause(cluster.url('c'));
  insert(a, 'never-deleted', T + 1);
  await settled('first never-deleted', a, b);
  insert(b, 'gone', T + 10);
  b.db.exec("DELETE FROM items WHERE id = 'gone'");
  await until('c has heard of the deletion', () => rowsOf(c.db, 'SELECT 1 FROM _tombstones').length === 1);
  c.manager.forget('a');
  collect(c.db);
  // It brings nothing, but it answers.
  insert(c, 'later', Date.now());
  await until('a has it', () => ids(a).includes('later'));
  await c.manager.flush();
  const [result] = await b.manager.verify(cluster.url('c'), { repair: true });
  expect(result?.error).toBeUndefined();
  expect(ids(b)).toContain('never-deleted');
});

test.each(['removed', 'never named', 'stale'])(
  'nor what a node has not sent, because the other was %s there',
  async (how) => {
    const cluster = new Cluster();
    const a = await cluster.node('a', how === 'never named' ? [] : ['b'], { verify: false });
    const b = await cluster.node('b', ['a'], { verify: false });
    insert(b, 'first', T);
    await settled('first', a, b);
    insert(b, 'gone', T + 10);
    b.db.exec("DELETE FROM items WHERE id = 'gone'");
    await b.manager.flush();
    if (how === 'removed') await a.manager.peers.remove(cluster.url('b'));
    if (how === 'stale') await a.manager.peers.pause(cluster.url('b'));
    insert(a, 'never-deleted', T + 1);
    // Nothing is kept for it any more.
    if (how === 'stale') a.db.exec('UPDATE _peer_state SET stale = 1; DELETE FROM _changes');
    collect(b.db);
    const [result] = await b.manager.verify(cluster.url('a'), { repair: true });
    expect(result?.error).toBeUndefined();
    expect(ids(a)).toContain('never-deleted');
  },
);

test.each(['removed', 'added again, and not reached since', 'never named'])(
  'nor what a hub has not sent, because its edge was %s',
  async (how) => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['hub'], { verify: false });
    const b = await cluster.node('b', ['hub'], { verify: false });
    const { hub } = await cluster.hub('hub', how === 'never named' ? ['a'] : ['a', 'b'], { verify: false });
    insert(b, 'first', T);
    await settled('first', a, b);
    insert(b, 'gone', T + 10);
    b.db.exec("DELETE FROM items WHERE id = 'gone'");
    await b.manager.flush();
    if (how !== 'never named') await hub.edges.remove(cluster.url('b'));
    cluster.cut.add(cluster.url('b'));
    if (how.startsWith('added')) await hub.edges.add(cluster.url('b'));
    insert(a, 'never-deleted', T + 1);
    await a.manager.flush();
    collect(b.db);
    const [result] = await b.manager.verify(cluster.url('hub'), { repair: true });
    expect(result?.error).toBeUndefined();
    await hub.flush();
    expect(ids(a)).toContain('never-deleted');
    expect(b.manager.deadLetters.list().map(({ code, rowId }) => [code, rowId])).toEqual([
      ['below-floor', 'never-deleted'],
    ]);
  },
);
