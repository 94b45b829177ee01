/** A peer that is away for too long: nothing is kept for it, nobody else notices, and it is seeded when it is back. */
import { describe, expect, test } from 'vitest';
import { PRUNE_SLICE } from '../../src/send/prune.ts';
import { A, away, B, MINUTE, writeMany } from '../support/away.ts';
import type { TestDatabase } from '../support/lane.ts';
import { database, exactRows, rowsOf } from '../support/nodes.ts';
import { changeIds, peerRow, type Receivers, receivers, sender, write } from '../support/receivers.ts';

const same = (db: TestDatabase, network: Receivers, url: string): void => {
  expect(exactRows(network.at(url).db, 'items')).toEqual(exactRows(db, 'items'));
  const tombstones = 'SELECT table_name, row_id, version FROM _tombstones ORDER BY 1, 2';
  expect(rowsOf(network.at(url).db, tombstones)).toEqual(rowsOf(db, tombstones));
};

describe('a peer that is down', () => {
  test('stays as it is up to the limit; one change more makes it stale, once, and the changes go', async () => {
    const { db, told, minute, manager } = await away({ changes: 3 });
    write(db, 'a', 'b', 'c');
    await minute();
    expect([told, changeIds(db)]).toEqual([[], [2, 3, 4]]);
    write(db, 'd');
    await minute();
    await minute();
    expect(told).toEqual([{ peer: B, changes: 4, bytes: expect.any(Number) }]);
    const mean = (told[0]?.bytes ?? 0) / 4;
    expect(mean).toBeGreaterThan(60);
    expect(mean).toBeLessThan(120);
    expect(changeIds(db)).toEqual([]);
    const state = manager.health().peer_states[1];
    expect(state).toMatchObject({ stale: true, snapshot: false, state: 'down', pending: 5 });
    expect(state?.lag_ms).toBeGreaterThan(MINUTE);
    expect(manager.health()).toMatchObject({ ok: true, pending_changes: 5 });
    expect(manager.peers.list()[1]).toMatchObject({ stale: true });
  });

  test('is seeded when it is back, and goes on after that; its deletions come, too', async () => {
    const { db, minute, manager, network, events } = await away({ changes: 2 });
    write(db, 'a', 'b', 'c');
    db.exec("DELETE FROM items WHERE id IN ('first', 'b')");
    await minute();
    expect(changeIds(db)).toEqual([]);
    network.away.clear();
    const before = network.to(B).length;
    write(db, 'd');
    await manager.flush();
    same(db, network, B);
    expect(manager.health().peer_states[1]).toMatchObject({ stale: false, snapshot: false, pending: 0, lag_ms: 0 });
    // One row to see whether it is there, or a batch that was being tried when it came back; then everything, and `d`, which
    // was there already, not once more.
    const sent = network.to(B).slice(before);
    expect(sent.slice(-5)).toEqual(['a', 'c', 'd', 'b', 'first']);
    expect([['a'], ['a', 'b', 'c', 'first', 'b']]).toContainEqual(sent.slice(0, -5));
    const after = network.to(B).length;
    write(db, 'e');
    await manager.flush();
    expect(network.to(B).slice(after)).toEqual(['e']);
    expect(changeIds(db)).toEqual([]);
    expect(events.filter((event) => event.endsWith(B))).toEqual([
      `peer-up ${B}`,
      `peer-down ${B}`,
      `peer-stale ${B}`,
      `peer-up ${B}`,
    ]);
  });

  test('counts again from the beginning of its seed: what is written meanwhile is kept, and may be too much again', async () => {
    const { db, minute, manager, network, told } = await away({ changes: 2 }, { batchSize: 1 });
    write(db, 'a', 'b', 'c');
    await minute();
    network.away.clear();
    let answered = 0;
    manager.on('acked', ({ peer }) => {
      if (peer === B && ++answered === 2) network.away.add(B);
    });
    await manager.flush();
    expect(manager.peers.list()[1]).toMatchObject({ stale: false, snapshot: true });
    write(db, 'd');
    await minute();
    expect(changeIds(db)).toEqual([5]);
    write(db, 'e', 'f');
    await minute();
    expect(told).toHaveLength(2);
    expect(changeIds(db)).toEqual([]);
    network.away.clear();
    await manager.flush();
    same(db, network, B);
  });

  test('stays stale over a restart, and until it answers', async () => {
    const first = await away({ changes: 2 });
    const { db, network } = first;
    write(db, 'a', 'b', 'c');
    await first.minute();
    await first.manager.stop();
    const second = sender(db, network, [A, B], { maxBacklog: { changes: 2 } });
    write(db, 'd', 'e', 'f', 'g');
    await second.manager.flush();
    await second.clock.advance(MINUTE);
    expect(second.manager.health().peer_states[1]).toMatchObject({ stale: true });
    expect(changeIds(db)).toEqual([]);
    expect(peerRow(db, B)).toMatchObject({ stale: 1, last_acked: 1 });
    network.away.clear();
    await second.manager.flush();
    same(db, network, B);
  });

  test('is seeded, too, where an answer comes to what was under way when it became stale', async () => {
    const network = await receivers(A, B);
    const db = await database();
    let release = (): void => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let holding = false;
    const fetch: Receivers['fetch'] = async (url, init) => {
      const answer = await network.fetch(url, init);
      if (holding && url.startsWith(B)) await held;
      return answer;
    };
    const { manager, clock } = sender(db, { ...network, fetch }, [A, B], { maxBacklog: { changes: 1 } });
    write(db, 'a');
    await manager.flush();
    holding = true;
    write(db, 'b');
    await clock.advance(1_000);
    write(db, 'c', 'd');
    // As the bound does it; the batch with `b` is on its way.
    db.exec(`UPDATE _peer_state SET stale = 1 WHERE peer_url = '${B}'`);
    await clock.advance(1_000);
    expect(changeIds(db)).toEqual([]);
    holding = false;
    release();
    await clock.advance(1_000);
    await manager.flush();
    same(db, network, B);
    expect(peerRow(db, B)).toMatchObject({ stale: 0, tail_from: null, last_acked: 4 });
  });

  test('refuses the row that was to show whether it is back: that is an answer, and no letter of its own', async () => {
    const network = await receivers(A, B);
    const db = await database();
    let refusing = false;
    const fetch: Receivers['fetch'] = async (url, init) => {
      if (refusing && url.startsWith(B)) return { status: 400, text: async () => '{"error":"no"}' };
      return network.fetch(url, init);
    };
    const { manager, clock } = sender(db, { ...network, fetch }, [A, B], { maxBacklog: { changes: 1 } });
    const letters: unknown[] = [];
    manager.on('dead-letter', (letter) => letters.push(letter));
    write(db, 'a');
    await manager.flush();
    network.away.add(B);
    write(db, 'b', 'c');
    await manager.flush();
    await clock.advance(MINUTE);
    expect(manager.peers.list()[1]).toMatchObject({ stale: true });
    refusing = true;
    await manager.flush();
    expect(manager.peers.list()[1]).toMatchObject({ stale: false });
    expect(letters.length).toBe(3);
  });

  test('where there is neither a row nor a tombstone is not waited for', async () => {
    const { db, minute, network, manager } = await away({ changes: 1 });
    write(db, 'a', 'b', 'c');
    await minute();
    db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'; DELETE FROM items; DELETE FROM _tombstones");
    db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
    await manager.flush();
    network.away.clear();
    write(db, 'd');
    await manager.flush();
    expect(network.at(B).all("SELECT id FROM items WHERE id = 'd'")).toHaveLength(1);
    expect(peerRow(db, B)).toMatchObject({ stale: 0, tail_from: null });
  });
});

test('a paused peer is bounded alike, and seeded when it is resumed', { tags: 'long' }, async () => {
  const { db, network, clock, manager, told } = await away({ changes: 2 });
  network.away.clear();
  await manager.peers.pause(B);
  write(db, 'a', 'b', 'c');
  await manager.flush();
  await clock.advance(MINUTE);
  expect(told).toMatchObject([{ peer: B, changes: 3 }]);
  expect(changeIds(db)).toEqual([]);
  manager.peers.reseed(B);
  expect(manager.peers.list()[1]).toMatchObject({ stale: true, paused: true });
  manager.peers.resume(B);
  await manager.flush();
  same(db, network, B);
});

test('a peer that is up is never stale, however far it is behind', async () => {
  const { db, network, minute, told, manager } = await away({ changes: 1 });
  network.away.clear();
  await manager.flush();
  write(db, 'a', 'b', 'c', 'd');
  await minute();
  expect(told).toEqual([]);
});

test('where all are stale nothing is kept', async () => {
  const { db, network, minute, told, manager } = await away({ changes: 1 });
  network.away.add(A);
  write(db, 'a', 'b', 'c');
  await minute();
  expect(told).toHaveLength(2);
  expect(changeIds(db)).toEqual([]);
  network.away.clear();
  await manager.flush();
  same(db, network, A);
  same(db, network, B);
});

describe('the limit', () => {
  test('in bytes', async () => {
    const { db, minute, told } = await away({ bytes: 1_000 });
    write(db, 'a', 'b');
    await minute();
    expect(told).toEqual([]);
    db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run('big', 'x'.repeat(3_000));
    await minute();
    expect(told).toMatchObject([{ peer: B, changes: 3 }]);
    expect(told[0]?.bytes).toBeGreaterThan(1_000);
  });

  test('in time', async () => {
    const { db, minute, told, clock, manager } = await away({ ageMs: 5 * MINUTE });
    write(db, 'a');
    await minute();
    await clock.jump(2 * MINUTE);
    expect(told).toEqual([]);
    await clock.jump(3 * MINUTE);
    await manager.flush();
    expect(told).toMatchObject([{ peer: B, changes: 1 }]);
  });

  test('can be changed at run time', async () => {
    const { db, minute, told, manager } = await away(undefined);
    write(db, 'a', 'b', 'c');
    await minute();
    expect(told).toEqual([]);
    manager.configure({ maxBacklog: { changes: 2 } });
    await minute();
    expect(told).toMatchObject([{ peer: B, changes: 3 }]);
  });
});

test('changes that another implementation recorded are kept: no seed would have their deletions', async () => {
  const { db, minute, told } = await away({ changes: 1 });
  write(db, 'a', 'b', 'c');
  db.exec("INSERT INTO _meta VALUES ('adopted_upto', 2)");
  await minute();
  expect(told).toEqual([]);
  expect(changeIds(db)).toEqual([2, 3, 4]);
});

test('a large backlog is deleted in slices, one a tick', async () => {
  const { db, network, clock, manager } = await away('unlimited');
  writeMany(db, 1, 12_000);
  await manager.flush();
  network.away.add(A);
  expect(changeIds(db)).toHaveLength(12_000);
  await manager.peers.remove(B);
  clock.skip = () => false;
  const left = [changeIds(db).length];
  while ((left.at(-1) as number) > 0) {
    // At most one tick at a time.
    await clock.advance(39);
    left.push(changeIds(db).length);
  }
  expect(left).toEqual([12_000 - PRUNE_SLICE, 12_000 - 2 * PRUNE_SLICE, 0]);
});
