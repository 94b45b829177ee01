/** What a process of a group asks of its store while nothing happens: counted, over seconds that pass when the test says so. */
import { describe, expect, test } from 'vitest';
import type { PostgresDriver } from '../../src/hub/postgres/driver.ts';
import type { Fetch, Get } from '../../src/send/transport.ts';
import { CrowdClock } from '../support/crowd-clock.ts';
import { groupHub } from '../support/groups.ts';
import { deliver, live, T } from '../support/hubs.ts';
import { plantedDriver } from '../support/planted-driver.ts';
import { hasPostgres, newDatabase, postgresServer } from '../support/postgres.ts';

const SECONDS = 30;

/** Once, or a few times, a second, however many edges there are. */
const STEADY: [kind: string, text: RegExp, aSecond: number][] = [
  ['are there other rows', /^SELECT max\(seq\) AS last FROM rowcast\.rows$/, 4],
  ['this one is alive, and who else is', /INSERT INTO rowcast\.hubs/, 2],
  ['who is the group', /^SELECT n\.inc, n\.boot/, 1],
  ['what do the edges lack', /SELECT e\.inc, n\.low/, 1],
  ['has the time of a letter come', /FROM rowcast\.letters WHERE code = 'future-stamp'/, 1],
];
const EXPECTED = Object.fromEntries(STEADY.map(([kind, , aSecond]) => [kind, SECONDS * aSecond]));

describe.skipIf(!hasPostgres)('an idle process of a group', () => {
  const server = postgresServer();

  test('without edges asks its store nine things a second', async () => {
    const { statements } = await idle(await newDatabase(server()), 0);
    expect(counted(statements)).toEqual(EXPECTED);
  });

  test('asks no more for hundreds of edges than for a few: what they say is noted together', async () => {
    const few = counted((await idle(await newDatabase(server()), 5)).statements);
    const many = await idle(await newDatabase(server()), 300);
    expect(few).toMatchObject(EXPECTED);
    expect(counted(many.statements)).toMatchObject(EXPECTED);
    // Each is asked who it is twice in that time, and every answer has something new to say.
    expect(many.asked).toBe(2 * 300);
    // By far fewer statements than answers.
    expect(other(many.statements)).toBeLessThan(many.asked / 5);
  });
});

/** The statements of so many seconds in which nothing is written, and the questions to edges meanwhile. */
async function idle(url: string, edges: number): Promise<{ statements: string[]; asked: number }> {
  const { driver, statements, quiet } = watched();
  const clock = new CrowdClock(quiet);
  let asked = 0;
  const get: Get = async (to) => {
    asked += 1;
    const id = new URL(to).hostname;
    return { status: 200, text: async () => JSON.stringify({ node_id: id }), headers: saidBy(id, asked) };
  };
  const fetch: Fetch = async (to, { body }) => {
    const { batch_id: ack } = JSON.parse(Buffer.from(body).toString());
    return {
      status: 200,
      text: async () => JSON.stringify({ applied: 0, ack }),
      headers: saidBy(new URL(to).hostname, 1),
    };
  };
  const urls = Array.from({ length: edges }, (_, i) => `http://e${i}`);
  const { hub } = await groupHub(url, { edges: urls, clock, random: () => 0, fetch, get, verify: false }, { driver });
  await deliver(hub, [live('a', T)]);
  await clock.advance(5_000);
  const { peer_states: states } = await hub.health();
  expect(states).toHaveLength(edges);
  for (const state of states) expect(state).toMatchObject({ pending: 0, node_id: new URL(state.url).hostname });
  await clock.advance(5_000);
  const [from, before] = [statements.length, asked];
  await clock.advance(1_000 * SECONDS);
  return { statements: statements.slice(from), asked: asked - before };
}

/** As a node that has something new to say each time. */
function saidBy(id: string, tick: number) {
  const inc = Number(id.slice(1)).toString(16).padStart(16, '0');
  return {
    get: (name: string): string | null =>
      name === 'x-rowcast' ? `id=${id}; inc=${inc}; boot=1-01234567; t0=0; t=${tick}; low=1` : null,
  };
}

/** What the store is asked, and when all of that is answered. */
function watched() {
  const statements: string[] = [];
  let open = 0;
  const during = <R>(done: Promise<R>): Promise<R> => {
    open += 1;
    const over = (): void => {
      open -= 1;
    };
    done.then(over, over);
    return done;
  };
  class Watched extends plantedDriver({}).Client {
    override connect(): Promise<unknown> {
      return during(super.connect());
    }

    override query(text: string, values?: unknown[]): ReturnType<InstanceType<PostgresDriver['Client']>['query']> {
      statements.push(text);
      return during(super.query(text, values));
    }
  }
  /** What follows from an answer begins in the same turn of the event loop, or in one of the next. */
  const quiet = async (): Promise<void> => {
    for (let turns = 0; turns < 5; turns = open > 0 ? 0 : turns + 1) await new Promise((next) => setImmediate(next));
  };
  return { driver: { Client: Watched }, statements, quiet };
}

function counted(statements: string[]): Record<string, number> {
  const count = (text: RegExp): number => statements.filter((one) => text.test(one)).length;
  return Object.fromEntries(STEADY.map(([kind, text]) => [kind, count(text)]));
}

function other(statements: string[]): number {
  return statements.filter((one) => !STEADY.some(([, text]) => text.test(one))).length;
}
