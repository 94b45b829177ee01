/**
 * The changes of a batch that their sender may not make. They are not applied and not kept: whoever sends them bears the
 * cost, and keeps them as letters of its own. Found out before anything is merged, so that neither way through apply, nor the
 * hub's, has to know of rights; where all is allowed that is one look at which tables the batch has.
 */
import type { Emitter } from '../events.ts';
import type { Connection } from '../sqlite/connection.ts';
import { batchText } from '../wire/body.ts';
import type { Ack, Rejection, RejectionCode } from '../wire/protocol.ts';
import type { BatchDocument } from '../wire/read-batch.ts';
import { mayWrite, type Rights } from '../wire/rights.ts';

export interface Permitted {
  /** The batch without what is forbidden, to be read as any other. */
  body: string;
  forbidden: Rejection[];
  /** Of each change that is left, its index in the batch as it came. */
  indexes: number[];
}

/** Of a change. What is no name is no table that anybody may write, and would be kept as one of a table that is not here. */
const TABLE = "iif(json_type(value, '$.table') = 'text', CAST(value ->> '$.table' AS TEXT), '')";

/** Undefined where every table of the batch may be written. `names` has all names of the table that a change speaks of. */
export function withoutForbidden(
  db: Connection,
  jsonb: boolean,
  { json }: BatchDocument,
  rights: Rights | undefined,
  names: (table: string) => string[],
): Permitted | undefined {
  if (!rights?.write) return undefined;
  const each = jsonb ? 'jsonb_each' : 'json_each';
  const found = db.all<{ tbl: string }>(
    `SELECT DISTINCT ${TABLE} AS tbl FROM ${each}(?, '$.changes') WHERE type = 'object'`,
    json,
  );
  const refused = found.map(({ tbl }) => tbl).filter((tbl) => !names(tbl).some((name) => mayWrite(rights, name)));
  if (refused.length === 0) return undefined;
  const isRefused = new Set(refused);
  const changes = db.all<{ idx: number; tbl: string | null; change: string }>(
    `SELECT key AS idx, iif(type = 'object', ${TABLE}, NULL) AS tbl, ` +
      "CASE WHEN type IN ('object', 'array') THEN json(value) WHEN type IN ('true', 'false') THEN type " +
      `ELSE json_quote(atom) END AS change FROM ${each}(?, '$.changes') ORDER BY key`,
    json,
  );
  const isForbidden = ({ tbl }: { tbl: string | null }): boolean => tbl !== null && isRefused.has(tbl);
  const left = changes.filter((change) => !isForbidden(change));
  return {
    body: batchText(0, left.map(({ change }) => change).join(',')),
    forbidden: changes.filter(isForbidden).map(({ idx, tbl }) => notAllowed(idx, tbl as string)),
    indexes: left.map(({ idx }) => idx),
  };
}

/** What came of the rest, told by the indexes of the batch as it came. */
export function withForbidden(rejected: Rejection[], { forbidden, indexes }: Permitted): Rejection[] {
  const told = rejected.map((one) => ({ ...one, index: indexes[one.index] as number }));
  return [...forbidden, ...told].sort((a, b) => a.index - b.index);
}

/** What is no change, or has a version that nobody could ever take: only its sender can have made it so. */
const FAULTS: ReadonlySet<RejectionCode> = new Set(['bad-change', 'bad-op', 'bad-row', 'bad-id', 'bad-timestamp']);

/** Why a change of a sender with rights is forbidden to it, where it cannot be applied for this reason; otherwise undefined. */
export function faultOf(rights: Rights | undefined, code: RejectionCode, reason: string): string | undefined {
  if (code === 'forbidden') return reason;
  return rights && FAULTS.has(code) ? `${code}: ${reason}` : undefined;
}

export const ROWLESS_FORBIDDEN = 'a DELETE without a row has no version, and this sender may not make one';

/** Nothing is kept of what a sender may not do, so its operator here is told that it was tried. */
export function tellForbidden(events: Emitter, from: string | undefined, { rejected }: Ack): void {
  if (!rejected?.some(({ code }) => code === 'forbidden')) return;
  const who = from === undefined ? 'a sender' : `node ${JSON.stringify(from)}`;
  const message = `${who} has sent changes that it may not make: they were neither applied nor kept here`;
  events.emit('warning', { code: 'forbidden', message });
}

function notAllowed(index: number, table: string): Rejection {
  const message = `this sender may not write the table ${JSON.stringify(table).slice(0, 80)}`;
  return { index, code: 'forbidden', message };
}
