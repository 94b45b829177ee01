/**
 * When tombstones may go: a pure function of what is known of the other nodes.
 *
 * That no deleted row ever comes back is the floor's doing (capture/floors.ts), whenever tombstones are collected. The
 * horizon decides whether anything is ever set aside for it: as long as every node has what was written before the
 * horizon, nothing below it is still on its way.
 */

/** A node that has been heard of. */
export interface Member {
  id: string;
  /** Everything it captured before has reached all its peers, by its own word; undefined where it has never said. */
  low: number | undefined;
  /** When it was last heard, by our clock. */
  lastHeard: number;
  /** Nobody waits for it any more. */
  retired: boolean;
  /** No Rowcast node: nobody can know what it still has to send. */
  plain: boolean;
}

export interface Surroundings {
  /** Ourselves among them. */
  members: Member[];
  /** How long tombstones are kept beyond what everybody has, in milliseconds. */
  keep: number;
  now: number;
}

/** Tombstones from before a time may go; or none may, and these nodes are why. Of nobody means that nothing is known. */
export type Horizon = { kind: 'open'; before: number } | { kind: 'held'; by: string[] };

export function horizonOf({ members, keep, now }: Surroundings): Horizon {
  const waitedFor = members.filter((member) => !member.retired);
  const holding = waitedFor.filter(({ low, lastHeard, plain }) => plain || low === undefined || now - lastHeard > keep);
  if (waitedFor.length === 0 || holding.length > 0) return { kind: 'held', by: holding.map(({ id }) => id).sort() };
  // A clock that is ahead must not make anybody forget sooner than ours says.
  const low = waitedFor.reduce((least, member) => Math.min(least, member.low ?? least), now);
  return { kind: 'open', before: low - keep };
}
