/** How much at once, and how much of the time: with a clock that moves on by the work that is done. */
import { expect, test } from 'vitest';
import { Answers } from '../../src/compare/answer.ts';
import type { Ledger } from '../../src/compare/ledger.ts';
import { Pace, REST_ROWS } from '../../src/compare/pace.ts';
import type { Remote } from '../../src/compare/remote.ts';
import { type Comparison, verify } from '../../src/compare/verify.ts';
import { COMPARE_PATH } from '../../src/wire/protocol.ts';
import { Random } from '../support/model.ts';
import { ITEMS, rowsOf, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { pair, silently, THERE } from './pairs.ts';

const T = 1_600_000_000_000;

/** Work takes time; everything else takes none. */
class WorkingClock extends VirtualClock {
  worked = 0;
  rested = 0;

  work(ms: number): void {
    this.worked += ms;
    this.shift(ms);
  }

  override sleep(ms: number, signal?: AbortSignal): Promise<void> {
    this.rested += ms;
    return super.sleep(ms, signal);
  }
}

test('a tenth of the time is worked, whatever each turn takes, and nobody waits for more than a turn and a bit', async () => {
  const clock = new WorkingClock(() => true);
  const pace = new Pace(clock, 0.1, new AbortController().signal);
  const random = new Random(7);
  for (let i = 0; i < 300; i++) {
    await pace.turn(() => clock.work(Math.floor(random.next() * 5)));
    // What was worked since the last rest is less than the shortest turn that brings one about.
    expect(clock.rested).toBeGreaterThanOrEqual(9 * (clock.worked - 1));
  }
  expect(clock.worked).toBeGreaterThan(300);
  await pace.afterPeer(50);
  expect(clock.rested).toBeGreaterThanOrEqual(9 * (clock.worked + 50 - 1));
});

test('a machine that slept, a clock that jumped and a peer that says so are not rested for', async () => {
  const clock = new WorkingClock(() => true);
  const pace = new Pace(clock, 0.1, new AbortController().signal);
  await pace.turn(() => clock.work(28_800_000));
  expect(clock.rested).toBe(9_000);
  await pace.turn(() => clock.work(-28_800_000));
  await pace.afterPeer(Number.POSITIVE_INFINITY);
  expect(clock.rested).toBe(18_000);
  await pace.afterPeer(-1_000_000);
  await pace.turn(() => clock.work(10));
  expect(clock.rested).toBe(18_090);
});

test('on demand there is no rest, and everybody else has a turn all the same', async () => {
  const clock = new WorkingClock(() => true);
  const pace = new Pace(clock, 1, new AbortController().signal);
  for (let i = 0; i < 50; i++) await pace.turn(() => clock.work(2));
  expect(clock.rested).toBe(0);
  expect(clock.requested.length).toBe(50);
});

test('between two turns of everybody else no more than so many rows are read, whatever the clock says', async () => {
  const clock = new WorkingClock(() => true);
  const pace = new Pace(clock, 1, new AbortController().signal);
  const read: number[] = [];
  for (let i = 0; i < 200; i++) {
    await pace.turn(({ rows }) => {
      // What takes less than a millisecond takes none, by the clock.
      read[clock.requested.length] = (read[clock.requested.length] ?? 0) + rows;
    });
  }
  expect(Math.max(...read)).toBe(REST_ROWS);
  expect(clock.worked).toBe(0);
});

test('of rows that cost more, fewer are read at once, and between two turns of everybody else', async () => {
  const clock = new WorkingClock(() => true);
  const pace = new Pace(clock, 1, new AbortController().signal);
  const read: number[] = [];
  for (let i = 0; i < 200; i++) {
    await pace.turn(({ rows }) => {
      read[clock.requested.length] = (read[clock.requested.length] ?? 0) + rows;
    }, 8);
  }
  expect(Math.max(...read)).toBe(REST_ROWS / 8);
});

test('a turn reads as much as takes no time: less after a slow one, more after a fast one', async () => {
  const clock = new WorkingClock(() => true);
  const pace = new Pace(clock, 1, new AbortController().signal);
  const usPerRow = { now: 0.5 };
  let due = 0;
  const turn = (): Promise<number> =>
    pace.turn(({ rows }) => {
      due += rows * usPerRow.now;
      clock.work(Math.floor(due / 1_000));
      due %= 1_000;
      return rows;
    });
  let rows = 0;
  for (let i = 0; i < 20; i++) rows = await turn();
  expect(rows).toBe(REST_ROWS);
  // Rows that are two hundred times as dear: after a few turns none takes longer than four milliseconds.
  usPerRow.now = 100;
  for (let i = 0; i < 10; i++) await turn();
  const taken: number[] = [];
  for (let i = 0; i < 50; i++) taken.push((await turn()) * usPerRow.now);
  expect(Math.max(...taken)).toBeLessThanOrEqual(4_000);
  usPerRow.now = 0.5;
  for (let i = 0; i < 20; i++) rows = await turn();
  expect(rows).toBe(REST_ROWS);
});

/** A clock that tells parts of milliseconds, of which the work says how many it takes. */
function preciselyTimed() {
  let at = 0;
  const clock = Object.assign(new VirtualClock(() => true), { now: () => at });
  const pace = new Pace(clock, 1, new AbortController().signal);
  const spend = (ms: number): void => {
    at += ms;
  };
  const turn = (ms: (rows: number) => number, cost?: number): Promise<number> =>
    pace.turn(({ rows }) => {
      spend(ms(rows));
      return rows;
    }, cost);
  return { pace, spend, turn };
}

test('turns come to take two milliseconds each, by a clock that tells parts of them', async () => {
  const { turn } = preciselyTimed();
  let rows = 0;
  for (let i = 0; i < 20; i++) rows = await turn((n) => n * 0.0043);
  expect(Math.abs(rows * 0.0043 - 2)).toBeLessThan(0.01);
  for (let i = 0; i < 20; i++) rows = await turn((n) => n * 0.02);
  expect(rows).toBe(100);
  for (let i = 0; i < 20; i++) rows = await turn((n) => n * 0.0001);
  expect(rows).toBe(REST_ROWS);
});

test('one turn in which the machine did something else changes nothing; two in a row do', async () => {
  const { turn } = preciselyTimed();
  for (let i = 0; i < 20; i++) await turn((n) => n * 0.004);
  const late = (n: number): number => n * 0.004 + 30;
  expect(await turn(late)).toBe(500);
  expect(await turn((n) => n * 0.004)).toBe(500);
  expect(await turn(late)).toBe(500);
  expect(await turn(late)).toBe(500);
  expect(await turn((n) => n * 0.004)).toBe(250);
});

test('what one kind of work takes says nothing of another, and work that is what it is says nothing at all', async () => {
  const { pace, spend, turn } = preciselyTimed();
  for (let i = 0; i < 20; i++) await turn((n) => n * 0.002);
  for (let i = 0; i < 20; i++) await turn((n) => n * 0.5, 16);
  expect(await turn((n) => n * 0.5, 16)).toBe(4);
  expect(await turn((n) => n * 0.002)).toBe(1_000);
  for (let i = 0; i < 3; i++) await pace.once(() => spend(50));
  expect(await turn((n) => n * 0.002)).toBe(1_000);
});

test('the comparison of the day takes a tenth of the time of both sides, one that is asked for takes what it needs', async () => {
  const clock = new WorkingClock((ms) => ms < 2_000);
  const the = await pair({ here: ITEMS, clock, config: { verify: { every: '1h' }, random: () => 0.5 } });
  the.link.up = true;
  the.here.exec("INSERT INTO items VALUES ('first', 'x', 1, 1, NULL)");
  await the.manager.flush();
  silently([the.here, the.there], () => {
    for (const db of [the.here, the.there]) {
      db.exec(
        'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) ' +
          `INSERT INTO items SELECT printf('row-%05d', i), 'x', i, 1, ${T} FROM n`,
      );
    }
  });
  // A row takes 20 microseconds, on either side.
  let due = 0;
  const onRead = (rows: number): void => {
    due += rows * 20;
    clock.work(Math.floor(due / 1_000));
    due %= 1_000;
  };
  for (const db of [the.here, the.there]) slow(db, onRead);
  const told: { cause: string; ms: number; equal: boolean; worked: number }[] = [];
  let before = clock.worked;
  the.manager.on('verify-done', (event) => {
    told.push({ ...event, worked: clock.worked - before });
    before = clock.worked;
  });
  await the.manager.verify(THERE);
  const planned = () => rowsOf(the.here, `SELECT 1 FROM _meta WHERE key = 'verify ${THERE}'`).length > 0;
  await clock.advance(5_000);
  await until('it is planned', planned);
  await clock.jump(3_600_000);
  await clock.advance(5_000);
  await until('the day has come', () => told.length === 2);
  expect(told).toMatchObject([
    { cause: 'asked', equal: true },
    { cause: 'daily', equal: true },
  ]);
  for (const { worked } of told) expect(worked).toBeGreaterThanOrEqual(2 * 100);
  const [asked, daily] = told.map(({ worked, ms }) => worked / ms) as [number, number];
  // Others that sleep take the time along, so that it is a little more than the comparison has needed.
  expect(asked).toBeGreaterThan(0.12);
  expect(daily).toBeLessThanOrEqual(0.1);
  expect(daily).toBeGreaterThan(0.02);
});

/** Calls back whenever lines are read, with how many. */
function slow(db: { prepare(sql: string): object }, onRead: (rows: number) => void): void {
  const prepare = db.prepare.bind(db);
  db.prepare = (sql: string) => {
    const statement = prepare(sql) as { get(...params: unknown[]): unknown };
    if (!sql.includes('group_concat(line')) return statement;
    const get = statement.get.bind(statement);
    statement.get = (...params: unknown[]) => {
      onRead(Number(params.at(-1)));
      return get(...params);
    };
    return statement;
  };
}

test('everybody else has a turn between a question that comes in and the first that is read for it', async () => {
  const clock = new VirtualClock();
  let looks = 0;
  const ledger: Partial<Ledger> = {
    outline: () => {
      looks += 1;
      return [];
    },
  };
  const answers = new Answers(ledger as Ledger, clock, new AbortController().signal);
  const answer = answers.to(COMPARE_PATH, '{"want":"tables"}');
  await new Promise((resolve) => setImmediate(resolve));
  expect([clock.requested, looks]).toEqual([[0], 0]);
  await clock.advance(0);
  expect([(await answer).status, looks]).toEqual([200, 1]);
});

test("everybody else has a turn between the peer's outline and the own", async () => {
  const clock = new VirtualClock();
  let looks = 0;
  const ledger: Partial<Ledger> = {
    outline: () => {
      looks += 1;
      return [];
    },
  };
  const remote: Partial<Remote> = { outline: async () => [], busyMs: 0 };
  const pace = new Pace(clock, 1, new AbortController().signal);
  const parts = { ledger, remote, pace, exchange: {}, now: () => 0 } as unknown as Omit<Comparison, 'peer'>;
  const compared = verify({ ...parts, peer: 'peer' });
  await new Promise((resolve) => setImmediate(resolve));
  expect([clock.requested, looks]).toEqual([[0], 0]);
  await clock.advance(0);
  expect([(await compared).equal, looks]).toEqual([true, 1]);
});

test('a question that comes when all is being stopped is answered, too', async () => {
  const answers = new Answers({} as Ledger, new VirtualClock(), AbortSignal.abort());
  expect((await answers.to(COMPARE_PATH, '{"want":"tables"}')).status).toBe(503);
  expect((await answers.to(COMPARE_PATH, '{"want":"tables"}')).status).toBe(503);
});

test('a comparison that begins inside a transaction of the application waits for its end', async () => {
  const { here, manager, requests } = await pair({ here: ITEMS });
  here.exec('BEGIN');
  const compared = manager.verify(THERE);
  await until('the peer was asked', () => requests.some(({ path }) => path === COMPARE_PATH));
  here.exec('COMMIT');
  expect((await compared)[0]).toMatchObject({ equal: true });
});
