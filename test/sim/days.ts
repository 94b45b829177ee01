/**
 * Nodes that collect their tombstones while things go wrong: days pass on all clocks, and whoever is away, dies or is put back
 * meanwhile is waited for, or is not. No row that a node has deleted may come back there, whatever is brought to it.
 *
 * Where nobody loses anything, nothing is ever set aside for a floor. Where databases have lives, or somebody is away for days,
 * it may be, and somebody has to decide: the row is written anew where it is, or is not wanted.
 */
import { DAY_MS } from './futures.ts';
import type { Losses } from './losses.ts';
import type { Machine, Surroundings } from './machine.ts';
import { tableNamed, tableOn } from './migration.ts';
import { type Key, keyOf } from './oracle.ts';
import { lengthen, type Plan } from './plan.ts';
import { logUniform, type Random, stream } from './random.ts';
import { MINUTE_MS } from './roster.ts';

/** What such a schedule has beside. Whoever is refused for days may rightly come too late; so may who is away, see planAbsence. */
const ALLOWED = new Set([
  'drop',
  'delay',
  'duplicate',
  'partition',
  'lost-answer',
  'torn',
  'empty',
  'html',
  'throttled',
  'failing',
  'hang',
  'crash',
  'power-cut',
  'skew',
  'coarse',
  'locked',
  'held',
  'other-process',
  'commit',
  'halfway',
  'schema',
]);

/** Of the rest there is little: nothing is collected before everybody has been heard. */
const HEAVY = new Set(['crash', 'power-cut', 'partition', 'skew', 'schema']);

/** Whether a seed is such a schedule; and makes it one. */
export function planDays(plan: Plan, likely: number): void {
  const random = stream(plan.seed, 'forgetful');
  if (plan.futures || !random.chance(likely)) return;
  const migrates = plan.faults.schema !== undefined;
  plan.forgets = true;
  plan.plain = false;
  plan.foreignKeys = !migrates && stream(plan.seed, 'days of notes').chance(0.3);
  plan.uniques = !migrates && !plan.lives && !plan.foreignKeys && stream(plan.seed, 'unique days').chance(0.4);
  if (!['pair', 'mesh', 'star', 'hubs'].includes(plan.topology)) plan.topology = 'mesh';
  for (const fault of Object.keys(plan.faults)) {
    const isKept = ALLOWED.has(fault) && (HEAVY.has(fault) || random.chance(0.3));
    if (!isKept) delete plan.faults[fault as keyof Plan['faults']];
  }
  planAbsence(plan, migrates);
  lengthen(plan, { ms: 7_000, writes: 30 });
  // Who was put back is compared, which takes seconds.
  if (losesBesides(plan)) lengthen(plan, { ms: 6_000 });
}

/** Some are paused, removed or stale while days pass: what they bring after that is decided as after a life. */
function planAbsence(plan: Plan, migrates: boolean): void {
  const isMesh = plan.topology === 'pair' || plan.topology === 'mesh';
  const isPlain = !migrates && !plan.uniques && !plan.foreignKeys && isMesh;
  // Drawn on its own, so that the schedules in which nothing else is asked are those that they were.
  const random = stream(plan.seed, isPlain ? 'absent for days' : 'absent beside something else');
  if (!random.chance(0.4)) return;
  plan.lives = true;
  plan.faults.roster = logUniform(random, 0.5, 4) / plan.scale;
  if (random.chance(0.8)) plan.faults.bound = 1 + random.below(3);
  const rebuilding = stream(plan.seed, 'rebuilt beside absence');
  if (!migrates && rebuilding.chance(0.25)) plan.faults.rebuild = logUniform(rebuilding, 1, 3) / plan.scale;
}

/** Somebody is away for days, and others may forget meanwhile. */
export function isAboutAbsence({ forgets, faults }: Plan): boolean {
  return forgets && faults.roster !== undefined;
}

/** Whether databases are lost, put back and copied besides. Drawn on its own: the others are the schedules that they were. */
export function losesBesides(plan: Plan): boolean {
  return isAboutAbsence(plan) && stream(plan.seed, 'losses beside absence').chance(0.4);
}

/** With time for everybody to be asked how he is, and for a collection. */
const BETWEEN_MS = 1_500;
const DAYS_AFTER = 2;
/** With time for writes that nobody hears of, before days pass. */
const AWAY_MS = 1_500;
/** A deletion is kept for a day, and for the rest of the days that this began and ended in. */
const DAYS = 3;
const MINUTES = 12;
/** With time for a request; each brings everybody to look, and a collection takes some looks. */
const LOOKED_MS = 20;

export class Days {
  readonly #world: Surroundings;
  readonly #machines: Machine[];
  readonly #random: Random;
  /** What is lost while one is away. */
  readonly #losses: (away: Machine) => Losses | undefined;
  #over = false;

  constructor(world: Surroundings, machines: Machine[], losses: (away: Machine) => Losses | undefined) {
    this.#world = world;
    this.#losses = losses;
    this.#machines = machines;
    this.#random = stream(world.plan.seed, 'day');
  }

  /** Before anything runs. */
  plan(): void {
    const { timeline, plan } = this.#world;
    for (let i = 2 + this.#random.below(4); i > 0; i--) {
      timeline.in(this.#random.next() * plan.troubleMs, () => this.#pass());
    }
    if (!isAboutAbsence(plan)) return;
    const random = stream(plan.seed, 'who is away');
    for (let i = 1 + random.below(2); i > 0; i--) {
      timeline.in((0.1 + random.next() / 2) * plan.troubleMs, () => this.#beAway(random));
    }
  }

  /** Nobody hears of one, nor it of anybody, until days have passed; meanwhile all write, and the others may forget. */
  #beAway(random: Random): void {
    const { timeline, plan, network } = this.#world;
    const away = random.pick(this.#machines);
    const others = this.#machines.filter((one) => one !== away);
    const links = others.flatMap(({ name }) => [`${away.name} ${name}`, `${name} ${away.name}`]);
    this.#world.trace(`${away.name} is away`);
    for (const link of links) network.cut.add(link);
    const losses = this.#losses(away);
    const days = plan.scale * AWAY_MS * (0.3 + random.next());
    timeline.in(days, () => {
      losses?.at('left');
      this.#pass();
    });
    if (losses) timeline.in(days + MINUTES * (LOOKED_MS + plan.batchMs), () => losses.at('days'));
    timeline.in(days + MINUTES * (LOOKED_MS + plan.batchMs) + BETWEEN_MS * random.next(), () => {
      this.#world.trace(`${away.name} is back`);
      for (const link of links) network.cut.delete(link);
      losses?.at('back');
    });
  }

  /** The trouble is over: what is left to collect goes. */
  healed(): void {
    const { timeline } = this.#world;
    const pass = (day: number): void => {
      if (day === DAYS_AFTER) {
        this.#over = true;
        return;
      }
      this.#pass();
      timeline.in(BETWEEN_MS, () => pass(day + 1));
    };
    timeline.in(BETWEEN_MS, () => pass(0));
  }

  get over(): boolean {
    return this.#over;
  }

  /** So many that all deletions of before are old enough; who may still lack one is looked at once a minute. */
  #pass(): void {
    const { timeline, plan } = this.#world;
    this.#world.trace('days pass');
    for (const machine of this.#machines) machine.offsetMs += DAYS * DAY_MS;
    for (let minute = 1; minute <= MINUTES; minute++) {
      timeline.in(minute * (LOOKED_MS + plan.batchMs), () => {
        for (const machine of this.#machines) machine.offsetMs += MINUTE_MS;
      });
    }
  }
}

/** A letter that waits for somebody to decide. */
interface SetAside {
  letter: number;
  key: Key;
}

export function setAsideOn({ kind, disk, ready }: Machine): SetAside[] {
  if (kind === 'hub' || !ready) return [];
  const sql =
    'SELECT dead_id AS letter, i.table_name AS name, d.row_id AS id FROM _dead_letter_info AS i ' +
    "JOIN _dead_letter AS d USING (dead_id) WHERE i.code = 'below-floor' ORDER BY dead_id";
  return disk
    .all(sql)
    .map(({ letter, name, id }) => ({ letter: Number(letter), key: keyOf(tableNamed(String(name)), String(id)) }));
}

/** How far a node has forgotten deletions of a table. */
export function floorOn({ kind, disk, ready }: Machine, table: string): number {
  if (kind === 'hub' || !ready) return Number.NEGATIVE_INFINITY;
  const [found] = disk.all('SELECT value FROM _meta WHERE key = ?', `floor:${tableOn(disk, tableNamed(table))}`);
  return found ? Number(found.value) : Number.NEGATIVE_INFINITY;
}
