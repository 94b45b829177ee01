/** What goes into applying a batch beside its body, and what comes out of it. */
import type { RowcastEvents, RowRef } from '../events.ts';
import type { Rejection } from '../wire/protocol.ts';
import type { Rights } from '../wire/rights.ts';

/** Who has sent a batch, and what the caller wants to hear of it. */
export interface Delivery {
  from: string | undefined;
  /** The sender has said that it is Rowcast: it never sends two versions of a row with one time. */
  isRowcast: boolean;
  /** What the sender may do; undefined: everything. */
  rights?: Rights | undefined;
  /** Who has made the changes, as the header says it; undefined where the sender has. */
  origins?: string | undefined;
  /** What else belongs into the transaction of the batch: who the sender says it is. It is told how many count as applied. */
  note?: ((changes: number) => void) | undefined;
  /** Its changes are dead letters here already: there is no more to make room for. */
  again?: boolean;
  /** What wins is news to others, too, and is recorded for all peers at its own version. */
  announce?: boolean;
  /** Somebody listens for the rows that were decided. */
  wantRows: boolean;
  /** Somebody listens for dead letters. */
  wantLetters: boolean;
}

/** What one way through a batch yields. */
export interface Merged {
  applied: number;
  rows: RowRef[];
  rejected: Rejection[];
  letters: RowcastEvents['dead-letter'][];
  /** What was replaced by a change that had not seen it. */
  conflicts: RowcastEvents['conflict'][];
}
