/**
 * Ties, rows of other columns and odd changes are decided by the hub's own rules, which are SQL of SQLite: the rows of a
 * batch are put into a scratch database in memory, the batch is merged there, and what has advanced is taken out of it.
 * There is one set of rules, whatever the store is.
 */
import { createHash } from 'node:crypto';
import { RowcastError } from '../../errors.ts';
import type { Kept, LetterContent } from '../../letters/dead-letters.ts';
import type { TimeLimit } from '../../letters/time-limit.ts';
import type { Connection } from '../../sqlite/connection.ts';
import { featuresOf } from '../../sqlite/features.ts';
import { fold } from '../../sqlite/sql.ts';
import { BatchMerger } from '../sqlite-receive.ts';
import type { Examined } from '../sqlite-spelt.ts';
import { prepareHubDatabase } from '../sqlite-tables.ts';
import type { Sender, Stored } from '../store.ts';
import { STORED_IDS } from './driver.ts';

/** A row as it is in `rows`, with text as it travels and not as it is stored. */
export interface HubRow {
  table: string;
  id: string;
  op: string;
  version: number;
  origin: string | null;
  writer: string | null;
  base: number | null;
  row: string;
}

export interface Advanced extends HubRow {
  /** The index of the change that it has advanced by. */
  idx: number;
  shape: string;
}

export interface Merged {
  stored: Stored;
  advanced: Advanced[];
  letters: { letter: LetterContent; why: Kept }[];
  claim: { from: string | undefined; letters: number; bytes: number } | undefined;
}

export class CloseLook {
  readonly #db: Connection;
  readonly #merger: BatchMerger;
  #isPresent = true;
  #letters: Merged['letters'] = [];
  #claim: Merged['claim'];

  constructor(scratch: Connection, { bodyBytes, timeLimit }: { bodyBytes: number; timeLimit: TimeLimit }) {
    this.#db = scratch;
    prepareHubDatabase(scratch, 0);
    const letters = {
      keepReceived: (letter: LetterContent, why: Kept) => {
        this.#letters.push({ letter, why });
      },
      room: {
        claim: (from: string | undefined, kept: { letters: number; bytes: number }) => {
          this.#claim = { from, ...kept };
        },
      },
    };
    // Who has sent it was found out where that is kept.
    const company = { tick: () => {}, requested: () => this.#isPresent };
    this.#merger = new BatchMerger(
      scratch,
      letters,
      { bodyBytes, timeLimit, jsonb: featuresOf(scratch).jsonb, idLimit: STORED_IDS },
      company,
    );
  }

  /** Throws a RowcastError that says why where the body is no batch. */
  examine(body: string | Uint8Array, sender: Sender): Examined {
    return this.#merger.examine(body, sender);
  }

  /** Merges a batch into these rows, which are all that it is about as far as they are known. */
  merge(body: string | Uint8Array, sender: Sender, isPresent: boolean, rows: HubRow[]): Merged {
    this.#isPresent = isPresent;
    this.#letters = [];
    this.#claim = undefined;
    try {
      fillScratch(this.#db, rows);
      const { advanced: _, ...stored } = this.#merger.receive(body, sender);
      return { stored, advanced: this.#advanced(rows.length), letters: this.#letters, claim: this.#claim };
    } finally {
      this.#db.run('DELETE FROM _hub_rows');
    }
  }

  /** A change that advances its row gives it the place behind all rows that there were, by its index. */
  #advanced(before: number): Advanced[] {
    const found = this.#db.all<Omit<Advanced, 'shape'>>(
      `SELECT seq - ${before} - 1 AS idx, op, table_name AS "table", row_id AS id, updated_at AS version, origin, writer, ` +
        `base, row_data AS row FROM _hub_rows WHERE seq > ${before} ORDER BY seq`,
    );
    return found.map((row) => ({ ...row, shape: shapeOf(row.row) }));
  }
}

/** Puts rows into `_hub_rows`, in this order; whoever does that empties it again before anything is awaited. */
export function fillScratch(scratch: Connection, rows: HubRow[]): void {
  const sql =
    'INSERT INTO _hub_rows (seq, op, table_name, row_id, updated_at, origin, writer, base, row_data) ' +
    'VALUES (CAST(? AS INTEGER), ?, ?, ?, CAST(? AS INTEGER), ?, ?, CAST(? AS INTEGER), ?)';
  scratch.transaction(() => {
    for (const [i, { op, table, id, version, origin, writer, base, row }] of rows.entries()) {
      scratch.run(sql, i + 1, op, table, id, version, origin, writer, base, row);
    }
  });
}

/** The columns of a row, in any order and in any case, as a number: rows of one shape replace each other whole. */
export function shapeOf(row: string): string {
  // Mostly it has the columns of the one before, which is seen in a fifth of the time that it takes to read it.
  if (row.length <= PATTERN_CHARS && latest.pattern.test(row)) return latest.shape;
  const keys = Object.keys(JSON.parse(row));
  const list = JSON.stringify(keys);
  latest = shapes.get(list) ?? { shape: hashOf(keys), pattern: patternOf(keys) };
  if (shapes.size >= SHAPES_KEPT) shapes.clear();
  shapes.set(list, latest);
  return latest.shape;
}

interface Shape {
  shape: string;
  /** Rows with these very keys, in this order, whose values are none that have keys themselves. */
  pattern: RegExp;
}

const SHAPES_KEPT = 1_000;
/** A pattern remembers where it could have gone on otherwise, for each character. */
const PATTERN_CHARS = 10_000;
const shapes = new Map<string, Shape>();
let latest: Shape = { shape: '', pattern: /(?!)/ };

function hashOf(keys: string[]): string {
  const names = [...new Set(keys.map(fold))].sort();
  return createHash('sha256').update(JSON.stringify(names)).digest('hex').slice(0, 32);
}

function patternOf(keys: string[]): RegExp {
  const value = '(?:"(?:[^"\\\\]|\\\\.)*"|[-+.eE0-9]+|true|false|null)';
  const spelt = keys.map((key) => JSON.stringify(key).replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'));
  return new RegExp(`^\\{${spelt.map((key) => `${key}:${value}`).join(',')}\\}$`);
}

/** Places of one transaction are bounded. */
export function refuseAbove(count: number, most: number): void {
  if (count <= most) return;
  const message = `the batch has ${count} changes, a group of hubs takes ${most} at a time: send fewer`;
  throw new RowcastError('BODY_TOO_LARGE', message);
}
