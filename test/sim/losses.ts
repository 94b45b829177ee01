/**
 * A disk that is lost while a machine is away for days: its own, or that of one which has stayed and may have forgotten
 * deletions meanwhile. It begins empty, with what it had when the other one left, or with what it had before that was back.
 */
import { losesBesides, setAsideOn } from './days.ts';
import type { Lives } from './lives.ts';
import type { Machine, Surroundings } from './machine.ts';
import { type Random, stream } from './random.ts';
import { takeOut } from './roster.ts';

/** Before days pass, after them, when it is back, or a little after that. */
const MOMENTS = ['left', 'days', 'back', 'after'] as const;
export type Moment = (typeof MOMENTS)[number];

/** What a machine begins anew with: an empty disk, what it had when the other one left, or when days had passed. */
type Kept = 'nothing' | 'left' | 'days';

interface Loss {
  machine: Machine;
  at: Moment;
  kept: Kept;
  image?: Uint8Array;
}

/** How often it is looked whether a node has set something aside. */
const WATCHED_MS = 30;

/** What an application does meanwhile. */
export interface Doing {
  write(node: Machine): void;
  /** Deletes something. */
  remove(node: Machine): void;
}

export class Losses {
  readonly #world: Surroundings;
  readonly #lives: Lives;
  readonly #random: Random;
  readonly #planned: Loss[] = [];
  readonly #undo: (() => void)[] = [];
  /** It loses what it sets aside. */
  #forgetful: Machine | undefined;
  readonly #machines: Machine[];

  /** The moment at which it leaves. */
  constructor(world: Surroundings, lives: Lives, away: Machine, machines: Machine[], doing: Doing) {
    this.#world = world;
    this.#lives = lives;
    this.#random = stream(world.plan.seed, 'lost meanwhile', world.timeline.now);
    const random = this.#random;
    this.#machines = machines;
    const others = machines.filter((one) => one !== away);
    const hubs = others.filter(({ kind }) => kind === 'hub');
    for (let i = 1 + random.below(2); i > 0; i--) {
      const stays = hubs.length > 0 && random.chance(0.5) ? random.pick(hubs) : random.pick(others);
      const machine = random.chance(0.5) ? away : stays;
      const kept = random.pick(['nothing', 'left', 'days', 'days'] as const);
      const at = random.pick(MOMENTS.slice(kept === 'days' ? 2 : 0));
      this.#planned.push({ machine, at, kept });
    }
    this.#backUp('left');
    const nodes = others.filter(({ kind }) => kind === 'node');
    if (nodes.length > 0 && random.chance(0.5)) this.#forgetful = random.pick(nodes);
    // What it cannot tell is older than what the others delete, and forget.
    const between = (from: number, to: number, act: () => void): void =>
      void world.timeline.in(world.plan.scale * (from + random.below(to - from)), act);
    if (away.kind === 'node') for (let i = random.below(3); i > 0; i--) between(0, 150, () => doing.write(away));
    for (let i = 1 + random.below(3); i > 0; i--) {
      const node = random.pick(nodes);
      between(150, 300, () => doing.write(node));
      between(300, 450, () => doing.remove(node));
    }
    // Nobody waits for one that was taken out of the peers.
    if (random.chance(0.5)) return;
    for (const one of others) if (one.peers.includes(away.url)) this.#undo.push(takeOut(world, one, away.url));
  }

  #backUp(kept: Kept): void {
    for (const loss of this.#planned)
      if (loss.kept === kept && loss.machine.ready && !loss.machine.disk.inTransaction)
        loss.image = loss.machine.disk.image();
  }

  at(moment: Moment): void {
    if (moment === 'days') this.#backUp('days');
    for (const { machine, at, image, kept } of this.#planned)
      if (at === moment && (image || kept === 'nothing')) {
        this.#lives.lose(machine, image);
        if (image && machine.kind === 'node' && this.#random.chance(0.6)) this.#compare(machine);
      }
    if (moment !== 'back') return;
    for (const undo of this.#undo) undo();
    this.#world.timeline.in(this.#world.plan.scale * this.#random.below(2_000), () => this.at('after'));
    if (this.#forgetful) this.#loseLetters(this.#forgetful, undefined);
  }

  /** When one has set something aside it is put back to what it had a moment before, and nobody has that in a letter. */
  #loseLetters(machine: Machine, image: Uint8Array | undefined): void {
    const { timeline, network } = this.#world;
    if (!network.troubled) return;
    const isFit = machine.process !== undefined && machine.ready && !machine.disk.inTransaction;
    const hasLetter = isFit && setAsideOn(machine).length > 0;
    const kept = isFit && !hasLetter ? machine.disk.image() : image;
    if (!hasLetter) {
      timeline.in(WATCHED_MS, () => this.#loseLetters(machine, kept));
    } else if (kept) {
      timeline.in(WATCHED_MS * this.#random.below(6), () => {
        this.#lives.lose(machine, kept);
        this.#compare(machine);
      });
    }
  }

  /**
   * Whoever puts a node back compares it with the others as soon as it runs; and one of these does so with it. They may not
   * get to it for a while, and so do not notice what it is.
   */
  #compare(machine: Machine): void {
    const { timeline, network, plan } = this.#world;
    const random = this.#random;
    const others = this.#machines.filter(({ url }) => machine.peers.includes(url));
    const deaf = random.chance(0.7) ? others.map(({ name }) => `${name} ${machine.name}`) : [];
    for (const link of deaf) network.cut.add(link);
    timeline.in(plan.scale * (1_000 + random.below(8_000)), () => {
      for (const link of deaf) network.cut.delete(link);
    });
    const compare = (): void => {
      if (!network.troubled) return;
      if (!machine.process) timeline.in(50, compare);
      else for (const url of machine.process.urls ?? []) void machine.process.verify(url).catch(() => {});
    };
    timeline.in(50, compare);
    for (const { process, kind } of others)
      if (kind === 'node' && deaf.length === 0) void process?.verify(machine.url).catch(() => {});
  }

  /** Undefined where disks are not lost as well. */
  static beside(
    world: Surroundings,
    lives: Lives | undefined,
    away: Machine,
    machines: Machine[],
    doing: Doing,
  ): Losses | undefined {
    if (!lives || !losesBesides(world.plan) || !lives.runs(away)) return undefined;
    return new Losses(world, lives, away, machines, doing);
  }
}
