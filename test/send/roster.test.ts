/** Peers that come, go and pause while the node runs. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { RowcastError } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import { database, exactRows, ITEMS, rowsOf, scratchFolder, until } from '../support/nodes.ts';
import { changeIds, peerRow, type Receivers, receivers, sender, write } from '../support/receivers.ts';
import { settle, VirtualClock } from '../support/virtual-clock.ts';

const A = 'http://a.test';
const B = 'http://b.test';
const C = 'http://c.test';

const attachments = (db: TestDatabase): unknown[] =>
  rowsOf(db, 'SELECT peers FROM _attachments ORDER BY length(peers), peers').map(({ peers }) => peers);
const same = (db: TestDatabase, network: Receivers, ...urls: string[]): void => {
  for (const url of urls) expect(exactRows(network.at(url).db, 'items')).toEqual(exactRows(db, 'items'));
};
async function refusal(act: () => unknown): Promise<RowcastError> {
  try {
    await act();
  } catch (error) {
    if (error instanceof RowcastError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}

describe('add', () => {
  test('gives the new peer everything, and from then on what the others get', async () => {
    const network = await receivers(A, B);
    const db = await database();
    const { manager } = sender(db, network, [A]);
    write(db, 'a', 'b');
    db.exec("DELETE FROM items WHERE id = 'b'");
    await manager.flush();
    expect(changeIds(db)).toEqual([]);
    manager.peers.add(B);
    expect(manager.health().peers).toEqual([A, B]);
    expect(manager.health().peer_states[1]).toMatchObject({ url: B, state: 'unknown', snapshot: true });
    write(db, 'c');
    expect((await manager.flush()).delivered.sort()).toEqual([A, B]);
    same(db, network, A, B);
    expect(network.at(B).all('SELECT * FROM _tombstones')).toHaveLength(1);
    expect(changeIds(db)).toEqual([]);
    expect(attachments(db)).toEqual([JSON.stringify([A, B])]);
  });

  test('takes an object, and any spelling of a URL; one that is there stays as it is', async () => {
    const network = await receivers(A, B);
    const db = await database();
    const { manager } = sender(db, network, [A]);
    manager.peers.add({ url: 'HTTP://B.test:80/' });
    manager.peers.add(B);
    manager.peers.add('http://a.test/');
    expect(manager.peers.list().map(({ url }) => url)).toEqual([A, B]);
    write(db, 'a');
    await manager.flush();
    expect(network.to(B)).toEqual(['a']);
  });

  test.each([
    ['no URL', 'nonsense', /is not a URL/],
    ['another scheme', 'ftp://x', /uses ftp:/],
    ['/sync at its end', 'http://x/sync', /ends in \/sync/],
    ['credentials', 'http://u:p@x', /carries credentials/],
    ['nothing', undefined, /is not a string/],
    ['an object without one', {}, /is not a string/],
  ])('refuses %s, and nothing changes', async (_, peer, message) => {
    const network = await receivers(A);
    const db = await database();
    const { manager } = sender(db, network, [A]);
    const error = await refusal(() => manager.peers.add(peer as string));
    expect(error).toMatchObject({ code: 'INVALID_PEER', message: expect.stringMatching(message) });
    expect(error.hint).toBeDefined();
    expect([manager.health().peers, attachments(db)]).toEqual([[A], [JSON.stringify([A])]]);
  });

  test('refuses what it does not know of a peer', async () => {
    const { manager } = sender(await database(), await receivers(), []);
    const error = await refusal(() => manager.peers.add({ url: A, ulr: 1 } as never));
    expect(error.message).toMatch(/unknown option "ulr"; did you mean url\?/);
  });

  test('inside a transaction of the application is refused, and can be done afterwards', async () => {
    const network = await receivers(A, B);
    const db = await database();
    const { manager } = sender(db, network, [A]);
    db.exec('BEGIN');
    expect(await refusal(() => manager.peers.add(B))).toMatchObject({ code: 'IN_TRANSACTION' });
    expect(await refusal(() => manager.peers.remove(A))).toMatchObject({ code: 'IN_TRANSACTION' });
    expect(await refusal(() => manager.peers.pause(A))).toMatchObject({ code: 'IN_TRANSACTION' });
    db.exec('ROLLBACK');
    expect(manager.peers.list().map(({ url }) => url)).toEqual([A]);
    manager.peers.add(B);
    write(db, 'a');
    expect((await manager.flush()).delivered.sort()).toEqual([A, B]);
  });

  test('and then a crash before anything was sent: the next start gives it everything', async () => {
    const path = join(scratchFolder(), 'node.db');
    const network = await receivers(A, B);
    const db = await database(ITEMS, path);
    const first = sender(db, network, [A]);
    write(db, 'a');
    await first.manager.flush();
    network.away.add(B);
    first.manager.peers.add(B);
    // Another connection sees what a process would that starts after this one was killed: its loops do nothing any more.
    network.away.add(A);
    const again = await database('SELECT 1', path);
    write(again, 'b');
    network.away.clear();
    const second = sender(again, network, [A, B]);
    await second.manager.flush();
    same(again, network, A, B);
  });
});

describe('remove', () => {
  test('ends the loop, and what was kept for that peer alone is released', async () => {
    const network = await receivers(A, B);
    const db = await database();
    const { manager } = sender(db, network, [A, B]);
    network.away.add(B);
    write(db, 'a', 'b');
    await manager.flush();
    expect(changeIds(db)).toEqual([1, 2]);
    await manager.peers.remove(B);
    expect(changeIds(db)).toEqual([]);
    expect([manager.health().peers, attachments(db)]).toEqual([[A], [JSON.stringify([A])]]);
    network.away.clear();
    write(db, 'c');
    expect(await manager.flush()).toEqual({ delivered: [A], unreachable: [] });
    expect(network.at(B).all('SELECT id FROM items')).toEqual([]);
  });

  test('of the last one keeps everything, as for a node without peers', async () => {
    const network = await receivers(A);
    const db = await database();
    const { manager } = sender(db, network, [A]);
    network.away.add(A);
    write(db, 'a');
    await manager.flush();
    await manager.peers.remove(A);
    expect(changeIds(db)).toEqual([1]);
    expect(manager.health()).toMatchObject({ peers: [], pending_changes: 1 });
  });

  test('while a batch is on its way takes it back, and resolves when nothing of it is left', async () => {
    const network = await receivers(A, B);
    const db = await database();
    let pending = 0;
    const clock = new VirtualClock((ms) => ms <= 800);
    const fetch: Receivers['fetch'] = (url, init) => {
      if (!url.startsWith(B)) return network.fetch(url, init);
      pending += 1;
      return new Promise((_, reject) => {
        init.signal?.addEventListener('abort', () => {
          pending -= 1;
          reject(new Error('taken back'));
        });
      });
    };
    const { manager, events } = sender(db, { ...network, fetch }, [A, B], {}, clock);
    write(db, 'a');
    await until('a batch is on its way to b', () => pending === 1);
    await until('a has it', () => network.to(A).length === 1);
    await manager.peers.remove(B);
    expect(pending).toBe(0);
    await until('nothing is kept', () => changeIds(db).length === 0);
    expect(events).toEqual([`peer-up ${A}`]);
  });

  test('and added again while its loop is still ending: it is seeded by one loop', async () => {
    const network = await receivers(A, B);
    const db = await database();
    const { manager } = sender(db, network, [A, B]);
    write(db, 'a');
    await manager.flush();
    const removed = manager.peers.remove(B);
    write(db, 'b');
    manager.peers.add(B);
    await removed;
    await manager.flush();
    same(db, network, A, B);
    await manager.peers.remove(B);
    write(db, 'c');
    await manager.flush();
    expect(changeIds(db)).toEqual([]);
    manager.peers.add(B);
    await manager.flush();
    same(db, network, A, B);
  });

  test.each(['remove', 'pause', 'resume', 'reseed'] as const)(
    '%s of somebody who is no peer says who is',
    async (verb) => {
      const { manager } = sender(await database(), await receivers(A), [A]);
      const error = await refusal(() => manager.peers[verb]('http://aa.test'));
      expect(error).toMatchObject({ code: 'INVALID_PEER', hint: `the peers are ${A}` });
      expect(error.message).toContain(`http://aa.test is not among the peers; did you mean ${A}?`);
    },
  );
});

describe('pause', () => {
  test('sends nothing and keeps everything, receives as ever, and resume goes on where it was', async () => {
    const network = await receivers(A, B);
    const db = await database();
    const { manager } = sender(db, network, [A, B]);
    write(db, 'a');
    await manager.flush();
    const acked = manager.health().peer_states[1]?.last_acked_at;
    await manager.peers.pause(B);
    write(db, 'b');
    expect(await manager.flush()).toEqual({ delivered: [A], unreachable: [B] });
    expect(network.to(B)).toEqual(['a']);
    expect(changeIds(db)).toEqual([2]);
    expect(manager.health().peer_states).toMatchObject([
      { url: A, paused: false, pending: 0 },
      { url: B, paused: true, stale: false, state: 'unknown', pending: 1, last_acked_at: acked },
    ]);
    expect(manager.peers.list()[1]).toMatchObject({ url: B, paused: true });
    manager.applyChanges([{ op: 'INSERT', table: 'items', row: { id: 'r', updated_at: 5 }, old_id: null }]);
    expect(rowsOf(db, "SELECT 1 AS n FROM items WHERE id = 'r'")).toHaveLength(1);
    manager.peers.resume(B);
    expect((await manager.flush()).delivered.sort()).toEqual([A, B]);
    expect(network.to(B)).toEqual(['a', 'b']);
    expect(changeIds(db)).toEqual([]);
  });

  test('outlives a restart; nothing is lost meanwhile', async () => {
    const network = await receivers(A, B);
    const db = await database();
    const first = sender(db, network, [A, B]);
    await first.manager.peers.pause(B);
    await first.manager.stop();
    const second = sender(db, network, [A, B]);
    write(db, 'a');
    expect(await second.manager.flush()).toEqual({ delivered: [A], unreachable: [B] });
    expect(second.manager.peers.list()).toMatchObject([{ paused: false }, { paused: true }]);
    second.manager.peers.resume(B);
    await second.manager.flush();
    same(db, network, A, B);
    await second.manager.stop();
    const third = sender(db, network, [A, B]);
    expect(third.manager.peers.list()).toMatchObject([{ paused: false }, { paused: false }]);
  });

  test('holds for another process on the file, which also resumes', async () => {
    const path = join(scratchFolder(), 'shared.db');
    const network = await receivers(A);
    const db = await database(ITEMS, path);
    const one = sender(db, network, [A]);
    const other = sender(await database('SELECT 1', path), network, [A]);
    await one.manager.peers.pause(A);
    await other.clock.advance(100);
    write(db, 'a');
    expect((await other.manager.flush()).unreachable).toEqual([A]);
    other.manager.peers.resume(A);
    await one.clock.advance(100);
    await settle();
    expect((await one.manager.flush()).delivered).toEqual([A]);
    expect(network.to(A)).toContain('a');
  });

  test('takes back what is on its way, and ends with remove', async () => {
    const network = await receivers(A);
    const db = await database();
    const { manager } = sender(db, network, [A]);
    await manager.peers.pause(A);
    await manager.peers.pause(A);
    await manager.peers.remove(A);
    manager.peers.add(A);
    write(db, 'a');
    expect((await manager.flush()).delivered).toEqual([A]);
  });
});

test('reseed gives everything once more, while nothing is written', async () => {
  const network = await receivers(A);
  const db = await database();
  const { manager } = sender(db, network, [A]);
  write(db, 'a', 'b');
  await manager.flush();
  network.at(A).db.exec('DELETE FROM items; DELETE FROM _tombstones');
  manager.peers.reseed(A);
  expect(manager.peers.list()).toMatchObject([{ url: A, snapshot: true }]);
  await manager.flush();
  same(db, network, A);
  expect(manager.peers.list()).toMatchObject([{ url: A, snapshot: false }]);
});

test('a change of peers is known to other processes on the file, and forgotten when it is stopped', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const network = await receivers(A, B, C);
  const db = await database(ITEMS, path);
  const one = sender(db, network, [A]);
  const otherDb = await database('SELECT 1', path);
  const other = sender(otherDb, network, [C]);
  network.away.add(B);
  one.manager.peers.add(B);
  expect(attachments(db)).toEqual([JSON.stringify([C]), JSON.stringify([A, B])]);
  write(db, 'a');
  await other.manager.flush();
  await one.manager.flush();
  expect(changeIds(db)).toEqual([1]);
  network.away.clear();
  await one.manager.flush();
  expect(changeIds(db)).toEqual([]);
  same(db, network, A, B, C);
  await one.manager.stop();
  expect(attachments(otherDb)).toEqual([JSON.stringify([C])]);
});

test('a second process with the same peers enters again when the first has changed its own', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const network = await receivers(A, B);
  const db = await database(ITEMS, path);
  const one = sender(db, network, [A, B]);
  const other = sender(await database('SELECT 1', path), network, [A, B]);
  await one.manager.peers.remove(B);
  expect(attachments(db)).toEqual([JSON.stringify([A])]);
  await other.clock.advance(100);
  expect(attachments(db)).toEqual([JSON.stringify([A]), JSON.stringify([A, B])]);
  write(db, 'a');
  await one.manager.flush();
  await other.manager.flush();
  same(db, network, A, B);
});

test('a node that has stopped takes no change of its peers', async () => {
  const { manager } = sender(await database(), await receivers(A), [A]);
  await manager.stop();
  for (const act of [
    () => manager.peers.add(B),
    () => manager.peers.remove(A),
    () => manager.peers.pause(A),
    () => manager.peers.resume(A),
    () => manager.peers.reseed(A),
    () => manager.peers.list(),
    () => manager.configure({ batchMs: 5 }),
  ]) {
    expect(await refusal(act)).toMatchObject({ code: 'STOPPED' });
  }
});

describe('configure', () => {
  test('changes the pace of the loops that run', async () => {
    const network = await receivers(A);
    const db = await database();
    const { manager, clock } = sender(db, network, [A], {}, new VirtualClock(() => false));
    manager.configure({ batchSize: 2, batchMs: 700 });
    await settle();
    write(db, 'a', 'b', 'c', 'd', 'e');
    await clock.advance(1_000);
    expect(network.sent.map(({ changes }) => changes.length)).toEqual([2, 2, 1]);
    expect(clock.requested).toContain(700);
    expect(peerRow(db, A).last_acked).toBe(5);
  });

  test.each([
    ['a setting that is read once', { id: 'x' }, /unknown option "id".*start again to change them/],
    ['an unknown one', { batchsize: 5 }, /unknown option "batchsize"; did you mean batchSize\?/],
    ['a wrong value', { batchMs: 0 }, /"batchMs" must be an integer from 1/],
    ['a wrong bound', { maxBacklog: { changes: 'much' } }, /"maxBacklog.changes" must be an integer from 1, or "auto"/],
    ['a misspelt bound', { maxBacklog: { byte: 5 } }, /unknown option "maxBacklog.byte"; did you mean bytes\?/],
    ['a bound of no kind', { maxBacklog: 5 }, /"maxBacklog" must be "unlimited" or an object/],
  ])('refuses %s, and changes nothing of the rest', async (_, settings, message) => {
    const network = await receivers(A);
    const db = await database();
    const { manager } = sender(db, network, [A], { batchSize: 3 });
    const error = await refusal(() => manager.configure({ batchSize: 1, ...settings } as never));
    expect(error).toMatchObject({ code: 'INVALID_OPTION', message: expect.stringMatching(message) });
    write(db, 'a', 'b', 'c');
    await manager.flush();
    expect(network.sent.map(({ changes }) => changes.length)).toEqual([3]);
  });
});
