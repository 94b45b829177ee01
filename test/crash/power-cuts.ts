/** Cuts the power of a traced process at every moment that counts, and looks at what is left of its files. */
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { Manager } from '../../src/index.ts';
import type { Fetch } from '../../src/send/transport.ts';
import { quote } from '../../src/sqlite/sql.ts';
import { openDatabase, type TestDatabase } from '../support/lane.ts';
import { compareVersions, Model, Random, versionOf, type WireChange, type WireRow } from '../support/model.ts';
import { rowsOf } from '../support/nodes.ts';
import { Disk, FATES, type Fate } from './power-disk.ts';
import type { TraceEvent } from './power-trace.ts';

type Version = ReturnType<typeof versionOf>;

export interface Cut {
  /** How many events of the trace came before the cut. */
  before: number;
  /** Seed, place and fate, for the message of a failed check. */
  at: string;
}

/** Beside those after everything that was sent: moments around a sync, and moments anywhere. An option tries more of them. */
const CUTS_AROUND_SYNCS = Number(process.env.ROWCAST_POWER_CUTS ?? 40);
const CUTS_ANYWHERE = CUTS_AROUND_SYNCS / 2;

/** The files of a cut are looked at once and thrown away, so they are kept in memory where there is such a folder. */
const PLACE = existsSync('/dev/shm') ? '/dev/shm' : tmpdir();

/**
 * Opens the database as it is found after each cut, with several fates of what was not synced, asks SQLite whether it is
 * whole, and calls `look` with it. The cuts are after so many events as `from` says. Where SQLite finds the same in it, and the
 * same was said to others before, there is nothing new to see: many a tail that was torn off comes to the same, and what is made
 * of the files is SQLite's. Returns how often `look` was called.
 */
export async function everyCut(
  events: TraceEvent[],
  seed: number,
  look: (db: TestDatabase, cut: Cut) => Promise<void>,
  from = 0,
): Promise<number> {
  const random = new Random(seed);
  const moments = momentsIn(events, random, from);
  const disk = new Disk();
  const opened = new Set<string>();
  const seen = new Set<string>();
  let said = 0;
  for (let before = 0; before <= events.length; before++) {
    const event = events[before - 1];
    if (event) disk.apply(event);
    if (event?.kind === 'sent' || event?.kind === 'received') said += 1;
    if (!moments.has(before)) continue;
    for (const fate of disk.settled ? (['kept'] as const) : fates(random)) {
      const files = disk.afterPowerCut(fate, random);
      const left = digestOf(files);
      if (opened.has(`${said} ${left}`)) continue;
      opened.add(`${said} ${left}`);
      const at = `seed ${seed}, power cut after event ${before} of ${events.length}, what was not synced: ${fate}`;
      const folder = mkdtempSync(join(PLACE, 'rowcast-cut-'));
      for (const [name, data] of files) writeFileSync(join(folder, name), data);
      const db = await openDatabase(join(folder, 'a.db'));
      try {
        expect(rowsOf(db, 'PRAGMA integrity_check'), at).toEqual([{ integrity_check: 'ok' }]);
        const found = `${said} ${contentOf(db)}`;
        if (!seen.has(found)) await look(db, { before, at });
        seen.add(found);
      } finally {
        db.close();
        rmSync(folder, { recursive: true, force: true });
      }
    }
  }
  return seen.size;
}

function digestOf(files: Map<string, Uint8Array>): string {
  const hash = createHash('sha256');
  for (const [name, data] of [...files].sort(([a], [b]) => (a < b ? -1 : 1))) {
    hash.update(`${name} ${data.length} `).update(data);
  }
  return hash.digest('hex');
}

/** Everything that a program can learn of a database by asking: its schema, its settings, and each row of every table. */
function contentOf(db: TestDatabase): string {
  const hash = createHash('sha256');
  const add = (name: string, sql: string): void => {
    hash.update(`${name} ${JSON.stringify(rowsOf(db, sql))}\n`);
  };
  for (const setting of ['journal_mode', 'schema_version', 'user_version', 'page_count', 'freelist_count']) {
    add(setting, `PRAGMA ${setting}`);
  }
  add('schema', 'SELECT * FROM sqlite_schema');
  for (const { name } of rowsOf(db, "SELECT name FROM sqlite_schema WHERE type = 'table'")) {
    const table = quote(String(name));
    const columns = rowsOf(db, 'SELECT name FROM pragma_table_info(?)', name).map((column) =>
      quote(String(column.name)),
    );
    add(table, `SELECT ${columns.map((column) => `quote(${column})`).join(" || ',' || ")} AS row FROM ${table}`);
  }
  return hash.digest('hex');
}

function momentsIn(events: TraceEvent[], random: Random, from: number): Set<number> {
  const moments = new Set<number>([events.length]);
  const syncs: number[] = [];
  for (const [i, { kind }] of events.entries()) {
    if (i < from) continue;
    if (kind === 'sent') moments.add(i + 1);
    if (kind === 'sync' || kind === 'sync-folder') syncs.push(i, i + 1);
  }
  for (const moment of random.shuffle(syncs).slice(0, CUTS_AROUND_SYNCS)) moments.add(moment);
  for (let i = 0; i < CUTS_ANYWHERE; i++) moments.add(from + random.below(events.length - from));
  return moments;
}

/** Each time the two extremes, which a missing sync fails at once, and two of those between. */
function fates(random: Random): Fate[] {
  const [lost, kept, ...others] = FATES;
  return [lost, kept, ...random.shuffle(others).slice(0, 2)];
}

/** The answers of a manager without a network between: the cut is what is tested here. */
export function wiredTo(manager: Manager): { fetch: Fetch } {
  return {
    fetch: async (_, { body }) => {
      const received = manager.receive(body, { said: 'id=sender' });
      return { status: received.status, text: async () => JSON.stringify(received.body) };
    },
  };
}

/** The rows after none, one, two and so on of the batches, by the definition of the version order. */
export function statesAfter(batches: WireChange[][]): string[] {
  const model = new Model();
  const rows = (): string => stateOf(model.rows());
  return [
    rows(),
    ...batches.map((changes) => {
      model.mergeBatch(changes);
      return rows();
    }),
  ];
}

/** Rows as text, whatever the order of their columns. */
export function stateOf(rows: Record<string, unknown>[]): string {
  return rows.map((row) => JSON.stringify(row, Object.keys(row).sort())).join('\n');
}

export function hasTable(db: TestDatabase, name: string): boolean {
  return rowsOf(db, 'SELECT 1 FROM sqlite_schema WHERE name = ?', name).length > 0;
}

/** What `items` and the tombstones say of every row. */
export function versionsIn(db: TestDatabase): Map<string, Version> {
  const versions = new Map<string, Version>();
  for (const { row_id, version } of rowsOf(db, 'SELECT row_id, version FROM _tombstones')) {
    versions.set(row_id as string, { updatedAt: Number(version), isDelete: true, row: {} });
  }
  for (const row of rowsOf(db, 'SELECT * FROM items') as WireRow[]) {
    versions.set(row.id as string, { updatedAt: Number(row.updated_at), isDelete: false, row });
  }
  return versions;
}

/** That version of the row, or a newer one. */
export function holds(versions: Map<string, Version>, change: WireChange): boolean {
  const known = versions.get(change.old_id ?? String(change.row.id));
  return known !== undefined && compareVersions(known, versionOf(change)) >= 0;
}
