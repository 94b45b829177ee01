/** What a reader of the feed is given. */
import type { RowRef } from '../events.ts';

/** A row that has changed; `row` is what it is now, where that was asked for: null where it is not in its table. */
export interface FeedRow extends RowRef {
  row?: Record<string, unknown> | null;
}

/** What was committed together, here or by a batch; a row may be in it more than once. */
export interface FeedEntry {
  /** To read on after it. */
  position: string;
  /** Written on this node. */
  local: boolean;
  /** The node that sent it, where that is known. */
  from?: string;
  rows: FeedRow[];
}

export interface FeedPage {
  /**
   * What has changed since the position is not known: it is too old, or of another database or an earlier state of this
   * one, or it was none. Read everything anew, and go on at the position of this page.
   */
  reset: boolean;
  entries: FeedEntry[];
  /** Up to where this page goes. */
  position: string;
  /** There is more to read at once. */
  more: boolean;
}

export interface FeedReadOptions {
  /** Only rows of these. */
  tables?: string[];
  /** With the rows as they are now. */
  row?: boolean;
}

/** The changes of the synced tables as they were committed, for as long as they are kept. */
export interface Feed {
  /** What has changed after a position. */
  read(since: string | undefined, options?: FeedReadOptions): FeedPage;
  /** Where it is now. */
  position(): string;
  /** Resolves when there is something after the position, or when `signal` aborts, or when the node is stopped. */
  changed(position: string, signal: AbortSignal): Promise<void>;
  /** Aborts when the node is stopped. */
  readonly stopped: AbortSignal;
}
