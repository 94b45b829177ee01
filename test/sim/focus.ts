/**
 * What a schedule is about. Most have a theme, and what the theme needs happens in them all the time, beside little else:
 * where every kind of trouble is drawn for every schedule, each new kind makes all the others rarer, and what takes three
 * of them at once never happens. The others, of every fourth seed or so, may have anything.
 */
import { BRIEF_FOCI, isBrief } from './brief.ts';
import { type Fault, lengthen, type Plan, type Topology } from './plan.ts';
import { stream, weighted } from './random.ts';

export type Focus =
  | 'everything'
  | 'delivery'
  | 'lives'
  | 'uniques'
  | 'schemas'
  | 'gaps'
  | 'hubs'
  | 'power'
  | 'backlog'
  | 'comparison';

/** How many of so many schedules. */
const FOCI: [Focus, number][] = [
  ['everything', 9],
  ['delivery', 4],
  ['lives', 6],
  ['uniques', 4],
  ['schemas', 3],
  ['gaps', 3],
  ['hubs', 4],
  ['power', 3],
  ['backlog', 4],
  ['comparison', 2],
];

export interface Theme {
  /** Where another choice than the usual one is due. */
  topologies?: [Topology, number][];
  /** How often these are part of it. */
  faults: Partial<Record<Fault, number>>;
  /** The usual chance of all other trouble is multiplied by this; of what asks questions of its own, by a third of it. */
  others: number;
  lives: number;
  uniques: number;
  /** Rows that refer to others, which may come later. */
  foreignKeys: number;
  /** Peers that do not say who they are, and are sent whole tables where others are compared with. */
  plain: number;
  /** Two machines are compared when the trouble is over. */
  verifies: number;
  /** A node collects its tombstones, and is sent everything once more. */
  collects: number;
  /** All nodes collect theirs, all the time. */
  forgets: number;
}

const USUAL: Omit<Theme, 'faults'> = {
  others: 0.5,
  lives: 0,
  uniques: 0.03,
  foreignKeys: 0.05,
  plain: 0.05,
  verifies: 0.04,
  collects: 0.04,
  forgets: 0.03,
};

const THEMES: Record<Focus, Theme> = {
  everything: { ...USUAL, others: 1, faults: {}, lives: 0.12, uniques: 0.16, verifies: 0.08 },
  // Requests and answers: what is refused, lost, torn, doubled and late.
  delivery: {
    ...USUAL,
    others: 0.8,
    faults: { duplicate: 0.5, delay: 0.5, 'lost-answer': 0.5, 'wrong-ack': 0.4, poison: 0.35, 'too-large': 0.4 },
    foreignKeys: 0.3,
  },
  // Backups, lost disks, copies, URLs: who is who.
  lives: {
    ...USUAL,
    topologies: [
      ['pair', 5],
      ['mesh', 5],
      ['star', 3],
      ['hubs', 2],
    ],
    faults: { partition: 0.6, delay: 0.5, crash: 0.3, 'power-cut': 0.15, schema: 0.15 },
    lives: 1,
    forgets: 0.15,
  },
  // Values that two rows cannot both have, and whoever comes later and must be told of hidden rows, too.
  uniques: {
    ...USUAL,
    topologies: [
      ['pair', 5],
      ['mesh', 3],
      ['join', 3],
      ['return', 2],
      ['star', 2],
    ],
    // A clash takes two that cannot see each other.
    faults: { commit: 0.3, bound: 0.25, coarse: 0.3, partition: 0.7 },
    uniques: 1,
    plain: 0.35,
  },
  // A column that some have and others do not yet.
  schemas: {
    ...USUAL,
    topologies: [
      ['pair', 2],
      ['mesh', 6],
      ['star', 2],
      ['hubs', 1],
      ['return', 1],
    ],
    faults: { schema: 1, delay: 0.6, duplicate: 0.5, crash: 0.3, 'lost-answer': 0.3, rebuild: 0.15, 'power-cut': 0.15 },
    uniques: 0,
    plain: 0,
  },
  // Tables that are rebuilt, and changes that somebody else records.
  gaps: {
    ...USUAL,
    topologies: [
      ['pair', 5],
      ['mesh', 4],
      ['star', 2],
      ['hubs', 1],
    ],
    faults: { rebuild: 0.85, foreign: 0.4, crash: 0.3, delay: 0.4 },
    plain: 0.4,
  },
  hubs: {
    ...USUAL,
    topologies: [
      ['star', 4],
      ['hubs', 4],
    ],
    faults: { crash: 0.5, partition: 0.4, roster: 0.4, rebuild: 0.3, coarse: 0.5 },
    lives: 0.15,
    plain: 0,
  },
  power: { ...USUAL, faults: { 'power-cut': 1, delay: 0.4, 'lost-answer': 0.4 } },
  // Peers that are paused, away for too long, removed, and back; two processes on one file.
  backlog: {
    ...USUAL,
    topologies: [
      ['pair', 4],
      ['mesh', 4],
      ['join', 1],
      ['leave', 1],
      ['return', 2],
    ],
    faults: { bound: 0.5, roster: 0.7, partition: 0.4, 'two-attachments': 0.3 },
    plain: 0.2,
  },
  comparison: { ...USUAL, faults: { schema: 0.15 }, uniques: 0.2, verifies: 0.6, collects: 0.6, forgets: 0.15 },
};

export function focusOf(seed: number): Focus {
  return weighted(stream(seed, 'focus'), isBrief(seed) ? BRIEF_FOCI : FOCI);
}

export function themeOf(focus: Focus): Theme {
  return THEMES[focus];
}

/** What makes the theme dense: more rows than a batch has, so that walks have pages, and writes enough to be lost. */
export function sharpen(plan: Plan): void {
  const random = stream(plan.seed, 'sharpen');
  if (plan.lives || plan.plain || plan.focus === 'gaps') {
    if (random.chance(0.7)) plan.batchSize = random.pick([1, 1, 2, 3]);
    plan.ids = 3 + random.below(5);
    lengthen(plan, { writes: 8 });
  }
  // Two batches are under way where there is more than one to send, to a peer that answers soon.
  if (plan.focus === 'delivery' && stream(plan.seed, 'two batches').chance(0.6)) {
    plan.batchSize = random.pick([1, 1, 2]);
    plan.requestTimeoutMs = Math.round(plan.scale * random.pick([1_000, 4_000]));
    lengthen(plan, { writes: 12 });
  }
  if (plan.uniques) {
    plan.ids = 3 + random.below(3);
    lengthen(plan, { writes: 16 });
    // Before a clash is known of, both rows must have been told.
    if (plan.topology === 'join' || plan.topology === 'return') lengthen(plan, { ms: 1_500 });
  }
}
