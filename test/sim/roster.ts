/** Peers that are added, removed, paused and seeded again while a process runs, and peers for which too much is kept. */
import type { Edges } from '../../src/hub/roster.ts';
import type { Peers } from '../../src/index.ts';
import type { TableName } from './disk.ts';
import { isDiskTrouble, type Machine, ProcessGone, type Surroundings } from './machine.ts';
import { canonical, keyOf, type Version } from './oracle.ts';
import { logUniform, type Random } from './random.ts';

/** The bound is looked at once a minute; the clock of a machine is moved on, because nobody wants to watch them pass. */
export const MINUTE_MS = 61_000;

/** What a process cannot do at the moment: it is dead, its database is not to be had, or it has no such peer. */
function passes(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  // The peer may have been removed meanwhile.
  const passing = ['IN_TRANSACTION', 'STOPPED', 'INVALID_PEER'].includes(String(code));
  return error instanceof ProcessGone || isDiskTrouble(error) || passing;
}

/** Does something to the peers of a machine. `done` is told whether it could be done. */
function attempt(
  machine: Machine,
  act: (roster: Peers | Edges) => unknown,
  done: (done: boolean) => void = () => {},
): void {
  const roster = machine.process?.roster;
  if (!roster || machine.restarting) {
    done(false);
    return;
  }
  const failed = (error: unknown): void => {
    if (!passes(error)) throw error;
    done(false);
  };
  try {
    void Promise.resolve(act(roster)).then(() => done(true), failed);
  } catch (error) {
    failed(error);
  }
  machine.noteRoster();
}

/** Some verb to some peer, which is undone a little later, and at the end in any case. */
export function changeRoster(world: Surroundings, machine: Machine, random: Random): () => void {
  const url = random.pick(machine.peers);
  const verb = random.pick(['remove', 'pause', 'pause', 'pause', 'reseed'] as const);
  const undo = (): void => restore(world, machine, url);
  world.trace(`${machine.name}: ${verb} ${url}`);
  // The position of an edge that is given everything once more goes back, when that is its turn; which is otherwise a fault.
  if (verb === 'reseed' && machine.kind === 'hub') machine.reseeds.add(url);
  attempt(machine, (roster) => roster[verb](url));
  world.timeline.in(world.plan.scale * logUniform(random, 50, 3_000), undo);
  return undo;
}

/** A peer is taken out, and is one again when that is undone. */
export function takeOut(world: Surroundings, machine: Machine, url: string): () => void {
  world.trace(`${machine.name}: remove ${url}`);
  attempt(machine, (roster) => roster.remove(url));
  return () => restore(world, machine, url);
}

/** Until it is a peer, and is sent to. */
function restore(world: Surroundings, machine: Machine, url: string): void {
  // The peer has moved since: its machine was given the other URL, and is a peer there.
  if (!machine.peers.includes(url)) return;
  const act = async (roster: Peers | Edges): Promise<void> => {
    await roster.add(url);
    await roster.resume(url);
  };
  attempt(machine, act, (done) => {
    machine.noteRoster();
    if (done) world.trace(`${machine.name}: ${url} is sent to`);
    else world.timeline.in(200, () => restore(world, machine, url));
  });
}

/** Whoever copies a file copies whom its node had paused, and nobody else undoes that there. */
export function resumeAll(world: Surroundings, machine: Machine): void {
  const paused = machine.disk.all('SELECT peer_url AS url FROM _peer_state WHERE paused = 1');
  for (const { url } of paused) restore(world, machine, String(url));
}

/** The configuration has changed: a process that runs is told, as by a reload. False where that cannot be done. */
export function tellPeers(machine: Machine, peers: string[]): boolean {
  const roster = machine.process?.roster as Peers | undefined;
  if (!roster || machine.restarting) return false;
  const before = machine.configured;
  try {
    for (const url of peers) if (!before.includes(url)) roster.add(url);
    for (const url of before) if (!peers.includes(url)) void roster.remove(url).catch(() => {});
    return roster.list().length === peers.length;
  } catch (error) {
    if (!passes(error)) throw error;
    return false;
  } finally {
    machine.noteRoster();
  }
}

/** What is left to do before everybody can have everything. */
export function rosterLeft({ kind, disk, peers, name }: Machine): string | undefined {
  const table = kind === 'hub' ? '_hub_edges' : '_peer_state';
  const url = kind === 'hub' ? 'url' : 'peer_url';
  const held = kind === 'hub' ? 'paused = 1' : '(paused = 1 OR stale = 1)';
  const list = peers.map((peer) => `'${peer}'`).join(', ');
  const count = (where: string): number =>
    Number(disk.all(`SELECT count(*) AS n FROM ${table} WHERE ${url} IN (${list}) AND ${where}`)[0]?.n);
  if (count('true') < peers.length) return `${name} lacks a peer`;
  if (count(held) > 0) return `${name} has a peer that is paused or stale`;
  return undefined;
}

/** A change that is gone is in the seed that this peer is being given, or will be when it is back. */
export function isInSeed({ disk }: Machine, url: string, changeId: number): boolean {
  const sql = 'SELECT 1 FROM _peer_state WHERE peer_url = ? AND (stale = 1 OR tail_from >= ?)';
  return disk.all(sql, url, changeId).length > 0;
}

/**
 * A row is no longer hidden, while somebody is being given everything: it is told, at the version that this node has of it,
 * because the walk may be past its place.
 */
export function isToldToAWalk(machine: Machine, change: { table: TableName; id: string; version: Version }): boolean {
  const { table, id, version } = change;
  if (table !== 'people' || version.isDelete) return false;
  const known = machine.versions.get(keyOf(table, id));
  const isKnown = known?.isDelete === false && canonical(known.row) === canonical(version.row);
  const sql =
    'SELECT 1 FROM people WHERE id = ? AND updated_at = ? AND EXISTS (SELECT 1 FROM _peer_state WHERE tail_from IS NOT NULL)';
  return isKnown && machine.disk.all(sql, id, version.updatedAt).length > 0;
}
