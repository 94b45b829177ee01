/**
 * Clocks that are wrong by months, and jump. What is written by a clock that is far ahead is kept by all others until their
 * own clocks have come near it; a clock that is far behind keeps everything that others write. Meanwhile a node may join
 * that is given everything but this, and the one that wrote it may go for good.
 *
 * What counts is the end: once every clock has passed all of it, all nodes have what was written, as if nothing had waited.
 */
import { Checks, differenceOf } from './checks.ts';
import type { Machine, Surroundings } from './machine.ts';
import { lengthen, type Plan } from './plan.ts';
import { logUniform, type Random, stream } from './random.ts';
import { rowsOn } from './rows.ts';

export const DAY_MS = 86_400_000;

/** What such a schedule has beside: the network, crashes and power cuts. The rest asks questions of its own. */
const ALLOWED = new Set([
  'drop',
  'delay',
  'duplicate',
  'partition',
  'lost-answer',
  'torn',
  'throttled',
  'failing',
  'hang',
  'crash',
  'power-cut',
  'skew',
  'coarse',
  'locked',
]);

/** Whether a seed is such a schedule; and makes it one. */
export function planFutures(plan: Plan, likely: number): void {
  const random = stream(plan.seed, 'futures');
  if (plan.lives || !random.chance(likely)) return;
  plan.futures = true;
  plan.foreignKeys = false;
  plan.plain = false;
  if (!['pair', 'mesh', 'star', 'hubs'].includes(plan.topology)) plan.topology = 'mesh';
  if (random.chance(0.4)) plan.topology = 'mesh';
  if (plan.topology === 'mesh') plan.nodes = 3 + random.below(2);
  for (const fault of Object.keys(plan.faults)) {
    if (!ALLOWED.has(fault) || random.chance(0.5)) delete plan.faults[fault as keyof Plan['faults']];
  }
  lengthen(plan, { ms: 2_000, writes: 12 });
}

/** How often it is looked whether the writer that is to go has nothing left to send. */
const LOOK_MS = 50;

export class Futures {
  readonly #world: Surroundings;
  readonly #machines: Machine[];
  readonly #random: Random;
  readonly #tellPeers: (machine: Machine, peers: string[]) => void;
  /** It does not run until the writer has gone, or the trouble is over. */
  #late: Machine | undefined;
  #healed = false;
  #over = false;
  /** How far ahead any clock has ever been: what was written then is due when so much time has passed. */
  #furthestMs = 0;

  constructor(world: Surroundings, machines: Machine[], tellPeers: (machine: Machine, peers: string[]) => void) {
    this.#world = world;
    this.#machines = machines;
    this.#random = stream(world.plan.seed, 'future');
    this.#tellPeers = tellPeers;
  }

  /** Before anything runs. */
  plan(): void {
    const { timeline, plan } = this.#world;
    const random = this.#random;
    for (let i = 1 + random.below(4); i > 0; i--) {
      timeline.in(random.next() * 0.7 * plan.troubleMs, () => this.#setWrong(random.pick(this.#machines)));
    }
    const nodes = this.#machines.filter(({ kind }) => kind === 'node');
    if (plan.topology !== 'mesh' || !random.chance(0.8)) return;
    const late = nodes.at(-1) as Machine;
    const [writer, ...others] = nodes.slice(0, -1) as [Machine, ...Machine[]];
    this.#late = late;
    for (const node of [writer, ...others]) node.peers = node.peers.filter((url) => url !== late.url);
    late.peers = others.map(({ url }) => url);
    // It is the one whose clock is ahead, so that there is something which only others have.
    timeline.in(random.next() * 0.3 * plan.troubleMs, () => this.#setWrong(writer, 1));
    timeline.in(0.5 * plan.troubleMs, () => this.#retire(writer, others, late));
  }

  runs(machine: Machine): boolean {
    return machine !== this.#late;
  }

  /** The trouble is over: clocks become right, and then time passes, on each machine in its own moment. */
  healed(): void {
    this.#healed = true;
    this.#join();
    const { timeline, plan } = this.#world;
    for (const machine of this.#machines) machine.offsetMs = 0;
    const between = plan.scale * 2_000;
    const rounds = 2;
    const days = Math.max(450, Math.ceil(this.#furthestMs / DAY_MS / rounds) + 2);
    const pass = (round: number): void => {
      if (round === rounds) {
        this.#over = true;
        return;
      }
      for (const machine of this.#machines) {
        timeline.in(this.#random.next() * between, () => {
          machine.offsetMs += days * DAY_MS;
          this.#world.trace(`${machine.name}: ${days} days pass`);
        });
      }
      timeline.in(2 * between, () => pass(round + 1));
    };
    timeline.in(between, () => pass(0));
  }

  /** Every clock has passed what anybody has written. */
  get over(): boolean {
    return this.#over;
  }

  /** For a while its clock says something else by days or months. */
  #setWrong(machine: Machine, sign = this.#random.pick([1, 1, -1])): void {
    const random = this.#random;
    const days = random.pick([2, 5, 30, 400]) * (1 + random.next());
    const by = Math.round(sign * days * DAY_MS);
    machine.offsetMs += by;
    this.#furthestMs = Math.max(this.#furthestMs, machine.offsetMs);
    this.#world.trace(`${machine.name}'s clock is wrong by ${Math.round(by / DAY_MS)} days`);
    this.#world.timeline.in(this.#world.plan.scale * logUniform(random, 100, 1_500), () => {
      // When the trouble is over, all clocks are right.
      if (this.#healed) return;
      machine.offsetMs -= by;
      this.#world.trace(`${machine.name}'s clock is right again`);
    });
  }

  /** The writer goes for good when it has nothing left to send; then the late one comes, and never hears of it. */
  #retire(writer: Machine, others: Machine[], late: Machine): void {
    if (this.#late !== late) return;
    const { timeline, network } = this.#world;
    const again = (): unknown => timeline.in(LOOK_MS, () => this.#retire(writer, others, late));
    const idle = writer.process && writer.ready && !writer.disk.inTransaction && network.underWay === 0;
    if (!idle || Number(writer.disk.all('SELECT count(*) AS n FROM _changes')[0]?.n) > 0) {
      again();
      return;
    }
    this.#world.trace(`${writer.name} goes for good`);
    writer.retired = true;
    writer.counts = false;
    writer.crash();
    for (const node of others) {
      const peers = node.peers.filter((url) => url !== writer.url);
      this.#tellPeers(node, [...peers, late.url]);
    }
    this.#late = undefined;
    late.start();
  }

  /** It could not go: then the late one is a peer like any other. */
  #join(): void {
    const late = this.#late;
    if (!late) return;
    this.#late = undefined;
    const others = this.#machines.filter((machine) => machine !== late);
    late.peers = others.map(({ url }) => url);
    for (const node of others) this.#tellPeers(node, [...node.peers, late.url]);
  }
}

/** Machines acknowledge what they do not show yet, and tell what they were sent: what is checked is the end. */
export class FutureChecks extends Checks {
  override beforeWrite(): void {}
  override notAdvanced(): void {}
  override captured(): void {}

  override nothingWritten(machine: Machine, before: ReturnType<typeof rowsOn>): void {
    const difference = differenceOf(before, rowsOn(machine.disk));
    if (difference) this.fail(`${machine.name}: a transaction that was rolled back has left something: ${difference}`);
  }

  /** Nothing is kept for another reason, and nothing that a clock would take. */
  override afterEvent(machines: Machine[]): void {
    for (const machine of machines) {
      if (!machine.touched || !machine.ready || machine.disk.inTransaction) continue;
      machine.touched = false;
      const sql = "SELECT code, reason FROM _dead_letter_info WHERE code NOT IN ('unique', 'future-stamp', 'refused')";
      const [letter] = machine.disk.all(sql);
      if (letter) this.fail(`${machine.name} has parked a change (${letter.code}): ${letter.reason}`);
    }
  }
}
