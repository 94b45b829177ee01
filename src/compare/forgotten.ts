/**
 * What is to be done where one side has collected its tombstones. Below its floor it cannot tell a row that was deleted
 * from one that it never had; but what was delivered to it, and is not there, was deleted. So the other side deletes it,
 * too, at the version that it has: that is an ordinary deletion, which loses to whatever was written since.
 *
 * Exempt is what is still on its way to the side that has forgotten, which sets it aside, and what it has set aside
 * already: that is for a person to decide. So is everything where the other side has heard a node for which that one has not
 * waited, or sends nothing to it: what came from there was perhaps never delivered to it, and is sent to it now, to be set
 * aside.
 */
import { type Body, batchText } from '../wire/body.ts';
import type { Exchange } from './exchange.ts';
import type { Id } from './ids.ts';
import type { Columns, Entry, Ledger, Nodes } from './ledger.ts';
import type { Pace } from './pace.ts';
import { lookInTurns } from './reading.ts';
import { CannotCompare, type Remote } from './remote.ts';
import type { Suspect } from './walk.ts';

export type Side = 'here' | 'there';
/** How far each side has collected; undefined where it keeps all tombstones. */
export type Floors = Record<Side, number | undefined>;

/** Above it both sides still have every tombstone. */
export function higherOf({ here, there }: Floors): number | undefined {
  if (here === undefined || there === undefined) return here ?? there;
  return Math.max(here, there);
}

/**
 * The floors by which something may be judged to have been deleted: that of a side which has waited, before it forgot, for
 * every node that the other one has heard. Who does not say whom it has heard passes on everything.
 */
export function decidingOf(floors: Floors, here: Nodes | undefined, there: Nodes | undefined): Floors {
  return {
    here: hasAwaitedAll(here, there) ? floors.here : undefined,
    there: hasAwaitedAll(there, here) ? floors.there : undefined,
  };
}

/** What the other side itself has written it has delivered, or says that it has not, or that it sends nothing at all. */
function hasAwaitedAll(own: Nodes | undefined, other: Nodes | undefined): boolean {
  if (!own || !other) return true;
  if (other.heard.includes(other.self)) return false;
  const known = new Set([own.self, other.self, ...own.awaited]);
  return other.heard.every((node) => known.has(node));
}

/** The side that knows nothing of a row which the other one has, and would not take it any more. */
export function forgottenBy({ here, there }: Suspect, floors: Floors): Side | undefined {
  const isBelow = (entry: Entry | undefined, floor: number | undefined): boolean =>
    entry !== undefined && !entry.deleted && floor !== undefined && entry.version <= floor;
  if (!here && isBelow(there, floors.here)) return 'here';
  if (!there && isBelow(here, floors.there)) return 'there';
  return undefined;
}

async function sendDeletions(exchange: Exchange, table: string, rows: Suspect[]): Promise<void> {
  const body = deletions(table, rows);
  const outcome = await exchange.send(body, BATCH_ID, rows.length);
  if (outcome === 'acked') return;
  if (outcome !== 'too-large') throw new CannotCompare(outcome.refused);
  const middle = rows.length >> 1;
  if (middle === 0) return exchange.tooLarge({ table, id: (rows[0] as Suspect).id, side: 'there', body });
  await sendDeletions(exchange, table, rows.slice(0, middle));
  await sendDeletions(exchange, table, rows.slice(middle));
}

/** Rows that were judged to be forgotten by one side, deleted on the other. */
export async function deleteForgotten(
  { exchange, pace }: { exchange: Exchange; pace: Pace },
  table: string,
  rows: (Suspect & { forgotten: Side })[],
): Promise<void> {
  const there = rows.filter(({ forgotten }) => forgotten === 'here');
  const here = rows.filter(({ forgotten }) => forgotten === 'there');
  for (let i = 0; i < there.length; i += TOGETHER) {
    await sendDeletions(exchange, table, there.slice(i, i + TOGETHER));
  }
  for (let i = 0; i < here.length; i += TOGETHER) {
    const body = new TextDecoder().decode(deletions(table, here.slice(i, i + TOGETHER)));
    await pace.once(() => exchange.take(body));
  }
}

/** Of these rows, which only the peer has, those that this side has forgotten are deleted there; returned are the others. */
export async function withoutForgotten(
  sides: { ledger: Ledger; remote: Remote; exchange: Exchange; pace: Pace },
  table: string,
  columns: Columns,
  suspects: Suspect[],
  floor: number | undefined,
): Promise<Suspect[]> {
  const isForgotten = (one: Suspect): boolean => forgottenBy(one, { here: floor, there: undefined }) !== undefined;
  const forgotten = suspects.filter(isForgotten);
  const doubtful: Suspect[] = [];
  for (let i = 0; i < forgotten.length; i += TOGETHER) {
    const some = forgotten.slice(i, i + TOGETHER);
    const ids = some.map(({ id }) => id);
    const { undelivered, nodes: there } = await sides.remote.look(table, columns, ids);
    const { parked, entries, nodes } = await lookInTurns(sides.ledger, sides.pace, table, columns, ids, undefined);
    const exempt = new Set<Id>([...undelivered, ...parked, ...entries.map(({ id }) => id)]);
    const rows = some.filter(({ id }) => !exempt.has(id)).map((one) => ({ ...one, forgotten: 'here' as const }));
    if (hasAwaitedAll(nodes, there)) await deleteForgotten(sides, table, rows);
    else doubtful.push(...rows);
  }
  return [...suspects.filter((one) => !isForgotten(one)), ...doubtful];
}

/** In one batch; an id may be long. */
const TOGETHER = 250;
const BATCH_ID = 1;

function deletions(table: string, rows: Suspect[]): Body {
  const changes = rows.map(({ id, here, there }) => {
    const row = { id, updated_at: (here ?? there)?.version };
    return JSON.stringify({ op: 'DELETE', table, row, old_id: id });
  });
  return new TextEncoder().encode(batchText(BATCH_ID, changes.join(',')));
}
