/**
 * The changes of a batch laid out in a temporary table, so that the careful way can work on sets of them.
 *
 * One statement reads the body. Of a regular body there is nothing to ask. In any other, a change is taken where SQL can
 * tell what it is without a doubt; it then has an id and a time. Whatever leaves a doubt (a time of 0 or 1 could be false or
 * true, an id that begins with a bracket could be nested JSON) is looked at one by one by plan.ts.
 */

import type { Registry } from '../capture/registry.ts';
import { RowcastError } from '../errors.ts';
import type { TimeLimit } from '../letters/time-limit.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { literal, pathOf, quote } from '../sqlite/sql.ts';
import { isVersion } from '../wire/body.ts';
import { inOneSpelling } from '../wire/exact-text.ts';
import { NODE_ID_LENGTH_MAX, ROW_ID_BYTES_MAX, ROW_KEYS_MAX, TIMESTAMP_MAX, TIMESTAMP_MIN } from '../wire/protocol.ts';
import type { BatchDocument } from '../wire/read-batch.ts';
import { canonicalId, storedId } from '../wire/values.ts';
import { extract, type Shape, type Source } from './merge.ts';
import { matchKeys, type Plan, planChange, type Staged, tooManyKeys, unknownTable } from './plan.ts';
import { isKeyedAlike, type RegularPart, SEEN_IN_REGULAR, type Spelling } from './regular-body.ts';
import type { Reason } from './report.ts';
import { checkSingly, SINGLY_MAX } from './singly.ts';

export const STAGE = 'temp._rowcast_stage';

/**
 * Each set of keys has statements of its own, a millisecond to prepare. The peers of a cluster have a handful of schemas; a
 * sender with more than this is told to halve the batch.
 */
const KEY_SETS_MAX = 256;

/** Changes of one table that are merged by the same statements. */
export interface Group {
  number: number;
  table: Table;
  /** Undefined for deletions, which need no more than id and time. */
  shape?: Shape;
  /** Keys of the rows for which there is no column here. */
  extra: string[];
  size: number;
}

export interface Sorted {
  groups: Group[];
  /** Changes that cannot be applied, and why. */
  refused: Map<number, Reason>;
  /** DELETEs without a row, in their order. */
  rowless: { idx: number; plan: Extract<Plan, { kind: 'delete-any' }> }[];
  /** It was a regular body: nothing in it is ahead of the clock, or spelt in two ways. */
  isRegular: boolean;
}

/**
 * The changes of one group with `lo <= idx < hi`; these three are its parameters. Without those that were taken apart to
 * be merged singly, unless these are what is asked for.
 */
export function stagedSource(of: Reading, apart = false): Source {
  return staged(of, apart ? '' : 'AND apart IS NULL ');
}

/** Those whose time is that of their row, which is less to look at where it is asked what stands. */
export function stagedAtTheirTime(of: Reading, table: Table): Source {
  const row = `t.${quote(table.id)} = _rowcast_stage.id AND t.${quote(table.updatedAt)} = _rowcast_stage.ua`;
  return staged(of, `AND apart IS NULL AND EXISTS (SELECT 1 FROM ${table.target} AS t WHERE ${row}) `);
}

/** How the values of a batch are read. */
type Reading = Pick<Source, 'verbatim' | 'large' | 'unsure'>;

function staged({ verbatim, large, unsure }: Reading, those: string): Source {
  return {
    sql: `SELECT idx, id, ua, r FROM ${STAGE} WHERE grp = ? AND idx >= ? AND idx < ? ${those}ORDER BY idx LIMIT -1`,
    columns: ['idx', 'id', 'ua', 'r'],
    id: 's.id',
    ua: 's.ua',
    ...(verbatim && { verbatim }),
    ...(large && { large }),
    ...(unsure && { unsure }),
  };
}

export class Stage {
  readonly #db: Connection;
  readonly #registry: Registry;

  constructor(db: Connection, registry: Registry) {
    this.#db = db;
    this.#registry = registry;
  }

  /** Reads a body and sorts its changes; `parts` are those of a regular one. Inside a transaction. */
  fill({ json, text, isEncoded, isLarge }: BatchDocument, parts?: RegularPart[]): Sorted {
    this.#create();
    const sorted: Sorted = { groups: [], refused: new Map(), rowless: [], isRegular: false };
    const keys = parts && keysOfAll(parts);
    if (parts && keys) {
      sorted.isRegular = true;
      const groupOf = groupParts(parts, sorted.groups);
      const isSeen = text.includes(SEEN_IN_REGULAR);
      this.#db.run(this.#insertRegularSql(groupOf, keys, { large: isLarge, isSeen }), json);
      return sorted;
    }
    this.#db.run(this.#insertSql(isLarge), json);
    if (isEncoded) this.#spellOut();
    this.#settleDoubts(json, sorted);
    this.#group(sorted);
    return sorted;
  }

  /** Sets aside the changes that are too far ahead of the local clock; they wait for their time. */
  setAsideAhead({ groups, refused, isRegular }: Sorted, timeLimit: TimeLimit): void {
    if (isRegular) return;
    const { latest } = timeLimit;
    const ahead = `FROM ${STAGE} WHERE grp > 0 AND ua > ?`;
    const found = this.#db.all<{ idx: number; ua: number; grp: number }>(
      `SELECT idx, ua, grp ${ahead} LIMIT ${SINGLY_MAX + 1}`,
      latest,
    );
    if (found.length === 0) return;
    checkSingly(refused.size + found.length);
    for (const { idx, ua: version, grp } of found) {
      refused.set(idx, { code: 'future-stamp', reason: timeLimit.reasonFor(version), version });
      const group = groups.find(({ number }) => number === grp) as Group;
      group.size -= 1;
    }
    this.#db.run(`UPDATE ${STAGE} SET grp = NULL WHERE grp > 0 AND ua > ?`, latest);
  }

  /** Ids of bytes are the one thing that SQL cannot bring into one spelling. */
  #spellOut(): void {
    const bytes = this.#db.all<{ idx: number; wire: string }>(
      `SELECT idx, wire FROM ${STAGE} WHERE wire GLOB '$bytes:*'`,
    );
    for (const { idx, wire } of bytes) {
      this.#db.run(`UPDATE ${STAGE} SET wire = ? WHERE idx = ?`, inOneSpelling(wire), idx);
    }
  }

  empty(): void {
    this.#db.run(`DELETE FROM ${STAGE}`);
  }

  /** Lets go of the table. */
  release(): void {
    this.#db.exec(`DROP TABLE IF EXISTS ${STAGE}`);
  }

  /**
   * Two changes of one row with one time from a sender that is not Rowcast: the later one is what the row is there. The
   * earlier ones belong to no group from here on; a row that stands still counts with all its changes.
   */
  supersede(): void {
    this.#db.run(
      `UPDATE ${STAGE} SET grp = 0 WHERE idx IN (SELECT idx FROM (SELECT idx, ` +
        `max(idx) OVER (PARTITION BY tbl, id, ua) AS latest FROM ${STAGE} WHERE grp > 0) WHERE idx < latest)`,
    );
  }

  /**
   * Makes the table, before any transaction: where it is made in the same one, SQLite reads the whole schema anew after
   * every savepoint that is rolled back, which is 4 ms for each change that cannot be applied.
   */
  prepare(): void {
    this.#create();
  }

  /** Asked each time and not remembered: another manager on the same connection takes it away when it stops. */
  #create(): void {
    const there = this.#db.get("SELECT 1 AS n FROM sqlite_temp_schema WHERE name = '_rowcast_stage'");
    if (there) this.empty();
    else
      this.#db.exec(
        // `wire` is the id as it travels, `id` as it is stored; `placed`: it is what stands; `was`: it was before as well;
        // `tied`: its time is that of what stands.
        // `way`: how its row is written, where the application has triggers that can tell: see statements.ts.
        // `apart`: its row is hidden by another, and it was merged by itself. `base`: the version that it has seen.
        `CREATE TEMP TABLE _rowcast_stage (idx INTEGER PRIMARY KEY, op, tbl, r, keys, wire, id, ua, grp, placed, was, tied, letter, apart, base, origin, way)`,
      );
  }

  #insertRegularSql(groupOf: GroupSql, keys: Keys, { large, isSeen }: { large: boolean; isSeen: boolean }): string {
    const b = this.#registry.features.jsonb ? 'jsonb' : 'json';
    const at = (key: string): string => pathOf(`$.${key}`, large);
    const parts =
      `SELECT key AS idx, value ->> ${at('op')} AS op, ${b}_extract(value, ${at('row')}) AS r, ${groupOf.name(at)} AS name, ` +
      `${isSeen ? seen('value', at) : 'NULL AS base, NULL AS origin'} FROM ${b}_each(?, '$.changes') LIMIT -1`;
    const field = (key: string): string => extract('r', key, large);
    const fields =
      `SELECT idx, op, name, r, ${field(keys.idKey)} AS own, ${field(keys.timeKey)} AS time, base, origin ` +
      `FROM (${parts}) LIMIT -1`;
    return (
      `INSERT INTO ${STAGE} (idx, op, tbl, r, wire, id, ua, base, origin, grp) ` +
      `SELECT idx, op, ${groupOf.table}, r, own, own, time, base, origin, ${groupOf.number} FROM (${fields})`
    );
  }

  #insertSql(large: boolean): string {
    const { jsonb } = this.#registry.features;
    const b = jsonb ? 'jsonb' : 'json';
    const [idKey, timeKey] = this.#spellings();
    const changes = `SELECT key AS idx, iif(type = 'object', value, NULL) AS c FROM ${b}_each(?, '$.changes') LIMIT -1`;
    const at = (key: string): string => pathOf(`$.${key}`, large);
    const row = `iif(json_type(c, ${at('row')}) = 'object', ${b}_extract(c, ${at('row')}), NULL) AS r`;
    const parts =
      `SELECT idx, c ->> ${at('op')} AS op, c ->> ${at('table')} AS tbl, c ->> ${at('old_id')} AS old, ` +
      `${seen('c', at)}, ${row} FROM (${changes}) LIMIT -1`;
    const fields =
      `SELECT idx, op, tbl, old, base, origin, r, r ->> ${at(idKey)} AS own, r ->> ${at(timeKey)} AS time ` +
      `FROM (${parts}) LIMIT -1`;
    const regular =
      `${isText('tbl')} AND ${isText('own')} AND typeof(time) = 'integer' ` +
      `AND (time BETWEEN 2 AND ${TIMESTAMP_MAX} OR time BETWEEN ${TIMESTAMP_MIN} AND -1) ` +
      `AND (length(own) <= ${ROW_ID_BYTES_MAX / 4} OR length(CAST(own AS BLOB)) <= ${ROW_ID_BYTES_MAX}) ` +
      "AND (op IN ('INSERT', 'UPDATE') OR (op = 'DELETE' AND typeof(old) = 'text' AND old = own))";
    const checked = `SELECT idx, op, tbl, old, base, origin, r, own, time, coalesce(${regular}, 0) AS regular FROM (${fields}) LIMIT -1`;
    const keys =
      "CASE WHEN NOT regular THEN NULL WHEN op = 'DELETE' THEN '' ELSE (SELECT json_group_array(key) FROM json_each(r)) END";
    return (
      `INSERT INTO ${STAGE} (idx, op, tbl, r, keys, wire, id, ua, base, origin, grp) SELECT idx, op, iif(regular, tbl, NULL), r, ${keys}, ` +
      `iif(regular, ${canonicalId('own')}, NULL), iif(regular, ${storedId('own')}, NULL), iif(regular, time, NULL), base, origin, ` +
      // A limit here as well: without it SQLite would unfold the innermost of these and judge every change six times.
      `iif(regular, 1, NULL) FROM (${checked}) LIMIT -1`
    );
  }

  /** How nearly all rows spell the two columns that every table has; where tables differ, the others are looked at singly. */
  #spellings(): [string, string] {
    const spelt = (of: (table: Table) => string, otherwise: string): string => {
      const [name, ...others] = new Set(this.#registry.list().map(of));
      return name !== undefined && others.length === 0 ? name : otherwise;
    };
    return [spelt((table) => table.id, 'id'), spelt((table) => table.updatedAt, 'updated_at')];
  }

  #settleDoubts(json: string | Uint8Array, sorted: Sorted): void {
    checkSingly(Number(this.#db.get(`SELECT count(*) AS n FROM ${STAGE} WHERE grp IS NULL`)?.n));
    const doubtful = this.#db.all<Staged & { r: string | null }>(
      // Read as text: an integer beyond 2^53 in the wrong place makes node:sqlite throw.
      "SELECT idx, kind, CAST(c ->> '$.op' AS TEXT) AS op, json_type(c, '$.op') AS op_type, " +
        "CAST(c ->> '$.table' AS TEXT) AS tbl, json_type(c, '$.table') AS tbl_type, json_type(c, '$.row') AS row_type, " +
        "CAST(c ->> '$.old_id' AS TEXT) AS old_id, json_type(c, '$.old_id') AS old_type, json(r) AS r, " +
        '(SELECT json_group_array(key) FROM json_each(r)) AS keys FROM (SELECT s.idx AS idx, e.type AS kind, ' +
        `iif(e.type = 'object', e.value, NULL) AS c, s.r AS r FROM json_each(?, '$.changes') AS e ` +
        `JOIN ${STAGE} AS s ON s.idx = e.key WHERE s.grp IS NULL LIMIT -1) ORDER BY idx`,
      json,
    );
    const shapes = new Map();
    for (const { r, ...change } of doubtful) {
      const field = (_: number, key: string | undefined) => this.#field(r, key);
      const plan = planChange(change, { table: (name) => this.#registry.get(name), field, shapes });
      if (plan.kind === 'dead-letter') sorted.refused.set(change.idx, plan);
      else if (plan.kind === 'delete-any') sorted.rowless.push({ idx: change.idx, plan: this.#named(plan) });
      else this.#admit(change, plan);
    }
  }

  /** It is a regular change after all. */
  #admit(change: Staged, plan: Extract<Plan, { kind: 'upsert' | 'delete' }>): void {
    this.#db.run(
      `UPDATE ${STAGE} SET tbl = ?, keys = ?, wire = ${canonicalId('v')}, id = ${storedId('v')}, ` +
        'ua = (SELECT e.atom FROM json_each(r) AS e WHERE e.key = ? LIMIT 1), grp = 1 FROM (SELECT ? AS v) WHERE idx = ?',
      plan.table.name,
      plan.kind === 'delete' ? '' : change.keys,
      plan.timeKey,
      plan.id,
      change.idx,
    );
  }

  /** Two spellings of one id must not be taken for two rows. */
  #named<P extends { id: string }>(plan: P): P {
    if (!plan.id.startsWith('$')) return plan;
    return {
      ...plan,
      id: String(this.#db.get(`SELECT ${canonicalId('v')} AS id FROM (SELECT ? AS v LIMIT -1)`, plan.id)?.id),
    };
  }

  #field(row: string | null, key: string | undefined): { type: string | null; value: string | null } {
    const none = { type: null, value: null };
    if (row === null || key === undefined) return none;
    const sql = 'SELECT e.type AS type, CAST(e.atom AS TEXT) AS value FROM json_each(?) AS e WHERE e.key = ?';
    return this.#db.get<{ type: string; value: string }>(sql, row, key) ?? none;
  }

  /** By table, by kind, and by the keys of the rows. */
  #group({ groups, refused }: Sorted): void {
    const found = this.#db.all<{ tbl: string; keys: string; n: number }>(
      `SELECT tbl, keys, count(*) AS n FROM ${STAGE} WHERE grp = 1 GROUP BY tbl, keys ORDER BY min(idx)`,
    );
    if (found.length > KEY_SETS_MAX) {
      const what = `rows of ${found.length} different tables and sets of columns`;
      throw new RowcastError('BODY_TOO_LARGE', `the batch has ${what}, ${KEY_SETS_MAX} are allowed`);
    }
    const numbered: (string | number | null)[][] = [];
    for (const { tbl, keys, n } of found) {
      const table = this.#registry.get(tbl);
      const names: string[] = keys === '' ? [] : JSON.parse(keys);
      const refusal = table ? overKeys(names) : unknownTable(tbl);
      numbered.push([tbl, keys, refusal ? null : groups.length + 1, table?.name ?? null]);
      if (table && !refusal) {
        const match = keys === '' ? { extra: [] } : matchKeys(table, names);
        groups.push({ number: groups.length + 1, table, size: n, ...match });
        continue;
      }
      checkSingly(refused.size + n);
      const lost = this.#db.all<{ idx: number }>(
        `SELECT idx FROM ${STAGE} WHERE grp = 1 AND tbl = ? AND keys = ?`,
        tbl,
        keys,
      );
      for (const { idx } of lost) refused.set(idx, refusal as Reason);
    }
    if (found.length <= 1 && groups.length === found.length && found[0]?.tbl === groups[0]?.table.name) return;
    this.#db.run(
      `UPDATE ${STAGE} AS s SET grp = g.number, tbl = g.name FROM (SELECT value ->> 0 AS tbl, value ->> 1 AS keys, ` +
        'value ->> 2 AS number, value ->> 3 AS name FROM json_each(?) LIMIT -1) AS g ' +
        'WHERE s.grp = 1 AND s.tbl = g.tbl AND s.keys = g.keys',
      JSON.stringify(numbered),
    );
  }
}

type Keys = Pick<Spelling, 'idKey' | 'timeKey'>;

/** The keys of id and time, where all tables have the same. */
function keysOfAll(parts: RegularPart[]): Keys | undefined {
  const [first] = parts;
  const isAlike = ({ spelling }: RegularPart): boolean => first !== undefined && isKeyedAlike(spelling, first.spelling);
  return parts.every(isAlike) ? first?.spelling : undefined;
}

/** What tells the table and the group of a change, as SQL over its `name` on the wire and its `op`. */
interface GroupSql {
  name: (at: (key: string) => string) => string;
  table: string;
  number: string;
}

/** A group for what each table is written, and one for what is deleted from it. */
function groupParts(parts: RegularPart[], groups: Group[]): GroupSql {
  const cases = parts.map(({ table, writes, deletions, spelling }) => {
    const number = groups.length + 1;
    if (writes > 0) groups.push({ number, table, size: writes, ...matchKeys(table, spelling.keys) });
    if (deletions > 0) groups.push({ number: groups.length + 1, table, size: deletions, extra: [] });
    const both = writes > 0 && deletions > 0;
    return { table, number: both ? `iif(op = 'DELETE', ${number + 1}, ${number})` : `${number}` };
  });
  const [first, ...others] = cases;
  if (first && others.length === 0)
    return { name: () => 'NULL', table: literal(first.table.name), number: first.number };
  const choose = (of: (one: (typeof cases)[number]) => string): string =>
    `CASE name ${cases.map((one) => `WHEN ${literal(one.table.wireName)} THEN ${of(one)}`).join(' ')} END`;
  return {
    name: (at) => `value ->> ${at('table')}`,
    table: choose(({ table }) => literal(table.name)),
    number: choose((one) => one.number),
  };
}

function overKeys(names: string[]): Reason | undefined {
  return names.length > ROW_KEYS_MAX ? { code: 'bad-row', reason: tooManyKeys(names.length) } : undefined;
}

/** What an update says that it has seen, and who made it; NULL where that is not what it should be. */
function seen(c: string, at: (key: string) => string): string {
  const [base, origin] = [`${c} ->> ${at('base')}`, `${c} ->> ${at('origin')}`];
  const isId = `json_type(${c}, ${at('origin')}) = 'text' AND length(${origin}) <= ${NODE_ID_LENGTH_MAX}`;
  return (
    `iif(json_type(${c}, ${at('base')}) = 'integer' AND ${isVersion(base)}, ${base}, NULL) AS base, ` +
    `iif(${isId}, ${origin}, NULL) AS origin`
  );
}

/** Text for certain: what JSON nests reads as text that begins with a bracket. */
function isText(x: string): string {
  return `typeof(${x}) = 'text' AND NOT (${x} >= '[' AND ${x} < ${literal('\\')}) AND NOT (${x} >= '{' AND ${x} < '|')`;
}
