/**
 * Schedules that are as brief as they can be and still be about something: two machines or three, one theme, a handful of
 * writes, and two kinds of trouble at most. Most bugs need no more than that, and of these schedules some five run in the time
 * of one of the others. What needs more machines, more trouble at once or more time is left to those.
 *
 * They have seeds of their own, above all others: a seed means the same schedule as before there were any.
 */
import type { Focus, Theme } from './focus.ts';
import type { Fault, Plan, Topology } from './plan.ts';
import { stream } from './random.ts';

/** The first of them is the seed after this one. Soaks draw below it. */
export const BRIEF_FROM = 2_000_000_000;

export function isBrief(seed: number): boolean {
  return seed > BRIEF_FROM;
}

/**
 * How many of so many brief schedules. Of those in which schemas change or databases have lives there are fewer than among
 * the others, because one of them takes as long as four or five of the rest.
 */
export const BRIEF_FOCI: [Focus, number][] = [
  ['everything', 8],
  ['delivery', 8],
  ['lives', 2],
  ['uniques', 4],
  ['schemas', 1],
  ['gaps', 1],
  ['hubs', 6],
  ['power', 5],
  ['backlog', 6],
  ['comparison', 2],
];

/** Of what takes long and is not what the theme is about there is so much less. */
const LESS = 0.15;
/** What makes it about that. */
const CENTRAL = 0.5;

/** A theme, as brief schedules have it. */
export function briefTheme(theme: Theme): Theme {
  const less = (likely: number): number => (likely < CENTRAL ? LESS * likely : likely);
  const { schema, rebuild, ...others } = theme.faults;
  return {
    ...theme,
    faults: { ...others, schema: less(schema ?? LESS * LESS), rebuild: less(rebuild ?? LESS * LESS) },
    lives: less(theme.lives),
    uniques: less(theme.uniques),
    verifies: less(theme.verifies),
    collects: LESS * theme.collects,
    forgets: LESS * theme.forgets,
  };
}

/** Of the time that a long schedule takes; see `scale` in plan.ts. */
export const BRIEF_SCALE = 0.2;

/** As many transactions at most. */
const WRITES_MOST = 9;
/** As many faults at most, and of those of its theme rather than others. */
const FAULTS_MOST = 2;

/** Of the topologies of a theme, a pair much more often, and a star: what takes a third node is then the exception. */
export function briefTopologies(usual: [Topology, number][]): [Topology, number][] {
  const more: Partial<Record<Topology, number>> = { pair: 5, star: 3 };
  return usual.map(([topology, weight]) => [topology, (more[topology] ?? 1) * weight]);
}

/** Three machines at most, but for two hubs, each of which needs a node. */
export function briefNodes(topology: Topology): number {
  return topology === 'pair' || topology === 'star' || topology === 'hubs' ? 2 : 3;
}

/** What a theme has asked for beyond that is taken away again. */
export function keepBrief(plan: Plan): void {
  plan.writes = Math.min(plan.writes, WRITES_MOST);
  plan.nodes = briefNodes(plan.topology);
}

/** As is what was drawn. */
export function leaveFewFaults(plan: Plan, { faults: own }: Theme): void {
  const random = stream(plan.seed, 'few faults');
  const drawn = random.shuffle(Object.keys(plan.faults) as Fault[]);
  const sorted = [...drawn.filter((fault) => fault in own), ...drawn.filter((fault) => !(fault in own))];
  for (const fault of sorted.slice(FAULTS_MOST)) delete plan.faults[fault];
}
