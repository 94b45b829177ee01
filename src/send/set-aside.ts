/** A refused shipment taken apart: its changes as dead letters, or one of them alone. */

import type { RowRef } from '../events.ts';
import type { DeadLetters, LetterContent } from '../letters/dead-letters.ts';
import type { Connection } from '../sqlite/connection.ts';
import { type Body, CHANGES_OF_BODY, singleBody } from '../wire/body.ts';
import { originsOf } from '../wire/origins.ts';
import type { Shipment } from './shipment.ts';
import type { Forbidden } from './verdict.ts';

/** The row's id as the change names it: `old_id` for a deletion, the column `id` in whatever case for a write. */
const ID =
  "coalesce(c.value ->> '$.old_id', " +
  "(SELECT e.atom FROM json_each(c.value, '$.row') AS e WHERE e.key = 'id' COLLATE NOCASE))";

const CHANGES =
  `SELECT c.value ->> '$.op' AS op, c.value ->> '$.table' AS tbl, ${ID} AS id, ` +
  `c.value -> '$.row' AS r, c.value AS change FROM ${CHANGES_OF_BODY} AS c`;

/** A change of a shipment, as letters keep it. */
interface Found {
  op: string;
  tbl: string;
  id: string;
  r: string | null;
  change: string;
}

/** A change of a body, as letters keep it and as events name it. */
export interface RefusedChange {
  content: LetterContent;
  ref: RowRef;
}

/** The changes of a body, in its order. */
export function changesIn(db: Connection, body: Body): RefusedChange[] {
  return db.all<Found & Record<string, never>>(CHANGES, body).map(({ op, tbl, id, r, change }) => ({
    content: { op, table: tbl, rowId: id, row: r, change },
    ref: { op: op as RowRef['op'], table: tbl, id },
  }));
}

/** Makes a dead letter of every change of a refused shipment. Inside a transaction. */
export function setAsideChanges(
  db: Connection,
  letters: DeadLetters,
  { body }: Pick<Shipment<unknown>, 'body'>,
  refusal: { peer: string; reason: string; attempts: number },
): RowRef[] {
  const changes = changesIn(db, body);
  for (const { content } of changes) letters.keepRefused(content, { ...refusal, code: 'refused' });
  return changes.map(({ ref }) => ref);
}

/** Makes a dead letter of those changes that the peer does not let this node make. Inside a transaction. */
export function setAsideForbidden(
  db: Connection,
  letters: DeadLetters,
  { body }: Shipment<unknown>,
  { peer, forbidden }: { peer: string; forbidden: Forbidden[] },
): RowRef[] {
  const changes = changesIn(db, body);
  return forbidden.map(({ index, reason }) => {
    const { content, ref } = changes[index] as RefusedChange;
    letters.keepRefused(content, { peer, reason, attempts: 1, code: 'forbidden' });
    return ref;
  });
}

/** The shipment reduced to its change number `index`. A single one may be large, and is not copied. */
export function singleChange<P>(db: Connection, shipment: Shipment<P>, index: number): Shipment<P> {
  if (shipment.count === 1) return shipment;
  const body = singleBody(db, shipment.body, shipment.batchId, index);
  return { ...shipment, body, count: 1, origins: originsOf(shipment.origins, [index]) };
}
