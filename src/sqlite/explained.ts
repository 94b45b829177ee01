/** What the bindings say that is no verdict of SQLite's on a statement, in our own words. */
import { messageOf, RowcastError } from '../errors.ts';
import { isCode, resultCode } from './result-codes.ts';

/** As SQLite says it. */
export const NESTED = 'cannot start a transaction within a transaction';

/** Both BEGIN and PRAGMA synchronous say that the caller has a transaction open; neither has a code of its own for it. */
export function isNestedTransaction(error: unknown): boolean {
  return /(within|inside) a transaction/.test(messageOf(error));
}

export function inTransaction(cause: unknown): RowcastError {
  return new RowcastError('IN_TRANSACTION', 'the application has a transaction open on this connection', {
    hint: 'Rowcast waits until it is committed or rolled back; do not hold it across an await',
    cause,
  });
}

export function busy(cause: unknown): RowcastError {
  return new RowcastError('DATABASE_BUSY', 'another connection (of this process or another) holds the write lock', {
    hint: 'keep write transactions short, and let none of them wait for anything but the database',
    cause,
  });
}

/** What the bindings say of their own state, and not SQLite of the statement, has no code: it gets one of ours. */
export function explained(error: unknown, wasOpen: boolean): unknown {
  if (resultCode(error) !== undefined && !isCode(error, 'MISUSE')) return error;
  const text = messageOf(error);
  if (CLOSED.test(text)) {
    return new RowcastError('DATABASE_CLOSED', 'the database was closed', {
      hint: wasOpen
        ? 'call stop() and wait for it before closing the database'
        : 'open it, or another handle to the file, and pass that',
      cause: error,
    });
  }
  return ITERATING.test(text) ? iterating(error) : error;
}

export function iterating(cause: unknown): RowcastError {
  return new RowcastError('DATABASE_BUSY', 'the application is in the middle of a query on this connection', {
    hint: 'read its rows to the end, or use all() instead of iterate(), before the next await',
    cause,
  });
}

const CLOSED =
  /database (connection )?is not open|closed database|database (has|is|was) closed|statement has (been )?finalized/i;
const ITERATING = /connection is busy executing a query/i;
