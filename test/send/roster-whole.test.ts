/** What is changed of the peers while the node runs is changed whole or not at all, and one that failed can be done again. */
import { describe, expect, test } from 'vitest';
import type { Database, Peers, Statement } from '../../src/index.ts';
import { acknowledged, connectionError, recordingFetch } from '../support/bad-servers.ts';
import type { TestDatabase } from '../support/lane.ts';
import { database, rowsOf } from '../support/nodes.ts';
import { type Receivers, sender, write } from '../support/receivers.ts';
import { settle } from '../support/virtual-clock.ts';

const A = 'http://a.test';
const B = 'http://b.test';
const C = 'http://c.test';

/**
 * A handle whose disk is full from some call on, until it has room again; what undoes a transaction needs none. In a transaction
 * only what writes is counted: it makes no difference behind which question it ends.
 */
function filling(db: TestDatabase): { handle: TestDatabase; fillAfter(calls: number): void; makeRoom(): boolean } {
  let left = Infinity;
  let isOpen = false;
  const call = (sql: string): void => {
    if (/^\s*BEGIN/i.test(sql)) isOpen = true;
    if (/^\s*(COMMIT|ROLLBACK)/i.test(sql)) isOpen = false;
    if (/^\s*(ROLLBACK|PRAGMA)/i.test(sql) || (isOpen && /^\s*SELECT/i.test(sql))) return;
    left -= 1;
    if (left < 0) throw Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });
  };
  const through = (sql: string, statement: Statement): Statement =>
    ({
      run: (...params: unknown[]) => {
        call(sql);
        return statement.run(...params);
      },
      get: (...params: unknown[]) => {
        call(sql);
        return statement.get(...params);
      },
      all: (...params: unknown[]) => {
        call(sql);
        return statement.all(...params);
      },
      // bun:sqlite wants its statements closed before the database.
      finalize: () => (statement as { finalize?: () => void }).finalize?.(),
    }) as Statement;
  const handle: Database & { readonly inTransaction: boolean | undefined } = {
    get inTransaction() {
      return (db as { inTransaction?: boolean }).inTransaction;
    },
    exec: (sql) => {
      call(sql);
      return db.exec(sql);
    },
    prepare: (sql) => through(sql, db.prepare(sql)),
    transaction: (fn) => db.transaction(fn),
  };
  return {
    handle: handle as unknown as TestDatabase,
    fillAfter: (calls) => {
      left = calls;
    },
    makeRoom: () => {
      const wasFull = left < 0;
      left = Infinity;
      return wasFull;
    },
  };
}

/** What is kept of the peers, without what their loops go on with in the meantime. */
function kept(db: TestDatabase): unknown {
  const states =
    'SELECT peer_url, paused, stale, removed IS NOT NULL AS removed, snapshot_run, again, tail_from FROM _peer_state ORDER BY 1';
  return [
    rowsOf(db, states),
    rowsOf(db, 'SELECT peers FROM _attachments ORDER BY 1'),
    rowsOf(db, "SELECT key, value FROM _meta WHERE key LIKE 'seeds %' ORDER BY key"),
    rowsOf(db, "SELECT key FROM _meta WHERE key LIKE 'snapshot_since %' ORDER BY key"),
    rowsOf(db, 'SELECT change_id FROM _changes ORDER BY change_id'),
  ];
}

const verbs: [name: string, before: (peers: Peers) => unknown, verb: (peers: Peers) => unknown][] = [
  ['add', () => {}, (peers) => peers.add(C)],
  [
    'add of one that was paused and removed',
    async (peers) => {
      peers.add(C);
      await peers.pause(C);
      await peers.remove(C);
    },
    (peers) => peers.add(C),
  ],
  ['remove', () => {}, (peers) => peers.remove(B)],
  ['remove of one that is paused', (peers) => peers.pause(B), (peers) => peers.remove(B)],
  ['pause', () => {}, (peers) => peers.pause(B)],
  ['resume', (peers) => peers.pause(B), (peers) => peers.resume(B)],
  ['reseed', () => {}, (peers) => peers.reseed(B)],
];

describe('where the disk is full at some moment of it', () => {
  test.each(verbs)('%s is done whole or not at all, and can be repeated', async (_, before, verb) => {
    const made = async () => {
      let isAway = false;
      const { fetch } = recordingFetch((one) => (isAway ? connectionError() : acknowledged(one)));
      const db = await database();
      const disk = filling(db);
      const { manager } = sender(disk.handle, { fetch } as Receivers, [A, B]);
      // Both have said who they are.
      db.exec(`UPDATE _peer_state SET inc = substr('${'0'.repeat(15)}' || rowid, -16)`);
      write(db, 'a');
      await manager.flush();
      // Only B lacks this: what is kept for it alone goes with it.
      await manager.peers.pause(A);
      await manager.peers.pause(B);
      write(db, 'b');
      db.exec(`UPDATE _peer_state SET last_acked = 2 WHERE peer_url = '${A}'`);
      manager.peers.resume(B);
      isAway = true;
      await before(manager.peers);
      await settle();
      const look = (): unknown => [
        kept(db),
        manager.peers.list().map(({ url, paused, stale, snapshot }) => [url, paused, stale, snapshot]),
        manager.health().peers,
      ];
      return { disk, manager, look };
    };
    const whole = await made();
    await verb(whole.manager.peers);
    const done = whole.look();

    const failed: number[] = [];
    for (let calls = 0; ; calls++) {
      const { disk, manager, look } = await made();
      const was = look();
      disk.fillAfter(calls);
      let thrown = false;
      try {
        await verb(manager.peers);
      } catch {
        thrown = true;
      }
      const wasFull = disk.makeRoom();
      if (thrown) {
        failed.push(calls);
        expect([calls, look()]).toEqual([calls, was]);
        await verb(manager.peers);
      }
      expect([calls, look()]).toEqual([calls, done]);
      await manager.stop();
      if (!thrown && !wasFull) break;
    }
    expect(failed.length).toBeGreaterThan(2);
  });
});
