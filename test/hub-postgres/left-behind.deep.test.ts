/** What a process of a group has left undone, and what it hears of a server that it has left. */
import { describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/clock.ts';
import { EPOCH } from '../../src/hub/postgres/epoch.ts';
import { ALL_TABLES } from '../../src/send/asked-tables.ts';
import { openGroupStore } from '../support/group-store.ts';
import { groupHub } from '../support/groups.ts';
import { live, T } from '../support/hubs.ts';
import { until } from '../support/nodes.ts';
import { Gate, plantedDriver } from '../support/planted-driver.ts';
import { hasPostgres, newDatabase, postgresServer, query } from '../support/postgres.ts';

/** The minutes of whoever looks now and then are short, and any number of them may have passed. */
class Ahead implements Clock {
  ms = 0;

  now(): number {
    return systemClock.now() + this.ms;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return systemClock.sleep(ms === 60_000 ? 20 : ms, signal);
  }
}

describe.skipIf(!hasPostgres)('of a group', () => {
  const server = postgresServer();

  test('a table that one was asked for, too early and before it ended, is sent again by another', async () => {
    const url = await newDatabase(server());
    const clock = new Ahead();
    await groupHub(url, { clock });
    const { hub } = await groupHub(url);
    const body = JSON.stringify({ batch_id: 1, changes: [live('x', T)] });
    const place = async (): Promise<unknown> => (await query(url, 'SELECT seq FROM rowcast.rows'))[0]?.seq;
    const isAsked = async (): Promise<boolean> => (await query(url, 'SELECT 1 FROM rowcast.asked')).length > 0;
    await hub.receive(body, { sendAgain: ALL_TABLES });
    await until('it was sent again', async () => !(await isAsked()));
    await hub.receive(body, { sendAgain: ALL_TABLES });
    await hub.stop();
    const before = await place();
    // It has been seen, and nobody has come to it.
    await systemClock.sleep(500);
    expect([await isAsked(), await place()]).toEqual([true, before]);
    clock.ms += 11 * 60_000;
    await until('the other has done it', async () => !(await isAsked()));
    expect(await place()).not.toBe(before);
  });

  test('I8: what a server answers that is not the present one any more is of no present generation', async () => {
    const url = await newDatabase(server());
    const gate = new Gate();
    let epoch = EPOCH;
    let isLate = false;
    const driver = plantedDriver({
      replace: ({ text }) => text.replaceAll(EPOCH, epoch),
      answer: ({ text }, send) => {
        if (!isLate || !/^SELECT url, position.* WHERE url = \$1$/.test(text)) return undefined;
        isLate = false;
        // The answer has been given, and is under way.
        return send(text, ['http://e']).then(async (found) => {
          await gate.pass();
          return found;
        });
      },
    });
    const store = await openGroupStore(url, { driver });
    await store.addEdges(['http://e']);
    const { generation } = await store.edge('http://e');
    await store.advance([{ url: 'http://e', generation, position: 100 }]);
    isLate = true;
    const asked = store.edge('http://e');
    await gate.arrived;
    // Another server, which has not got so far.
    await query(url, 'UPDATE rowcast.edges SET position = 10');
    epoch = `(${EPOCH} || 'x')`;
    await store.group.beat(3_000);
    gate.open();
    const [late, present] = [await asked, await store.edge('http://e')];
    expect([late.position, present.position]).toEqual([100, 10]);
    expect(late.generation).not.toBe(present.generation);
    await store.advance([{ url: 'http://e', generation: late.generation, position: 101 }]);
    expect((await store.edge('http://e')).position).toBe(10);
  });
});
