/**
 * What is to be done where one side has collected its tombstones. Below its floor it cannot tell a row that was deleted
 * from one that it never had; but what was delivered to it, and is not there, was deleted. So the other side deletes it,
 * too, at the version that it has: that is an ordinary deletion, which loses to whatever was written since.
 *
 * Exempt is what is still on its way to the side that has forgotten, which sets it aside, and what it has set aside
 * already: that is for a person to decide.
 */
import { type Body, batchText } from '../wire/body.ts';
import type { Id } from './ids.ts';
import type { Columns, Entry, Ledger } from './ledger.ts';
import type { Pace } from './pace.ts';
import { CannotCompare, type Remote } from './remote.ts';
import type { Exchange } from './verify.ts';
import type { Suspect } from './walk.ts';

export type Side = 'here' | 'there';
/** How far each side has collected; undefined where it keeps all tombstones. */
export type Floors = Record<Side, number | undefined>;

/** Above it both sides still have every tombstone. */
export function higherOf({ here, there }: Floors): number | undefined {
  if (here === undefined || there === undefined) return here ?? there;
  return Math.max(here, there);
}

/** The side that knows nothing of a row which the other one has, and would not take it any more. */
export function forgottenBy({ here, there }: Suspect, floors: Floors): Side | undefined {
  const isBelow = (entry: Entry | undefined, floor: number | undefined): boolean =>
    entry !== undefined && !entry.deleted && floor !== undefined && entry.version <= floor;
  if (!here && isBelow(there, floors.here)) return 'here';
  if (!there && isBelow(here, floors.there)) return 'there';
  return undefined;
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
    const outcome = await exchange.send(deletions(table, there.slice(i, i + TOGETHER)), BATCH_ID);
    if (outcome === 'too-large') throw new CannotCompare('a batch of deletions is too large for the peer');
    if (outcome !== 'acked') throw new CannotCompare(outcome.refused);
  }
  for (let i = 0; i < here.length; i += TOGETHER) {
    const body = new TextDecoder().decode(deletions(table, here.slice(i, i + TOGETHER)));
    await pace.turn(() => exchange.take(body));
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
  for (let i = 0; i < forgotten.length; i += TOGETHER) {
    const some = forgotten.slice(i, i + TOGETHER);
    const ids = some.map(({ id }) => id);
    const { undelivered } = await sides.remote.look(table, columns, ids);
    const { parked, entries } = await sides.pace.turn(() => sides.ledger.look(table, columns, ids, undefined));
    const exempt = new Set<Id>([...undelivered, ...parked, ...entries.map(({ id }) => id)]);
    const rows = some.filter(({ id }) => !exempt.has(id)).map((one) => ({ ...one, forgotten: 'here' as const }));
    await deleteForgotten(sides, table, rows);
  }
  return suspects.filter((one) => !isForgotten(one));
}

/** In one batch; an id may be long. */
const TOGETHER = 500;
const BATCH_ID = 1;

function deletions(table: string, rows: Suspect[]): Body {
  const changes = rows.map(({ id, here, there }) => {
    const row = { id, updated_at: (here ?? there)?.version };
    return JSON.stringify({ op: 'DELETE', table, row, old_id: id });
  });
  return new TextEncoder().encode(batchText(BATCH_ID, changes.join(',')));
}
