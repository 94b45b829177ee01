/** A clock that cannot be right: nothing is received by it, and health says so. */
import { expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { EARLIEST } from '../../src/receive/clock-floor.ts';
import { hub } from '../support/hubs.ts';
import { cleanUp, database, node, rowsOf } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const DAY = 86_400_000;
const HOUR = 3_600_000;
const SCHEMA = 'CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER)';
const BODY = JSON.stringify({
  batch_id: 1,
  changes: [{ op: 'INSERT', table: 'items', row: { id: 'x', updated_at: 1_700_000_000_000 }, old_id: null }],
});

/** A clock that can be set; pauses are what they are. */
class Settable extends VirtualClock {
  #offset = 0;

  override now(): number {
    return super.now() + this.#offset;
  }

  set(by: number): void {
    this.#offset += by;
  }
}

test('a node whose clock is before the first Rowcast takes nothing, keeps nothing, and takes it when it is set', async () => {
  const clock = new VirtualClock();
  await clock.jump(-clock.now());
  const db = await database(SCHEMA);
  const manager = attach(db, { id: 'b', peers: [], clock }, ['items']);
  cleanUp(() => manager.stop());
  const [warnings, errors]: [string[], unknown[]] = [[], []];
  manager.on('warning', ({ code }) => warnings.push(code));
  manager.on('error', (error) => errors.push(error));
  expect(manager.receive(BODY)).toMatchObject({ status: 503, body: { error: expect.stringMatching(/^clock: /) } });
  expect(manager.health()).toMatchObject({ ok: false, dead_letter: 0 });
  expect(manager.health().problems).toEqual([expect.stringMatching(/1970-01-01.* until it is set$/)]);
  await clock.advance(1_000);
  expect([warnings, errors]).toEqual([['clock'], []]);
  await clock.jump(EARLIEST - DAY - clock.now());
  expect(manager.receive(BODY)).toMatchObject({ status: 200 });
  expect(manager.health()).toMatchObject({ ok: true, problems: [] });
});

test('with maxAheadMs 0 nothing waits, and any clock will do', async () => {
  const clock = new VirtualClock();
  await clock.jump(-clock.now());
  const { manager } = await node({ schema: SCHEMA, clock });
  expect(manager.receive(BODY).status).toBe(200);
});

test('the time is noted once in an hour of steady running, and a clock that goes back by days is found out', async () => {
  const clock = new Settable();
  const { db, manager } = await node({ schema: SCHEMA, clock, maxAheadMs: DAY });
  const noted = (): unknown => rowsOf(db, "SELECT value FROM _meta WHERE key = 'clock'")[0]?.value;
  const begin = clock.now();
  const run = async (ms: number): Promise<void> => {
    for (let left = ms; left > 0; left -= 5 * 60_000) await clock.jump(Math.min(left, 5 * 60_000));
  };
  await run(HOUR - 60_000);
  expect(noted()).toBeUndefined();
  await run(10 * 60_000);
  const first = noted() as number;
  expect(first).toBeGreaterThanOrEqual(begin + HOUR);
  await run(HOUR - 10 * 60_000);
  expect(noted()).toBe(first);
  // A wrong time for half an hour is nothing to hold on to.
  clock.set(400 * DAY);
  await run(HOUR / 2);
  clock.set(-400 * DAY - HOUR / 2);
  expect(noted()).toBe(first);
  // A little back is nothing, days are.
  clock.set(-DAY / 2);
  expect(manager.receive(BODY).status).toBe(200);
  clock.set(-DAY);
  expect(manager.receive(BODY).status).toBe(503);
  expect(manager.health().problems).toEqual([expect.stringContaining('if it is right, that time was not')]);
  // The operator says that what was noted is the one that is wrong.
  db.exec("DELETE FROM _meta WHERE key = 'clock'");
  await clock.advance(40);
  expect(manager.receive(BODY).status).toBe(200);
});

test('what was noted outlives the process', async () => {
  const db = await database(SCHEMA);
  await attach(db, { id: 'b', peers: [] }, ['items']).stop();
  db.exec(`INSERT INTO _meta (key, value) VALUES ('clock', ${1_700_000_000_000 + 2 * DAY})`);
  const again = attach(db, { id: 'b', peers: [], clock: new VirtualClock() }, ['items']);
  cleanUp(() => again.stop());
  expect(again.receive(BODY).status).toBe(503);
});

test('a hub does likewise', async () => {
  const clock = new Settable();
  const { hub: relay, db } = await hub({ clock, maxAheadMs: DAY });
  const warnings: string[] = [];
  relay.on('warning', ({ code }) => warnings.push(code));
  for (let i = 0; i < 14; i++) await clock.jump(5 * 60_000);
  expect(rowsOf(db, 'SELECT count(*) AS n FROM _hub_clock')).toEqual([{ n: 1 }]);
  clock.set(-3 * DAY);
  expect(await relay.receive(BODY)).toMatchObject({ status: 503, body: { error: expect.stringMatching(/^clock: /) } });
  expect(await relay.health()).toMatchObject({ ok: false, problems: [expect.stringContaining('clock')] });
  await clock.advance(2_000);
  expect(warnings).toEqual(['clock']);
  db.exec('DELETE FROM _hub_clock');
  await clock.advance(2_000);
  expect((await relay.receive(BODY)).status).toBe(200);
});
