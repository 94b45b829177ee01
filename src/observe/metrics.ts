/**
 * A node or a hub in figures, in Prometheus's text format. What can be looked up is looked up when somebody asks; what can
 * only be counted is counted from the events, from the moment on at which the counting began. A label names a table or
 * the URL of a peer, never a row.
 */

import type { Emitter, EventName, Listener, RowcastEvents } from '../events.ts';
import {
  Counter,
  EXPOSITION_TYPE,
  exposition,
  type Family,
  Histogram,
  type Labels,
  type Sample,
} from './exposition.ts';

/** What is asked of a node's manager, or of a hub. */
export interface Observable {
  status(): Observed | Promise<Observed>;
  on<E extends Counted>(event: E, listener: Listener<E>): () => void;
}

type Counted = Exclude<
  EventName,
  | 'change'
  | 'conflict'
  | 'applied'
  | 'visible'
  | 'acked'
  | 'peer-stale'
  | 'tombstones-collected'
  | 'peer-up'
  | 'peer-down'
  | 'error'
>;

/** What a node's status and a hub's have in common, as far as it is shown. */
export interface Observed {
  ok: boolean;
  node_id: string;
  inc: string;
  build: { version: string; runtime: string; sqlite: string };
  item_count: number;
  /** Of a node alone. */
  tables?: { name: string; rows: number; tombstones: number; at_least?: string[] }[];
  captured?: number;
  conflicts?: number;
  pending_changes: number;
  lag_ms: number;
  letters: { direction: string; code: string; count: number; at_least?: string[] }[];
  /** The numbers that are not counted to the end yet. */
  at_least?: string[];
  file: { bytes: number; wal_bytes: number };
  peer_states: {
    url: string;
    state: string;
    paused: boolean;
    stale?: boolean;
    snapshot?: boolean;
    seeds?: Record<string, number>;
    pending: number;
    lag_ms: number;
    last_acked_at: number | null;
    verified: { at: number; tables: Record<string, number>; error?: string | undefined } | null;
  }[];
}

export interface Metrics {
  /** What a scrape gets. Rejects where the node was stopped. */
  text(): Promise<string>;
  readonly contentType: string;
  /** Ends the counting. */
  stop(): void;
}

/** Seconds: from an answer on one machine to a timeout. */
const DURATIONS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

export function collectMetrics(subject: Observable): Metrics {
  const tally = new Tally(subject);
  return {
    text: async () => {
      const status = await seen(subject);
      if (status === undefined) return exposition([okay(false), ...tally.families()]);
      tally.forgetPeers(new Set(status.peer_states.map(({ url }) => url)));
      return exposition([...lookedUp(status), ...tally.families()]);
    },
    contentType: EXPOSITION_TYPE,
    stop: () => tally.stop(),
  };
}

/** Undefined where the database cannot be read: an alert that waits for a figure must get the one which says so. */
async function seen(subject: Observable): Promise<Observed | undefined> {
  try {
    return await subject.status();
  } catch (error) {
    if ((error as { code?: string }).code === 'STOPPED') throw error;
    return undefined;
  }
}

/** Counts what happens. */
class Tally {
  readonly #batches = new Counter();
  readonly #acked = new Counter();
  readonly #sentBytes = new Counter();
  readonly #requests = new Histogram(DURATIONS);
  readonly #received = new Counter();
  readonly #changes = new Counter();
  readonly #receivedBytes = new Counter();
  readonly #applies = new Histogram(DURATIONS);
  readonly #letters = new Counter();
  readonly #conflicts = new Counter();
  readonly #renewed = new Counter();
  readonly #gaps = new Counter();
  readonly #verifies = new Map<string, number>();
  readonly #listening: (() => void)[];

  constructor(subject: Observable) {
    // A rate needs its zero: without it the first event of a kind is none.
    for (const counter of [this.#renewed, this.#gaps, this.#receivedBytes]) counter.add({}, 0);
    this.#listening = [
      subject.on('attempt', (attempt) => this.#attempt(attempt)),
      subject.on('received', (received) => this.#receive(received)),
      subject.on('dead-letter', ({ direction, code, rows }) => this.#letters.add({ direction, code }, rows.length)),
      // A hub never says it.
      (subject as { on: Emitter['on'] }).on('conflict', ({ table }) => this.#conflicts.add({ table })),
      subject.on('restored', () => this.#renewed.add({})),
      subject.on('warning', ({ code }) => code === 'capture-gap' && this.#gaps.add({})),
      subject.on('verify-done', ({ peer, ms }) => void this.#verifies.set(peer, ms / 1_000)),
    ];
  }

  #attempt({ peer, result, changes, bytes, encoding, ms }: RowcastEvents['attempt']): void {
    this.#batches.add({ peer, result: result.replace('-', '_') });
    this.#sentBytes.add({ peer, encoding }, bytes);
    this.#requests.observe({ peer }, ms / 1_000);
    if (result === 'acked') this.#acked.add({ peer }, changes);
  }

  #receive({ status, changes, applied, bytes, ms }: RowcastEvents['received']): void {
    const taken = status >= 200 && status < 300;
    this.#received.add({ result: taken ? 'acked' : status >= 500 ? 'failed' : 'refused' });
    this.#receivedBytes.add({}, bytes);
    this.#applies.observe({}, ms / 1_000);
    if (!taken) return;
    this.#changes.add({ outcome: 'applied' }, applied);
    this.#changes.add({ outcome: 'other' }, Math.max(0, changes - applied));
  }

  /** A peer that was removed is no line on anybody's screen any more. */
  forgetPeers(known: Set<string>): void {
    const isGone = ({ peer }: Labels): boolean => peer !== undefined && !known.has(peer);
    for (const one of [this.#batches, this.#acked, this.#sentBytes, this.#requests]) one.forget(isGone);
    for (const peer of this.#verifies.keys()) if (!known.has(peer)) this.#verifies.delete(peer);
  }

  families(): Family[] {
    return [
      counter('rowcast_peer_batches_total', 'Requests with a batch, by what came of them.', this.#batches.samples),
      counter('rowcast_peer_changes_acked_total', 'Changes that a peer acknowledged.', this.#acked.samples),
      counter('rowcast_peer_sent_bytes_total', 'Bytes of batches as they travelled.', this.#sentBytes.samples),
      {
        name: 'rowcast_peer_request_duration_seconds',
        type: 'histogram',
        help: 'From a request with a batch to its complete answer.',
        samples: this.#requests.samples,
      },
      counter('rowcast_received_batches_total', 'Batches that were answered.', this.#received.samples),
      counter(
        'rowcast_received_changes_total',
        'Received changes: applied or already in place, and others, older than what stands here or set aside.',
        this.#changes.samples,
      ),
      counter('rowcast_received_bytes_total', 'Bytes of received batches, unpacked.', this.#receivedBytes.samples),
      {
        name: 'rowcast_apply_duration_seconds',
        type: 'histogram',
        help: 'From a received body to its answer.',
        samples: this.#applies.samples,
      },
      counter('rowcast_conflicts_total', 'Versions replaced by one that had not seen them.', this.#conflicts.samples),
      counter('rowcast_dead_letters_created_total', 'Changes that were set aside.', this.#letters.samples),
      counter(
        'rowcast_identity_renewed_total',
        'How often this database found that it is an earlier state of itself, or a copy.',
        this.#renewed.samples,
      ),
      counter('rowcast_capture_gaps_total', 'Tables found without their triggers.', this.#gaps.samples),
      gauge(
        'rowcast_verify_duration_seconds',
        'How long the latest comparison with it took.',
        [...this.#verifies].map(([peer, value]) => ({ labels: { peer }, value })),
      ),
    ];
  }

  stop(): void {
    for (const end of this.#listening) end();
  }
}

/** What is so at the moment. */
function lookedUp(status: Observed): Family[] {
  const peers = status.peer_states;
  const each = (value: (peer: Observed['peer_states'][number]) => number | undefined): Sample[] =>
    peers.flatMap((peer) => {
      const found = value(peer);
      return found === undefined ? [] : [{ labels: { peer: peer.url }, value: found }];
    });
  // A number that is still being counted would look as if rows had been lost: it is left out until it is known.
  const isKnown = (name: string, { at_least = [] }: { at_least?: string[] } = status): boolean =>
    !at_least.includes(name);
  const ofTables = (what: 'rows' | 'tombstones'): Sample[] | undefined =>
    status.tables
      ?.filter((table) => isKnown(what, table))
      .map((table) => ({ labels: { table: table.name }, value: table[what] }));
  const { version, runtime, sqlite } = status.build;
  const role = status.tables ? 'node' : 'hub';
  return [
    gauge('rowcast_build_info', 'What runs here.', [{ labels: { version, runtime, sqlite }, value: 1 }]),
    gauge('rowcast_node_info', 'Who this is; inc tells the database.', [
      { labels: { node_id: status.node_id, inc: status.inc, role }, value: 1 },
    ]),
    okay(status.ok),
    counter(
      'rowcast_changes_captured_total',
      'Changes captured in the life of the database.',
      status.captured === undefined ? [] : one(status.captured),
    ),
    gauge(
      'rowcast_rows',
      'Rows of a synced table; of a hub, of all.',
      ofTables('rows') ?? (isKnown('item_count') ? one(status.item_count) : []),
    ),
    gauge('rowcast_tombstones', 'Deletions that are remembered.', ofTables('tombstones') ?? []),
    gauge('rowcast_database_size_bytes', 'The database file.', one(status.file.bytes)),
    gauge('rowcast_wal_size_bytes', 'Its write-ahead log.', one(status.file.wal_bytes)),
    gauge('rowcast_pending_changes', 'What the peer lacks that is furthest behind.', one(status.pending_changes)),
    gauge('rowcast_lag_seconds', 'For how long the oldest of it has been pending.', one(status.lag_ms / 1_000)),
    gauge(
      'rowcast_dead_letters',
      'Changes that are set aside now.',
      status.letters.map(({ direction, code, count }) => ({ labels: { direction, code }, value: count })),
    ),
    gauge(
      'rowcast_conflict_journal_entries',
      'Of these, how many the journal holds.',
      status.conflicts === undefined || !isKnown('conflicts') ? [] : one(status.conflicts),
    ),
    gauge(
      'rowcast_peer_up',
      '1 where the latest attempt arrived.',
      each(({ state }) => (state === 'unknown' ? undefined : Number(state === 'up'))),
    ),
    gauge(
      'rowcast_peer_paused',
      '1 where nothing is sent to it.',
      each(({ paused }) => Number(paused)),
    ),
    gauge(
      'rowcast_peer_stale',
      '1 where it was away for too long and will be given everything.',
      each(({ stale }) => (stale === undefined ? undefined : Number(stale))),
    ),
    gauge(
      'rowcast_peer_seeding',
      '1 while it is being given everything.',
      each(({ snapshot }) => (snapshot === undefined ? undefined : Number(snapshot))),
    ),
    counter(
      'rowcast_peer_seeds_total',
      'How often it was given everything, or whole tables, in the life of the database.',
      peers.flatMap(({ url: peer, seeds = {} }) =>
        Object.entries(seeds).map(([cause, value]) => ({ labels: { peer, cause }, value })),
      ),
    ),
    gauge(
      'rowcast_peer_pending_changes',
      'What it has not acknowledged.',
      each(({ pending }) => pending),
    ),
    gauge(
      'rowcast_peer_lag_seconds',
      'For how long that has been pending.',
      each(({ lag_ms }) => lag_ms / 1_000),
    ),
    gauge(
      'rowcast_peer_last_ack_timestamp_seconds',
      'When it acknowledged last, in the life of this process.',
      each(({ last_acked_at }) => (last_acked_at === null ? undefined : last_acked_at / 1_000)),
    ),
    gauge(
      'rowcast_verify_last_success_timestamp_seconds',
      'When the latest comparison with it was finished.',
      each(({ verified }) => (verified && verified.error === undefined ? verified.at / 1_000 : undefined)),
    ),
    gauge(
      'rowcast_verify_differences',
      'Rows that differed then.',
      peers.flatMap(({ url, verified }) =>
        Object.entries(verified?.tables ?? {}).map(([table, rows]) => ({ labels: { peer: url, table }, value: rows })),
      ),
    ),
  ];
}

function okay(ok: boolean): Family {
  return gauge('rowcast_ok', '1 where /health says ok.', one(Number(ok)));
}

function one(value: number): Sample[] {
  return [{ value }];
}

function gauge(name: string, help: string, samples: Sample[]): Family {
  return { name, type: 'gauge', help, samples };
}

function counter(name: string, help: string, samples: Sample[]): Family {
  return { name, type: 'counter', help, samples };
}
