/**
 * Two nodes that write, receive and ship, as processes of their own with real files and real HTTP between them, killed with
 * SIGKILL at any moment: while they start, commit, apply, ship and drain. What was committed or acknowledged is not lost.
 *
 * `npm run kill-loop -- 2000` runs more cycles. The moments come from a seed, which a failure names; what the processes
 * have done by then does not, so a seed narrows a failure down and does not repeat it exactly.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { buildLibrary } from '../support/build.ts';
import type { TestDatabase } from '../support/lane.ts';
import { Random } from '../support/model.ts';
import { exactRows, rowsOf, scratchFolder } from '../support/nodes.ts';
import { SEED } from '../support/seed.ts';
import type { Child } from './kill-children.ts';
import { expectDelivered, type Place, pair, stateOf } from './kill-pair.ts';

/** On each of the lanes, so `npm test` has four times as many. */
const CYCLES = Number(process.env.ROWCAST_KILL_CYCLES ?? 34);
/** After these the nodes are drained and compared, and two new ones begin: a cycle costs the same in the thousandth round. */
const CYCLES_A_ROUND = 40;
const KILL_SEED = Number(process.env.ROWCAST_KILL_SEED ?? SEED);
/** Processes are started one after the other; a busy machine takes a second for each. */
const PATIENCE = { timeout: 300_000 + CYCLES * 20_000 };

let build: Awaited<ReturnType<typeof buildLibrary>>;
beforeAll(async () => {
  build = await buildLibrary();
});
afterAll(() => build.remove());

test(
  `${CYCLES} cycles of killing writers and receivers, seed ${KILL_SEED}: nothing committed or acknowledged is lost`,
  PATIENCE,
  async () => {
    const total = { cycles: 0, commits: 0, acknowledged: 0 };
    for (let round = 0; total.cycles < CYCLES; round++) {
      const cycles = Math.min(CYCLES_A_ROUND, CYCLES - total.cycles);
      const places = await pair(build.folder, scratchFolder());
      await killAgainAndAgain(places, cycles, KILL_SEED + round);
      await expectTheSame(places, `seed ${KILL_SEED + round}`);
      total.cycles += cycles;
      for (const { commits, acknowledged } of places) {
        total.commits += commits;
        total.acknowledged += acknowledged;
      }
      if (CYCLES > CYCLES_A_ROUND) console.log(`round ${round}, seed ${KILL_SEED + round}: ${JSON.stringify(total)}`);
    }
    expect(total.commits).toBeGreaterThan(CYCLES);
    expect(total.acknowledged).toBeGreaterThan(CYCLES);
  },
);

async function killAgainAndAgain(places: [Place, Place], cycles: number, seed: number): Promise<void> {
  const random = new Random(seed);
  for (let cycle = 0; cycle < cycles; cycle++) {
    const victims = random.pick([[places[0]], [places[1]], places]);
    const moment = random.pick(MOMENTS);
    const why = `cycle ${cycle} of seed ${seed}: ${victims.map(({ id }) => id).join(' and ')} killed ${moment}`;
    if (moment === 'while starting' || moment === 'while draining') for (const victim of victims) await victim.kill();
    for (const place of places) {
      if (!place.child) place.start(moment === 'while draining' && victims.includes(place) ? 'drain' : 'write');
    }
    await Promise.all(victims.map((victim) => comes(moment, victim, random)));
    await Promise.all(victims.map((victim) => victim.kill()));
    await expectNothingLost(victims, places, why);
  }
}

const MOMENTS = ['while starting', 'between commits', 'between acknowledgements', 'while draining'] as const;

/** Resolves when it is time to kill: counted in lines, and then some: the place within a commit or a request is chance. */
async function comes(moment: (typeof MOMENTS)[number], { child }: Place, random: Random): Promise<void> {
  const count = 1 + random.below(80);
  const pause = random.next() * (moment === 'while starting' ? 250 : 4);
  if (!child) throw new Error('it was not started');
  if (moment === 'between commits') await lines(child, /^\+/, count);
  if (moment === 'between acknowledgements') await lines(child, /^a/, 1 + (count >> 3));
  if (moment === 'while draining') await lines(child, /^(a|drained)/, 1 + (count >> 4));
  await new Promise((resolve) => setTimeout(resolve, pause));
}

/** Waits for so many lines of a kind after those that are `known`, or for the line that says that there will be no more. */
async function lines(child: Child, kind: RegExp, count: number, known = child.lines.length): Promise<void> {
  let seen = 0;
  for (let n = known + 1; seen < count; n++) {
    const line = await child.line(n);
    if (kind.test(line)) seen += 1;
    if (line === 'drained') return;
  }
}

/** The victims are dead, and not started again yet: their files are what their promises are worth. */
async function expectNothingLost(victims: Place[], places: [Place, Place], why: string): Promise<void> {
  const opened = new Map<Place, TestDatabase | undefined>();
  for (const place of places) opened.set(place, await place.open());
  try {
    for (const victim of victims) {
      const db = opened.get(victim) as TestDatabase;
      expect(rowsOf(db, 'PRAGMA integrity_check'), why).toEqual([{ integrity_check: 'ok' }]);
      victim.expectReported(db, why);
      const peer = opened.get(victim.peer);
      const dead = stateOf(db);
      const other = peer && stateOf(peer);
      if (!dead || !other) continue;
      // The dead one does not change any more, so it counts as read before and after the other.
      expectDelivered(dead, other, `${why}, sent by ${victim.id}`);
      expectDelivered(other, dead, `${why}, received by ${victim.id}`);
      expect(rowsOf(db, "SELECT value FROM _meta WHERE key = 'syncing' AND value <> 0"), why).toEqual([]);
    }
  } finally {
    for (const db of opened.values()) db?.close();
  }
}

async function expectTheSame(places: [Place, Place], why: string): Promise<void> {
  for (const place of places) await place.kill();
  const drains = places.map((place) => place.start('drain'));
  for (const child of drains) await lines(child, /^drained/, 1, 0);
  for (const place of places) await place.end();
  const [a, b] = (await Promise.all(places.map((place) => place.open()))) as [TestDatabase, TestDatabase];
  try {
    for (const db of [a, b]) {
      for (const place of places) place.expectReported(db, `at the end of ${why}`);
      expect(rowsOf(db, 'SELECT count(*) AS n FROM _changes'), why).toEqual([{ n: 0 }]);
      expect(rowsOf(db, 'SELECT count(*) AS n FROM _dead_letter'), why).toEqual([{ n: 0 }]);
      expect(rowsOf(db, "SELECT value FROM _meta WHERE key = 'syncing' AND value <> 0"), why).toEqual([]);
      expect(rowsOf(db, 'PRAGMA integrity_check'), why).toEqual([{ integrity_check: 'ok' }]);
    }
    expect(exactRows(a, 'items'), why).toEqual(exactRows(b, 'items'));
  } finally {
    a.close();
    b.close();
  }
}
