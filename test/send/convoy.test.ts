/** Peers at the same place are sent the same bytes, which were read once, and what they acknowledge is noted together. */
import { describe, expect, test } from 'vitest';
import { Convoy } from '../../src/send/convoy.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { acknowledged, recordingFetch } from '../support/bad-servers.ts';
import { database, node, rowsOf, type TestNode } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const PEERS = ['http://a.test', 'http://b.test', 'http://c.test'];

/** The first id of `_changes` is taken by nobody: a change has the number of its row. */
function write({ db }: TestNode, from: number, upTo: number): void {
  db.exec('BEGIN');
  const insert = db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)');
  for (let i = from; i <= upTo; i++) insert.run(`row-${i}`, 'n');
  db.exec('COMMIT');
}

async function sender(options: { peers?: string[]; batchSize?: number } = {}) {
  const clock = new VirtualClock();
  const network = recordingFetch(acknowledged);
  const bodies: { url: string; body: Uint8Array }[] = [];
  const fetch: typeof network.fetch = (url, init) => {
    bodies.push({ url: new URL(url).origin, body: init.body });
    return network.fetch(url, init);
  };
  const common = { id: 'sender', peers: PEERS, clock, random: () => 0, batchSize: 1_000, fetch };
  const one = await node({ ...common, ...options });
  const to = (url: string): Uint8Array[] => bodies.filter((sent) => sent.url === url).map(({ body }) => body);
  /** How often changes were read and flushed, for whichever peer. */
  const read = (): number => Number(rowsOf(one.db, 'SELECT sum(shipped) AS n FROM _peer_state')[0]?.n);
  return { ...one, clock, to, read };
}

const idsIn = (body: Uint8Array): string[] =>
  (JSON.parse(new TextDecoder().decode(body)) as { changes: { row: { id: string } }[] }).changes.map(
    ({ row }) => row.id,
  );

describe('several peers', () => {
  test('are sent the same bytes, read and flushed once', async () => {
    const one = await sender();
    write(one, 1, 3_000);
    await one.clock.advance(200);
    expect(one.read()).toBe(3);
    const [a, b, c] = PEERS.map(one.to);
    expect(a?.flatMap(idsIn)).toHaveLength(3_000);
    expect(b?.every((body, i) => body === a?.[i])).toBe(true);
    expect(c?.every((body, i) => body === a?.[i])).toBe(true);
    expect(rowsOf(one.db, 'SELECT count(*) AS n FROM _changes')).toEqual([{ n: 0 }]);
    expect(new Set(rowsOf(one.db, 'SELECT last_acked FROM _peer_state').map((row) => row.last_acked)).size).toBe(1);
  });

  test('are sent the same bytes where rows are so large that only some of them are worth sharing', async () => {
    const one = await sender();
    const wide = one.db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)');
    one.db.exec('BEGIN');
    for (let i = 0; i < 1_500; i++) wide.run(`row-${i}`, 'x'.repeat(2_000));
    one.db.exec('COMMIT');
    await one.clock.advance(500);
    const [a, b, c] = PEERS.map(one.to);
    expect(a?.flatMap(idsIn)).toHaveLength(1_500);
    expect(Math.max(...(a ?? []).map(({ byteLength }) => byteLength))).toBeLessThanOrEqual(1024 * 1024);
    expect(one.read()).toBe(a?.length);
    for (const other of [b, c]) expect(other?.every((body, i) => body === a?.[i])).toBe(true);
  });

  test('that came to different places meet again where a full batch ends', async () => {
    const one = await sender();
    await one.manager.peers.pause(PEERS[2] as string);
    // More than are kept for others.
    const few = Array.from({ length: 17 }, (_, i) => 7 * i);
    for (const before of few) {
      write(one, before + 1, before + 7);
      await one.clock.advance(200);
    }
    write(one, 120, 4_000);
    one.manager.peers.resume(PEERS[2] as string);
    await one.clock.advance(500);
    const ends = (url: string): (string | undefined)[] => one.to(url).map((body) => idsIn(body).at(-1));
    const [a, , c] = PEERS.map(ends);
    expect(a).toEqual([...few.map((before) => `row-${before + 7}`), ...(c ?? [])]);
    expect(c?.[0]).not.toBe('row-7');
    expect(one.to(PEERS[2] as string).flatMap(idsIn)).toHaveLength(4_000);
  });

  test('are not sent what was read before the schema changed', async () => {
    const one = await sender({ peers: PEERS.slice(0, 2) });
    await one.manager.peers.pause(PEERS[1] as string);
    write(one, 1, 3);
    await one.clock.advance(200);
    one.db.exec("ALTER TABLE items ADD COLUMN colour TEXT DEFAULT 'red'");
    one.db.exec("UPDATE items SET colour = 'blue' WHERE id = 'row-1'");
    one.manager.peers.resume(PEERS[1] as string);
    await one.clock.advance(500);
    const text = one.to(PEERS[1] as string).map((body) => new TextDecoder().decode(body));
    expect(text.join()).toContain('blue');
    expect(one.to(PEERS[1] as string)[0]).not.toBe(one.to(PEERS[0] as string)[0]);
  });
});

test('a single peer reads as much as fits, and has its acknowledgement noted where the next batch is read', async () => {
  const one = await sender({ peers: PEERS.slice(0, 1), batchSize: 700 });
  write(one, 1, 2_100);
  await one.clock.advance(200);
  expect(one.to(PEERS[0] as string).map((body) => idsIn(body).length)).toEqual([700, 700, 700]);
});

describe('notes of one turn', () => {
  async function convoy() {
    const db = new Connection(await database('CREATE TABLE t (n INTEGER)'));
    let turn = (): void => {};
    const pruned: number[] = [];
    const file = { isSame: true, asked: 0, looked: 0 };
    const count = (): number => Number(db.get('SELECT count(*) AS n FROM t')?.n);
    const nextTurn = (): Promise<void> =>
      new Promise((resolve) => {
        turn = resolve;
      });
    return {
      db,
      count,
      pruned,
      turn: () => turn(),
      of: new Convoy(db, {
        nextTurn,
        prune: () => pruned.push(count()),
        onRead: () => {},
        company: {
          get isSameFile() {
            file.asked += 1;
            return file.isSame;
          },
          look: () => {
            file.looked += 1;
          },
        },
      }),
      file,
    };
  }

  test('are written together, and pruned for once', async () => {
    const { db, count, pruned, turn, of } = await convoy();
    const notes = [1, 2, 3].map((n) => of.note(() => db.run('INSERT INTO t VALUES (?)', n)));
    await Promise.resolve();
    expect(count()).toBe(0);
    turn();
    await Promise.all(notes);
    expect([count(), pruned]).toEqual([3, [3]]);
    const next = of.note(() => db.run('INSERT INTO t VALUES (4)'));
    turn();
    await next;
    expect([count(), pruned]).toEqual([4, [3, 4]]);
  });

  test('ask once for all of them whether the file is the same, and look at it once they are committed', async () => {
    const { db, count, turn, of, file } = await convoy();
    const notes = [1, 2, 3].map((n) => of.note(() => db.run('INSERT INTO t VALUES (?)', n)));
    turn();
    await Promise.all(notes);
    expect({ ...file, count: count() }).toEqual({ isSame: true, asked: 1, looked: 1, count: 3 });
  });

  test('say nothing of another file than they were read from, which is then looked at', async () => {
    const { db, count, turn, of, file } = await convoy();
    file.isSame = false;
    const note = of.note(() => db.run('INSERT INTO t VALUES (1)'));
    turn();
    await note;
    expect([count(), file.looked]).toEqual([0, 1]);
  });

  test('fail together, leave nothing, and do not keep those of the next turn from it', async () => {
    const { db, count, turn, of } = await convoy();
    const first = of.note(() => db.run('INSERT INTO t VALUES (1)'));
    const second = of.note(() => {
      throw new Error('disk full');
    });
    turn();
    await expect(first).rejects.toThrow('disk full');
    await expect(second).rejects.toThrow('disk full');
    expect(count()).toBe(0);
    const again = of.note(() => db.run('INSERT INTO t VALUES (1)'));
    turn();
    await again;
    expect(count()).toBe(1);
  });
});
