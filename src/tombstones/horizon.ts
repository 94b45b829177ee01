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
  /** Nothing is kept for it: once it was not heard for as long as tombstones are kept, nobody waits for it either. */
  left: boolean;
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

/**
 * Tombstones from before a time may go; or none may, because somebody has not spoken yet; or none may before a person
 * has done something about these nodes. `by`: because of whom no more may go. `without`: who was not asked.
 */
export type Horizon =
  | { kind: 'open'; before: number; by: string[]; without: string[] }
  | { kind: 'waiting'; by: string[] }
  | { kind: 'held'; by: string[] };

export function horizonOf({ members, keep, now }: Surroundings): Horizon {
  const isSilent = ({ lastHeard }: Member): boolean => now - lastHeard > keep;
  const waitedFor = members.filter((member) => !member.retired && !(member.left && isSilent(member)));
  const holding = waitedFor.filter((member) => member.plain || isSilent(member));
  if (holding.length > 0) return { kind: 'held', by: namesOf(holding) };
  const unspoken = waitedFor.filter(({ low }) => low === undefined);
  if (waitedFor.length === 0 || unspoken.length > 0) return { kind: 'waiting', by: namesOf(unspoken) };
  // A clock that is ahead must not make anybody forget sooner than ours says.
  const low = waitedFor.reduce((least, member) => Math.min(least, member.low ?? least), now);
  const behind = waitedFor.filter((member) => now - (member.low ?? now) > keep);
  const without = members.filter((member) => !waitedFor.includes(member));
  return { kind: 'open', before: low - keep, by: namesOf(behind), without: namesOf(without) };
}

function namesOf(members: Member[]): string[] {
  return members.map(({ id }) => id).sort();
}
