/**
 * Applying a received batch: one transaction in which `syncing` is set, the changes are merged, and `syncing` is reset.
 *
 * There are two ways through. The fast one hands the body to SQLite as it came and merges it with a handful of statements
 * per table; it is taken when every change is regular and has exactly the columns of its table. Everything else takes the
 * careful one (apply-carefully.ts), which looks at each change and sets aside those that cannot be applied.
 */
import { isUtf8 } from 'node:buffer';
import { CarefulApply } from './apply-carefully.ts';
import type { Registry } from './capture/registry.ts';
import { literal, type Table } from './capture/schema.ts';
import { TIMESTAMP_MAX } from './capture/triggers.ts';
import { type Connection, isRowFault } from './database.ts';
import type { DeadLetters } from './dead-letters.ts';
import { messageOf, RowcastError } from './errors.ts';
import type { RowcastEvents, RowRef } from './events.ts';
import {
  deleteSql,
  entombSql,
  fullShape,
  misshapenSql,
  settledDeletesSql,
  settledUpsertsSql,
  upsertSql,
} from './merge.ts';
import { type Ack, BATCH_CHANGES_MAX, type Rejection } from './wire.ts';

export interface ApplyLimits {
  bodyBytes: number;
  batchChanges: number;
}

/** What came of a batch, and the events to emit once it is committed. */
export interface Applied {
  ack: Ack;
  event: RowcastEvents['applied'];
  parked: RowcastEvents['parked'][];
}

/** What one way through a batch yields. */
export interface Merged {
  applied: number;
  rows: RowRef[];
  rejected: Rejection[];
  parked: RowcastEvents['parked'][];
}

interface Document {
  /** The body as SQLite reads it fastest: JSONB, or the text itself where SQLite is too old for it. */
  json: Uint8Array | string;
  batchId: number | string;
  count: number;
  /** How often `":` occurs: at least once for every key of every object. */
  keys: number;
}

export class Applier {
  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #careful: CarefulApply;
  readonly #limits: ApplyLimits;

  constructor(db: Connection, registry: Registry, letters: DeadLetters, limits: ApplyLimits) {
    this.#db = db;
    this.#registry = registry;
    this.#careful = new CarefulApply(db, registry, letters);
    this.#limits = limits;
  }

  /** Applies a request body; throws a RowcastError that says why when it is not a batch at all, and then changes nothing. */
  apply(body: string | Uint8Array, from: string | undefined, wantRows: boolean): Applied {
    const document = this.#read(body);
    this.#registry.refresh();
    const merged = this.syncing(() => this.#mergeFast(document, wantRows) ?? this.#careful.merge(document.json, from));
    return {
      ack: {
        applied: merged.applied,
        ack: document.batchId,
        ...(merged.rejected.length > 0 && { rejected: merged.rejected }),
      },
      event: { from, applied: merged.applied, rows: merged.rows },
      parked: merged.parked,
    };
  }

  /**
   * Runs `fn` in a transaction in which nothing is captured. The flag is set and reset inside it: no other connection
   * ever sees it set, and a crash takes it back.
   */
  syncing<T>(fn: () => T): T {
    return this.#db.transaction(
      () => {
        this.#db.exec(SET_SYNCING);
        const result = fn();
        this.#db.exec(RESET_SYNCING);
        return result;
      },
      // The acknowledgement promises that the changes survive a power cut, whatever the application's own setting is. A
      // child may come before its parent, so foreign keys wait.
      { durable: true, foreignKeys: 'suspended' },
    );
  }

  release(): void {
    this.#careful.release();
  }

  #read(body: string | Uint8Array): Document {
    const size = typeof body === 'string' ? Buffer.byteLength(body) : body.byteLength;
    if (size > this.#limits.bodyBytes) {
      throw new RowcastError('BODY_TOO_LARGE', `the body has ${size} bytes, ${this.#limits.bodyBytes} are allowed`);
    }
    if (typeof body !== 'string' && !isUtf8(body)) throw invalid('the body is not valid UTF-8');
    if (typeof body === 'string' && body.includes('\0'))
      throw invalid('the body is not JSON: it holds a NUL character');
    if (typeof body !== 'string' && body.includes(0)) throw invalid('the body is not JSON: it holds a NUL byte');
    const jsonb = this.#registry.features.jsonb;
    const parsed = this.#parse(body, jsonb);
    const head = this.#db.get<Record<string, string | number | null>>(
      `SELECT json_type(d) AS top, json_type(d, '$.batch_id') AS id_type, typeof(d ->> '$.batch_id') AS id_class, ` +
        `CAST(d ->> '$.batch_id' AS TEXT) AS id, json_type(d, '$.changes') AS changes_type, ` +
        `json_array_length(d, '$.changes') AS n FROM (SELECT ? AS d LIMIT -1)`,
      parsed.json,
    );
    if (head?.top !== 'object') throw invalid('the body must be a JSON object {batch_id, changes}');
    if (head.id_type !== 'integer' || head.id_class !== 'integer') throw invalid('batch_id must be a 64-bit integer');
    if (head.changes_type !== 'array') throw invalid('changes must be an array');
    const count = Number(head.n);
    const most = Math.min(this.#limits.batchChanges, BATCH_CHANGES_MAX);
    if (count > most) throw new RowcastError('BODY_TOO_LARGE', `the batch has ${count} changes, ${most} are allowed`);
    const id = String(head.id);
    return { ...parsed, count, batchId: Number.isSafeInteger(Number(id)) ? Number(id) : id };
  }

  /** SQLite reads JSON5 as well; json_valid holds the body to JSON proper. */
  #parse(body: string | Uint8Array, jsonb: boolean): { json: Uint8Array | string; keys: number } {
    try {
      const row = this.#db.get<{ ok: number; keys: number; json: Uint8Array | string }>(
        `SELECT json_valid(t) AS ok, (octet_length(t) - octet_length(replace(t, '":', ''))) / 2 AS keys, ` +
          `iif(json_valid(t), ${jsonb ? 'jsonb(t)' : 't'}, NULL) AS json FROM (SELECT CAST(? AS TEXT) AS t LIMIT -1)`,
        body,
      );
      if (row?.ok !== 1) throw invalid('the body is not JSON');
      return row;
    } catch (error) {
      if (error instanceof RowcastError) throw error;
      if (/JSON/i.test(messageOf(error))) throw invalid('the body is not JSON', error);
      throw error;
    }
  }

  /** Undefined where the batch holds anything out of the ordinary: then nothing has been decided yet. */
  #mergeFast(document: Document, wantRows: boolean): Merged | undefined {
    if (!this.#registry.features.jsonb) return undefined;
    const groups = this.#survey(document);
    if (!groups) return undefined;
    try {
      // A savepoint, so that the careful way starts from the state before the batch.
      return this.#db.savepoint(() => {
        let applied = 0;
        const rows: RowRef[] = [];
        for (const group of groups) {
          const settled = this.#mergeTable(document, group, wantRows);
          if (!settled) throw new NotRegular();
          applied += settled.applied;
          rows.push(...settled.rows);
        }
        return { applied, rows, rejected: [], parked: [] };
      });
    } catch (error) {
      if (error instanceof NotRegular || isRowFault(error)) return undefined;
      throw error;
    }
  }

  /** One pass over the batch: how many changes for which table, and is every one of them plain? */
  #survey(document: Document): Group[] | undefined {
    const found = this.#db.all<{ tbl: string; deletes: number; n: number; odd: number }>(SURVEY, document.json);
    const groups = new Map<Table, Group>();
    let expectedKeys = 2;
    for (const { tbl, deletes, n, odd } of found) {
      const table = odd === 0 ? this.#registry.get(tbl) : undefined;
      // The wire name must be the table's own spelling: the statements below select by it.
      if (!table || table.name !== tbl) return undefined;
      const group = groups.get(table) ?? { table, upserts: 0, deletes: 0 };
      groups.set(table, group);
      group.deletes += deletes;
      group.upserts += n - deletes;
      expectedKeys += n * (4 + table.columns.length);
    }
    // More keys than the columns account for means a column that is not known here. Deletions alone need no columns.
    const anyUpserts = [...groups.values()].some((group) => group.upserts > 0);
    return anyUpserts && document.keys !== expectedKeys ? undefined : [...groups.values()];
  }

  #mergeTable(document: Document, group: Group, wantRows: boolean): { applied: number; rows: RowRef[] } | undefined {
    const { table, upserts, deletes } = group;
    const db = this.#db;
    const { deletions, writes } = sources(table);
    if (deletes > 0) {
      db.run(entombSql(table, deletions), document.json);
      db.run(deleteSql(table, deletions), document.json);
    }
    let written = 0;
    if (upserts > 0) {
      db.run(upsertSql(table, fullShape(table), writes), document.json);
      written = db.changes();
      if (written < upserts && db.get(misshapenSql(fullShape(table), writes), document.json)?.n === 1) return undefined;
    }
    if (written === upserts && deletes === 0) {
      return { applied: upserts, rows: wantRows ? this.#rows(document, table) : [] };
    }
    return this.#settled(document, group, wantRows);
  }

  /**
   * Counts what is in place. A row whose newest version in this batch is the one that stands counts with all its changes:
   * so the same batch gets the same answer however often it is sent.
   */
  #settled(document: Document, group: Group, wantRows: boolean): { applied: number; rows: RowRef[] } {
    const { table } = group;
    const { deletions, writes, all } = sources(table);
    const parts: string[] = [];
    if (group.upserts > 0) parts.push(settledUpsertsSql(table, fullShape(table), writes));
    if (group.deletes > 0) parts.push(settledDeletesSql(table, deletions));
    const settled = `SELECT id FROM (${parts.join(' UNION ALL ')})`;
    const params = parts.map(() => document.json);
    if (wantRows) {
      const rows = this.#db.all<RowRef>(
        `SELECT s.op AS op, ${literal(table.name)} AS "table", s.id AS id FROM (${all}) AS s WHERE s.id IN (${settled}) ORDER BY s.idx`,
        document.json,
        ...params,
      );
      return { applied: rows.length, rows };
    }
    const n = this.#db.get(
      `SELECT count(*) AS n FROM (${all}) AS s WHERE s.id IN (${settled})`,
      document.json,
      ...params,
    )?.n;
    return { applied: Number(n), rows: [] };
  }

  #rows(document: Document, table: Table): RowRef[] {
    return this.#db.all<RowRef>(
      `SELECT op, ${literal(table.name)} AS "table", id FROM (${sources(table).all}) ORDER BY idx`,
      document.json,
    );
  }
}

interface Group {
  table: Table;
  upserts: number;
  deletes: number;
}

class NotRegular extends Error {}

const SET_SYNCING = "INSERT INTO _meta (key, value) VALUES ('syncing', 1) ON CONFLICT DO UPDATE SET value = 1";
const RESET_SYNCING = "UPDATE _meta SET value = 0 WHERE key = 'syncing'";

/** One line per change; LIMIT -1 so that `r` is extracted once. */
const CHANGES =
  "SELECT key AS idx, c ->> '$.op' AS op, c ->> '$.table' AS tbl, c ->> '$.old_id' AS old_id, " +
  "jsonb_extract(c, '$.row') AS r FROM (SELECT key, iif(type = 'object', value, NULL) AS c FROM jsonb_each(?, '$.changes'))";

/**
 * A change is odd when anything about it needs a closer look: not one of the three operations, an id that is not plain
 * text (nested JSON reads as text beginning with a bracket, encoded ids begin with `$`), a time that is not an integer in
 * range (true and false read as 1 and 0), a DELETE without its row or with two different ids.
 */
const SURVEY =
  "SELECT tbl, sum(op = 'DELETE') AS deletes, count(*) AS n, sum(coalesce(NOT (typeof(r) = 'blob' AND typeof(tbl) = 'text' " +
  "AND typeof(id) = 'text' AND NOT (id >= '$' AND id < '%') AND NOT (id >= '[' AND id < '\\') AND NOT (id >= '{' AND id < '|') " +
  `AND typeof(ua) = 'integer' AND (ua BETWEEN 2 AND ${TIMESTAMP_MAX} OR ua BETWEEN -${TIMESTAMP_MAX} AND -1) ` +
  "AND (op IN ('INSERT', 'UPDATE') OR (op = 'DELETE' AND old_id = id))), 1)) AS odd " +
  `FROM (SELECT op, tbl, old_id, r, r ->> '$.id' AS id, r ->> '$.updated_at' AS ua FROM (${CHANGES} LIMIT -1) LIMIT -1) GROUP BY tbl`;

function sources(table: Table): { all: string; writes: string; deletions: string } {
  const pick = (condition: string): string =>
    `SELECT idx, op, r ->> '$.id' AS id, r ->> '$.updated_at' AS ua, r FROM (${CHANGES} LIMIT -1) ` +
    `WHERE tbl = ${literal(table.name)}${condition}`;
  return { all: pick(''), writes: pick(" AND op <> 'DELETE'"), deletions: pick(" AND op = 'DELETE'") };
}

function invalid(message: string, cause?: unknown): RowcastError {
  return new RowcastError('INVALID_BATCH', message, cause === undefined ? {} : { cause });
}
