/**
 * What must come of an input, told by an independent reading of it: the body by fuzz-json.ts, the rules from
 * docs/protocol.md, the version order in JavaScript. SQLite is asked for two things only, and on a database of its own:
 * what a column's affinity makes of a value, and how a REAL is printed as JSON.
 *
 * Where the outcome depends on more than the set of changes (rows that lack columns, deletions without a row, a second
 * UNIQUE constraint) the row is `loose`: it is held to weaker rules from then on.
 */

import { Buffer, isUtf8 } from 'node:buffer';
import type { TestDatabase } from '../support/lane.ts';
import { scaledReal } from '../support/model.ts';
import { field, type Json, type Read, readJson } from './json.ts';

type Affinity = 'TEXT' | 'INTEGER' | 'REAL' | 'NUMERIC' | '';

interface TableRules {
  name: string;
  columns: [name: string, affinity: Affinity][];
  /** Every row of it is loose. */
  loose?: true;
  /** Does a constraint forbid the row? By column, in lower case. */
  forbids?(cells: Map<string, string>): boolean;
}

const isA = (cell: string | undefined, ...classes: string[]): boolean =>
  ['null', ...classes].some((name) => cell?.startsWith(`${name}:`));

/** The tables of FUZZ_SCHEMA, said once more. */
const RULES: TableRules[] = [
  {
    name: 'items',
    columns: [
      ['id', 'TEXT'],
      ['name', 'TEXT'],
      ['value', 'INTEGER'],
      ['created_at', 'INTEGER'],
      ['updated_at', 'INTEGER'],
    ],
  },
  {
    name: 'Odd "Table',
    columns: [
      ['ID', 'TEXT'],
      ['a "b', 'TEXT'],
      ['__proto__', ''],
      ['é', 'REAL'],
      ['x\\y', 'NUMERIC'],
      ['Updated_At', 'INTEGER'],
    ],
  },
  {
    name: 'picky',
    columns: [
      ['id', 'TEXT'],
      ['must', 'TEXT'],
      ['kind', 'TEXT'],
      ['amount', 'REAL'],
      ['updated_at', 'INTEGER'],
    ],
    forbids: (cells) => isA(cells.get('must')) || cells.get('kind') === `text:${Buffer.from('never').toString('hex')}`,
  },
  {
    name: 'exact',
    columns: [
      ['id', 'TEXT'],
      ['i', 'INTEGER'],
      ['t', 'TEXT'],
      ['b', ''],
      ['any', ''],
      ['updated_at', 'INTEGER'],
    ],
    forbids: (cells) =>
      !isA(cells.get('id'), 'text') ||
      !isA(cells.get('i'), 'integer') ||
      !isA(cells.get('t'), 'text') ||
      !isA(cells.get('b'), 'blob'),
  },
  {
    name: 'uniq',
    loose: true,
    columns: [
      ['id', 'TEXT'],
      ['u', 'TEXT'],
      ['updated_at', 'INTEGER'],
    ],
  },
];

const TIME_MAX = 7_258_118_400_000n;
const TIME_MIN = -8_640_000_000_000_000n;
const INTEGER = /^-?(?:0|[1-9][0-9]*)$/;

export type Plan =
  | { kind: 'park'; code: string }
  | { kind: 'delete'; table: TableRules; key: string; time: number }
  | { kind: 'delete-any'; table: TableRules; key: string }
  | {
      kind: 'upsert';
      table: TableRules;
      key: string;
      time: number;
      /** Storage class and value of each supplied column. */
      cells: Map<string, string>;
      /** Of a row with all its columns: the line that the table has then, and the content that decides ties. */
      whole: { line: string; content: Buffer } | undefined;
      forbidden: boolean;
      unknown: boolean;
    };

export type Expected =
  | { kind: 'refused'; status: number; why: string }
  | { kind: 'accepted'; ack: string; plans: Plan[]; texts: string[] };

/** The state of one row. */
interface Version {
  time: number;
  isDelete: boolean;
  line: string;
  content: Buffer;
}

export interface Outcome {
  /** Bounds: equal unless a loose row is among the changes. */
  applied: [least: number, most: number];
  /** By index: with which codes it may be rejected, and whether it must be. */
  rejected: Map<number, { codes: string[]; must: boolean }>;
  tables: Set<string>;
}

export class Values {
  readonly #db: TestDatabase;
  readonly #known = new Map<string, { cell: string; content: string }>();

  constructor(scratch: TestDatabase) {
    this.#db = scratch;
    scratch.exec('CREATE TABLE v (text TEXT, "integer" INTEGER, "real" REAL, "numeric" NUMERIC, "none")');
  }

  /** What a column of that affinity holds after the value was written to it, and its part of the content. */
  stored(affinity: Affinity, literal: string): { cell: string; content: string } {
    const name = `${affinity} ${literal}`;
    let found = this.#known.get(name);
    if (!found) {
      const column = `"${affinity.toLowerCase() || 'none'}"`;
      this.#db.exec(`INSERT INTO v (${column}) VALUES (${literal})`);
      const row = this.#db
        .prepare(
          `SELECT ${cellSql(column)} AS cell, CASE typeof(${column}) WHEN 'real' THEN json_quote(${column}) END AS printed FROM v`,
        )
        .get() as { cell: string; printed: string | null };
      this.#db.exec('DELETE FROM v');
      found = { cell: row.cell, content: contentPart(row.cell, row.printed, affinity) };
      if (this.#known.size < 50_000) this.#known.set(name, found);
    }
    return found;
  }
}

/** A value's storage class and exact value, as one text. */
export function cellSql(column: string): string {
  return `typeof(${column}) || ':' || CASE WHEN typeof(${column}) IN ('text', 'blob') THEN lower(hex(${column})) ELSE quote(${column}) END`;
}

/** The value on the wire, as JSON text; NULL is less than anything. */
function contentPart(cell: string, printed: string | null, affinity: Affinity): string {
  const at = cell.indexOf(':');
  const value = cell.slice(at + 1);
  switch (cell.slice(0, at)) {
    case 'null':
      return '';
    case 'integer':
      if (Number.isSafeInteger(Number(value))) return value;
      return affinity === '' ? `"$int:${value}"` : `"${value}"`;
    case 'real': {
      if (!/^-?9\.0e\+999$/.test(value))
        return Number(printed) === 0 ? (printed as string) : scaledReal(Number(printed));
      const infinity = value.startsWith('-') ? '-9e999' : '9e999';
      return affinity === '' ? `"$real:${infinity}"` : `"${infinity}"`;
    }
    case 'blob':
      return `"$blob:${value.toUpperCase()}"`;
    default: {
      // One character per byte: bytes decide, not a language's sorting.
      const bytes = Buffer.from(value, 'hex').toString('latin1');
      const escaped = JSON.stringify(/^\$(?:blob|text|int|real|bytes):/.test(bytes) ? `$text:${bytes}` : bytes);
      return escaped;
    }
  }
}

/** A value of the wire as an SQL literal: the inverse of V1 to V5 and V7. */
function decoded(value: Json, read: Read): string {
  // Half a surrogate pair becomes U+FFFD here, as it does everywhere.
  const text = (characters: string): string => `CAST(x'${Buffer.from(characters).toString('hex')}' AS TEXT)`;
  switch (value.kind) {
    case 'null':
      return 'NULL';
    case 'true':
      return '1';
    case 'false':
      return '0';
    case 'number':
      return `json_extract('[${value.text}]', '$[0]')`;
    case 'string': {
      const [, prefix, rest = ''] = /^\$(text|blob|int|real|bytes):([\s\S]*)$/.exec(value.value) ?? [];
      if (prefix === 'text') return text(rest);
      if (prefix === 'blob' && /^(?:[0-9A-Fa-f]{2})*$/.test(rest)) return `x'${rest}'`;
      if (prefix === 'bytes' && /^(?:[0-9A-Fa-f]{2})*$/.test(rest)) return `CAST(x'${rest}' AS TEXT)`;
      if (prefix === 'int') return `CAST(${text(rest)} AS INTEGER)`;
      if (prefix === 'real') return `CAST(${text(rest)} AS REAL)`;
      return text(value.value);
    }
    default:
      return text(read.minified(value));
  }
}

/** An id that says `$bytes:` in the one spelling that it has. */
function inOneSpelling(id: string): string {
  const [, hex] = /^\$bytes:([\s\S]*)$/.exec(id) ?? [];
  if (hex === undefined) return id;
  if (!/^(?:[0-9A-Fa-f]{2})*$/.test(hex)) return `$text:${id}`;
  const bytes = Buffer.from(hex, 'hex');
  if (!isUtf8(bytes)) return `$bytes:${hex.toUpperCase()}`;
  return `${/^\$(?:blob|text|int|real|bytes):/.test(bytes.toString()) ? '$text:' : ''}${bytes}`;
}

const fold = (name: string): string => name.replace(/[A-Z]/g, (letter) => letter.toLowerCase());

/** How a body is to be answered, before anything is known of the state. */
export function expectation(body: string | Uint8Array, values: Values): Expected {
  const refused = (why: string, status = 400): Expected => ({ kind: 'refused', status, why });
  let text: string;
  try {
    text = typeof body === 'string' ? body : new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    return refused('not UTF-8');
  }
  const read = readJson(text);
  if (read?.json.kind !== 'object') return refused('not a JSON object');
  const id = field(read.json, 'batch_id');
  if (id?.kind !== 'number' || !INTEGER.test(id.text)) return refused('batch_id is no integer');
  if (BigInt.asIntN(64, BigInt(id.text)) !== BigInt(id.text)) return refused('batch_id has more than 64 bits');
  const changes = field(read.json, 'changes');
  if (changes?.kind !== 'array') return refused('changes is no array');
  if (changes.items.length > 10_000) return refused('too many changes', 413);
  return {
    kind: 'accepted',
    ack: String(BigInt(id.text)),
    plans: changes.items.map((change) => planOf(change, read, values)),
    texts: changes.items.map((change) => read.minified(change)),
  };
}

function planOf(change: Json, read: Read, values: Values): Plan {
  const park = (code: string): Plan => ({ kind: 'park', code });
  const textOf = (json: Json | undefined): string | undefined =>
    json?.kind === 'string' ? inOneSpelling(json.value) : undefined;
  if (change.kind !== 'object') return park('bad-change');
  const op = textOf(field(change, 'op'));
  if (op !== 'INSERT' && op !== 'UPDATE' && op !== 'DELETE') return park('bad-op');
  const named = textOf(field(change, 'table'));
  const table = RULES.find(({ name }) => named !== undefined && fold(name) === fold(named));
  if (!table) return park('unknown-table');
  const row = field(change, 'row');
  const oldId = textOf(field(change, 'old_id'));
  const keyOf = (id: string): string =>
    `${table.name} ${values.stored('TEXT', decoded({ kind: 'string', value: id }, read)).cell}`;
  if (row?.kind !== 'object') {
    if (op !== 'DELETE' || (row !== undefined && row.kind !== 'null')) return park('bad-row');
    return oldId !== undefined ? { kind: 'delete-any', table, key: keyOf(oldId) } : park('bad-id');
  }
  // Names are matched without regard to case; of several, the one that is spelt as the column, then the first.
  const fieldOf = (name: string): Json | undefined => {
    const column = table.columns.find(([candidate]) => fold(candidate) === fold(name))?.[0];
    return field(row, column as string) ?? row.fields.find(([key]) => fold(key) === fold(name))?.[1];
  };
  const time = fieldOf('updated_at');
  if (time?.kind !== 'number' || !INTEGER.test(time.text)) return park('bad-timestamp');
  const ms = BigInt(time.text);
  if (ms > TIME_MAX || ms < TIME_MIN) return park('bad-timestamp');
  const id = textOf(fieldOf('id'));
  if (op === 'DELETE') {
    if (id !== undefined && oldId !== undefined && id !== oldId) return park('bad-id');
    const which = oldId ?? id;
    return which !== undefined ? { kind: 'delete', table, key: keyOf(which), time: Number(ms) } : park('bad-id');
  }
  if (id === undefined) return park('bad-id');
  const cells = new Map<string, string>();
  const parts = new Map<string, string>();
  for (const [column, affinity] of table.columns) {
    const value = fieldOf(column);
    if (!value) continue;
    const { cell, content } = values.stored(affinity, decoded(value, read));
    cells.set(fold(column), cell);
    parts.set(fold(column), content);
  }
  const whole = cells.size === table.columns.length;
  return {
    kind: 'upsert',
    table,
    key: keyOf(id),
    time: Number(ms),
    cells,
    whole: whole
      ? {
          line: table.columns.map(([column]) => cells.get(fold(column))).join('|'),
          content: Buffer.from(
            [...parts.keys()]
              .sort(byBytes)
              .map((name) => `${parts.get(name)}\n`)
              .join(''),
            'latin1',
          ),
        }
      : undefined,
    forbidden: whole && (table.forbids?.(cells) ?? false),
    unknown: row.fields.some(([name]) => !table.columns.some(([column]) => fold(column) === fold(name))),
  };
}

function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

function compare(a: Version, b: Version): number {
  if (a.time !== b.time) return a.time - b.time;
  if (a.isDelete !== b.isDelete) return a.isDelete ? 1 : -1;
  return a.isDelete ? 0 : Buffer.compare(a.content, b.content);
}

function versionOf(plan: Plan): Version | undefined {
  if (plan.kind === 'delete') return { time: plan.time, isDelete: true, line: '', content: Buffer.alloc(0) };
  if (plan.kind !== 'upsert' || !plan.whole || plan.forbidden) return undefined;
  return { time: plan.time, isDelete: false, ...plan.whole };
}

/** All tables of one node, as they have to be. */
export class Oracle {
  readonly #rows = new Map<string, Version>();
  readonly loose = new Set<string>();
  /** Rows whose outcome depends on the order of arrival: they need not be the same on another node. */
  readonly ordered = new Set<string>();
  /** By row and column: every value that a change has named. */
  readonly said = new Map<string, Set<string>>();

  merge(plans: Plan[]): Outcome {
    for (const plan of plans) this.#note(plan);
    for (const [index, plan] of plans.entries()) this.#apply(plan, plans.slice(index + 1));
    return this.#outcome(plans);
  }

  /** The rows of a table that are not loose: the live ones' lines, and the time of each deletion. */
  rows(table: string): { live: string[]; deleted: Map<string, number> } {
    const live: string[] = [];
    const deleted = new Map<string, number>();
    for (const [key, version] of this.#rows) {
      if (!key.startsWith(`${table} `) || this.loose.has(key)) continue;
      if (version.isDelete) deleted.set(key, version.time);
      else live.push(version.line);
    }
    return { live: live.sort(), deleted };
  }

  #note(plan: Plan): void {
    if (plan.kind === 'park') return;
    if (plan.kind === 'delete-any') this.ordered.add(plan.key);
    if (plan.table.loose || (plan.kind === 'upsert' && !plan.whole)) this.loose.add(plan.key);
    if (plan.kind !== 'upsert') return;
    for (const [column, cell] of plan.cells) {
      const name = `${plan.key} ${column}`;
      const known = this.said.get(name) ?? new Set();
      this.said.set(name, known.add(cell));
    }
  }

  #apply(plan: Plan, later: Plan[]): void {
    if (plan.kind === 'delete-any') {
      // What the batch says of the row later stands against a deletion that has no version.
      if (later.some((next) => next.kind !== 'park' && next.key === plan.key)) return;
      const known = this.#rows.get(plan.key);
      if (known) this.#rows.set(plan.key, { ...known, isDelete: true, line: '', content: Buffer.alloc(0) });
      return;
    }
    const version = versionOf(plan);
    if (!version || plan.kind === 'park') return;
    const known = this.#rows.get(plan.key);
    if (!known || compare(version, known) > 0) this.#rows.set(plan.key, version);
  }

  #outcome(plans: Plan[]): Outcome {
    const standing = new Set<string>();
    for (const plan of plans) {
      const version = versionOf(plan);
      if (!version || plan.kind === 'park') continue;
      if (compare(version, this.#rows.get(plan.key) as Version) === 0) standing.add(plan.key);
    }
    const outcome: Outcome = { applied: [0, 0], rejected: new Map(), tables: new Set() };
    plans.forEach((plan, index) => {
      if (plan.kind === 'park') {
        outcome.rejected.set(index, { codes: [plan.code], must: true });
        return;
      }
      outcome.tables.add(plan.table.name);
      const loose = this.loose.has(plan.key);
      if (plan.kind === 'upsert' && (plan.unknown || plan.forbidden || loose)) {
        const newest = this.#beats(plan);
        const codes = [...(plan.unknown ? ['unknown-column'] : []), ...(plan.forbidden || loose ? ['constraint'] : [])];
        outcome.rejected.set(index, {
          codes: plan.forbidden && newest && !loose ? ['constraint'] : codes,
          must: plan.unknown || (plan.forbidden && newest && !loose),
        });
      }
      const counts = plan.kind === 'delete-any' || standing.has(plan.key);
      if (loose && plan.kind !== 'delete-any') {
        if (!(plan.kind === 'upsert' && plan.unknown)) outcome.applied[1] += 1;
      } else if (counts && plan.kind === 'upsert' && plan.forbidden && !outcome.rejected.get(index)?.must) {
        // Passed over as stale before the constraint was looked at, it counts with its row.
        outcome.applied[1] += 1;
      } else if (counts && !(plan.kind === 'upsert' && (plan.unknown || plan.forbidden))) {
        outcome.applied[0] += 1;
        outcome.applied[1] += 1;
      }
    });
    return outcome;
  }

  /** Is a change that a constraint forbids newer than what stands? Then it cannot have been passed over as stale. */
  #beats(plan: Extract<Plan, { kind: 'upsert' }>): boolean {
    const known = this.#rows.get(plan.key);
    return !known || plan.time > known.time;
  }
}
