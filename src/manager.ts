/** What a node can be asked to do; attach.ts makes one. */
import type { Trust } from './auth/trust.ts';
import type { Answered, AnswerOptions } from './compare/answer.ts';
import type { VerifyOptions, VerifyResult } from './compare/verify.ts';
import type { Settings } from './config.ts';
import type { EventName, Listener } from './events.ts';
import type { Feed } from './feed/page.ts';
import type { Health } from './health.ts';
import type { Conflicts } from './journal/conflicts.ts';
import type { Why } from './journal/why.ts';
import type { DeadLetter } from './letters/dead-letters.ts';
import type { Alias } from './migrate/aliases.ts';
import type { MigrateOptions, Migration } from './migrate/options.ts';
import type { Status } from './observe/status.ts';
import type { Received, ReceiveOptions } from './receive/answer.ts';
import type { RetryResult } from './receive/tried.ts';
import type { Peers } from './send/roster.ts';
import type { Change } from './wire/protocol.ts';

export interface FlushResult {
  /** Peers that have acknowledged everything that was pending. */
  delivered: string[];
  /** Peers that could not be reached, or are paused; the changes stay for them. */
  unreachable: string[];
}

export interface Manager {
  /** Applies received changes, last write wins. Returns how many won or were already in place. */
  applyChanges(changes: Change[]): number;
  /** Applies a raw request body. The fast and exact way, which `/sync` should use. */
  receive(body: string | Uint8Array, options?: ReceiveOptions): Received;
  health(): Health;
  /** health(), and what a dashboard draws beside it: tables, letters by cause, sizes. */
  status(): Status;
  /** For a `/health` route of your own: takes the request's `x-rowcast`, returns the headers that the answer has besides. */
  hello(said?: string | null): Record<string, string>;
  /**
   * Ships now; resolves when every reachable peer has acknowledged what was pending, and every dead letter that a change of
   * the schema has made possible has been tried again.
   */
  flush(): Promise<FlushResult>;
  /**
   * Compares every synced table with a peer, or with all of them, and tells what differs; with `repair`, puts it right. What
   * is on its way is waited for, so writes may go on meanwhile.
   */
  verify(peer?: string | undefined, options?: VerifyOptions): Promise<VerifyResult[]>;
  /** For the caller's own routes `/sync/compare` and `/sync/fetch`, by which peers compare with this node. */
  answer(path: string, body: string | Uint8Array, options?: AnswerOptions): Promise<Answered>;
  /** Wakes the loops without waiting for the next tick. */
  nudge(): void;
  /** That node is gone for good: tombstones are no longer kept for it. It counts again when it is heard again. */
  forget(id: string): void;
  /** Ends the loops; when it resolves, no timer, socket or statement is left. Capture goes on. */
  stop(): Promise<void>;
  /** Stops, and removes the triggers: writes are no longer captured. */
  detach(): Promise<void>;
  on<E extends EventName>(event: E, listener: Listener<E>): () => void;
  /** Changes settings at once; those that are not given stay as they are. */
  configure(settings: Settings): void;
  /** Adding and removing peers, and pausing them, while the node runs. */
  readonly peers: Peers;
  /** What has changed, to be read from any position on; undefined without the option `feed`. */
  readonly feed: Feed | undefined;
  readonly deadLetters: {
    list(options?: { limit?: number; after?: number }): DeadLetter[];
    retry(id: number): RetryResult;
    discard(id: number): void;
  };
  /** The conflict journal: edits that lost against one which had not seen them. */
  readonly conflicts: Conflicts;
  /** The story of one row: where it stands, since when, from whom, who lacks it, what it has beaten, and what waits. */
  why(table: string, id: string): Why;
  /**
   * Changes the schema: runs SQL, or a function, and does all that Rowcast has to do about it, in one transaction. Whatever
   * is thrown takes all of it back.
   */
  migrate(migration: Migration, options?: MigrateOptions): void;
  readonly aliases: {
    /** The names that tables and columns had before. */
    list(): Alias[];
    /** From now on changes travel under the new names alone; the old ones are still understood. Once every node is migrated. */
    drop(): void;
    /**
     * Nobody has anything under that name any more, `orders` or `items.name`: it is no longer understood here, and a new table
     * or column may have it. On every node, before one of them uses it again.
     */
    forget(name: string): void;
  };
  readonly id: string;
  /** The largest body that it takes; `rowcast/http` reads no further. */
  readonly maxBodyBytes: number;
  /** Its keys, where it was given `auth`: `rowcast/http` lets in whom they let in. */
  readonly trust: Trust | undefined;
}
