/** The hub's health: the specification's six fields, where the peers are the edges, and how far each edge is. */

import { alarm, type Clock } from '../clock.ts';
import type { VerifySummary } from '../compare/notes.ts';
import { messageOf } from '../errors.ts';
import type { BondHealth } from '../send/bonds.ts';
import type { Loop } from '../send/loop.ts';
import type { PeerCondition } from '../send/shipper.ts';
import type { Edge } from './edges.ts';
import type { Counts, HubStore } from './store.ts';

export interface EdgeHealth {
  url: string;
  /** As its own `/health` says; null while it is not known. */
  node_id: string | null;
  state: PeerCondition;
  /** Nothing is sent to it, until it is resumed. */
  paused: boolean;
  /** Rows it has not acknowledged: exact up to 10,000, at most that many beyond. */
  pending: number;
  last_acked: number;
  /** Age of the first of them, by its own updated_at. */
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

export interface HubHealth {
  ok: boolean;
  node_id: string;
  /** Live rows; exact where there are up to 5,000 rows and tombstones, as of the last count beyond. */
  item_count: number;
  /** For the edge that is furthest behind. */
  pending_changes: number;
  dead_letter: number;
  peers: string[];
  peer_states: EdgeHealth[];
  lag_ms: number;
  problems: string[];
  /** The numbers of which there are more: they have not been counted to the end since the process began. Absent otherwise. */
  at_least?: string[];
}

/** What it looks at. */
interface Subject {
  id: string;
  store: HubStore;
  links: { edge: Edge; loop: Loop }[];
  /** What has failed at writing, and what is wrong with the clock. */
  faults: string[];
  /** The node ids that two edges have, and what that is. */
  usedTwice: Map<string, string>;
  clock: Clock;
  verified(url: string): VerifySummary | undefined;
  /** Where there are keys. */
  bonded(url: string): BondHealth | undefined;
}

/** What a balancer asks each process of a group: what the others have as well must not take them all away from it. */
export async function hubReadiness(subject: Subject): Promise<HubHealth> {
  const { health, own } = await looked(subject);
  return subject.store.group ? { ...health, ok: own.length === 0, problems: own } : health;
}

export async function hubHealth(subject: Subject): Promise<HubHealth> {
  return (await looked(subject)).health;
}

/** `own`: what is wrong with this process, and not with the rows, the edges or the letters. */
async function looked(subject: Subject): Promise<{ health: HubHealth; own: string[] }> {
  const { id, store, links, faults, usedTwice, clock, verified, bonded } = subject;
  const now = clock.now();
  // As they are at this moment: while the store counts, an edge may advance.
  const asked = links.map(({ edge }) => ({ position: edge.position, except: edge.ownOrigin }));
  const count = async (): Promise<Counts> => {
    const counts = await store.counts(asked);
    return { ...counts, problems: [...counts.problems, ...store.company.problems(new Set(usedTwice.keys()))] };
  };
  const own = [...faults];
  const counts = await within(clock, count()).catch((error): Counts => {
    own.unshift(`the database cannot be read: ${messageOf(error)}`);
    return { rows: 0, letters: 0, edges: asked.map(() => ({ pending: 0, oldest: undefined })), problems: [] };
  });
  const states = links.map(({ edge, loop: { shipper } }, i): EdgeHealth => {
    const { pending, oldest } = counts.edges[i] as Counts['edges'][number];
    return {
      url: edge.url,
      node_id: edge.nodeId ?? null,
      state: shipper.condition,
      paused: edge.paused,
      pending,
      last_acked: asked[i]?.position as number,
      lag_ms: oldest === undefined ? 0 : Math.max(0, now - oldest),
      last_acked_at: shipper.lastAckedAt ?? null,
      last_error: shipper.lastError ?? null,
      verified: verified(edge.url) ?? null,
      ...bonded(edge.url),
    };
  });
  const still = links.flatMap(({ loop: { shipper } }) => shipper.standStill.problem ?? []);
  const problems = [...counts.problems, ...usedTwice.values(), ...own, ...still];
  const health = {
    ok: problems.length === 0,
    node_id: id,
    item_count: counts.rows,
    pending_changes: greatest(states.map(({ pending }) => pending)),
    dead_letter: counts.letters,
    peers: links.map(({ edge }) => edge.url),
    peer_states: states,
    lag_ms: greatest(states.map(({ lag_ms }) => lag_ms)),
    problems,
    ...(counts.at_least && { at_least: counts.at_least }),
  };
  return { health, own };
}

/** Whoever asks how it is must hear that nothing is heard: a store elsewhere may wait for somebody's lock. */
const ANSWER_MS = 5_000;

function within<T>(clock: Clock, answer: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const off = alarm(clock, ANSWER_MS, () => reject(new Error(`no answer for ${ANSWER_MS / 1_000} seconds`)));
    answer.then(resolve, reject).finally(off);
  });
}

function greatest(numbers: number[]): number {
  return numbers.reduce((most, n) => Math.max(most, n), 0);
}
