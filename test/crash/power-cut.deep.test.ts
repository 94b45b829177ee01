/**
 * A power cut takes what was written and not synced. A test cannot pull the plug. It can look at the pragma in force at
 * each commit; and it can record every write and every sync of a real process, and build the files as they may be found
 * when the power has failed at any moment: whatever was synced, and any part of what was not.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createHub } from '../../src/hub/hub.ts';
import { attach, type Database, type Manager } from '../../src/index.ts';
import { buildLibrary } from '../support/build.ts';
import { openDatabase, type TestDatabase } from '../support/lane.ts';
import { Random, type WireChange } from '../support/model.ts';
import {
  cleanUp,
  database,
  exactRows,
  ITEMS,
  node,
  rowsOf,
  scratchFolder,
  serve,
  serveManager,
  until,
} from '../support/nodes.ts';
import { SEED } from '../support/seed.ts';
import { batchIn } from '../support/tabular.ts';
import { startChild } from './kill-children.ts';
import { everyCut, hasTable, holds, stateOf, statesAfter, versionsIn, wiredTo } from './power-cuts.ts';
import { giveUp, missingStrace } from './power-strace.ts';
import { readTrace, said, straceCommand, type TraceEvent } from './power-trace.ts';

/** Rowcast says so of itself: of a sender that does not, the later of two changes of one time in a batch stands. */
const SENDER = { said: 'id=sender' };

/** As FULL, and without a WAL also the removal of the journal is synced: until then a power cut takes the commit back. */
const EXTRA = 3;
const NORMAL = 1;
const OFF = 0;

const batch = (id: string): string =>
  JSON.stringify({
    batch_id: 7,
    changes: [
      {
        op: 'INSERT',
        table: 'items',
        row: { id, name: `round-${id}`, value: 1, created_at: 1, updated_at: 1000 },
        old_id: null,
      },
    ],
  });

function synchronous(db: TestDatabase): number {
  return Number(Object.values(rowsOf(db, 'PRAGMA synchronous')[0] ?? {})[0]);
}

/** Notes the `synchronous` in force at every COMMIT, and whether the transaction wrote anything but its flag. */
function watched(db: TestDatabase): { handle: Database; commits: number[] } {
  const commits: number[] = [];
  const handle: Database = {
    exec: (sql) => {
      if (sql === 'COMMIT') commits.push(synchronous(db));
      return db.exec(sql);
    },
    prepare: (sql) => db.prepare(sql),
    transaction: (fn) => db.transaction(fn),
  };
  return { handle, commits };
}

describe('by the pragma', () => {
  const levels = [
    ['OFF', OFF],
    ['NORMAL', NORMAL],
    ['FULL', 2],
    ['EXTRA', EXTRA],
  ] as const;

  test.each(levels)('with synchronous %s the apply commit is EXTRA, and the setting is as before', async (_, level) => {
    const db = await database(ITEMS, join(scratchFolder(), 'a.db'));
    const { handle, commits } = watched(db);
    const manager = attach(handle, { id: 'node', peers: [] }, ['items']);
    cleanUp(() => manager.stop());
    db.exec(`PRAGMA synchronous = ${level}`);
    commits.length = 0;
    expect(manager.receive(batch('a'))).toMatchObject({ status: 200 });
    manager.applyChanges(JSON.parse(batch('b')).changes);
    expect(commits).toEqual([EXTRA, EXTRA]);
    expect(synchronous(db)).toBe(level);
  });

  test('the setting is as before after a batch that was refused, parked or put off', async () => {
    const db = await database(ITEMS, join(scratchFolder(), 'a.db'));
    const manager = attach(db, { id: 'node', peers: [] }, ['items']);
    cleanUp(() => manager.stop());
    db.exec(`PRAGMA synchronous = ${NORMAL}`);
    expect(manager.receive('{').status).toBe(400);
    expect(synchronous(db)).toBe(NORMAL);
    expect(manager.receive(batch('a').replace('"items"', '"nowhere"')).status).toBe(200);
    expect(synchronous(db)).toBe(NORMAL);
    db.exec('BEGIN');
    expect(manager.receive(batch('a')).status).toBe(503);
    db.exec('ROLLBACK');
    expect(synchronous(db)).toBe(NORMAL);
    // What is missing is made again.
    db.exec('DROP TABLE _meta');
    expect(manager.receive(batch('a')).status).toBe(200);
    expect(synchronous(db)).toBe(NORMAL);
  });

  test('what is sent was committed at EXTRA before, and the setting is as before', async () => {
    const receiver = await node({ id: 'receiver' });
    const db = await database(ITEMS, join(scratchFolder(), 'a.db'));
    const { handle, commits } = watched(db);
    db.exec(`PRAGMA synchronous = ${NORMAL}`);
    const atRequest: number[] = [];
    const peer = await serve(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      atRequest.push(commits.lastIndexOf(EXTRA));
      const { body } = receiver.manager.receive(Buffer.concat(chunks));
      response.end(JSON.stringify(body));
    });
    const manager = attach(handle, { id: 'sender', peers: [peer], batchMs: 3_600_000 }, ['items']);
    cleanUp(() => manager.stop());
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    const before = commits.length;
    await manager.flush();
    expect(atRequest).toHaveLength(1);
    expect(atRequest[0]).toBeGreaterThanOrEqual(before);
    expect(synchronous(db)).toBe(NORMAL);
    expect(rowsOf(receiver.db, 'SELECT id FROM items')).toEqual([{ id: 'a' }]);
  });

  test("the application's own commits keep the application's setting", async () => {
    const db = await database(ITEMS, join(scratchFolder(), 'a.db'));
    const manager = attach(db, { id: 'node', peers: [] }, ['items']);
    cleanUp(() => manager.stop());
    db.exec(`PRAGMA synchronous = ${NORMAL}`);
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    expect(synchronous(db)).toBe(NORMAL);
  });
});

/** Enough for several checkpoints on either side; a process under strace runs for a second or two. */
const BATCHES = 16;
const ROUNDS = 6;

describe('by the files', () => {
  const seed = Number(process.env.ROWCAST_POWER_SEED ?? SEED);
  let build: Awaited<ReturnType<typeof buildLibrary>>;
  let missing: string | undefined;
  beforeAll(async () => {
    build = await buildLibrary();
    missing = missingStrace();
  });
  afterAll(() => build?.remove());

  /** A receiver that was sent the batches over HTTP, one after the other, and the trace of what it did. */
  async function tracedReceiver(
    kind: 'node' | 'hub',
    journal: string,
  ): Promise<{ batches: WireChange[][]; states: string[]; events: TraceEvent[] }> {
    const folder = scratchFolder();
    const output = join(scratchFolder(), 'trace');
    const args = [kind, join(folder, 'a.db'), journal];
    const child = startChild(build.folder, 'power-receiver.mjs', args, straceCommand(output));
    const port = (await child.line(1)).split(' ')[1];
    const batches = randomBatches(new Random(seed));
    const states = statesAfter(batches);
    for (const [i, changes] of batches.entries()) {
      const answer = await fetch(`http://127.0.0.1:${port}/sync`, {
        method: 'POST',
        body: JSON.stringify({ batch_id: i + 1, changes }),
        headers: { 'content-type': 'application/json', 'x-rowcast': SENDER.said },
      });
      expect(await answer.json()).toMatchObject({ ack: i + 1 });
    }
    await child.end();
    const events = readTrace(readFileSync(output, 'utf8'), folder);
    expect(said(events, 'sent', ACK).map(({ match }) => Number(match[1]))).toEqual(batches.map((_, i) => i + 1));
    return { batches, states, events };
  }

  /** How many batches were acknowledged before the cut: the answer had begun to leave. */
  const acknowledged = (events: TraceEvent[]): ((before: number) => number) => {
    const answers = said(events, 'sent', ACK);
    return (before) => answers.filter(({ first }) => first < before).length;
  };

  test.for(['WAL', 'DELETE'])(
    'a receiver with a %s journal has every batch that it acknowledged',
    async (journal, { skip }) => {
      if (missing !== undefined) return giveUp(missing, skip);
      const { batches, states, events } = await tracedReceiver('node', journal);
      const ackedAt = acknowledged(events);
      const cuts = await everyCut(events, seed, async (db, { before, at }) => {
        const acked = ackedAt(before);
        if (!hasTable(db, 'items') || !hasTable(db, '_meta')) return expect(acked, at).toBe(0);
        // Whole batches, and not one fewer than were acknowledged; the next one may be there without its answer.
        expect([acked, acked + 1], at).toContain(states.indexOf(stateOf(receivedRows(db))));
        expect(rowsOf(db, "SELECT value FROM _meta WHERE key = 'syncing' AND value <> 0"), at).toEqual([]);

        const manager = attach(db, { id: 'receiver', peers: [] }, ['items']);
        for (const changes of batches.slice(acked)) {
          expect(manager.receive(JSON.stringify({ batch_id: 1, changes }), SENDER).status, at).toBe(200);
        }
        expect(stateOf(receivedRows(db)), at).toBe(states.at(-1));
        expect(manager.health(), at).toMatchObject({ ok: true, dead_letter: 0 });
        await manager.stop();
      });
      expect(cuts).toBeGreaterThan(BATCHES);
    },
  );

  test('a hub has every batch that it acknowledged, and passes it on', async ({ skip }) => {
    if (missing !== undefined) return giveUp(missing, skip);
    const { batches, states, events } = await tracedReceiver('hub', 'WAL');
    const ackedAt = acknowledged(events);
    const cuts = await everyCut(events, seed, async (db, { before, at }) => {
      const acked = ackedAt(before);
      if (!hasTable(db, '_hub_rows')) return expect(acked, at).toBe(0);
      const present = rowsOf(db, "SELECT row_data FROM _hub_rows WHERE op <> 'DELETE' ORDER BY row_id");
      const rows = present.map(({ row_data }) => JSON.parse(String(row_data)));
      expect([acked, acked + 1], at).toContain(states.indexOf(stateOf(rows)));

      const edge = await memoryNode('edge');
      const get = async (): Promise<{ status: number; text(): Promise<string> }> => ({
        status: 200,
        text: async () => '{"node_id":"edge"}',
      });
      const wire = { get, ...wiredTo(edge.manager) };
      const hub = await createHub(db, { id: 'hub', edges: ['http://edge.test'], batchMs: 1, ...wire });
      for (const changes of batches.slice(acked)) await hub.receive(JSON.stringify({ batch_id: 1, changes }), SENDER);
      await until(`the edge has everything, ${at}`, () => stateOf(receivedRows(edge.db)) === states.at(-1));
      await hub.stop();
      await edge.end();
    });
    expect(cuts).toBeGreaterThan(BATCHES);
  });

  test.for(['WAL', 'DELETE'])(
    'a sender with a %s journal has what it sent, and sends what was not acknowledged',
    async (journal, { skip }) => {
      if (missing !== undefined) return giveUp(missing, skip);
      const receiver = await node({ id: 'receiver' });
      const peer = await serveManager(receiver.manager);
      const folder = scratchFolder();
      const output = join(scratchFolder(), 'trace');
      const args = [join(folder, 'a.db'), peer, journal, String(ROUNDS)];
      const child = startChild(build.folder, 'power-sender.mjs', args, straceCommand(output));
      expect(await child.ended).toBe(0);

      const events = readTrace(readFileSync(output, 'utf8'), folder);
      const requests = said(events, 'sent', REQUEST).map(({ match, first }) => ({
        first,
        body: match[0],
        batchId: Number(match[1]),
        changes: batchIn(match[0]).changes as WireChange[],
      }));
      const answers = said(events, 'received', ACK).map(({ match, last }) => ({ last, batchId: Number(match[1]) }));
      expect(requests.length).toBeGreaterThan(ROUNDS);
      // Two may be under way, and answered in either order.
      const numbers = (all: { batchId: number }[]): number[] => all.map(({ batchId }) => batchId).sort((a, b) => a - b);
      expect(numbers(answers)).toEqual(numbers(requests));
      const cuts = await everyCut(events, seed, async (db, { before, at }) => {
        const sent = requests.filter(({ first }) => first < before);
        const acked = new Set(answers.filter(({ last }) => last < before).map(({ batchId }) => batchId));
        // What counts is how far there is no gap.
        const open = requests.findIndex(({ batchId }) => !acked.has(batchId));
        const ackedUpTo = (open < 0 ? requests : requests.slice(0, open)).at(-1)?.batchId ?? 0;
        if (!hasTable(db, 'items') || !hasTable(db, '_peer_state')) return expect(sent, at).toEqual([]);
        // A peer may have whatever was sent: it is here as well, in that version or a newer one.
        const here = versionsIn(db);
        const changes = sent.flatMap((request) => request.changes);
        expect(
          changes.filter((change) => !holds(here, change)),
          at,
        ).toEqual([]);
        // And nothing is forgotten that no answer has spoken of.
        const [last] = rowsOf(db, "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '_changes'), 0) AS n");
        const latest = Number(last?.n);
        const [kept] = rowsOf(db, 'SELECT count(*) AS n FROM _changes WHERE change_id > ?', ackedUpTo);
        expect(kept, at).toEqual({ n: Math.max(0, latest - ackedUpTo) });
        const [state] = rowsOf(db, 'SELECT coalesce(max(last_acked), 0) AS n FROM _peer_state');
        expect(Number(state?.n), at).toBeLessThanOrEqual(ackedUpTo);

        // The peer as it is at the least: with what it acknowledged.
        const other = await memoryNode('receiver');
        for (const { batchId, body } of requests) if (acked.has(batchId)) other.manager.receive(body, SENDER);
        const wire = { batchMs: 3_600_000, ...wiredTo(other.manager) };
        const manager = attach(db, { id: 'sender', peers: [peer], ...wire }, ['items']);
        expect(await manager.flush(), at).toEqual({ delivered: [peer], unreachable: [] });
        expect(exactRows(other.db, 'items'), at).toEqual(exactRows(db, 'items'));
        expect(manager.health(), at).toMatchObject({ ok: true, dead_letter: 0, pending_changes: 0 });
        await manager.stop();
        await other.end();
      });
      expect(cuts).toBeGreaterThan(requests.length);
    },
  );
});

const ACK = /"ack":(\d+)/g;
/** A batch in either form. */
const REQUEST = /\{"batch_id":(\d+),(?:"changes":\[[^\]]*\]|"op":[^{}]*\]\])\}/g;

/** Batches on a few rows, so that they meet: newer, older and equal versions, deletions; and each has a row of its own. */
function randomBatches(random: Random): WireChange[][] {
  return Array.from({ length: BATCHES }, (_, batch) => {
    const own = { id: `batch-${batch}`, name: null, value: batch, created_at: 1, updated_at: 1_000 };
    const changes = Array.from({ length: 2 + random.below(8) }, () => randomChange(random, 1_000 + 10 * batch));
    return [...changes, { op: 'INSERT', table: 'items', row: own, old_id: null }];
  });
}

function randomChange(random: Random, now: number): WireChange {
  const id = `row-${random.below(40)}`;
  const name = random.pick(['short', 'some text', 'long '.repeat(120)]);
  const row = { id, name, value: random.below(100), created_at: 1, updated_at: now + random.below(20) };
  return random.chance(0.2)
    ? { op: 'DELETE', table: 'items', row, old_id: id }
    : { op: random.pick(['INSERT', 'UPDATE'] as const), table: 'items', row, old_id: null };
}

/** Without the rows that the receiver writes itself. */
function receivedRows(db: TestDatabase): Record<string, unknown>[] {
  return rowsOf(db, "SELECT * FROM items WHERE id NOT LIKE 'own-%' ORDER BY id");
}

/** Hundreds of them are made in one test, so each is taken away at once. */
async function memoryNode(id: string): Promise<{ db: TestDatabase; manager: Manager; end(): Promise<void> }> {
  const db = await openDatabase();
  db.exec(ITEMS);
  const manager = attach(db, { id, peers: [] }, ['items']);
  const end = async (): Promise<void> => {
    await manager.stop();
    db.close();
  };
  return { db, manager, end };
}
