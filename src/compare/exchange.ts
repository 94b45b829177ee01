/**
 * How rows get from one side to the other where a comparison has found that they differ. One that is too large for a side keeps
 * no other from getting there: it is told of, and left where it is.
 */
import { RowcastError } from '../errors.ts';
import { isCode } from '../sqlite/result-codes.ts';
import type { Body } from '../wire/body.ts';
import type { Id } from './ids.ts';
import type { Eventually, Ledger, Portion } from './ledger.ts';
import type { Pace } from './pace.ts';
import { lookInTurns } from './reading.ts';
import { CannotCompare, type Remote, TooLarge } from './remote.ts';
import { order } from './versions.ts';
import type { Suspect } from './walk.ts';

export interface Exchange {
  /** Hands a batch to the peer. */
  send(body: Body, batchId: number, count: number): Promise<'acked' | 'too-large' | { refused: string }>;
  /** Applies a batch of the peer's, as any other. */
  take(body: string): Eventually<void>;
  /** A row cannot get to that side, because it is too large: for whoever runs it to know. As a batch, where it can be read. */
  tooLarge(row: { table: string; id: Id; side: 'here' | 'there'; body?: Body }): Eventually<void>;
}

interface Ways {
  ledger: Ledger;
  remote: Remote;
  exchange: Exchange;
  pace: Pace;
}

const BATCH_ID = 1;
/** What is read, or applied, in no more than a turn. */
const BATCH: Portion = { rows: 100, bytes: 1024 * 1024 };

export async function sendRows(ways: Omit<Ways, 'remote'>, table: string, ids: Id[]): Promise<void> {
  for (let left = ids; left.length > 0; ) {
    const [id, ...others] = left as [Id, ...Id[]];
    const { outcome, rest, body } = await sent(ways, table, left);
    if (outcome === 'too-large' && others.length > 0) {
      await sendRows(ways, table, left.slice(0, left.length >> 1));
      left = left.slice(left.length >> 1);
      continue;
    }
    if (outcome === 'too-large') await ways.exchange.tooLarge({ table, id, side: 'there', ...(body && { body }) });
    else if (outcome !== 'acked') throw new CannotCompare(outcome.refused);
    left = rest;
  }
}

/** The first of these, as many as make a batch. */
async function sent(
  { ledger, exchange, pace }: Omit<Ways, 'remote'>,
  table: string,
  ids: Id[],
): Promise<{ outcome: Awaited<ReturnType<Exchange['send']>>; rest: Id[]; body?: Body }> {
  try {
    const { body, count, rest } = await pace.once(() => ledger.changes(table, ids, BATCH_ID, BATCH));
    return { outcome: count === 0 ? 'acked' : await exchange.send(body, BATCH_ID, count), rest, body };
  } catch (error) {
    if (!isTooLarge(error)) throw error;
    return { outcome: 'too-large', rest: [] };
  }
}

/**
 * Fetches rows that are newer there, until all are here that can be. What has come once and cannot be applied here is not asked
 * for again: it must not stand in the way of what comes after it.
 */
export async function fetchRows(ways: Ways, table: string, suspects: Suspect[]): Promise<void> {
  for (let left = suspects; left.length > 0; ) {
    const outcome = await fetched(ways, table, left);
    if (outcome !== 'too-large') {
      left = outcome;
      continue;
    }
    if (left.length === 1) {
      await ways.exchange.tooLarge({ table, id: (left[0] as Suspect).id, side: 'here' });
      return;
    }
    await fetchRows(ways, table, left.slice(0, left.length >> 1));
    left = left.slice(left.length >> 1);
  }
}

/** Ids in one question. */
const FETCHED_TOGETHER = 500;

/** The same of any number. */
export async function fetchInParts(ways: Ways, table: string, suspects: Suspect[]): Promise<void> {
  for (let i = 0; i < suspects.length; i += FETCHED_TOGETHER) {
    await fetchRows(ways, table, suspects.slice(i, i + FETCHED_TOGETHER));
  }
}

/** Fetches the first of these, as many as the peer brings at once; those that are still to be asked for, fewer than before. */
async function fetched(
  { ledger, remote, exchange, pace }: Ways,
  table: string,
  suspects: Suspect[],
): Promise<Suspect[] | 'too-large'> {
  const ids = suspects.map(({ id }) => id);
  let body: string;
  try {
    body = await remote.fetch(table, ids);
    await pace.once(() => exchange.take(body));
  } catch (error) {
    if (!isTooLarge(error)) throw error;
    return 'too-large';
  }
  const { entries } = await lookInTurns(ledger, pace, table, null, ids, undefined);
  const here = new Map(entries.map((entry) => [entry.id, entry]));
  const isMissing = ({ id, there }: Suspect): boolean => {
    const entry = here.get(id);
    return !entry || !there || order(entry, there) < 0;
  };
  if (!isMissing(suspects[0] as Suspect)) return suspects.filter(isMissing);
  // What was asked for first comes first, and is not taken here; or the peer does not have it any more.
  const tried = countChanges(body);
  return tried === 0 ? [] : suspects.slice(tried).filter(isMissing);
}

function countChanges(body: string): number {
  try {
    return (JSON.parse(body) as { changes: unknown[] }).changes.length;
  } catch {
    // It was no batch, and nothing of it has been applied.
    return 0;
  }
}

/** For the peer, for what is between, for this side, or for SQLite. */
function isTooLarge(error: unknown): boolean {
  if (error instanceof RowcastError) return error.code === 'BODY_TOO_LARGE' || isTooLarge(error.cause);
  return error instanceof TooLarge || isCode(error, 'TOOBIG');
}
