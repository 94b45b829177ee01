/**
 * What a seed means: which machines there are, what is written, and what goes wrong how often.
 *
 * Faults are drawn as a swarm: each schedule has its own few, at its own rates. A schedule in which everything fails all
 * the time explores less than many schedules which each lack something.
 */
import { BRIEF_SCALE, briefNodes, briefTheme, briefTopologies, isBrief, keepBrief, leaveFewFaults } from './brief.ts';
import { isAboutAbsence, losesBesides, planDays } from './days.ts';
import { type Focus, focusOf, sharpen, themeOf } from './focus.ts';
import { planFutures } from './futures.ts';
import { type KeysPlan, planKeys } from './keys.ts';
import { planLives } from './lives.ts';
import { addsColumn, dropsColumn, isMiddling, type Migration, migrationOf } from './migration.ts';
import { logUniform, type Random, stream, weighted } from './random.ts';

/** Everything that can go wrong, by the name under which `--without` takes it away. */
export const FAULTS = [
  'drop',
  'delay',
  'duplicate',
  'partition',
  'lost-answer',
  'torn',
  'empty',
  'html',
  'wrong-ack',
  'too-large',
  'throttled',
  'failing',
  'hang',
  'poison',
  'crash',
  'power-cut',
  'skew',
  'jump',
  'coarse',
  'locked',
  'full',
  'read-only',
  'other-process',
  'held',
  'schema',
  'rebuild',
  'foreign',
  'two-attachments',
  'roster',
  'bound',
  'commit',
  'halfway',
] as const;

export type Fault = (typeof FAULTS)[number];

export type Topology = 'pair' | 'mesh' | 'star' | 'hubs' | 'join' | 'leave' | 'return';

export interface Plan {
  seed: number;
  focus: Focus;
  topology: Topology;
  nodes: number;
  /** By how much less time everything takes that is drawn here, and by how much less is written: see `SHORT`. */
  scale: number;
  /** How long the application writes and things go wrong, in virtual milliseconds. */
  troubleMs: number;
  /** Transactions of the application, over all nodes. */
  writes: number;
  /** Ids per table: few, so that nodes collide. */
  ids: number;
  batchMs: number;
  batchSize: number;
  /** Batches of more changes are applied in parts; undefined: as they are by default, which none of these is large enough for. */
  atOnce: number | undefined;
  requestTimeoutMs: number;
  foreignKeys: boolean;
  /** There is a table with UNIQUE constraints besides its id, and most of the writes are to it. */
  uniques: boolean;
  /** Databases that have never been attached, instead of emptied ones. */
  fresh: boolean;
  /** Answers may say that batches come in any order, which is what a sender needs to have two under way. */
  pairs: boolean;
  /** Nobody is told who anybody is: to each other, they are all peers that are not Rowcast. */
  plain: boolean;
  /** Two machines are compared in the end: see verifying.ts. */
  verifies: boolean;
  /** Databases are lost, put back and copied: see lives.ts. */
  lives: boolean;
  /** Clocks are wrong by months: see futures.ts. */
  futures: boolean;
  /** Nodes collect tombstones all the time: see days.ts. */
  forgets: boolean;
  /** Machines sign what they send and what they answer: see keys.ts. */
  keys: KeysPlan;
  /** Absent where it does not happen. Probabilities per request or, for what befalls a machine, times per second. */
  faults: Partial<Record<Fault, number>>;
  /** What becomes of the nodes' schemas, where `schema` is among the faults. */
  migration: Migration;
}

/** Have not all nodes the same columns all the time? */
export function isMixed({ faults, migration }: Plan): boolean {
  return faults.schema !== undefined && (addsColumn(migration) || dropsColumn(migration));
}

/**
 * May nodes choose differently of two versions of one time, until they are compared? What they then agree upon is one of
 * them, or put together from both. A column that is not there does not count, so those who have dropped it already may find
 * another one greater.
 */
export function leavesTies({ faults, migration }: Plan): boolean {
  return faults.schema !== undefined && (isMiddling(migration) || dropsColumn(migration));
}

/** Where commits fail, they do so for a while after the other trouble: most of what comes in comes then. */
export function commitsFailUntil({ troubleMs, scale }: Plan): number {
  return troubleMs + scale * 2_000;
}

/** What a replay takes away from a schedule. */
export interface Reduction {
  without: Fault[];
  /** The indexes of the application's transactions that are left out. */
  skip: number[];
}

export const NOTHING_TAKEN: Reduction = { without: [], skip: [] };

/** How many of the schedules have receivers that apply batches in parts. */
const IN_PARTS = 0.4;

/**
 * Most schedules are short: what goes wrong shows after a few writes, if there are enough schedules, and many short ones
 * explore more than a few long ones. The others have what takes many writes, or time to settle.
 */
const SHORT = 0.35;
const LONG = 0.06;

const TOPOLOGIES: [Topology, number][] = [
  ['pair', 6],
  ['mesh', 5],
  ['star', 4],
  ['hubs', 3],
  ['join', 1],
  ['leave', 1],
  ['return', 1],
];

/** Nothing in Rowcast sleeps for just so long: by these the loops are known, see looks.ts. */
const BATCH_MS = [83, 211, 503];
const SHORT_BATCH_MS = [31, 73, 177];

/** How often the common faults are part of a schedule at all; the costly ones less. */
const USUAL = 0.3;
const RARE: Partial<Record<Fault, number>> = {
  'power-cut': 0.12,
  schema: 0.05,
  full: 0.12,
  'read-only': 0.08,
  held: 0.2,
  poison: 0.15,
  rebuild: 0.1,
  foreign: 0.1,
  'two-attachments': 0.08,
  roster: 0.15,
  bound: 0.1,
  commit: 0.15,
};

export function planFor(seed: number, taken: Reduction = NOTHING_TAKEN): Plan {
  const random = stream(seed, 'plan');
  const focus = focusOf(seed);
  const brief = isBrief(seed);
  const theme = brief ? briefTheme(themeOf(focus)) : themeOf(focus);
  const usual = theme.topologies ?? TOPOLOGIES;
  const topology = weighted(random, brief ? briefTopologies(usual) : usual);
  const nodes = brief ? briefNodes(topology) : nodesOf(topology, random);
  const chance = (name: string, of: number): boolean => stream(seed, name).chance(of);
  const scale = brief ? BRIEF_SCALE : chance('long', LONG) ? 1 : SHORT;
  const plan: Plan = {
    seed,
    focus,
    topology,
    nodes,
    scale,
    troubleMs: scale * (250 + random.below(random.chance(0.1) ? 5_000 : 1_100)),
    writes: 3 + Math.round(scale * random.below(random.chance(0.05) ? 50 : 14)),
    ids: 2 + random.below(4),
    batchMs: random.pick(scale < 1 ? SHORT_BATCH_MS : BATCH_MS),
    batchSize: random.pick([1, 2, 3, 5, 20, 1_000]),
    atOnce: chance('parts', IN_PARTS) ? 1 + stream(seed, 'at once').below(2) : undefined,
    requestTimeoutMs: Math.round(scale * random.pick([300, 1_000, 4_000])),
    foreignKeys: random.chance(theme.foreignKeys),
    uniques: chance('uniques', theme.uniques),
    fresh: random.chance(0.01),
    pairs: chance('pairs', 0.7),
    plain: chance('plain', theme.plain),
    verifies: chance('verifies', theme.verifies),
    lives: chance('lives', theme.lives),
    futures: false,
    forgets: false,
    keys: 'none',
    faults: {},
    migration: migrationOf(seed),
  };
  for (const fault of FAULTS) {
    const usual = RARE[fault] ?? USUAL;
    const likely = theme.faults[fault] ?? usual * theme.others * (fault in RARE && focus !== 'everything' ? 1 / 3 : 1);
    const on = random.next() < likely;
    const rate = rateOf(fault, random, scale);
    if (on && !taken.without.includes(fault)) plan.faults[fault] = rate;
  }
  if (brief) leaveFewFaults(plan, theme);
  keepApart(plan);
  if (plan.lives) planLives(plan);
  sharpen(plan);
  planFutures(plan, brief ? 0.025 : 0.1);
  planDays(plan, theme.forgets);
  planKeys(plan, brief ? 0.01 : 0.04);
  giveTime(plan);
  if (brief) keepBrief(plan);
  return plan;
}

/** What a theme needs besides, in schedules of that length. */
export function lengthen(plan: Plan, more: { ms?: number; writes?: number }): void {
  plan.troubleMs += plan.scale * (more.ms ?? 0);
  plan.writes += Math.round(plan.scale * (more.writes ?? 0));
}

/**
 * Is a seed's schedule one of that theme? Those with keys, days, one migration or one fault are few, and are found by these;
 * those of two by `days+schema`. `values`: some must be unique; `references`: by foreign keys; `relays`: with a hub or two.
 */
export function isAbout(seed: number, theme: string): boolean {
  if (theme === 'keys') return planFor(seed).keys !== 'none';
  if (theme === 'days') return planFor(seed).forgets;
  if (theme === 'absence') return isAboutAbsence(planFor(seed));
  if (theme === 'losses') return losesBesides(planFor(seed));
  if (theme === 'values') return planFor(seed).uniques;
  if (theme === 'references') return planFor(seed).foreignKeys;
  if (theme === 'relays') return ['star', 'hubs'].includes(planFor(seed).topology);
  if (theme.includes('+')) return theme.split('+').every((one) => isAbout(seed, one));
  if (theme === 'halfway' || theme === 'bound' || theme === 'schema' || theme === 'roster' || theme === 'rebuild')
    return planFor(seed).faults[theme] !== undefined;
  if (!theme.startsWith('migration:')) return focusOf(seed) === theme;
  const { faults, migration } = planFor(seed);
  return faults.schema !== undefined && migration.endsWith(theme.slice('migration:'.length));
}

/** Some trouble needs time or writes to show: five refusals take a second and a half, a cut must come upon something. */
function giveTime(plan: Plan): void {
  const { faults } = plan;
  // By delays that are Rowcast's own, however brief the schedule is.
  if (faults.poison !== undefined) plan.troubleMs += REFUSED_MS + plan.scale * 2_000;
  if (faults.empty !== undefined && stream(plan.seed, 'nothing but empty answers').chance(0.2)) {
    faults.empty = 0.95;
    plan.troubleMs += REFUSED_MS;
  }
  // What a hub is asked for again waits, and may be forgotten meanwhile.
  const hasHub = plan.topology === 'star' || plan.topology === 'hubs';
  if (faults.rebuild !== undefined && hasHub) faults.rebuild = Math.max(faults.rebuild, 5 / plan.scale);
  if (faults['power-cut'] !== undefined) lengthen(plan, { writes: 8 });
  if (plan.foreignKeys) lengthen(plan, { writes: 20 });
  if (faults.schema !== undefined) lengthen(plan, { writes: 20 });
  if (plan.uniques) lengthen(plan, { writes: 8 });
  if (faults.bound !== undefined) lengthen(plan, { ms: 1_500, writes: 12 });
}

/** Five refusals, with the pauses between them. */
const REFUSED_MS = 1_800;

/** Takes away what would make a question of two that are asked on their own. */
function keepApart(plan: Plan): void {
  const { faults } = plan;
  // Rows between nodes of different schemas mix, and what comes of them depends on the way that they have taken.
  if (faults.schema !== undefined) {
    // Versions of one time are where it matters who knows which column.
    const random = stream(plan.seed, 'ties');
    plan.plain = false;
    if (random.chance(0.6)) faults.coarse = 1_000;
    // Of many rows some are not written again when two of one time have met.
    plan.ids = random.pick([2, 2, 6]);
    plan.foreignKeys = false;
    delete faults.foreign;
  }
  // Nor does the other implementation, which replaces rows with capture off, tell what that takes with it.
  if (faults.foreign !== undefined) plan.foreignKeys = false;
  if (plan.foreignKeys || faults.schema !== undefined) plan.uniques = false;
  // What is made in a transaction that fails, and kept in memory, is mostly about hidden rows.
  if (plan.uniques && stream(plan.seed, 'failing commits').chance(0.3)) faults.commit ??= 0.3;
  // A hub sends on what it was sent, and of two versions of one time a plain sender means the later one.
  if (plan.topology === 'star' || plan.topology === 'hubs') plan.plain = false;
  // One that has not counted up its beat for a minute is taken for dead: by a clock that jumps, at once.
  if (plan.topology !== 'pair' && plan.topology !== 'mesh') delete faults['two-attachments'];
  if (faults['two-attachments'] !== undefined) {
    delete faults.jump;
    delete faults.rebuild;
  }
  // A peer becomes stale where it is paused; who comes and goes for good, and who shares a file, is asked on its own.
  if (faults.bound !== undefined) faults.roster ??= 2;
  if ((plan.topology !== 'pair' && plan.topology !== 'mesh') || faults['two-attachments'] !== undefined) {
    delete faults.bound;
    if (plan.topology !== 'star' && plan.topology !== 'hubs') delete faults.roster;
    if (faults['two-attachments'] !== undefined) delete faults.roster;
  }
}

function nodesOf(topology: Topology, random: Random): number {
  if (topology === 'pair') return 2;
  if (topology === 'mesh') return random.pick([3, 3, 3, 3, 3, 4, 5]);
  if (topology === 'hubs') return random.pick([2, 2, 2, 2, 3, 4]);
  return topology === 'star' ? random.pick([2, 2, 2, 3, 4]) : 3;
}

/** Of what befalls a machine there is as much in a brief schedule as in a long one. */
function rateOf(fault: Fault, random: Random, scale: number): number {
  switch (fault) {
    case 'delay':
      return scale * logUniform(random, 10, 2_000);
    case 'power-cut':
      return logUniform(random, 1, 8) / scale;
    case 'crash':
    case 'partition':
    case 'locked':
    case 'full':
    case 'read-only':
    case 'held':
    case 'other-process':
    case 'jump':
    case 'foreign':
    case 'two-attachments':
      return logUniform(random, 0.1, 3) / scale;
    case 'roster':
      return logUniform(random, 0.5, 4) / scale;
    case 'bound':
      return 1 + random.below(3);
    case 'rebuild':
      return logUniform(random, 1, 6) / scale;
    case 'skew':
      return logUniform(random, 10, 6 * 3_600_000);
    case 'coarse':
      return random.pick([10, 1_000, 100_000]);
    case 'too-large':
      return 1 + random.below(4);
    case 'halfway':
      return 0.3 + random.next() / 2;
    default:
      return logUniform(random, 0.02, 0.6);
  }
}
