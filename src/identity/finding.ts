/** What was heard of another database, and what follows from it. */
import type { Judgement } from './judge.ts';

/** How something was heard. */
export interface Hearing {
  /**
   * It is the answer to a request of ours, from where we sent it. Anybody can send a request: what one says of a database
   * that we can ask is a reason to ask it, and no more.
   */
  answer: boolean;
  /** It has brought changes. */
  brings: boolean;
}

/** Who has spoken, and what follows from it for whoever is to act on it. */
export interface Finding {
  id: string;
  inc: string;
  /** `self`: this very database. `copy`: another one under our identity. */
  kind: Judgement['kind'] | 'self' | 'copy';
  boot: string;
  /** It was found out just now that it is an earlier state of itself: what it acknowledged it may not have. */
  wentBack: boolean;
  /** Only a request says so: the database itself has to be asked. */
  doubtful: boolean;
  /** What came under its id, from it or from the database that had the id before, may not be everywhere. */
  compareAll: boolean;
  /** The database that had its id until now. */
  tookOver?: string | undefined;
}

/** What follows from which database has an id. */
export interface Noted extends Pick<Finding, 'tookOver'> {
  passOn: boolean;
}

/** More than that it goes on: whoever says so in a request is asked where it is, if it is at a URL of ours. */
export function isNews({ kind }: Pick<Finding, 'kind'>): boolean {
  return kind === 'new' || kind === 'restarted' || kind === 'went-back';
}

/** Another database that holds an id, and what was heard of it since the start. */
export interface Other {
  id: string;
  inc: string;
  low: number | undefined;
  heardAt: number | undefined;
}

/**
 * What has become of this database. `elsewhere`: another process has given it another identity. `another-file`: what this
 * process holds in memory of the one before is worth nothing.
 */
export type Renewal = 'none' | 'renewed' | 'elsewhere' | 'another-file';
