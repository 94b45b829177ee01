/** The hub as its callers see it. */
import type { Trust } from '../auth/trust.ts';
import type { Answered, AnswerOptions } from '../compare/answer.ts';
import type { VerifyOptions, VerifyResult } from '../compare/verify.ts';
import type { Config, Settings } from '../config.ts';
import type { EventName, Listener, NodeOnlyEvent } from '../events.ts';
import type { FlushResult, Received } from '../index.ts';
import type { Why } from '../journal/why.ts';
import type { DeadLetter } from '../letters/dead-letters.ts';
import type { Facts } from '../observe/facts.ts';
import type { ReceiveOptions } from '../receive/answer.ts';
import type { RetryResult } from '../receive/tried.ts';
import type { HubHealth } from './health.ts';
import type { Edges } from './roster.ts';

/**
 * A hub has no `maxBacklog`: it keeps the newest version of every row, and nothing for the sake of an edge. Nor has it
 * `tombstones`: it keeps every deletion, and nothing else of the row. Nor `conflicts`: those are noted where rows are
 * written, and a hub passes on what is needed for that. Nor `feed`: it has no tables of an application.
 */
export interface HubConfig extends Omit<Config, 'peers' | 'maxBacklog' | 'tombstones' | 'conflicts' | 'feed'> {
  /** Base URLs of the nodes to serve. */
  edges: string[];
}

/** Those of its settings that can be changed while it runs. */
export type HubSettings = Omit<Settings, 'maxBacklog' | 'conflicts'>;

/**
 * Everything a node emits but `applied`, `change` and `visible`, since a hub has no tables of which an application would want to hear,
 * `peer-stale`, since an edge can be away for as long as it likes, `conflict` and `tombstones-collected`.
 */
export type HubEventName = Exclude<EventName, NodeOnlyEvent>;

export interface Hub {
  readonly id: string;
  receive(body: string | Uint8Array, options?: ReceiveOptions): Promise<Received>;
  /** The largest body that `receive` takes. */
  readonly maxBodyBytes: number;
  /** Its keys, where it was given `auth`: `rowcast/http` lets in whom they let in. */
  readonly trust: Trust | undefined;
  health(): Promise<HubHealth>;
  /** health(), and what a dashboard draws beside it: letters by cause, sizes. */
  status(): Promise<HubHealth & Facts>;
  /** For a `/health` route of your own: takes the request's `x-rowcast`, returns the headers that the answer has besides. */
  hello(said?: string | null): Promise<Record<string, string>>;
  /** Ships now; resolves when every reachable edge has acknowledged what was pending. */
  flush(): Promise<FlushResult>;
  /** Compares with an edge, or with all of them, and tells what differs; with `repair`, puts it right. */
  verify(edge?: string | undefined, options?: VerifyOptions): Promise<VerifyResult[]>;
  /** For the caller's own routes `/sync/compare` and `/sync/fetch`. */
  answer(path: string, body: string | Uint8Array, options?: AnswerOptions): Promise<Answered>;
  /** Ends the loops; when it resolves, no timer, socket or statement is left. */
  stop(): Promise<void>;
  on<E extends HubEventName>(event: E, listener: Listener<E>): () => void;
  /** Changes settings at once; those that are not given stay as they are. */
  configure(settings: HubSettings): void;
  /** Adding and removing edges, and pausing them, while the hub runs. */
  readonly edges: Edges;
  readonly deadLetters: {
    list(options?: { limit?: number; after?: number }): Promise<DeadLetter[]>;
    retry(id: number): Promise<RetryResult>;
    discard(id: number): Promise<void>;
  };
  /** What is known of one row: its newest version, who brought it, and the edges that lack it. */
  why(table: string, id: string): Promise<Why>;
  /** How many batches were read from the database, and how many were handed to edges: the difference was shared. */
  readonly fanOut: { readonly reads: number; readonly served: number };
}
