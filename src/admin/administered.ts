/** A node's manager or a hub, as far as an operator's tools need it. */
import type { VerifyOptions, VerifyResult } from '../compare/verify.ts';
import type { DeadLetter } from '../dead-letters.ts';
import type { RetryResult } from '../receive/retry.ts';

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

export interface Administered {
  status(): unknown;
  verify(peer?: string | undefined, options?: VerifyOptions): Promise<VerifyResult[]>;
  readonly deadLetters: {
    list(options?: { limit?: number; after?: number }): Eventually<DeadLetter[]>;
    retry(id: number): Eventually<RetryResult>;
    discard(id: number): Eventually<void>;
  };
  readonly peers?: Members;
  readonly edges?: Members;
}

export function membersOf({ peers, edges }: Administered): Members {
  const members = peers ?? edges;
  if (!members) throw new TypeError('neither a manager nor a hub');
  return members;
}
