/**
 * What must come out, from the version order alone. Nothing here knows triggers, outboxes or SQL that merges: a version is
 * (updated_at, is_delete, content), the greater one wins, and what was committed counts.
 */

import { compareVersions, versionOf, type WireChange, type WireRow } from '../support/model.ts';
import { visibleOf } from '../support/unique-kernel.ts';
import type { TableName } from './disk.ts';

export type Version = ReturnType<typeof versionOf>;

/** `<table>/<id>` */
export type Key = string;

export function keyOf(table: string, id: string): Key {
  return `${table}/${id}`;
}

export function tableIn(key: Key): TableName {
  return key.slice(0, key.indexOf('/')) as TableName;
}

export function idIn(key: Key): string {
  return key.slice(key.indexOf('/') + 1);
}

/** The versions that one machine has, or all of them together. */
export class Versions {
  readonly #byKey: Map<Key, Version>;
  /** All that were ever merged, where that is asked for; lists are replaced and never changed, so a copy costs little. */
  readonly #history: Map<Key, readonly Version[]> | undefined;
  readonly #order: Order;

  constructor(from?: Versions, keepsHistory = false, order: Order = compare) {
    this.#order = from ? from.#order : order;
    this.#byKey = new Map(from ? from.#byKey : []);
    const kept = from ? from.#history : undefined;
    if (kept || keepsHistory) this.#history = new Map(kept ?? []);
  }

  /** Everything that was merged, by row. */
  histories(): [Key, readonly Version[]][] {
    return [...(this.#history ?? [])];
  }

  history(key: Key): readonly Version[] {
    return this.#history?.get(key) ?? [];
  }

  get(key: Key): Version | undefined {
    return this.#byKey.get(key);
  }

  merge(key: Key, version: Version): void {
    const known = this.#byKey.get(key);
    const order = known ? this.#order(version, known) : 1;
    if (order > 0 || (order === 0 && known && saysMore(version, known))) this.#byKey.set(key, version);
    this.#history?.set(key, [...this.history(key), version]);
  }

  /** What a machine has turned out to have, whatever it had before. */
  set(key: Key, version: Version): void {
    this.#byKey.set(key, version);
    this.#history?.set(key, [version]);
  }

  forget(key: Key): void {
    this.#byKey.delete(key);
    this.#history?.delete(key);
  }

  mergeChange(change: WireChange): void {
    const id = change.op === 'DELETE' ? change.old_id : change.row.id;
    this.merge(keyOf(change.table, String(id)), versionOf(change));
  }

  /** The living rows, those included that a UNIQUE constraint keeps out of sight. */
  rows(): Map<Key, WireRow> {
    return new Map([...this.#byKey].filter(([, version]) => !version.isDelete).map(([key, { row }]) => [key, row]));
  }

  /** Those of the living rows that an application sees. */
  visible(): Map<Key, WireRow> {
    const rows = this.rows();
    const people = [...rows]
      .filter(([key]) => key.startsWith('people/'))
      .map(([key, row]) => ({ key, id: String(row.id), updatedAt: Number(row.updated_at), row }));
    const shown = new Set(visibleOf(people, (a, b) => clash(a.row, b.row)).map(({ key }) => key));
    for (const { key } of people) if (!shown.has(key)) rows.delete(key);
    return rows;
  }

  entries(): IterableIterator<[Key, Version]> {
    return this.#byKey.entries();
  }
}

/** What a batch of a plain sender says: of two changes of one row and one time, the later one. */
export function saidPlainly(changes: WireChange[]): WireChange[] {
  const latest = new Map(
    changes.map((change) => {
      const id = change.op === 'DELETE' ? change.old_id : change.row.id;
      return [`${keyOf(change.table, String(id))} ${change.row.updated_at}`, change];
    }),
  );
  return [...latest.values()];
}

/** By the declaration of `people`: e-mail addresses without regard to case; nicknames among those who are not gone. */
function clash(a: WireRow, b: WireRow): boolean {
  const sameEmail = a.email !== null && String(a.email).toLowerCase() === String(b.email ?? '').toLowerCase();
  return (
    (sameEmail && b.email !== null) || (a.nick !== null && a.nick === b.nick && a.gone === null && b.gone === null)
  );
}

type Order = (a: Version, b: Version) => number;

let areTiesHeeded = true;

/** Does it count which of two versions of one time is the greater one? Set for each schedule, one after the other. */
export function heedTies(heeded: boolean): void {
  areTiesHeeded = heeded;
}

/** A hub has no schema: it compares by what the arriving one speaks of; what it was never told of counts as nothing. */
export function compareOnHub(arriving: Version, known: Version): number {
  if (arriving.isDelete || known.isDelete) return compareVersions(arriving, known);
  return compareWithin(arriving, known, Object.keys(arriving.row));
}

/** By the columns that both have: that is how nodes compare whose schemas differ. */
function compare(a: Version, b: Version): number {
  if (!areTiesHeeded) return compareTimes(a, b);
  const [keys, others] = [Object.keys(a.row), Object.keys(b.row)];
  if (a.isDelete || b.isDelete || keys.length === others.length) return compareVersions(a, b);
  return compareWithin(
    a,
    b,
    keys.filter((key) => others.includes(key)),
  );
}

/** The same in what both speak of, and in more: a node with the column has put it together with what it had. */
function saysMore({ isDelete, row }: Version, than: Version): boolean {
  return !isDelete && Object.keys(row).length > Object.keys(than.row).length;
}

/** By these columns alone; what one of them does not have counts as null. */
export function compareWithin(a: Version, b: Version, keys: string[]): number {
  if (!areTiesHeeded) return compareTimes(a, b);
  const within = (version: Version): Version => ({
    ...version,
    row: Object.fromEntries(keys.map((key) => [key, version.row[key] ?? null])),
  });
  return compareVersions(within(a), within(b));
}

function compareTimes(a: Version, b: Version): number {
  return a.updatedAt - b.updatedAt || Number(a.isDelete) - Number(b.isDelete);
}

export function isAbove(version: Version, other: Version | undefined): boolean {
  return other === undefined || compare(version, other) > 0;
}

export function isAtLeast(version: Version, other: Version): boolean {
  return compare(version, other) >= 0;
}

export function describe(version: Version | undefined): string {
  if (!version) return 'nothing';
  return version.isDelete ? `deleted at ${version.updatedAt}` : JSON.stringify(version.row);
}

const PREFIXES = ['$blob:', '$text:', '$int:', '$real:', '$bytes:'];

/** A stored value as the wire carries it, by its storage class; `typeless` is a column without an affinity. */
export function wireValue(type: string, value: unknown, typeless: boolean): string | number | null {
  switch (type) {
    case 'null':
      return null;
    case 'integer': {
      const exact = Number(value);
      if (Number.isSafeInteger(exact)) return exact;
      return typeless ? `$int:${value}` : String(value);
    }
    case 'real': {
      if (Number.isFinite(value)) return value as number;
      const text = (value as number) > 0 ? '9e999' : '-9e999';
      return typeless ? `$real:${text}` : text;
    }
    case 'blob':
      return `$blob:${value}`;
    default: {
      const text = value as string;
      return PREFIXES.some((prefix) => text.startsWith(prefix)) ? `$text:${text}` : text;
    }
  }
}

/** The same row with its keys sorted, as text to compare. */
export function canonical(row: WireRow): string {
  return JSON.stringify(
    Object.keys(row)
      .sort()
      .map((key) => [key, row[key]]),
  );
}
