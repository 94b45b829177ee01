/**
 * When a peer is asked for tables of its own: with an empty batch, as soon as it has everything that there was to send when
 * that was first seen, or there is nothing more. What was captured before the triggers went may not be in the table any more;
 * the peer must have it before it looks, or it would not send it. What is written meanwhile it need not have: on a node that
 * always writes there would be no time to ask.
 */
import { lastChangeId } from '../capture/change-ids.ts';
import type { Connection } from '../sqlite/connection.ts';
import { batchText } from '../wire/body.ts';
import type { PeerPosition, PeerState } from './peers.ts';
import { askHeader } from './resend.ts';
import type { Shipment } from './shipment.ts';

export class Asking {
  readonly #db: Connection;
  /** The tables, and the last change that there was when it was first seen that they are to be asked for. */
  #seen: { asks: string; upTo: number } | undefined;

  constructor(db: Connection) {
    this.#db = db;
  }

  /** Before anything that there is to send besides. */
  isDue(state: PeerState, previous: Shipment<PeerPosition> | undefined): boolean {
    const { asks } = state;
    if (asks !== this.#seen?.asks) this.#seen = asks === null ? undefined : { asks, upTo: lastChangeId(this.#db) };
    return this.#seen !== undefined && previous?.asks === undefined && hasAllUpTo(state, this.#seen.upTo);
  }

  /** Undefined where there is nothing to ask. */
  question(
    { asks, lastAcked, run }: PeerState,
    previous: Shipment<PeerPosition> | undefined,
  ): Shipment<PeerPosition> | undefined {
    if (asks === null) return undefined;
    const changeId = placeAfter(previous, lastAcked);
    const batchId = Math.max(1, changeId);
    const body = new TextEncoder().encode(batchText(batchId, ''));
    return { batchId, body, count: 0, end: { kind: 'tail', run, changeId }, asks: askHeader(asks) };
  }
}

/** Has the peer acknowledged all changes up to this one, and is it given nothing else before those that follow? */
export function hasAllUpTo({ tailFrom, stale, lastAcked }: PeerState, changeId: number): boolean {
  return !stale && tailFrom === null && lastAcked >= changeId;
}

/** The change after which there is more, when all up to `lastAcked` is acknowledged and `previous` is on its way. */
export function placeAfter(previous: Shipment<PeerPosition> | undefined, lastAcked: number): number {
  return previous?.end.kind === 'tail' ? previous.end.changeId : lastAcked;
}
