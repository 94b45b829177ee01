/**
 * The version order in plain TypeScript, written from its definition and not from the SQL that implements it:
 * a version is (updated_at, is_delete, content), the greater one wins, and a tie of content is the same version.
 */
import { Buffer } from 'node:buffer';

export type WireRow = Record<string, string | number | null>;

export interface WireChange {
  op: 'INSERT' | 'UPDATE' | 'DELETE';
  table: string;
  row: WireRow;
  old_id: string | null;
}

/** The state of one row: alive with these values, or deleted. */
interface Version {
  updatedAt: number;
  isDelete: boolean;
  row: WireRow;
}

/** Sorted keys and wire values; no value is less than any value, and bytes decide, not a language's sorting. */
function content(row: WireRow): Buffer {
  const keys = Object.keys(row).sort();
  const part = (value: unknown): string => {
    if (value === null) return '';
    return typeof value === 'number' && !Number.isInteger(value) ? scaledReal(value) : JSON.stringify(value);
  };
  return Buffer.from(keys.map((key) => `${part(row[key])}\n`).join(''));
}

/** A finite REAL other than zero, as the content of a row has it: m * 1024^e with 2^52 <= |m| < 2^62. */
export function scaledReal(value: number): string {
  let [m, e] = [value, 0];
  for (; Math.abs(m) < 2 ** 52; e--) m *= 1024;
  for (; Math.abs(m) >= 2 ** 62; e++) m /= 1024;
  return `${BigInt(m)}p${e}`;
}

/** Below zero where `a` loses to `b`, zero where they are one version. */
export function compareVersions(a: Version, b: Version): number {
  if (a.updatedAt !== b.updatedAt) return a.updatedAt - b.updatedAt;
  if (a.isDelete !== b.isDelete) return a.isDelete ? 1 : -1;
  return a.isDelete ? 0 : Buffer.compare(content(a.row), content(b.row));
}

export function versionOf(change: WireChange): Version {
  return { updatedAt: Number(change.row.updated_at), isDelete: change.op === 'DELETE', row: change.row };
}

/** One table on one node, as it has to be after any changes in any order. */
export class Model {
  readonly #versions = new Map<string, Version>();

  merge(change: WireChange): void {
    const id = idOf(change);
    const incoming = versionOf(change);
    const known = this.#versions.get(id);
    if (!known || compareVersions(incoming, known) > 0) this.#versions.set(id, incoming);
  }

  /** Merges a batch; returns how many of its changes belong to a row whose newest version in the batch now stands. */
  mergeBatch(changes: WireChange[]): number {
    for (const change of changes) this.merge(change);
    const standing = new Set(
      changes
        .filter((change) => compareVersions(versionOf(change), this.#versions.get(idOf(change)) as Version) === 0)
        .map(idOf),
    );
    return changes.filter((change) => standing.has(idOf(change))).length;
  }

  /** The living rows, by id. */
  rows(): WireRow[] {
    return [...this.#versions.entries()]
      .filter(([, version]) => !version.isDelete)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([, version]) => version.row);
  }
}

function idOf(change: WireChange): string {
  return change.op === 'DELETE' ? (change.old_id as string) : String(change.row.id);
}

/** A small seeded generator, so that a failing seed can be run again. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** mulberry32: [0, 1). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }

  shuffle<T>(list: T[]): T[] {
    for (let i = list.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [list[i], list[j]] = [list[j] as T, list[i] as T];
    }
    return list;
  }
}
