/**
 * The order of a group's rows (I3): nobody's position ever passes a row that comes later. Each schedule is one in which a
 * store that is wrong in one way, planted here, loses a row; and what is right must lose none in any of them.
 */
import { describe, expect, test } from 'vitest';
import { FIRST_PLACE, HORIZON } from '../../src/hub/postgres/horizon.ts';
import { PostgresReader } from '../../src/hub/postgres/read.ts';
import { Sessions } from '../../src/hub/postgres/sessions.ts';
import { cleanUp } from '../support/clean-up.ts';
import { groupStore, openGroupStore } from '../support/group-store.ts';
import { Gate, type Planted, plantedDriver } from '../support/planted-driver.ts';
import { hasPostgres, newDatabase, postgresServer, query } from '../support/postgres.ts';

const T = 1_700_000_000_000;
const LIMIT = { changes: 100, bytes: 1_000_000 };
/** What a reader is stopped at in the middle of its statement. */
const LOCK = 77;

function batch(id: string, version = T): string {
  return JSON.stringify({
    batch_id: 1,
    changes: [{ op: 'UPDATE', table: 'items', row: { id, name: 'n', updated_at: version }, old_id: null }],
  });
}

/** The whole of the horizon in one statement with what it bounds, or in the wrong order, or without one. */
const WITHIN =
  '((least(pg_snapshot_xmax(pg_current_snapshot())::text::bigint, CASE WHEN (SELECT pg_advisory_xact_lock_shared' +
  `(${LOCK})) IS NULL THEN 0 ELSE (SELECT min(a.backend_xid::text::bigint) FROM pg_stat_activity AS a ` +
  'WHERE a.datname = current_database() AND a.usename = current_user) END) - (SELECT m.base FROM rowcast.meta AS m)) << 14)';

type Mutant = 'none' | 'plain sequence' | 'horizon within the reading statement' | 'list before x';

function planted(mutant: Mutant): Planted {
  if (mutant === 'plain sequence') {
    return {
      replace: ({ text }) => text.replaceAll(FIRST_PLACE, "(nextval('rowcast.plain') << 14)"),
      answer: ({ text }, send) =>
        text === HORIZON ? send("SELECT (2^40)::bigint::text AS x, 0::bigint AS base, '' AS busy") : undefined,
    };
  }
  if (mutant === 'horizon within the reading statement') {
    return {
      replace: ({ text }) => text.replace('r.seq < $2', `r.seq < ${WITHIN} AND $2::bigint > 0`),
      answer: ({ text }, send) =>
        text === HORIZON ? send("SELECT (2^40)::bigint::text AS x, 0::bigint AS base, '' AS busy") : undefined,
    };
  }
  return {};
}

describe.skipIf(!hasPostgres)('the order of a group', () => {
  const server = postgresServer();

  /** A store whose next commit waits, another one, and a reader. */
  async function group(mutant: Mutant, between?: () => Promise<void>) {
    const url = await newDatabase(server());
    const gate = new Gate();
    let armed = false;
    const plant = planted(mutant);
    // A store that does not see what is under way would refuse to open.
    const writing: Planted = plant.replace ? { replace: plant.replace } : {};
    const slow = await openGroupStore(url, {
      driver: plantedDriver({
        ...writing,
        hold: ({ text, isDurable }) => (armed && text === 'COMMIT' && isDurable ? gate.pass() : undefined),
      }),
    });
    const fast = await openGroupStore(url, { driver: plantedDriver(writing) });
    if (mutant === 'plain sequence') await query(url, 'CREATE SEQUENCE rowcast.plain');
    const reading: Planted = {
      ...plant,
      answer: (statement, send) => {
        if (statement.text !== HORIZON || !between) return plant.answer?.(statement, send);
        if (mutant !== 'list before x') return send(HORIZON).then(async (found) => between().then(() => found));
        return send(HORIZON).then(async ({ rows: [list] }) => {
          await between();
          const found = await send(HORIZON);
          return { ...found, rows: [{ ...found.rows[0], busy: list.busy }] };
        });
      },
    };
    const sessions = new Sessions({ driver: plantedDriver(reading), url, name: 'reader' });
    cleanUp(() => sessions.close());
    const reader = new PostgresReader(sessions);
    const arm = (): void => {
      armed = true;
    };
    return { url, slow, fast, reader, gate, arm };
  }

  /** Everything from there on, as one who only goes forward gets it. */
  async function follow(reader: PostgresReader, seen: Set<string>, from: number): Promise<number> {
    for (let at = from; ; ) {
      const segment = await reader.read(at, LIMIT, undefined);
      if (!segment) return at;
      for (const { row } of JSON.parse(new TextDecoder().decode(segment.body)).changes) seen.add(row.id);
      at = segment.end;
    }
  }

  /** One transaction begins first and ends last. */
  async function endsLast(mutant: Mutant): Promise<string[]> {
    const { slow, fast, reader, gate, arm } = await group(mutant);
    const seen = new Set<string>();
    arm();
    const received = slow.receive(batch('slow'), { from: 'a', plain: false });
    await gate.arrived;
    await fast.receive(batch('fast'), { from: 'b', plain: false });
    const position = await follow(reader, seen, 0);
    gate.open();
    await received;
    await follow(reader, seen, position);
    return [...seen].sort();
  }

  /** One ends while a reader is in the middle of its statement, after the snapshot of that. */
  async function endsWithin(mutant: Mutant): Promise<string[]> {
    const { url, slow, fast, reader, gate, arm } = await group(mutant);
    const seen = new Set<string>();
    arm();
    const received = slow.receive(batch('slow'), { from: 'a', plain: false });
    await gate.arrived;
    await fast.receive(batch('fast'), { from: 'b', plain: false });
    const holder = new Sessions({ driver: plantedDriver({}), url, name: 'holder' });
    cleanUp(() => holder.close());
    let position = 0;
    await holder.use(async (session) => {
      await session.query(`SELECT pg_advisory_lock(${LOCK})`);
      const reading = reader.read(0, LIMIT, undefined);
      // What is right does not wait in there.
      const isWaiting = "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
      let isOver = false;
      void reading.then(() => (isOver = true));
      while (!isOver && (await session.query<{ n: number }>(isWaiting))[0]?.n === 0);
      gate.open();
      await received;
      await session.query(`SELECT pg_advisory_unlock(${LOCK})`);
      const segment = await reading;
      if (segment) {
        for (const { row } of JSON.parse(new TextDecoder().decode(segment.body)).changes) seen.add(row.id);
        position = segment.end;
      }
    });
    await follow(reader, seen, position);
    return [...seen].sort();
  }

  /** One begins, and another one ends, between two steps of a reader. */
  async function beginsBetween(mutant: Mutant): Promise<string[]> {
    const seen = new Set<string>();
    let received: Promise<unknown> = Promise.resolve();
    let times = 0;
    const made = group(mutant, async () => {
      times += 1;
      if (times > 1) return;
      const { slow, fast, gate, arm } = await made;
      arm();
      received = slow.receive(batch('slow'), { from: 'a', plain: false });
      await gate.arrived;
      await fast.receive(batch('fast'), { from: 'b', plain: false });
    });
    const { reader, gate } = await made;
    const position = await follow(reader, seen, 0);
    gate.open();
    await received;
    await follow(reader, seen, position);
    return [...seen].sort();
  }

  const ALL = ['fast', 'slow'];

  test.each([
    ['begins first and ends last', endsLast],
    ['ends while a reader reads', endsWithin],
    ['begins between two steps of a reader', beginsBetween],
  ])('a transaction that %s is passed by nobody', async (_, schedule) => {
    expect(await schedule('none')).toEqual(ALL);
  });

  test('a store that does not see what is under way refuses to open', async () => {
    const url = await newDatabase(server());
    const store = await groupStore(url, { driver: plantedDriver(planted('plain sequence')) });
    await expect(store.open()).rejects.toMatchObject({ code: 'INVALID_DATABASE' });
  });

  /** Where an edge is that was forgotten and named again, when what had been on its way before is acknowledged. */
  async function lateAnswer(replace: (text: string) => string): Promise<number | undefined> {
    const url = await newDatabase(server());
    const store = await openGroupStore(url, { driver: plantedDriver({ replace: ({ text }) => replace(text) }) });
    await store.addEdges(['http://e']);
    const { generation } = await store.edge('http://e');
    await store.forgetEdges(['http://e']);
    await store.addEdges(['http://e']);
    await store.advance([{ url: 'http://e', generation, position: 5 }]);
    return (await store.edge('http://e')).position;
  }

  test('a late answer moves nobody, and would without generations', async () => {
    expect(await lateAnswer((text) => text)).toBe(0);
    expect(await lateAnswer((text) => text.replace('AND e.generation = m.generation ', ''))).toBe(5);
  });

  /** How many rows others see of a batch that has just been acknowledged. */
  async function acknowledged(isEarly: boolean): Promise<number> {
    const url = await newDatabase(server());
    let isOpen = false;
    const gate = new Gate();
    let late: Promise<unknown> = Promise.resolve();
    const early: Planted['answer'] = ({ text, isDurable }, send) => {
      if (!isOpen || !isEarly || text !== 'COMMIT' || !isDurable) return undefined;
      late = gate.pass().then(() => send('COMMIT'));
      return Promise.resolve({ rows: [], rowCount: 0 } as never);
    };
    const store = await openGroupStore(url, { driver: plantedDriver({ answer: early }) });
    isOpen = true;
    await store.receive(batch('x'), { from: 'a', plain: false });
    const [found] = await query(url, 'SELECT count(*)::int AS n FROM rowcast.rows');
    isOpen = false;
    gate.open();
    // Else the store is closed in the middle of it.
    await late;
    return found?.n as number;
  }

  test('what is acknowledged is committed, and would not be with an answer before that', async () => {
    expect(await acknowledged(false)).toBe(1);
    expect(await acknowledged(true)).toBe(0);
  });

  test('with a plain sequence it would be', async () => {
    expect(await endsLast('plain sequence')).toEqual(['fast']);
  });

  test('with a horizon in the statement that reads it would be', async () => {
    expect(await endsWithin('horizon within the reading statement')).toEqual(['fast']);
  });

  test('with the list of transactions before the snapshot it would be', async () => {
    expect(await beginsBetween('list before x')).toEqual(['fast']);
  });
});
