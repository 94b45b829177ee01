/**
 * health(): the specification's six fields, and what an operator asks next. It waits for no other writer, reads
 * everything at one moment, and does bounded work, whatever the size of the data.
 */

import type { Registry } from './capture/registry.ts';
import type { VerifySummary } from './compare/notes.ts';
import { messageOf } from './errors.ts';
import type { DeadLetters } from './letters/dead-letters.ts';
import type { BacklogAge } from './send/backlog-age.ts';
import type { BondHealth } from './send/bonds.ts';
import { changesAfter, peerProgress } from './send/progress.ts';
import type { SeedCause } from './send/seed-causes.ts';
import type { PeerCondition, Shipper } from './send/shipper.ts';
import type { Connection } from './sqlite/connection.ts';
import { proveWritable, readAtOnce, waitingAtMost, writeIfFree } from './sqlite/look.ts';
import { atLeastOf, type Counted, type RowCounter } from './sqlite/row-counter.ts';

export interface PeerHealth {
  url: string;
  state: PeerCondition;
  /** Changes it has not acknowledged and, during a snapshot, rows and tombstones it has not been given. */
  pending: number;
  last_acked: number;
  /** A snapshot is under way: this peer is being given the state from before the changes it is sent. */
  snapshot: boolean;
  /** Nothing is sent to it, until it is resumed. */
  paused: boolean;
  /** It was away for too long: nothing is kept for it, and when it is back it is given the whole state. */
  stale: boolean;
  /** How often it was given everything, or whole tables, in the life of this file, by cause. */
  seeds: Record<SeedCause, number>;
  /** For how long something of it has been pending. */
  lag_ms: number;
  last_acked_at: number | null;
  last_error: string | null;
  /** What the latest comparison with it has found; null before the first. */
  verified: VerifySummary | null;
  /** Where there are keys: the node that must answer there, whether it has shown the key, and its clock. */
  pinned?: string | null;
  signed?: 'yes' | 'not-yet' | 'exempt';
  clock_offset_ms?: number;
}

export interface Health {
  /**
   * False where `problems` says why: capture, the database or the clock is broken, or a link will not move by itself. A peer that
   * is down does not do so.
   */
  ok: boolean;
  node_id: string;
  /** Rows of all synced tables: exact up to 50,000, and beyond unless they are being written to. */
  item_count: number;
  /** What the peer that is furthest behind lacks; without peers, what is kept for the first one. */
  pending_changes: number;
  dead_letter: number;
  peers: string[];
  peer_states: PeerHealth[];
  /** For how long the oldest of it has been pending: since its capture, to within a second, whatever `updated_at` says. */
  lag_ms: number;
  /** Why `ok` is false. */
  problems: string[];
  /** The nodes because of which no tombstones are collected; absent where there are none. */
  tombstones_held_by?: string[];
  /** The numbers of which there are more: they have not been counted to the end since the process began. Absent otherwise. */
  at_least?: string[];
}

/** What health() looks at. */
export interface Subject {
  nodeId: string;
  db: Connection;
  registry: Registry;
  letters: DeadLetters;
  company: { problems(): string[] };
  /** Why the clock cannot be right. */
  clockProblem: string | undefined;
  faults: { problems(): string[]; readonly isShortOfRoom: boolean };
  shippers: Shipper[];
  counter: RowCounter;
  age: BacklogAge;
  /** What the latest comparison with a peer has found, and what cannot be put right; what of that is here, it asks the database. */
  comparisons: { summaryOf(peer: string): VerifySummary | undefined; problems(): string[]; uncaptured(): string[] };
  /** Where there are keys. */
  bonded(peer: string): BondHealth | undefined;
  /** For whom tombstones are kept longer than they should be. */
  heldBy: string[];
  now: number;
}

/** Without a WAL, another process's commit keeps readers out for a moment; a lock that lasts longer is a problem to report. */
const READ_WAIT_MS = 100;

export function health(subject: Subject): Health {
  const { nodeId, db, shippers } = subject;
  const problems: string[] = [...subject.company.problems(), ...subject.faults.problems()];
  if (subject.clockProblem !== undefined) problems.push(subject.clockProblem);
  const still = shippers.flatMap(({ standStill }) => standStill.problem ?? []);
  problems.push(...keptBack(shippers), ...still, ...subject.comparisons.problems());
  let figures: Figures = { item_count: 0, pending_changes: 0, dead_letter: 0, peer_states: [], lag_ms: 0 };
  try {
    const isOpen = probe(subject, problems);
    figures = waitingAtMost(db, READ_WAIT_MS, () => readAtOnce(db, () => look(subject, isOpen, problems)));
  } catch (error) {
    problems.push(`the database cannot be read: ${messageOf(error)}`);
  }
  if (db.damage !== undefined) problems.unshift(db.damage);
  const { item_count, pending_changes, dead_letter, peer_states, lag_ms, at_least } = figures;
  return {
    ok: problems.length === 0,
    node_id: nodeId,
    item_count,
    pending_changes,
    dead_letter,
    peers: shippers.map((shipper) => shipper.peer),
    peer_states,
    lag_ms,
    problems,
    ...(subject.heldBy.length > 0 && { tombstones_held_by: subject.heldBy }),
    ...(at_least && { at_least }),
  };
}

/** One peer that does so may be wrong itself. Where most do, what is written here is to be seen nowhere else. */
function keptBack(shippers: Shipper[]): string[] {
  const keeping = shippers.filter(({ keptBack }) => keptBack.isSo).length;
  if (2 * keeping <= shippers.length) return [];
  const what = `clock: ${keeping} of ${shippers.length} peers keep what is written here until its time has come`;
  return [`${what}: it is dated far ahead of their clocks`];
}

type Figures = Pick<Health, 'item_count' | 'pending_changes' | 'dead_letter' | 'peer_states' | 'lag_ms' | 'at_least'>;

const PROOF = { table: '_meta', key: 'key', value: 'value' };

/** True where the application has a transaction open; that proves as much as a write lock of our own. */
function probe({ db, faults }: Subject, problems: string[]): boolean {
  const before = db.writeFailure;
  const said = (message: string): void => {
    // Whoever has failed at it may have said so already.
    if (!problems.some((problem) => problem.endsWith(message)))
      problems.push(`the database cannot be written: ${message}`);
  };
  try {
    // Somebody else's lock is given back; then this node writes again.
    const found = before !== undefined || faults.isShortOfRoom ? proveWritable(db, PROOF) : writeIfFree(db);
    if (found === 'done') db.forgetWriteFailure();
    else if (before !== undefined) said(before);
    return found === 'open';
  } catch (error) {
    said(messageOf(error));
    return false;
  }
}

function look(subject: Subject, isOpen: boolean, problems: string[]): Figures {
  const { db, registry, letters, shippers, counter, age, now } = subject;
  // Whatever cannot be read is one more problem to report, never a reason to say nothing at all.
  const read = <T>(what: string, otherwise: T, query: () => T): T => {
    try {
      return query();
    } catch (error) {
      problems.push(`${what} cannot be read: ${messageOf(error)}`);
      return otherwise;
    }
  };
  problems.push(...read('the schema', [], () => captureProblems(db, registry)));
  if (registry.otherBuilds.problem !== undefined) problems.push(registry.otherBuilds.problem);
  if (letters.room.problem !== undefined) problems.push(letters.room.problem);
  problems.push(...read('a synced table', [], () => subject.comparisons.uncaptured()));
  const tables = registry.list();
  const states = read('_peer_state', [], () => {
    age.note();
    return shippers.map((shipper) => peerHealth(subject, shipper, problems));
  });
  counter.beginLook();
  // The letters first: there are few of them, and they are exact then.
  const dead = read('_dead_letter', NONE, () => letters.count(counter, isOpen));
  const rows = read('a synced table', NONE, () => sumOf(tables.map((table) => counter.count(table, isOpen))));
  const kept = shippers.length > 0 ? undefined : read('_changes', 0, () => changesAfter(db, 0));
  return {
    item_count: rows.rows,
    pending_changes: kept ?? Math.max(0, ...states.map(({ pending }) => pending)),
    dead_letter: dead.rows,
    peer_states: states,
    lag_ms: kept ? elapsed(age.sinceAfter(0), now) : Math.max(0, ...states.map(({ lag_ms }) => lag_ms)),
    ...atLeastOf({ item_count: rows, dead_letter: dead }),
  };
}

const NONE: Counted = { rows: 0, atLeast: false };

function sumOf(counted: Counted[]): Counted {
  return {
    rows: counted.reduce((sum, { rows }) => sum + rows, 0),
    atLeast: counted.some(({ atLeast }) => atLeast),
  };
}

function captureProblems(db: Connection, registry: Registry): string[] {
  if (registry.intact()) return [];
  const lost = registry.missing();
  // Set by somebody else than us, and left: we set it within transactions alone.
  const isOff = db.get("SELECT 1 AS n FROM main._meta WHERE key = 'syncing' AND value IS NOT 0") !== undefined;
  if (lost.length === 0 && isOff) {
    return ['capture is switched off: "syncing" is not 0 in _meta; set it to 0, and have the rows compared (verify)'];
  }
  if (lost.length === 0) return ['capture triggers are missing or changed: call attach again'];
  return lost.map(({ name, why }) =>
    why === undefined
      ? `the synced table "${name}" is gone: its changes are dead letters until it is back`
      : `${why}: until that is mended its changes are dead letters`,
  );
}

function peerHealth({ db, registry, age, now, ...subject }: Subject, shipper: Shipper, problems: string[]): PeerHealth {
  const progress = peerProgress(db, registry.list(), shipper.peer);
  const { pending, snapshot, lastAcked, snapshotSince } = progress;
  if (progress.toBeAsked) {
    problems.push(
      `writes may have gone unseen while triggers were missing, or a column was gone and is back, and ${shipper.peer} ` +
        'has not been asked yet for what it has',
    );
  }
  const lag = Math.max(elapsed(age.sinceAfter(lastAcked), now), elapsed(snapshotSince ?? undefined, now));
  return {
    url: shipper.peer,
    state: shipper.condition,
    pending,
    last_acked: lastAcked,
    snapshot,
    paused: progress.paused,
    stale: progress.stale,
    seeds: progress.seeds,
    lag_ms: pending === 0 ? 0 : lag,
    last_acked_at: shipper.lastAckedAt ?? null,
    last_error: shipper.lastError ?? null,
    verified: subject.comparisons.summaryOf(shipper.peer) ?? null,
    ...subject.bonded(shipper.peer),
  };
}

function elapsed(since: number | undefined, now: number): number {
  return since === undefined ? 0 : Math.max(0, now - since);
}
