/** One schedule: machines, a network, an application and trouble, all from one seed; then the trouble ends, and what is left is compared. */
import type { WireChange, WireRow } from '../support/model.ts';
import { Application } from './application.ts';
import { briefTheme, isBrief } from './brief.ts';
import { Checks, differenceOf } from './checks.ts';
import { collectAndRepeat } from './collecting.ts';
import { Days, setAsideOn } from './days.ts';
import type { DiskKind, DiskPool, TableName } from './disk.ts';
import { themeOf } from './focus.ts';
import { deletedByComparison } from './forgetting.ts';
import { DAY_MS, FutureChecks, Futures } from './futures.ts';
import { hasLineage } from './journal.ts';
import { Enemy, Keys } from './keys.ts';
import { LifeChecks, Lives } from './lives.ts';
import { Losses } from './losses.ts';
import { type Alarm, EPOCH, isDiskTrouble, Machine, ProcessGone, type Surroundings } from './machine.ts';
import { dropsColumn } from './migration.ts';
import { type Committed, Network } from './network.ts';
import { heedTies, type Key, Versions } from './oracle.ts';
import { commitsFailUntil, type Fault, isMixed, NOTHING_TAKEN, type Plan, planFor, type Reduction } from './plan.ts';
import { exponential, logUniform, type Random, stream } from './random.ts';
import { changeRoster, MINUTE_MS, rosterLeft, tellPeers } from './roster.ts';
import { hiddenOn, rowsOn } from './rows.ts';
import { Timeline } from './timeline.ts';
import { Trace } from './trace.ts';
import { verifyInTheEnd } from './verifying.ts';

export interface Outcome {
  seed: number;
  /** Of everything that happened; the same on every runtime. */
  hash: string;
  violation: string | undefined;
  /** The last things that happened. */
  tail: string[];
  events: number;
  virtualMs: number;
}

/** When the trouble is over, everything must be everywhere within this time. */
const HEALED_MS = 400_000;
const LOOK_MS = 50;
/** The first comparison with a peer is due within a day after it was found ready for one, which takes a look on its own. */
const COMPARING_DAYS = 4;
const COMPARED_MS = 20_000;

/** Those that must not be there in the end: a row that a stronger one hides is there for good. */
const LETTERS = "SELECT count(*) AS n FROM _dead_letter_info WHERE code IS NOT 'unique'";

function isAskedFor({ kind, disk, ready }: Machine): boolean {
  if (!ready) return false;
  if (kind === 'hub') return disk.all('SELECT 1 FROM _hub_asked').length > 0;
  const asked = disk.all("SELECT value FROM _meta WHERE key = 'asked_for'")[0]?.value ?? '[]';
  return asked !== '[]';
}

/** What a row was hidden for has changed, and the next tick sees to it. */
function hidesForNothing({ kind, disk, ready }: Machine): boolean {
  if (kind === 'hub' || !ready || disk.kind !== 'node-uniques') return false;
  const blocker = 'SELECT 1 FROM people AS p WHERE p.id = h.blocked_by AND p.updated_at = h.blocked_version';
  return disk.all(`SELECT 1 FROM _hidden AS h WHERE NOT EXISTS (${blocker})`).length > 0;
}

function missesAColumn({ kind, disk, ready }: Machine): boolean {
  if (kind === 'hub' || !ready) return false;
  return disk.all("SELECT 1 FROM _dead_letter_info WHERE code = 'unknown-column'").length > 0;
}

/** A process has died, and its row is watched for a minute before nothing is kept for its peers any more. */
function hasLeftARow({ kind, disk, ready, secondPeers }: Machine): boolean {
  if (kind === 'hub' || !ready || secondPeers) return false;
  return disk.all('SELECT 1 FROM _attachments').length > 1;
}

export async function simulate(
  seed: number,
  pool: DiskPool,
  taken: Reduction = NOTHING_TAKEN,
  onLine?: (line: string) => void,
): Promise<Outcome> {
  const world = new World(planFor(seed, taken), pool, taken, onLine);
  running = world;
  // Of versions of one time, any may then stand: see `leavesTies`.
  heedTies(!(world.plan.faults.schema !== undefined && dropsColumn(world.plan.migration)));
  try {
    await world.run();
  } catch (error) {
    // It ends here, and says so; otherwise whoever has asked for it would wait for ever.
    world.escaped(error);
  }
  running = undefined;
  return world.outcome();
}

/** The schedule that is running: what nobody catches is its fault. */
let running: World | undefined;

// In a program it would end the process, with everything the application had in hand.
for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
  process.on(event, (error: unknown) => running?.escaped(error));
}

class World implements Surroundings {
  readonly plan: Plan;
  readonly timeline = new Timeline();
  readonly network: Network;
  readonly #trace: Trace;
  readonly #checks: Checks;
  readonly #application: Application;
  readonly #lives: Lives | undefined;
  readonly #futures: Futures | undefined;
  readonly #days: Days | undefined;
  readonly #keys: Keys | undefined;
  readonly #machines: Machine[] = [];
  readonly #pool: DiskPool;
  /** Every batch that some machine has committed. */
  readonly #bodies = new Map<string, WireChange[]>();
  /** Nodes at which the application writes. */
  #writers: Machine[] = [];
  /** Those of which it has been decided whether they die while somebody waits for a table. */
  readonly #diesWaiting = new Set<Machine>();
  #namesSent = false;
  #moreWrites = 0;
  /** Writes that are still to come when the trouble is over. */
  #lateWrites = 0;
  /** What the trouble has left undone and the end must do. */
  readonly #unfinished: (() => void)[] = [];

  constructor(plan: Plan, pool: DiskPool, taken: Reduction, onLine: ((line: string) => void) | undefined) {
    this.plan = plan;
    this.#pool = pool;
    this.#trace = new Trace(onLine);
    this.network = new Network({
      plan,
      timeline: this.timeline,
      trace: (line) => this.trace(line),
      onCommitted: (machine, request) => this.#received(machine, request),
      enemy: plan.keys === 'enemy' ? new Enemy(plan.seed, this.#machines) : undefined,
    });
    this.#keys = plan.keys === 'none' ? undefined : new Keys(this, this.#machines);
    const lifeChecks = plan.lives ? new LifeChecks(this) : undefined;
    this.#checks = lifeChecks ?? (plan.futures ? new FutureChecks(this) : new Checks(this));
    this.#lives = plan.lives ? new Lives(this, this.#machines, (node) => this.#writeMore(node)) : undefined;
    const doing = {
      write: (node: Machine) => this.#writeMore(node),
      remove: (node: Machine) => this.#removeMore(node),
    };
    const losses = (away: Machine): Losses | undefined => Losses.beside(this, this.#lives, away, this.#machines, doing);
    this.#days = plan.forgets ? new Days(this, this.#machines, losses) : undefined;
    const tellAll = (machine: Machine, peers: string[]): void => this.#givePeers(machine, peers);
    this.#futures = plan.futures ? new Futures(this, this.#machines, tellAll) : undefined;
    if (lifeChecks) Object.assign(lifeChecks, { union: this.#lives?.union, hasTie: this.#hasTie });
    this.#application = new Application(this, this.#checks, taken.skip);
    this.trace(`${plan.focus}: ${plan.topology} of ${plan.nodes}, ${JSON.stringify(plan.faults)}`);
  }

  trace(line: string): void {
    this.#trace.add(`${this.timeline.now} ${line}`);
  }

  onSeenAgain(machine: Machine, table: TableName, unseen: Map<Key, WireRow>): void {
    this.#application.seenAgain(machine, table, unseen);
  }

  onAlarm(machine: Machine, event: Alarm): void {
    this.trace(`${machine.name} says ${event}`);
    this.#checks.alarm(machine, event);
  }

  escaped(error: unknown): void {
    if (!(error instanceof ProcessGone)) this.#checks.fail(`an error that nobody catches: ${error}`);
  }

  async run(): Promise<void> {
    this.#build();
    this.#planWrites();
    this.#planTrouble();
    await this.#passTime(this.plan.troubleMs, () => false);
    this.#heal();
    this.#lives?.healed();
    this.#futures?.healed();
    this.#days?.healed();
    const drained = await this.#passTime(this.plan.troubleMs + HEALED_MS, this.#looking());
    if (!drained)
      this.#checks.fail(`not everything has arrived after ${HEALED_MS} ms without trouble: ${this.#whatIsLeft()}`);
    await this.#compareDaily();
    if (!this.#checks.violation) this.#checks.final(this.#machines, this.#application.writes);
    const alarm = hasLineage(this.plan) ? this.#application.lineage.falseAlarm(this.#machines) : undefined;
    if (alarm) this.#checks.fail(alarm);
    if (!this.#checks.violation && !this.plan.lives) this.#inAnotherOrder();
    if (!this.#checks.violation && this.plan.verifies && !this.plan.plain && !this.plan.forgets) {
      await verifyInTheEnd({
        seed: this.plan.seed,
        machines: this.#machines,
        now: () => this.timeline.now,
        until: (done) => this.timeline.run(this.timeline.now + HEALED_MS, done, () => {}),
        watched: (on) => {
          if (this.plan.keys === 'enemy') this.network.watched = on;
          return this.plan.keys === 'enemy';
        },
        trace: (line) => this.trace(line),
        fail: (what) => this.#checks.fail(what),
      });
    }
    if (!this.#checks.violation && this.#collects) await this.#collectTombstones();
    this.#trace.add(`ends with ${this.#checks.violation ? 'a violation' : 'all the same'}`);
    this.#clear();
  }

  outcome(): Outcome {
    return {
      seed: this.plan.seed,
      hash: this.#trace.hash,
      violation: this.#checks.violation,
      tail: this.#trace.tail,
      events: this.timeline.happened,
      virtualMs: this.timeline.now,
    };
  }

  /**
   * What was lowered or deleted where no trigger was may have been on its way from there all the time: it arrives at a peer
   * that has been asked for its rows already, and stays there. Nobody has acknowledged it, so only a comparison can tell.
   */
  async #compareDaily(): Promise<void> {
    for (let day = 0; day < COMPARING_DAYS && this.#checks.isLooseStill(this.#machines); day++) {
      this.trace('a day passes');
      for (const machine of this.#machines) machine.offsetMs += DAY_MS;
      await this.#passTime(this.timeline.now + COMPARED_MS, () => false);
      await this.#passTime(this.timeline.now + HEALED_MS, this.#looking());
    }
  }

  async #passTime(until: number, done: () => boolean): Promise<boolean> {
    const reached = await this.timeline.run(
      until,
      () => this.#checks.violation !== undefined || done(),
      () => this.#checks.afterEvent(this.#machines),
    );
    return this.#checks.violation !== undefined || reached;
  }

  #build(): void {
    const { topology, nodes: count } = this.plan;
    const nodes = Array.from({ length: count }, (_, i) => this.#machine('node', `n${i}`));
    const urls = (machines: Machine[]): string[] => machines.map(({ url }) => url);
    const mesh = (): void => {
      for (const node of nodes) node.peers = urls(nodes.filter((other) => other !== node));
    };
    this.#writers = nodes;
    if (topology === 'star' || topology === 'hubs') {
      const hubs =
        topology === 'star' ? [this.#machine('hub', 'h0')] : [this.#machine('hub', 'h0'), this.#machine('hub', 'h1')];
      nodes.forEach((node, i) => {
        const hub = hubs[i % hubs.length] as Machine;
        node.peers = [hub.url];
        hub.peers.push(node.url);
      });
      const [one, two] = hubs;
      if (one && two) {
        one.peers.push(two.url);
        two.peers.push(one.url);
      }
    } else {
      mesh();
    }
    if (topology === 'join' || topology === 'leave' || topology === 'return') this.#planMembership(nodes);
    if (this.plan.faults['two-attachments'] !== undefined) this.#shareAFile(nodes[0] as Machine);
    this.#lives?.plan();
    this.#futures?.plan();
    this.#days?.plan();
    this.#keys?.plan();
    const runs = (machine: Machine): boolean => (this.#lives ?? this.#futures)?.runs(machine) ?? true;
    for (const machine of this.#machines) if (runs(machine)) machine.start();
  }

  /** Two processes are attached to the file of one node, with different peers, and one of them may have none. */
  #shareAFile(node: Machine): void {
    const random = stream(this.plan.seed, 'share');
    const all = node.peers;
    node.secondPeers = all.filter(() => random.chance(0.6));
    node.peers = all.filter((url) => !node.secondPeers?.includes(url) || random.chance(0.3));
  }

  /** The last node comes later, goes for good, or goes and comes back; each of the others learns of it in its own time. */
  #planMembership(nodes: Machine[]): void {
    const random = stream(this.plan.seed, 'membership');
    const late = nodes.at(-1) as Machine;
    const rest = nodes.slice(0, -1);
    const without = new Map(rest.map((node) => [node, node.peers.filter((url) => url !== late.url)]));
    const all = new Map(nodes.map((node) => [node, node.peers]));
    const atRunTime = stream(this.plan.seed, 'membership at run time');
    const set = (node: Machine, peers: string[] | undefined): void => {
      if (!peers || node.peers === peers) return;
      node.peers = peers;
      this.trace(`${node.name} is given ${peers.length} peers`);
      if (atRunTime.chance(0.5) && tellPeers(node, peers)) this.#checks.afterEvent([node]);
      else if (node.process && random.chance(0.5)) void node.restart();
      else {
        node.crash();
        node.start();
        // What it drops now it drops by this configuration, and not by the next.
        this.#checks.afterEvent([node]);
      }
    };
    const change = (at: number, to: Map<Machine, string[]>): void => {
      for (const [node, peers] of to) {
        let done = false;
        const act = (): void => {
          if (done) return;
          done = true;
          set(node, peers);
        };
        this.timeline.in(at + this.plan.scale * random.below(300), act);
        this.#unfinished.push(act);
      }
    };
    const { troubleMs, topology } = this.plan;
    if (topology === 'join') {
      for (const [node, peers] of without) node.peers = peers;
      late.peers = [];
      // Late enough for something to be hidden, where values clash.
      const joins = this.plan.uniques ? troubleMs * (0.5 + random.next() / 2) : random.below(troubleMs);
      change(joins, all);
      // It comes with data of its own, or with none.
      if (!random.chance(0.5)) return;
      this.#writers = rest;
      this.timeline.in(joins + this.plan.scale * 300, () => {
        this.#writers = nodes;
      });
      return;
    }
    const gone = random.below(troubleMs / 2);
    change(gone, without);
    if (topology === 'return') {
      change(gone + this.plan.scale * 400 + random.below(troubleMs), all);
      return;
    }
    late.counts = false;
    this.timeline.in(gone, () => {
      this.#writers = rest;
    });
  }

  /** Its process is told, or is started again with them. */
  #givePeers(machine: Machine, peers: string[]): void {
    machine.peers = peers;
    this.trace(`${machine.name} is given ${peers.length} peers`);
    machine.crash();
    machine.start();
  }

  #machine(kind: 'node' | 'hub', name: string): Machine {
    const { foreignKeys, uniques } = this.plan;
    const nodeKind: DiskKind = foreignKeys ? 'node-foreign-keys' : uniques ? 'node-uniques' : 'node';
    const machine = new Machine(kind, name, this.#pool.take(kind === 'hub' ? 'hub' : nodeKind, this.#disks), this);
    if (this.#altersSchemas) machine.disk.migration = this.plan.migration;
    // What is missing after a failed transaction would be there again from the schedule before.
    if (this.plan.faults.commit !== undefined) machine.disk.forgetMirrors();
    this.#machines.push(machine);
    this.network.add(machine);
    return machine;
  }

  get #altersSchemas(): boolean {
    return this.plan.faults.schema !== undefined;
  }

  get #disks(): Parameters<DiskPool['take']>[1] {
    if (this.plan.fresh) return 'empty';
    return this.#altersSchemas || this.plan.faults.rebuild !== undefined ? 'altered' : 'any';
  }

  get #collects(): boolean {
    const { seed, faults, lives, migration } = this.plan;
    const isSettled = faults.rebuild === undefined && !lives && !this.plan.forgets;
    // What a table was called counts long after everybody has renamed it: in letters, and in what is on its way.
    if (this.#altersSchemas && migration === 'rename-table')
      return isSettled && stream(seed, 'collects things').chance(0.5);
    const isFit = !this.#altersSchemas && isSettled;
    const theme = themeOf(this.plan.focus);
    return isFit && stream(seed, 'collects').chance((isBrief(seed) ? briefTheme(theme) : theme).collects);
  }

  #planWrites(): void {
    for (let index = 0; index < this.plan.writes; index++) {
      const random = stream(this.plan.seed, 'when', index);
      const at = random.next() * this.plan.troubleMs;
      const place = random.next();
      this.timeline.in(at, () => {
        const machine = this.#writers[Math.floor(place * this.#writers.length)] as Machine;
        this.#application.write(machine, index);
        if (random.chance(0.2)) machine.process?.nudge();
      });
    }
    if (this.plan.uniques) this.#planLateWrites();
    if (this.#hasTie) this.#planTie();
  }

  /** By way of a hub that is lost in the middle of it, such a tie has not been asked about yet. */
  get #hasTie(): boolean {
    const { topology, lives } = this.plan;
    return isMixed(this.plan) && !(lives && (topology === 'star' || topology === 'hubs'));
  }

  /** What a life needs to be written at that moment. */
  #writeMore(node: Machine): void {
    this.#moreWrites += 1;
    this.#application.write(node, this.plan.writes + 30 + this.#moreWrites);
  }

  #removeMore(node: Machine): void {
    this.#moreWrites += 1;
    this.#application.remove(node, this.plan.writes + 30 + this.#moreWrites);
  }

  /** All write one row at one time, those that have the column and those that do not, and nobody writes to it any more. */
  #planTie(): void {
    const random = stream(this.plan.seed, 'tie');
    const at = this.plan.troubleMs * (0.5 + 0.5 * random.next());
    // Where deletions are forgotten, a row that is new and says that it is older than these is set aside, and rightly.
    let time = EPOCH + random.below(2);
    if (this.plan.forgets)
      this.timeline.in(at, () => {
        time = Math.max(...this.#writers.map((machine) => machine.now()));
      });
    for (const [i, machine] of this.#writers.entries()) {
      if (random.chance(0.8))
        this.timeline.in(at, () => this.#application.tie(machine, this.plan.writes + 20 + i, time));
    }
  }

  /** When the trouble is over and nothing else is written, values are given up that hidden rows wait for. */
  #planLateWrites(): void {
    const writes = stream(this.plan.seed, 'late writes').below(3);
    for (let i = 0; i < writes; i++) {
      const random = stream(this.plan.seed, 'late', i);
      this.#lateWrites += 1;
      this.timeline.in(this.plan.troubleMs + this.plan.scale * random.below(2_500), () => {
        this.#lateWrites -= 1;
        this.#application.setFree(random.pick(this.#writers), this.plan.writes + i);
      });
    }
  }

  #planTrouble(): void {
    this.#often('crash', (machine, random) => this.#die(machine, random, () => machine.crash(), 'crashes'));
    this.#often('power-cut', (machine, random) => this.#die(machine, random, () => machine.cutPower(), 'loses power'));
    this.#often('jump', (machine, random) => {
      machine.offsetMs += Math.round((random.next() * 2 - 1.5) * 3_600_000);
      this.trace(`${machine.name}'s clock jumps`);
    });
    this.#often('locked', (machine, random) => {
      machine.lockedUntil = this.timeline.now + this.#lasting(random, 20, 1_500);
    });
    this.#often('full', (machine, random) =>
      this.#forAWhile(random, `${machine.name}'s disk is full`, (on) => machine.disk.setFull(on)),
    );
    this.#often('read-only', (machine, random) =>
      this.#forAWhile(random, `${machine.name}'s disk is read-only`, (on) => machine.disk.setReadOnly(on)),
    );
    this.#often('rebuild', (machine, random) => this.#application.rebuild(machine, random));
    this.#often('foreign', (machine, random) => this.#application.foreign(machine, random));
    this.#often('two-attachments', (machine, random) => {
      void machine.endSecond(random.chance(0.5));
      this.timeline.in(this.#lasting(random, 10, 1_000), () => machine.startSecond());
    });
    this.#often('partition', (machine, random) => this.#partition(machine, random));
    this.#often('roster', (machine, random) => {
      if (machine.peers.length > 0) this.#unfinished.push(changeRoster(this, machine, random));
    });
    if (this.plan.faults.bound !== undefined) this.#planMinutes(MINUTE_MS);
    // A table is sent again once in ten minutes: to some, while what was sent before is still on its way.
    if (this.plan.faults.rebuild !== undefined) this.#planMinutes(11 * MINUTE_MS);
    if (this.#altersSchemas) for (const machine of this.#machines) this.#planMigration(machine);
  }

  #lasting(random: Random, low: number, high: number): number {
    return this.plan.scale * logUniform(random, low, high);
  }

  /** Plans what befalls some machine so many times a second. */
  #often(fault: Fault, befall: (machine: Machine, random: Random) => void): void {
    const rate = this.plan.faults[fault];
    if (rate === undefined) return;
    const random = stream(this.plan.seed, 'fault', fault);
    for (let at = 0; ; ) {
      at += (exponential(random) / rate) * 1_000;
      if (at >= this.plan.troubleMs) return;
      const machine = random.pick(this.#machines);
      const own = stream(this.plan.seed, fault, at);
      this.timeline.in(at, () => befall(machine, own));
    }
  }

  /** The clocks of some machines move on by what it takes to look at something again. */
  #planMinutes(ms: number): void {
    const random = stream(this.plan.seed, 'minutes');
    for (let at = 0; at < this.plan.troubleMs; at += this.#lasting(random, 50, 600)) {
      const machine = random.pick(this.#machines);
      this.timeline.in(at, () => {
        machine.offsetMs += ms;
      });
    }
  }

  /** At once, which is between two of its awaits, or before or after one of its next uses of the database. */
  #die(machine: Machine, random: Random, end: () => void, how: string): void {
    const { process } = machine;
    if (!process) return;
    const die = (): void => {
      this.trace(`${machine.name} ${how}`);
      end();
      this.timeline.in(this.#lasting(random, 10, 3_000), () => machine.start());
    };
    if (random.chance(0.3)) die();
    else process.handle.fuse = { calls: 1 + random.below(40), after: random.chance(0.5), burn: die };
  }

  #forAWhile(random: Random, what: string, set: (on: boolean) => void): void {
    this.trace(what);
    set(true);
    this.timeline.in(this.#lasting(random, 20, 2_000), () => set(false));
    this.#unfinished.push(() => set(false));
  }

  #partition(machine: Machine, random: Random): void {
    const others = this.#machines.filter((other) => other !== machine);
    const cutOff = random.chance(0.5) ? others : [random.pick(others)];
    const direction = random.below(3);
    const links = cutOff.flatMap((other) => [
      ...(direction !== 0 ? [`${machine.name} ${other.name}`] : []),
      ...(direction !== 1 ? [`${other.name} ${machine.name}`] : []),
    ]);
    for (const link of links) this.network.cut.add(link);
    this.trace(`cut: ${links.join(', ')}`);
    this.timeline.in(this.#lasting(random, 100, 4_000), () => {
      for (const link of links) this.network.cut.delete(link);
    });
  }

  #planMigration(machine: Machine): void {
    if (machine.kind === 'hub') return;
    const random = stream(this.plan.seed, 'migration', machine.name);
    const dies = random.chance(0.4);
    const migrate = (): void => {
      if (machine.migrated || this.timeline.now >= this.plan.troubleMs) return;
      if (dies) this.#dieMigrating(machine, random);
      if (!this.#migrate(machine)) this.timeline.in(100, migrate);
    };
    // Mostly one of them is behind the others for long.
    const early = machine === this.#machines[0] ? 0.3 : 0.8;
    if (random.chance(early)) this.timeline.in(random.next() * random.next() * this.plan.troubleMs, migrate);
  }

  #migrate(machine: Machine): boolean {
    const done = this.#application.migrate(machine);
    if (done) this.trace(`${machine.name} migrates: ${this.plan.migration}`);
    return done;
  }

  /** Some have been sent everything before they are, and find it all in letters. */
  #isMigratedBy(machine: Machine): boolean {
    const random = stream(this.plan.seed, 'migrates last', machine.name);
    const late = random.chance(machine === this.#machines[0] ? 0.8 : 0.3) ? this.plan.scale * random.below(4_000) : 0;
    return this.timeline.now >= this.plan.troubleMs + late;
  }

  /** In the middle of a migration, or soon after it. */
  #dieMigrating(machine: Machine, random: Random): void {
    const { crash, 'power-cut': cut } = this.plan.faults;
    const { process } = machine;
    if (!process || (crash === undefined && cut === undefined)) return;
    const burn = (): void => {
      this.trace(`${machine.name} dies while it migrates`);
      if (cut === undefined) machine.crash();
      else machine.cutPower();
      this.timeline.in(this.#lasting(random, 10, 1_000), () => machine.start());
    };
    process.handle.fuse = { calls: 1 + random.below(150), after: random.chance(0.5), burn };
  }

  #heal(): void {
    this.trace('the trouble is over');
    this.network.troubled = false;
    this.network.cut.clear();
    for (const machine of this.#machines) {
      machine.lockedUntil = -1;
      machine.intruder = undefined;
      if (machine.process) machine.process.handle.fuse = undefined;
    }
    for (const finish of this.#unfinished) finish();
    for (const machine of this.#machines) {
      machine.start();
      machine.startSecond();
    }
  }

  /** Looks now and then whether everything has arrived; as an operator would, sends refused changes once more. */
  #looking(): () => boolean {
    let next = 0;
    return () => {
      if (this.timeline.now < next) return false;
      next = this.timeline.now + LOOK_MS;
      for (const machine of this.#machines) {
        void this.#retryLetters(machine);
        if (isAskedFor(machine)) this.#waitToServe(machine);
        // Whoever is behind, or was put back to what it was before, is migrated now.
        if (this.#altersSchemas && machine.kind === 'node' && !machine.migrated && this.#isMigratedBy(machine))
          this.#migrate(machine);
        if (this.plan.migration === 'rebuild-drop' && machine.migrated && missesAColumn(machine))
          this.#application.sayDropped(machine);
        if (this.plan.forgets) this.#decide(machine);
        if (hasLeftARow(machine)) machine.offsetMs += MINUTE_MS;
      }
      if (!(this.#lives?.over ?? true) || !(this.#futures?.over ?? true) || !(this.#days?.over ?? true)) return false;
      return this.#whatIsLeft() === undefined && !this.#sendNewNames();
    };
  }

  /**
   * Once every node is migrated, each begins to send the new names, in any order, while somebody writes. False where there
   * are none, or that is done. A hub would keep a table under both of its names.
   */
  #sendNewNames(): boolean {
    const random = stream(this.plan.seed, 'new names');
    const isRenamed = this.#altersSchemas && !isMixed(this.plan) && this.#machines.every(({ kind }) => kind === 'node');
    if (!isRenamed || this.#namesSent || !random.chance(0.6)) return false;
    this.#namesSent = true;
    const nodes = random.shuffle(this.#machines.filter(({ process }) => process !== undefined));
    nodes.forEach((node, i) => {
      this.#lateWrites += 1;
      const send = (): void => {
        // It would be told so, and try again.
        if (node.held) {
          this.timeline.in(LOOK_MS, send);
          return;
        }
        this.#lateWrites -= 1;
        this.trace(`${node.name} sends new names`);
        node.process?.sendNewNames();
        if (i === 0) this.#application.write(random.pick(this.#writers), this.plan.writes + 10);
      };
      this.timeline.in(1 + this.plan.scale * i * random.below(400), send);
    });
    return true;
  }

  /** A table is sent again once in ten minutes, and nobody wants to watch them pass; in these, a process may well die. */
  #waitToServe(machine: Machine): void {
    machine.offsetMs += 60_000;
    if (this.#diesWaiting.has(machine)) return;
    this.#diesWaiting.add(machine);
    if (!machine.process || !stream(this.plan.seed, 'dies waiting', machine.name).chance(0.5)) return;
    this.trace(`${machine.name} dies while it was asked for a table`);
    if (this.plan.faults['power-cut'] === undefined) machine.crash();
    else machine.cutPower();
    machine.start();
  }

  /**
   * A row that was set aside for a floor waits for somebody who knows whether it is wanted. Then it is written anew where it
   * is; if not, the next comparison deletes it there, or brings it once more where that cannot tell.
   */
  #decide(machine: Machine): void {
    if (!machine.process || machine.held || machine.restarting) return;
    for (const { letter, key } of setAsideOn(machine)) {
      const nodes = this.#machines.filter(({ kind }) => kind === 'node');
      const has = nodes.find(({ disk }) => rowsOn(disk).has(key));
      // One that another one hides is not wanted, unless it comes once more.
      const hides = has ? undefined : nodes.find(({ disk }) => hiddenOn(disk).has(key));
      const isWanted = this.#checks.unwanted.has(key) || (!hides && stream(this.plan.seed, 'wanted', key).chance(0.5));
      this.trace(`${machine.name} has set ${key} aside, and it is ${isWanted ? '' : 'not '}wanted`);
      const at = has ?? hides;
      if (isWanted && at && !this.#application.renew(at, key)) continue;
      if (!isWanted) this.#checks.unwanted.add(key);
      void this.#discard(machine, letter);
    }
  }

  /** A commit that fails is told to whoever asked for it; the letter is where it was. */
  async #discard({ process }: Machine, letter: number): Promise<void> {
    try {
      await process?.letters?.discard(letter);
    } catch (error) {
      if (!isDiskTrouble(error)) throw error;
    }
  }

  async #retryLetters(machine: Machine): Promise<void> {
    const { process } = machine;
    if (!process || !machine.ready || machine.held || machine.restarting) return;
    if (Number(machine.disk.all(LETTERS)[0]?.n) === 0) return;
    for (const { id, direction } of (await process.letters?.list()) ?? []) {
      if (direction !== 'out') continue;
      this.#checks.retried = true;
      this.trace(`${machine.name} sends letter ${id} again`);
      // A commit that fails is told to whoever asked for the retry; the letter is where it was.
      try {
        await process.letters?.retry(id);
      } catch (error) {
        if (!isDiskTrouble(error)) throw error;
      }
    }
  }

  #whatIsLeft(): string | undefined {
    if (this.network.underWay > 0) return 'requests are under way';
    if (this.#lateWrites > 0) return 'the application is not done';
    // They do for a while after the other trouble, and what is looked at in the end must not meet one.
    if (this.plan.faults.commit !== undefined && this.timeline.now < commitsFailUntil(this.plan))
      return 'commits may still fail';
    for (const machine of this.#machines) {
      const { disk, name } = machine;
      const one = (sql: string): number => Number(disk.all(sql)[0]?.n ?? 0);
      if (machine.retired) continue;
      if (!machine.process || machine.held || machine.restarting) return `${name} is not running`;
      if (one(LETTERS) > 0) return `${name} has dead letters`;
      if (machine.unseen.size > 0) return `${name} has a table without triggers`;
      if (machine.secondPeers && (!machine.second || machine.second.dead)) return `a process of ${name} is not running`;
      if (isAskedFor(machine)) return `${name} was asked for a table`;
      if (hidesForNothing(machine)) return `${name} has not looked again at what it hides`;
      const left = this.plan.faults.roster === undefined ? undefined : rosterLeft(machine);
      if (left) return left;
      if (this.#altersSchemas && machine.kind === 'node' && !machine.migrated) return `${name} has not migrated`;
      if (machine.kind === 'hub') {
        const behind = one(
          'SELECT count(*) AS n FROM _hub_edges WHERE position < (SELECT coalesce(max(seq), 0) FROM _hub_rows)',
        );
        if (behind > 0) return `${behind} edges of ${name} are behind`;
      } else if (machine.configured.length > 0) {
        if (one('SELECT count(*) AS n FROM _changes') > 0) return `${name} has changes to send`;
        const peers = `FROM _peer_state WHERE peer_url IN (${machine.configured.map((url) => `'${url}'`).join(', ')})`;
        const seeding = `SELECT count(*) AS n ${peers} AND (tail_from IS NOT NULL OR again IS NOT NULL)`;
        if (one(seeding) > 0) return `${name} has a snapshot to send`;
        if (one(`SELECT count(*) AS n ${peers} AND asks IS NOT NULL`) > 0) return `${name} has not asked everybody`;
      }
    }
    return undefined;
  }

  #received(machine: Machine, { body, changes, givenUp }: Committed): void {
    machine.touched = true;
    const text = new TextDecoder().decode(body);
    this.#trace.add(text);
    this.#bodies.set(text, changes);
    this.#checks.received(changes, givenUp);
  }

  /** Everything that was ever received, once more and in another order: nothing changes, and a newcomer ends up the same. */
  #inAnotherOrder(): void {
    const random = stream(this.plan.seed, 'order');
    if (this.#altersSchemas || this.plan.faults.rebuild !== undefined || !random.chance(0.07)) return;
    const [node] = this.#machines.filter(({ kind, counts }) => kind === 'node' && counts);
    const machine = node as Machine;
    const before = rowsOn(machine.disk);
    const newcomer = new Versions();
    for (const text of random.shuffle([...this.#bodies.keys()])) {
      const received = machine.process?.receive(text);
      if (received !== 200) this.#checks.fail(`${machine.name} answers ${received} to what it has accepted before`);
      for (const change of this.#bodies.get(text) ?? []) newcomer.mergeChange(change);
    }
    // What comparisons have fetched has come without a batch.
    for (const { fetched } of this.#machines) for (const change of fetched) newcomer.mergeChange(change);
    const difference = differenceOf(before, rowsOn(machine.disk)) ?? differenceOf(before, newcomer.visible());
    if (difference) this.#checks.fail(`${machine.name} is another after everything has come again: ${difference}`);
  }

  async #collectTombstones(): Promise<void> {
    const random = stream(this.plan.seed, 'collecting');
    const node = this.#machines.find(({ kind, counts }) => kind === 'node' && counts) as Machine;
    // Its tombstones get another column, and its triggers other texts.
    node.disk.isSpent = true;
    const until = (done: () => boolean): Promise<boolean> =>
      this.timeline.run(this.timeline.now + HEALED_MS, done, () => {});
    const world = { random, node, machines: this.#machines, until, trace: (line: string) => this.trace(line) };
    const wrong = collectAndRepeat(node, this.#bodies, random) ?? (await deletedByComparison(world));
    if (wrong) this.#checks.fail(wrong);
  }

  #clear(): void {
    for (const machine of this.#machines) {
      machine.crash();
      this.#pool.give(machine.disk);
    }
  }
}
