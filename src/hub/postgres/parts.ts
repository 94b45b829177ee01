/** What the parts of the store need of each other while a batch is received or an answer is noted. */
import type { Clock } from '../../clock.ts';
import type { Kept, LetterContent } from '../../letters/dead-letters.ts';
import type { TimeLimit } from '../../letters/time-limit.ts';
import type { Connection } from '../../sqlite/connection.ts';
import { readIntroduction } from '../../wire/introduction.ts';
import type { PostgresDriver } from './driver.ts';
import type { Session, Sessions } from './sessions.ts';

export interface PostgresStoreOptions {
  driver: PostgresDriver;
  /** `postgres://user@host/database` */
  url: string;
  /** An empty SQLite database in memory, in which the hub's own rules are applied to single batches. */
  scratch: Connection;
  /** The id of the group, which is one node to all others. */
  id: string;
  /** The name of this process, which no other one of the group has. */
  instance: string;
  clock: Clock;
  random: () => number;
  /** The largest body that is read. */
  maxBodyBytes: number;
  /** How far ahead of the clock a change may be. */
  maxAheadMs: number;
}

/** What everything is made of. */
export interface Base {
  sessions: Sessions;
  /** Used between two awaits, and left empty. */
  scratch: Connection;
  clock: Clock;
  timeLimit: TimeLimit;
  options: PostgresStoreOptions;
}

/** Received changes that cannot be merged. */
export interface LettersOfBatch {
  /** Throws TOO_MANY_LETTERS where there is no room for so many more of this sender. In the transaction that keeps them. */
  claim(session: Session, from: string | undefined, kept: { letters: number; bytes: number }): Promise<void>;
  /** The same one again is the same letter. */
  keep(session: Session, received: { letter: LetterContent; why: Kept }[]): Promise<void>;
}

/** What a request or an answer says of who gives it is noted in the transaction of what it came with. */
export interface CompanyInTransaction {
  /** False where the request is not of the present attach of its sender's database: see SqliteHubCompany. */
  requested(session: Session, said: string): Promise<boolean>;
  /** An answer to what was sent in that generation; false where it acknowledges nothing. */
  answered(session: Session, url: string, generation: number, said: string): Promise<boolean>;
  /** Something was received. Throws Detached. */
  tick(session: Session): Promise<Tick>;
  /** It is committed: from here on others may know of it. */
  ticked(tick: Tick): void;
  /** After that: as the server is now. */
  attach(): Promise<void>;
  /** After the commit: tells what was found. */
  settle(): Promise<void>;
}

/** How many transactions others can know of, and the attach in which the last one was. */
export interface Tick {
  boot: string;
  tick: number;
}

/** The server was started anew, and nothing may be acknowledged before the group has begun another attach to it. */
export class Detached extends Error {}

/**
 * The places of those who speak in one transaction, in the order of their databases: what is noted of a database is locked
 * until the end, and two that note in different orders would wait for each other.
 */
export function byDatabase(said: (string | undefined)[]): number[] {
  const incs = said.map((one) => readIntroduction(one)?.inc ?? '');
  const places = incs.map((_, i) => i);
  return places.sort((a, b) => compareText(incs[a] as string, incs[b] as string) || a - b);
}

function compareText(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1;
}
