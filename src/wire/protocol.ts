/** The protocol: what travels, within which limits, and what is wrong with it when something is. */

export type Op = 'INSERT' | 'UPDATE' | 'DELETE';

export interface Change {
  op: Op;
  table: string;
  /** Column name to value. A DELETE carries the full old row, because the receiver needs its `updated_at`. */
  row: Record<string, unknown> | null;
  old_id: string | null;
  /** Of an UPDATE: the version of the row that it was made to. By it the receiver tells an overwritten edit from a seen one. */
  base?: number;
  /** Of a change with a `base` that a hub passes on: the node that made it. */
  origin?: string;
}

export interface Batch {
  batch_id: number;
  changes: Change[];
}

/** Why one change of a batch was set aside. */
export interface Rejection {
  index: number;
  code: RejectionCode;
  message: string;
}

export interface Ack {
  applied: number;
  /** The request's batch_id; a decimal string where a JavaScript number would not be exact. */
  ack: number | string;
  rejected?: Rejection[];
}

/** Why a received change became a dead letter, or was not even kept. */
export type RejectionCode =
  | 'bad-change'
  | 'bad-op'
  | 'bad-row'
  | 'bad-id'
  | 'bad-timestamp'
  | 'future-stamp'
  | 'unknown-table'
  | 'unknown-column'
  | 'constraint'
  | 'below-floor'
  /** Its sender may not make it: neither applied nor kept here. */
  | 'forbidden';

/** Why a change became a dead letter, in either direction. */
export type LetterCode = RejectionCode | 'refused' | 'unique' | 'no-id';

/** The specification's ceiling for one batch, on both sides of the wire. */
export const BATCH_CHANGES_MAX = 10_000;
/** Of a sender that is not held to it, because it may know no smaller one: applying so many takes most of a second. */
export const PLAIN_BATCH_CHANGES_MAX = 100_000;

/** Bytes of an id as it travels, of the name of a table that is not known, and of a node's id; keys of a row. */
export const ROW_ID_BYTES_MAX = 64 * 1024;
export const TABLE_NAME_BYTES_MAX = 200;
export const NODE_ID_LENGTH_MAX = 200;
export const ROW_KEYS_MAX = 2_000;

/** A longer one is nobody's, and not worth keeping with every row and every letter: it is taken for absent. */
export function senderId(said: string | undefined): string | undefined {
  return said !== undefined && said.length <= NODE_ID_LENGTH_MAX ? said : undefined;
}

export const SYNC_PATH = '/sync';
/** Beside it, at a Rowcast node or hub: what is there by ranges of ids, and rows that are asked for; see compare/. */
export const COMPARE_PATH = '/sync/compare';
export const FETCH_PATH = '/sync/fetch';
export const HEALTH_PATH = '/health';
export const NODE_ID_HEADER = 'x-node-id';
/** Of a request: the sender is Rowcast, and what it says of itself, as `id=<node id>; ...`. Unknown keys are ignored. */
export const ROWCAST_HEADER = 'x-rowcast';
/** Of a request: the tables that the receiver is asked to send in its turn, all of their rows; see send/asked-tables.ts. */
export const SEND_AGAIN_HEADER = 'x-send-again';
/** Of a request: who has made the changes, where that is not the sender; see origins.ts. */
export const ORIGINS_HEADER = 'x-origins';
/** Of an answer: how many milliseconds the batch kept the receiver. */
export const APPLY_MS_HEADER = 'x-apply-ms';
/** Of an answer: `1` where the receiver takes batches in any order, and the next before it has answered the last. */
export const ANY_ORDER_HEADER = 'x-any-order';
/** Of an answer: what the receiver can read of compressed bodies. */
export const ACCEPT_HEADER = 'accept-encoding';

/** A node id travels as a header. */
export function isNodeId(text: string): boolean {
  return /^[\x21-\x7e]{1,200}$/.test(text);
}

/** An acknowledgement as JSON text; an `ack` beyond 2^53 is still printed as the integer it is. */
export function encodeAck(ack: Ack): string {
  const { ack: id, ...rest } = ack;
  return `${JSON.stringify({ applied: rest.applied })?.slice(0, -1)},"ack":${id}${
    rest.rejected ? `,"rejected":${JSON.stringify(rest.rejected)}` : ''
  }}`;
}

/** True where `ack` is the echo of `batchId`: as a number, or as a decimal string from a peer that prints 64-bit so. */
export function acknowledges(ack: unknown, batchId: number): boolean {
  return ack === batchId || ack === String(batchId);
}

/**
 * The times that are versions, in milliseconds: from the beginning of a JavaScript Date to the year 2200. The ceiling is the
 * same for all nodes. Without one, a time in microseconds would freeze its row: nothing could be written above it.
 */
export const TIMESTAMP_MIN = -8_640_000_000_000_000;
export const TIMESTAMP_MAX = 7_258_118_400_000;
