/**
 * Peers that are at the same place go on together. The first of them that comes there has the changes read, serialised and
 * flushed to disk; the others, a moment later, are sent the same bytes, and what they acknowledge in one turn of the
 * event loop is noted in one transaction. So one more peer costs its requests, and not all the work once more.
 */
import type { Connection } from '../sqlite/connection.ts';
import { yielding } from '../sqlite/yielding.ts';
import type { BatchLimit, Body } from '../wire/body.ts';
import type { NodeCompany } from './company.ts';
import { type Page as AnyPage, Pages } from './pages.ts';
import { Together } from './together.ts';

/** The changes after `after` up to `last`, as they were when they had reached the disk. */
interface Page extends AnyPage {
  last: number;
}

export interface ConvoyOptions {
  /** Resolves when the event loop has come round. */
  nextTurn(): Promise<void>;
  /** Deletes what every peer has. */
  prune(): void;
  /** Changes are to be sent to the first of the peers. */
  onRead(body: Body): void;
  /** Asked once for all that is noted together. */
  company: Pick<NodeCompany, 'isSameFile' | 'look'>;
}

/** Peers that keep up are no further apart; one that does not reads for itself. */
const PAGES_MAX = 16;
const BYTES_MAX = 4 * 1024 * 1024;
/** What one of several peers is read has no more than this, unless it is a single row: larger pages are not worth their memory. */
export const PAGE_BYTES_MAX = 1024 * 1024;

export class Convoy {
  readonly #pages = new Pages<Page>({ pages: PAGES_MAX, bytes: BYTES_MAX });
  readonly #notes: Together<() => void, void>;
  #spelling = '';
  readonly #onRead: (body: Body) => void;
  #readUpTo = 0;

  constructor(db: Connection, { nextTurn, prune, onRead, company }: ConvoyOptions) {
    this.#onRead = onRead;
    const noted = (writes: (() => void)[]): void =>
      db.transaction(() => {
        // What was read from another state of the file says nothing of this one.
        if (company.isSameFile) for (const write of writes) write();
        prune();
      });
    this.#notes = new Together(nextTurn, async (writes) => {
      await yielding(db, () => noted(writes));
      await yielding(db, () => company.look());
      return [];
    });
  }

  /** Changes up to this one were read. */
  read(last: number, body: Body): void {
    if (last <= this.#readUpTo) return;
    this.#readUpTo = last;
    this.#onRead(body);
  }

  /** What comes after a change, where it is here, spelt like this, and within the limit. */
  find(after: number, limit: BatchLimit, spelling: () => string): Page | undefined {
    const page = this.#pages.find(after, limit);
    return page && spelling() === this.#spelling ? page : undefined;
  }

  /** After the commit that has flushed it. What is spelt otherwise goes: a changed schema may have had it written anew. */
  keep(page: Page, spelling: string): void {
    if (page.body.byteLength > PAGE_BYTES_MAX) return;
    if (spelling !== this.#spelling) this.#pages.clear();
    this.#spelling = spelling;
    this.#pages.keep(page);
  }

  /** What is here may be under numbers that others have by now. */
  clear(): void {
    this.#pages.clear();
  }

  /**
   * Does it in a transaction, with what others have to note in this turn; all of it or nothing. Not done where another state
   * of the file was put under this process.
   */
  note(write: () => void): Promise<void> {
    return this.#notes.do(write);
  }
}
