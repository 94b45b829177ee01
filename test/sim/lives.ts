/**
 * The lives of databases: backups that are put back, disks that are lost, files that are copied, URLs that change hands.
 *
 * What a machine has had is then no measure any more. What counts is that all nodes are the same in the end, and that
 * nothing is less than what some disk held when the trouble was over: what one has reaches all.
 */
import type { WireRow } from '../support/model.ts';
import { TIE } from './application.ts';
import { Checks, differenceOf } from './checks.ts';
import { floorOn, isAboutAbsence, losesBesides } from './days.ts';
import { tablesOf } from './disk.ts';
import type { Machine, Surroundings } from './machine.ts';
import { NEW_COLUMN, tableNamed, unsaidIn } from './migration.ts';
import { canonical, describe, idIn, isAtLeast, type Key, keyOf, tableIn, type Version, Versions } from './oracle.ts';
import { lengthen, type Plan } from './plan.ts';
import { logUniform, type Random, stream } from './random.ts';
import { relapse } from './relapse.ts';
import { resumeAll } from './roster.ts';
import { columnsOf, exactRowsOn, hiddenOn, hubRow, rowsOn, tableOfRow, versionOn, versionOnHub } from './rows.ts';

const LIVES = ['restore', 'restore', 'relapse', 'relapse', 'wipe', 'wipe', 'clone', 'swap', 'swap', 'move'] as const;
type Life = (typeof LIVES)[number];

/** What a schedule of lives has beside: the network, crashes and power cuts. The rest asks questions of its own. */
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
  'schema',
]);

/** Makes it such a schedule. */
export function planLives(plan: Plan): void {
  const isOneSchema = plan.faults.schema === undefined;
  plan.foreignKeys = isOneSchema && stream(plan.seed, 'lives of notes').chance(0.15);
  plan.uniques = isOneSchema && !plan.foreignKeys && stream(plan.seed, 'lives of people').chance(0.25);
  plan.plain = false;
  if (!['pair', 'mesh', 'star', 'hubs'].includes(plan.topology)) plan.topology = 'mesh';
  for (const fault of Object.keys(plan.faults)) {
    if (!ALLOWED.has(fault)) delete plan.faults[fault as keyof Plan['faults']];
  }
  lengthen(plan, { ms: 2_500, writes: 10 });
}

/** When the trouble is over and nothing of it is under way, the clocks go on, so that everybody asks how the others are. */
const ASKING_MS = [31_000, 31_000, 11 * 60_000, 31_000];
/** Between two of these moments every loop has passed twice, with time for what it has found. */
const between = ({ batchMs }: Plan): number => 500 + 2 * batchMs;
const DRAINED_MS = 20_000;

export class Lives {
  readonly #world: Surroundings;
  readonly #machines: Machine[];
  /** The application writes something there. */
  readonly #write: (node: Machine) => void;
  readonly #random: Random;
  readonly #backups = new Map<Machine, Uint8Array[]>();
  readonly #pristine = new Map<Machine, Uint8Array>();
  /** It does not run until it is given a copy of another's file, or the trouble is over. */
  #spare: Machine | undefined;
  /** A node that was begun with the file of another. */
  #copy: Machine | undefined;
  #urls = 0;
  #over = false;
  /** What befalls most machines of the schedule, where it is mostly one thing. */
  readonly #mostly: Life | undefined;
  /** What some disk held when the trouble was over. */
  readonly union = new Versions();

  constructor(world: Surroundings, machines: Machine[], write: (node: Machine) => void) {
    this.#world = world;
    this.#machines = machines;
    this.#write = write;
    this.#random = stream(world.plan.seed, 'life');
    this.#mostly = this.#random.chance(0.5) ? this.#random.pick(LIVES) : undefined;
  }

  get #nodes(): Machine[] {
    return this.#machines.filter(({ kind }) => kind === 'node');
  }

  /** Before anything runs. */
  plan(): void {
    if (isAboutAbsence(this.#world.plan) && !losesBesides(this.#world.plan)) return;
    for (const machine of this.#machines) this.#pristine.set(machine, machine.disk.image());
    const nodes = this.#nodes;
    if (nodes.length > 2 && this.#random.chance(0.3)) this.#spare = nodes.at(-1);
    const { timeline, plan } = this.#world;
    for (let i = 2 + this.#random.below(5); i > 0; i--) {
      timeline.in(this.#random.next() * plan.troubleMs, () => this.#backUp(this.#random.pick(this.#machines)));
    }
    for (let i = 1 + this.#random.below(5); i > 0; i--) {
      const at = plan.troubleMs * (0.2 + 0.8 * this.#random.next());
      const what = this.#mostly !== undefined && this.#random.chance(0.7) ? this.#mostly : this.#random.pick(LIVES);
      timeline.in(at, () => this.#live(what));
    }
  }

  runs(machine: Machine): boolean {
    return machine !== this.#spare;
  }

  /** One is put back to this, or begins with an empty disk. */
  lose(machine: Machine, image: Uint8Array | undefined): void {
    if (!this.runs(machine) || !this.#world.network.troubled) return;
    if (image) machine.pasts += 1;
    this.#putBack(machine, image ?? this.#pristine.get(machine), image ? 'what it had then' : 'an empty disk');
  }

  /** The trouble is over: what is on the disks now must reach all. */
  healed(): void {
    for (const machine of this.#machines) this.#gather(machine);
    if (this.#copy) resumeAll(this.#world, this.#copy);
    const { timeline, network, plan } = this.#world;
    const began = timeline.now;
    const ask = (round: number): void => {
      const ms = ASKING_MS[round];
      if (ms === undefined) {
        this.#over = true;
        return;
      }
      for (const machine of this.#machines) machine.offsetMs += ms;
      timeline.in(between(plan), () => ask(round + 1));
    };
    const drained = (): void => {
      if ((network.underWay > 0 || network.isAsking) && timeline.now - began < DRAINED_MS) timeline.in(20, drained);
      else ask(0);
    };
    drained();
  }

  /** Everybody has had the time to notice. */
  get over(): boolean {
    return this.#over;
  }

  #gather({ disk, kind, ready }: Machine): void {
    if (!ready) return;
    if (kind === 'hub') {
      for (const { table_name: table, row_id: id } of disk.all('SELECT table_name, row_id FROM _hub_rows')) {
        this.union.merge(keyOf(String(table), String(id)), versionOnHub(disk, String(table), String(id)) as Version);
      }
      return;
    }
    const keys = new Set<Key>(rowsOn(disk).keys());
    for (const { table_name: table, row_id: id } of disk.all('SELECT table_name, row_id FROM _tombstones')) {
      const named = tableNamed(String(table));
      if (tablesOf(disk.kind).includes(named)) keys.add(keyOf(named, String(id)));
    }
    for (const key of keys) {
      const version = versionOn(disk, tableIn(key), idIn(key));
      if (version) this.union.merge(key, version);
    }
  }

  #live(what: Life): void {
    const random = this.#random;
    const machine = random.pick(this.#machines.filter((one) => this.runs(one)));
    if (what === 'restore') {
      const backup = random.pick(this.#backups.get(machine) ?? []);
      if (backup) machine.pasts += 1;
      this.#putBack(machine, backup, 'an old backup');
    }
    if (what === 'relapse') this.#relapse();
    if (what === 'wipe') {
      // Whoever sets it up again may well give it another name.
      if (machine.kind === 'node' && random.chance(0.4)) machine.id = `${machine.id}x`;
      this.#putBack(machine, this.#pristine.get(machine), 'an empty disk');
    }
    if (what === 'clone') this.#clone();
    if (what === 'swap') this.#swap();
    if (what === 'move') this.#move();
  }

  #lasting(low: number, high: number): number {
    return this.#world.plan.scale * logUniform(this.#random, low, high);
  }

  #backUp(machine: Machine): void {
    if (machine.disk.inTransaction) return;
    const kept = this.#backups.get(machine) ?? [];
    this.#backups.set(machine, [...kept, machine.disk.image()]);
    this.#world.trace(`${machine.name} is backed up`);
  }

  #putBack(machine: Machine, image: Uint8Array | undefined, what: string): void {
    if (!image) return;
    this.#world.trace(`${machine.name} comes back with ${what}`);
    machine.crash();
    machine.putBack(image);
    this.#world.timeline.in(this.#lasting(10, 800), () => machine.start());
    // Whoever is being given everything may well lose it again, in the middle of that.
    const pristine = this.#pristine.get(machine);
    if (!this.#random.chance(0.3)) return;
    const at = this.#world.timeline.now + this.#lasting(50, 2_000);
    if (at >= this.#world.plan.troubleMs) return;
    this.#world.timeline.in(at - this.#world.timeline.now, () =>
      this.#putBack(machine, pristine, 'an empty disk once more'),
    );
  }

  #relapse(): void {
    const node = this.#random.pick(this.#nodes.filter((one) => this.runs(one)));
    const others = this.#machines.filter((machine) => machine !== node && node.peers.includes(machine.url));
    if (others.length === 0) return;
    const putBack = (image: Uint8Array): void => {
      node.pasts += 1;
      this.#putBack(node, image, 'what it had a moment ago');
    };
    relapse({ world: this.#world, random: this.#random, node, others, write: this.#write, putBack });
  }

  /** Of a node that goes on running; under its id, or one of its own. */
  #clone(): void {
    const spare = this.#spare;
    const others = this.#nodes.filter((node) => node !== spare && !node.disk.inTransaction);
    if (!spare || others.length === 0) return;
    const original = this.#random.pick(others);
    this.#spare = undefined;
    this.#copy = spare;
    this.#world.trace(`${spare.name} gets a copy of ${original.name}`);
    if (this.#random.chance(0.5)) spare.id = original.id;
    for (const machine of [spare, original]) machine.pasts += 1;
    spare.putBack(original.disk.image());
    spare.start();
  }

  /** Two nodes change places after one of them was not to be reached for a while, and has missed what the other has. */
  #swap(): void {
    const [a, b] = this.#random.shuffle(this.#nodes.filter((node) => this.runs(node)));
    if (!a || !b) return;
    const others = this.#machines.filter((machine) => machine !== a);
    const links = others.flatMap(({ name }) => [`${a.name} ${name}`, `${name} ${a.name}`]);
    const { network, timeline } = this.#world;
    for (const link of links) network.cut.add(link);
    timeline.in(this.#lasting(100, 1_000), () => {
      for (const link of links) network.cut.delete(link);
      if (network.troubled) this.#exchange(a, b);
    });
  }

  /** Each is where the other was, and knows it. */
  #exchange(a: Machine, b: Machine): void {
    this.#world.trace(`${a.name} and ${b.name} change places`);
    const [urlOfA, urlOfB] = [a.url, b.url];
    for (const machine of [a, b]) {
      machine.peers = machine.peers.map((url) => (url === urlOfA ? urlOfB : url === urlOfB ? urlOfA : url));
      machine.crash();
    }
    this.#world.network.move(a, urlOfB);
    this.#world.network.move(b, urlOfA);
    for (const machine of [a, b]) this.#world.timeline.in(this.#lasting(10, 500), () => machine.start());
  }

  /** A node is somewhere else, and the others are told. */
  #move(): void {
    const node = this.#random.pick(this.#nodes.filter((one) => this.runs(one)));
    const before = node.url;
    this.#urls += 1;
    this.#world.network.move(node, `http://moved${this.#urls}`);
    this.#world.trace(`${node.name} is at another URL`);
    for (const machine of this.#machines) {
      if (!machine.peers.includes(before)) continue;
      machine.peers = machine.peers.map((url) => (url === before ? node.url : url));
      machine.crash();
      if (this.runs(machine)) this.#world.timeline.in(this.#lasting(10, 500), () => machine.start());
    }
  }
}

/** Machines lose what they had: what is checked is the end. */
export class LifeChecks extends Checks {
  union: Versions | undefined;

  /** A database takes another identity only where it is not what it was, and once. */
  override alarm(machine: Machine, event: string): void {
    if (event !== 'restored') return;
    machine.pasts -= 1;
    if (machine.pasts < 0) this.fail(`${machine.name} takes another identity, and has no reason to`);
  }

  /** All have written one row at one time, some of them without a column that others have. */
  hasTie = false;

  /**
   * Where the writer of a row loses its disk, a node without the column may be the only one that knows its value, as a
   * letter: when it has the column, the others learn of it by the next comparison.
   */
  override isLooseStill(machines: Machine[]): boolean {
    if (this.hasOpenTies(machines) || this.isForgottenApart(machines)) return true;
    const nodes = machines.filter(({ kind, ready }) => kind === 'node' && ready);
    const rows = nodes.map(({ disk }) => rowsOn(disk));
    const isKeptApart = (key: Key): boolean => {
      const found = rows.map((one) => one.get(key));
      const apart = new Set(found.map((row) => row && canonical(row))).size > 1;
      const known = new Set(found.map((row) => row && canonical({ ...row, [NEW_COLUMN]: null })));
      return apart && known.size === 1 && tableIn(key) === 'items';
    };
    if (rows.some((one) => [...one.keys()].some(isKeptApart))) return true;
    return this.hasTie && new Set(nodes.map(({ disk }) => describe(versionOn(disk, 'items', TIE)))).size > 1;
  }

  override beforeWrite(): void {}
  override notAdvanced(): void {}

  override captured(machine: Machine): void {
    this.passOver(machine);
  }

  /** What putting triggers back may write is told from what was there before that. */
  override afterEvent(machines: Machine[]): void {
    for (const machine of machines) {
      if (!machine.touched || !machine.ready || machine.disk.inTransaction) continue;
      machine.touched = false;
      this.neverDeletedForNothing(machine);
      if (machine.kind === 'hub') continue;
      this.neverBack(machine);
      this.passOver(machine);
    }
  }

  override nothingWritten(
    machine: Machine,
    before: Map<Key, ReturnType<typeof rowsOn> extends Map<Key, infer R> ? R : never>,
  ): void {
    const difference = differenceOf(before, rowsOn(machine.disk));
    if (difference) this.fail(`${machine.name}: a transaction that was rolled back has left something: ${difference}`);
  }

  /** It was deleted, or somebody has said that it is not wanted; and of that nothing is left but a floor, or nothing at all. */
  #isForgotten(key: Key, { updatedAt }: Version, nodes: Machine[]): boolean {
    const floor = Math.max(...nodes.map((node) => floorOn(node, tableIn(key))));
    return this.isDeletedRightly(key, updatedAt) && updatedAt <= floor;
  }

  override final(machines: Machine[]): void {
    const nodes = machines.filter(({ kind }) => kind === 'node');
    const [first, ...others] = nodes as [Machine, ...Machine[]];
    for (const [key, version] of this.union?.entries() ?? []) {
      for (const node of nodes) {
        const has = versionOn(node.disk, tableIn(key), idIn(key));
        if (has && isAtLeast(has, version)) continue;
        // Where a column has come meanwhile, whoever says something there is above one that could not speak of it yet.
        if (has && isAtLeast(this.whole(has), this.whole(version))) continue;
        if (has && this.leavesTies && has.updatedAt === version.updatedAt) continue;
        // A deletion from before says as little about the one that was forgotten as nothing does: the row is not here either way.
        const isGone = !has || has.isDelete;
        if (isGone && this.#isForgotten(key, version, nodes)) continue;
        this.fail(`${node.name} has ${describe(has)} of ${key}, and somebody had ${describe(version)}`);
      }
    }
    for (const other of others) {
      const difference =
        differenceOf(livingOn(first), livingOn(other)) ?? differenceOf(rowsOn(first.disk), rowsOn(other.disk));
      if (!difference && exactRowsOn(first.disk) === exactRowsOn(other.disk)) continue;
      this.fail(`${first.name} and ${other.name} differ: ${difference ?? 'in a storage class'}`);
    }
    for (const hub of machines.filter(({ kind }) => kind === 'hub')) {
      const live = hub.disk.all("SELECT table_name, row_id, row_data FROM _hub_rows WHERE op <> 'DELETE'");
      const rows = live.map((line) => [
        keyOf(line.table_name as string, line.row_id as string),
        wholeOf(first, hubRow(hub.disk, line.row_data)),
      ]) as [Key, never][];
      const difference = differenceOf(livingOn(first), new Map(rows));
      if (difference) this.fail(`${hub.name} is not what the nodes have: ${difference}`);
    }
  }
}

/** Visible or hidden. */
function livingOn({ disk }: Machine): Map<Key, WireRow> {
  return new Map([...rowsOn(disk), ...hiddenOn(disk)]);
}

/** A hub that was never told of a column has nothing in it, which on a node is the default. */
function wholeOf({ disk }: Machine, row: WireRow): WireRow {
  const isNew = tableOfRow(row) === 'items' && columnsOf(disk, 'items').includes(NEW_COLUMN);
  return isNew ? { [NEW_COLUMN]: unsaidIn(disk.migration), ...row } : row;
}
