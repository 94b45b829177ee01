/** Two nodes as processes of their own, each the other's peer, and what can be said of their files at any moment. */
import { copyFileSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { openDatabase, type TestDatabase } from '../support/lane.ts';
import { compareVersions, type versionOf, type WireRow } from '../support/model.ts';
import { rowsOf } from '../support/nodes.ts';
import { freePorts } from '../support/programs.ts';
import { type Child, startChild } from './kill-children.ts';

type Version = ReturnType<typeof versionOf>;

/** What a file says: the version of every row, and the rows that its node still has to send. */
interface State {
  versions: Map<string, Version>;
  pending: Set<string>;
}

export class Place {
  readonly id: string;
  readonly path: string;
  readonly port: number;
  commits = 0;
  acknowledged = 0;
  starts = 0;
  peer: Place = this;
  child: Child | undefined;
  readonly #folder: string;
  readonly #build: string;
  /** What was said: the value that each row must at least have, rows that must be gone, and rows that may be. */
  readonly #values = new Map<string, number>();
  readonly #deleted = new Set<string>();
  readonly #doubtful = new Set<string>();

  constructor(build: string, folder: string, id: string, port: number) {
    this.#build = build;
    this.#folder = folder;
    this.id = id;
    this.port = port;
    this.path = join(folder, `${id}.db`);
  }

  start(mode: 'write' | 'drain'): Child {
    this.starts += 1;
    const args = [
      this.id,
      this.path,
      String(this.port),
      `http://127.0.0.1:${this.peer.port}`,
      String(this.starts),
      mode,
    ];
    this.child = startChild(this.#build, 'kill-node.mjs', args);
    return this.child;
  }

  async kill(): Promise<void> {
    const { child } = this;
    if (!child) return;
    this.child = undefined;
    await child.kill();
    this.#hear(child.lines);
  }

  /** Lets it end by itself. */
  async end(): Promise<void> {
    const { child } = this;
    this.child = undefined;
    expect(await child?.end()).toBe(0);
    this.#hear(child?.lines ?? []);
  }

  /**
   * Opens what is in the file now. Of a dead node it is a copy: what its next start finds must be what the kill left. A node
   * that is only starting is left alone, and undefined returned.
   */
  async open(): Promise<TestDatabase | undefined> {
    if (this.child && !this.child.lines.includes('ready')) return undefined;
    const path = this.child ? this.path : this.#copy();
    const db = await openDatabase(path);
    db.exec('PRAGMA busy_timeout = 60000');
    return db;
  }

  #copy(): string {
    const folder = join(this.#folder, `copy-of-${this.id}`);
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder);
    const copy = join(folder, 'a.db');
    for (const suffix of ['', '-wal']) {
      if (existsSync(this.path + suffix)) copyFileSync(this.path + suffix, copy + suffix);
    }
    return copy;
  }

  /** Everything that this node has reported is in `db`: its own, or after a drain its peer's. */
  expectReported(db: TestDatabase, why: string): void {
    const rows = isReady(db) ? rowsOf(db, 'SELECT id, value FROM items') : [];
    const there = new Map(rows.map((row) => [row.id, Number(row.value)]));
    const lost = [...this.#values].filter(
      ([id, value]) => !((there.get(id) ?? -1) >= value) && !this.#doubtful.has(id),
    );
    expect(lost, `reported by ${this.id} and lost, ${why}`).toEqual([]);
    const back = [...this.#deleted].filter((id) => there.has(id));
    expect(back, `deleted by ${this.id} and there, ${why}`).toEqual([]);
  }

  #hear(lines: string[]): void {
    for (const line of lines) {
      const [sign, id, value] = line.split(' ') as [string, string, string | undefined];
      if (sign === '+' || sign === '-') this.commits += 1;
      if (sign === '+') this.#values.set(id, Number(value));
      if (sign === '?') this.#doubtful.add(id);
      if (sign === 'a') this.acknowledged += Number(id);
      if (sign === '-') {
        this.#doubtful.delete(id);
        this.#values.delete(id);
        this.#deleted.add(id);
      }
    }
  }
}

export async function pair(build: string, folder: string): Promise<[Place, Place]> {
  const [portA, portB] = (await freePorts(2)) as [number, number];
  const a = new Place(build, folder, 'a', portA);
  const b = new Place(build, folder, 'b', portB);
  a.peer = b;
  b.peer = a;
  return [a, b];
}

/**
 * What `from` no longer has to send, `to` has, in that version or a newer one: nothing left `_changes` that the peer does
 * not hold, and nothing that the peer acknowledged went with the kill. `to` must be read after `from`.
 */
export function expectDelivered(from: State, to: State, why: string): void {
  const missing = [...from.versions].filter(([id, version]) => {
    const other = to.versions.get(id);
    return !from.pending.has(id) && (other === undefined || compareVersions(other, version) < 0);
  });
  expect(missing, `acknowledged and lost, ${why}`).toEqual([]);
}

/** Everything in one read transaction; undefined where the node was killed before it had made its tables. */
export function stateOf(db: TestDatabase): State | undefined {
  if (!isReady(db)) return undefined;
  db.exec('BEGIN');
  const versions = new Map<string, Version>();
  for (const { row_id, version } of rowsOf(db, 'SELECT row_id, version FROM _tombstones')) {
    versions.set(row_id as string, { updatedAt: Number(version), isDelete: true, row: {} });
  }
  for (const row of rowsOf(db, 'SELECT * FROM items') as WireRow[]) {
    versions.set(row.id as string, { updatedAt: Number(row.updated_at), isDelete: false, row });
  }
  const unacknowledged = 'SELECT row_id FROM _changes WHERE change_id > (SELECT last_acked FROM _peer_state)';
  const pending = new Set(rowsOf(db, unacknowledged).map(({ row_id }) => row_id as string));
  db.exec('COMMIT');
  return { versions, pending };
}

function isReady(db: TestDatabase): boolean {
  return rowsOf(db, "SELECT name FROM sqlite_schema WHERE name IN ('items', '_peer_state')").length === 2;
}
