/** When each peer is to be compared with next, and what the last time has found. It outlives the process. */
import type { Connection } from '../sqlite/connection.ts';
import { yielding } from '../sqlite/yielding.ts';
import type { Eventually } from './ledger.ts';
import type { VerifyResult } from './verify.ts';

/** What is remembered of the latest comparison with a peer. */
export interface VerifySummary extends Omit<VerifyResult, 'peer' | 'tables' | 'requests' | 'bytes' | 'ms'> {
  /** When it ended. */
  at: number;
  /** Per table that differed: how many rows. */
  tables: Record<string, number>;
}

export interface VerifyNote {
  /** Due from this moment on. */
  due: number;
  last?: VerifySummary;
}

export interface VerifyNotes {
  read(): Eventually<Map<string, VerifyNote>>;
  write(peer: string, note: VerifyNote): Eventually<void>;
}

const KEY = 'verify ';

/** In `_meta` of a node, a key for each peer. */
export class NodeNotes implements VerifyNotes {
  readonly #db: Connection;

  constructor(db: Connection) {
    this.#db = db;
  }

  read(): Map<string, VerifyNote> {
    const rows = this.#db.all<{ key: string; value: string }>(
      `SELECT key, value FROM main._meta WHERE key >= '${KEY}' AND key < 'verify!'`,
    );
    const notes = rows.map(({ key, value }): [string, VerifyNote | undefined] => [
      key.slice(KEY.length),
      noteIn(value),
    ]);
    return new Map(notes.filter((entry): entry is [string, VerifyNote] => entry[1] !== undefined));
  }

  async write(peer: string, note: VerifyNote): Promise<void> {
    const sql = 'INSERT INTO main._meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value';
    const put = (): void => this.#db.run(sql, KEY + peer, JSON.stringify(note));
    await yielding(this.#db, () => this.#db.transaction(put));
  }
}

/** Written by us; of anything else, nothing. */
export function noteIn(json: unknown): VerifyNote | undefined {
  try {
    const note = JSON.parse(String(json)) as Partial<VerifyNote> | null;
    if (typeof note?.due !== 'number') return undefined;
    return { due: note.due, ...(note.last && { last: note.last }) };
  } catch {
    return undefined;
  }
}
