/**
 * The search in a refused shipment for the changes that are to blame: the others are delivered, only those set aside.
 */
import type { Outbox, Shipment } from './shipment.ts';
import { type Acked, isTooLarge, type Verdict } from './verdict.ts';

/** What the search needs of the loop that it belongs to. */
export interface Search<P> {
  outbox: Pick<Outbox<P>, 'next' | 'single'>;
  /** Sends a shipment, and again while the peer cannot be reached, for one round of attempts. */
  send(shipment: Shipment<P>): Promise<Verdict>;
  acked(shipment: Shipment<P>, verdict: Acked): Promise<void>;
  setAside(shipment: Shipment<P>, reason: string): Promise<void>;
}

export type Searched = { kind: 'done' } | { kind: 'unreachable'; reason: string };

/** Single changes, spread over the batch, by which a peer that refuses everything is told from a poisoned change. */
const PROBES = 8;

const DONE: Searched = { kind: 'done' };

export async function isolate<P>(search: Search<P>, refused: Shipment<P>, reason: string): Promise<Searched> {
  if (refused.count > 0 && !(await search.outbox.single(refused, 0))) return readAnew(search, refused);
  if (refused.count > PROBES) {
    const probed = await refusesEverything(search, refused);
    if (probed === false) return split(search, refused.count);
    if (probed !== true) return probed;
  } else if (refused.count > 1) {
    return split(search, refused.count);
  }
  await search.setAside(refused, reason);
  return DONE;
}

/** The body is no JSON: somebody else has recorded a change that is none. The outbox finds it when it looks at each. */
async function readAnew<P>(search: Search<P>, { count }: Shipment<P>): Promise<Searched> {
  const delivered = await deliver(search, count);
  return delivered.kind === 'unreachable' ? delivered : DONE;
}

async function refusesEverything<P>(search: Search<P>, refused: Shipment<P>): Promise<boolean | Searched> {
  for (let i = 0; i < PROBES; i++) {
    const index = Math.round((i * (refused.count - 1)) / (PROBES - 1));
    const verdict = await search.send((await search.outbox.single(refused, index)) as Shipment<P>);
    if (verdict.kind === 'unreachable') return verdict;
    if (verdict.kind === 'acked') return false;
  }
  return true;
}

/**
 * The next `count` changes were refused together: send the halves. A half that is the only suspect left is not sent
 * whole.
 */
async function split<P>(search: Search<P>, count: number): Promise<Searched> {
  const left = await deliver(search, count >> 1);
  if (left.kind === 'unreachable') return left;
  const rest = count - (count >> 1);
  if (left.kind === 'acked' && rest > 1) return split(search, rest);
  const right = await deliver(search, rest);
  return right.kind === 'unreachable' ? right : DONE;
}

/**
 * Sends the next `count` changes once; what is refused is split further, down to single changes, which become dead
 * letters.
 */
async function deliver<P>(search: Search<P>, count: number): Promise<Searched | { kind: 'acked' }> {
  const piece = await search.outbox.next({ changes: count, bytes: Number.MAX_SAFE_INTEGER, suspect: true });
  if (!piece) return DONE;
  const verdict = await search.send(piece);
  if (verdict.kind === 'unreachable') return verdict;
  if (verdict.kind === 'acked') {
    await search.acked(piece, verdict);
    return { kind: 'acked' };
  }
  if (piece.count > 1) return split(search, piece.count);
  await search.setAside(piece, verdict.kind === 'refused' ? verdict.reason : TOO_LARGE_ALONE);
  return DONE;
}

/**
 * What goes out in place of a single change that was too large. A deletion is so by the row that it has deleted, which
 * nobody needs in order to delete it; of anything else there is no less.
 */
export async function bareIfTooLarge<P>(
  outbox: Pick<Outbox<P>, 'bare'>,
  shipment: Shipment<P>,
  verdict: Verdict,
): Promise<Shipment<P> | undefined> {
  return isTooLarge(verdict) && shipment.count === 1 ? outbox.bare(shipment) : undefined;
}

/** Why a change that is refused for its size, though it is alone, becomes a dead letter. */
export const TOO_LARGE_ALONE =
  'HTTP 413 for a single change: it is larger than the peer takes (let it take more there, by maxBodyBytes, and retry)';
