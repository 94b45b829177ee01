/** A node's manager or a hub, as far as an operator's tools need it. */
import type { VerifyOptions, VerifyResult } from '../compare/verify.ts';
import type { Conflict, ConflictDetail, ConflictPage } from '../journal/conflicts.ts';
import type { Why } from '../journal/why.ts';
import type { DeadLetter } from '../letters/dead-letters.ts';
import type { RetryResult } from '../receive/tried.ts';
import type { Countable } from './rates.ts';

type Eventually<T> = T | Promise<T>;

/** The peers of a node, or the edges of a hub. */
export interface Members {
  add(url: string): Eventually<void>;
  remove(url: string): Promise<void>;
  pause(url: string): Promise<void>;
  resume(url: string): Eventually<void>;
  reseed(url: string): Eventually<void>;
  list(): Eventually<unknown>;
}

export interface Administered extends Countable {
  status(): unknown;
  verify(peer?: string | undefined, options?: VerifyOptions): Promise<VerifyResult[]>;
  readonly deadLetters: {
    list(options?: { limit?: number; after?: number }): Eventually<DeadLetter[]>;
    retry(id: number): Eventually<RetryResult>;
    discard(id: number): Eventually<void>;
  };
  /** A node's alone: a hub keeps no journal. */
  readonly conflicts?: {
    list(page?: ConflictPage): Conflict[];
    get(conflictId: number): ConflictDetail;
    restore(conflictId: number, options?: { columns?: string[] }): { columns: string[] };
    dismiss(conflictId: number): void;
  };
  /** The story of one row. */
  why(table: string, id: string): Eventually<Why>;
  /** Of a node alone. */
  forget?(id: string): void;
  readonly peers?: Members;
  readonly edges?: Members;
}

export function membersOf({ peers, edges }: Administered): Members {
  const members = peers ?? edges;
  if (!members) throw new TypeError('neither a manager nor a hub');
  return members;
}
