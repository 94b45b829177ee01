/**
 * When a peer is asked for tables of its own: with an empty batch, as soon as it has everything that there was to send when
 * it was decided to ask, or there is nothing more. What was captured before the triggers went may not be in the table any more;
 * the peer must have it before it looks, or it would not send it. What is written meanwhile it need not have: on a node that
 * always writes there would be no time to ask.
 */
import type { Connection } from '../sqlite/connection.ts';
import { batchText } from '../wire/body.ts';
import { askHeader } from './asked-tables.ts';
import { type PeerPosition, type PeerState, stateOf } from './peers.ts';
import type { Shipment } from './shipment.ts';

/** Before anything that there is to send besides. */
export function isToBeAsked(state: PeerState, previous: Shipment<PeerPosition> | undefined): boolean {
  const { asks, asksAfter } = state;
  return asks !== null && asksAfter !== null && previous?.asks === undefined && hasAllUpTo(state, asksAfter);
}

/** Undefined where there is nothing to ask. */
export function question(
  { asks, asksAfter, lastAcked, run }: PeerState,
  previous: Shipment<PeerPosition> | undefined,
): Shipment<PeerPosition> | undefined {
  if (asks === null) return undefined;
  const changeId = placeAfter(previous, lastAcked);
  const batchId = Math.max(1, changeId);
  const body = new TextEncoder().encode(batchText(batchId, ''));
  const end = { kind: 'tail', run, changeId } as const;
  return { batchId, body, count: 0, end, asks: { header: askHeader(asks), after: asksAfter } };
}

/**
 * The peer has been asked. That was all, unless it is to be asked for more since then, or again: of another gap the table is
 * walked anew, and where only a column is back, more may have been captured. In a transaction.
 */
export function noteAsked(db: Connection, peer: string, { asks: asked, end }: Shipment<PeerPosition>): void {
  if (asked === undefined) return;
  const { asks, asksAfter, run } = stateOf(db, peer);
  if (asks === null || run !== end.run) return;
  if (askHeader(asks) !== asked.header || asksAfter !== asked.after) return;
  db.run('UPDATE main._peer_state SET asks = NULL, asks_after = NULL WHERE peer_url = ?', peer);
}

/** Has the peer acknowledged all changes up to this one, and is it given nothing else before those that follow? */
export function hasAllUpTo({ tailFrom, stale, lastAcked }: PeerState, changeId: number): boolean {
  return !stale && tailFrom === null && lastAcked >= changeId;
}

/** The change after which there is more, when all up to `lastAcked` is acknowledged and `previous` is on its way. */
export function placeAfter(previous: Shipment<PeerPosition> | undefined, lastAcked: number): number {
  return previous?.end.kind === 'tail' ? previous.end.changeId : lastAcked;
}
