/**
 * After one machine has collected its tombstones, a peer of it has a row again that was deleted long ago, as a backup of
 * it would, unseen by everybody. The two are compared: the row must go, and not come back to where it was forgotten.
 */
import type { Peers } from '../../src/index.ts';
import type { Machine, Process } from './machine.ts';
import { spelt } from './migration.ts';
import type { Random } from './random.ts';

export interface Forgetting {
  random: Random;
  /** It has collected. */
  node: Machine;
  machines: Machine[];
  /** Lets time pass until it says so. */
  until(done: () => boolean): Promise<boolean>;
  trace(line: string): void;
}

/** What is wrong; undefined where nothing is. */
export async function deletedByComparison(world: Forgetting): Promise<string | undefined> {
  const { node, random } = world;
  const url = node.configured[0];
  const peer = world.machines.find((one) => one.url === url && one.kind === 'node' && one.counts);
  if (!node.process || node.second || url === undefined || !peer?.process || peer.second) return undefined;
  if ([node, peer].some(({ disk }) => disk.kind === 'node-foreign-keys' || disk.inTransaction)) return undefined;
  // First what the two have done since; what is on its way is exempt.
  await world.until(() => !hasPending(node) && !hasPending(peer));
  // What it has set aside is exempt, too, until somebody has said that it is not wanted.
  const letters = node.disk.all("SELECT dead_id AS id FROM _dead_letter_info WHERE code = 'below-floor'");
  for (const { id } of letters) void node.process.letters?.discard(Number(id));
  const pair: Pair = { node: node.process, url, peer };
  const known = forgottenOn(node, peer);
  const zombie = known[random.below(Math.max(1, known.length))];
  if (!zombie || !bringBack(peer, zombie)) return undeliveredDeleted(world, pair);
  world.trace(`${peer.name} has ${zombie.id} again, which ${node.name} has forgotten, and is compared with`);
  if (!(await compare(world, pair))) return `${node.name} comes to no end with ${peer.name}`;
  const has = [node, peer].find((one) => isOn(one, zombie.id));
  if (has && !(has === peer && isLeftToAPerson(world, peer, zombie.id))) {
    return `${has.name}: ${zombie.id} was deleted, and forgotten on ${node.name}, and is back`;
  }
  return undeliveredDeleted(world, pair);
}

/** The peer has heard somebody for whom the node does not wait, and so may have it from there: it is kept, as a letter. */
function isLeftToAPerson({ node, machines }: Forgetting, peer: Machine, id: string): boolean {
  const isKnown = (name: unknown): boolean =>
    machines.some((one) => one.name === name && (one === node || one === peer || node.configured.includes(one.url)));
  return isAside(node, id) && peer.disk.all('SELECT id FROM _nodes').some((one) => !isKnown(one.id));
}

interface Pair {
  node: Process;
  peer: Machine;
  /** Of the peer. */
  url: string;
}

/** False where it comes to no end. */
async function compare({ until }: Forgetting, { node, url }: Pair): Promise<boolean> {
  let over = false;
  const end = (): void => {
    over = true;
  };
  void node.verify(url).then(end, end);
  return until(() => over);
}

/** A row of the peer's that is as old as what the node has forgotten, and has not been told to it yet, is nobody's to delete. */
async function undeliveredDeleted(world: Forgetting, pair: Pair): Promise<string | undefined> {
  const { node, peer } = { node: world.node, peer: pair.peer };
  const [floor] = floorOn(node);
  const [own] = floorOn(peer);
  if (!floor || own || !peer.process || !node.process) return undefined;
  await (peer.process.roster as Peers).pause(node.url);
  const sql = spelt(peer.disk, 'INSERT INTO items (id, updated_at) VALUES (?, ?)');
  peer.process.handle.prepare(sql).run('late', Number(floor.value));
  world.trace(`${peer.name} has a row that ${node.name} was not told of, and is compared with`);
  if (!(await compare(world, pair))) return `${node.name} comes to no end with ${peer.name}`;
  if (!isOn(peer, 'late')) return `${peer.name}: a row that ${node.name} was never told of was deleted for it`;
  return asideDeleted(world, pair);
}

/** When it is told of it, it sets it aside; and what somebody was asked about is nobody's to delete either. */
async function asideDeleted(world: Forgetting, pair: Pair): Promise<string | undefined> {
  const { node, peer } = { node: world.node, peer: pair.peer };
  const roster = peer.process?.roster as Peers | undefined;
  await roster?.resume(node.url);
  if (!(await world.until(() => isAside(node, 'late')))) return `${node.name} has not set aside what it was told late`;
  world.trace(`${node.name} has set that row aside, and is compared with`);
  if (!(await compare(world, pair))) return `${node.name} comes to no end with ${peer.name}`;
  return isOn(peer, 'late') ? undefined : `${peer.name}: a row that ${node.name} has set aside was deleted for it`;
}

function isOn({ disk }: Machine, id: string): boolean {
  return disk.all(spelt(disk, 'SELECT 1 FROM items WHERE id = ?'), id).length > 0;
}

function isAside({ disk }: Machine, id: string): boolean {
  const kept =
    'SELECT 1 FROM _dead_letter AS d JOIN _dead_letter_info AS i USING (dead_id) ' +
    "WHERE i.code = 'below-floor' AND d.row_id = ?";
  return disk.all(kept, id).length > 0;
}

function floorOn({ disk }: Machine): Record<string, unknown>[] {
  return disk.all(spelt(disk, "SELECT value FROM _meta WHERE key = 'floor:items'"));
}

interface Zombie {
  id: string;
  version: number;
}

/** Deletions that the peer still knows, and of which nothing is left here but the floor. */
function forgottenOn(node: Machine, peer: Machine): Zombie[] {
  const asked = (disk: Machine['disk'], sql: string): Record<string, unknown>[] => disk.all(spelt(disk, sql));
  const known = asked(peer.disk, "SELECT row_id AS id, version FROM _tombstones WHERE table_name = 'items'");
  const there = new Set(asked(peer.disk, 'SELECT id FROM items').map(({ id }) => id));
  const left = asked(
    node.disk,
    'SELECT id FROM items UNION SELECT row_id FROM _hidden UNION SELECT row_id FROM _tombstones UNION ' +
      'SELECT row_id FROM _dead_letter',
  );
  const here = new Set(left.map(({ id }) => id));
  const [floor] = floorOn(node);
  return known
    .map(({ id, version }) => ({ id: String(id), version: Number(version) }))
    .filter(({ id, version }) => version <= Number(floor?.value) && !here.has(id) && !there.has(id));
}

/** False where the schema does not allow it. */
function bringBack({ disk }: Machine, { id, version }: Zombie): boolean {
  disk.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
  try {
    disk.prepare(spelt(disk, 'INSERT INTO items (id, updated_at) VALUES (?, ?)')).run(id, version);
    disk.prepare(spelt(disk, "DELETE FROM _tombstones WHERE table_name = 'items' AND row_id = ?")).run(id);
    return true;
  } catch {
    return false;
  } finally {
    disk.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
  }
}

function hasPending({ disk }: Machine): boolean {
  return disk.all('SELECT 1 FROM _changes LIMIT 1').length > 0;
}
