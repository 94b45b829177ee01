/**
 * Sending whole tables again: what a table holds goes to every peer, and a peer can be asked for what it holds. That is
 * for rows that may have been written or deleted while no trigger was looking; the merge finds out which were.
 */
import { lastChangeId } from '../capture/change-ids.ts';
import type { Clock } from '../clock.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';
import { namesIn } from './asked-tables.ts';
import { countSeed } from './seed-causes.ts';

/**
 * Every peer is sent these tables, tombstones included, before it is sent further changes; a walk that is under way
 * begins again with them, or, where `patient`, is followed by another. `ask`: the next batch to each peer asks it for its
 * own. In a transaction.
 */
export function resendTables(
  db: Connection,
  tables: Pick<Table, 'name' | 'wireName'>[],
  options: { ask: boolean; now: number; patient?: boolean },
): void {
  const named = tables.map(({ name }) => name);
  const peers = db.all<{ url: string; walking: number; scope: string | null }>(
    'SELECT peer_url AS url, tail_from IS NOT NULL AS walking, snapshot_of AS scope FROM main._peer_state',
  );
  for (const { url, walking, scope } of peers) {
    if (walking === 1 && options.patient) {
      db.run('UPDATE main._peer_state SET again = 0 WHERE peer_url = ?', url);
      continue;
    }
    countSeed(db, url, 'table');
    // A walk over everything stays one.
    const everything = walking === 1 && scope === null;
    db.run(
      'UPDATE main._peer_state SET tail_from = coalesce(tail_from, last_acked), snapshot_of = ?, ' +
        'snapshot_table = NULL, snapshot_after = NULL, snapshot_run = snapshot_run + 1 WHERE peer_url = ?',
      everything ? null : together(walking === 1 ? scope : null, named),
      url,
    );
    if (options.ask) ask(db, url, tables);
    db.run(
      'INSERT INTO main._meta (key, value) VALUES (?, CAST(? AS INTEGER)) ON CONFLICT DO NOTHING',
      snapshotKey(url),
      options.now,
    );
  }
}

/**
 * The next question to each peer asks it for these tables. They are not sent: it is this node that lacks something, and what
 * waits for the peer may say more of a row than the table does, so it must come first. In a transaction.
 */
export function askForTables(db: Connection, tables: Pick<Table, 'wireName'>[]): void {
  const peers = db.all<{ url: string }>('SELECT peer_url AS url FROM main._peer_state');
  for (const { url } of peers) ask(db, url, tables);
}

/** It may be asked for them already: then it is to have more before it is. */
function ask(db: Connection, peer: string, tables: Pick<Table, 'wireName'>[]): void {
  const { asks } = db.get<{ asks: string | null }>('SELECT asks FROM main._peer_state WHERE peer_url = ?', peer) ?? {};
  // The peer may know them by another name.
  const asked = tables.map(({ wireName }) => wireName);
  db.run(
    'UPDATE main._peer_state SET asks = ?, asks_after = CAST(? AS INTEGER) WHERE peer_url = ?',
    together(asks ?? null, asked),
    lastChangeId(db),
    peer,
  );
}

/** Where `_meta` says when the walk for a peer began: that outlives the process that began it. */
export function snapshotKey(peer: string): string {
  return `snapshot_since ${peer}`;
}

/** The tables of a walk: `scope` is what `_peer_state` says of it, null for all. */
export function inScope<T extends { name: string }>(tables: T[], scope: string | null): T[] {
  if (scope === null) return tables;
  const names = new Set(namesIn(scope).map(fold));
  return tables.filter((table) => names.has(fold(table.name)));
}

/** How often a table is sent again for the asking. */
const EVERY_MS = 10 * 60_000;

/**
 * What peers have asked for. Each table goes out at most once in ten minutes, whoever asks and however often: a walk costs
 * far more than a request. What is asked for too early waits, and survives a restart.
 */
export class Requests {
  readonly #db: Connection;
  readonly #clock: Clock;
  readonly #servedAt = new Map<string, number>();
  #waiting: Set<string>;

  constructor(db: Connection, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
    const kept = db.get("SELECT value FROM main._meta WHERE key = 'asked_for'")?.value;
    this.#waiting = new Set(typeof kept === 'string' ? namesIn(kept) : []);
  }

  note(tables: { name: string }[]): void {
    const fresh = tables.filter(({ name }) => !this.#waiting.has(name));
    if (fresh.length === 0) return;
    const waiting = new Set([...this.#waiting, ...fresh.map(({ name }) => name)]);
    this.#db.transaction(() => this.#keep(waiting));
    this.#waiting = waiting;
  }

  /** Begins with what is due. */
  serve(): void {
    if (this.#waiting.size === 0) return;
    const now = this.#clock.now();
    const isDue = (name: string): boolean => Math.abs(now - (this.#servedAt.get(name) ?? -Infinity)) >= EVERY_MS;
    const due = [...this.#waiting].filter(isDue);
    if (due.length === 0) return;
    const waiting = new Set([...this.#waiting].filter((name) => !due.includes(name)));
    this.#db.transaction(() => {
      resendTables(
        this.#db,
        due.map((name) => ({ name, wireName: name })),
        { ask: false, now, patient: true },
      );
      this.#keep(waiting);
    });
    this.#waiting = waiting;
    for (const name of due) this.#servedAt.set(name, now);
  }

  #keep(waiting: Set<string>): void {
    this.#db.run(
      "INSERT INTO main._meta (key, value) VALUES ('asked_for', ?) ON CONFLICT DO UPDATE SET value = excluded.value",
      JSON.stringify([...waiting]),
    );
  }
}

function together(before: string | null, tables: string[]): string {
  return JSON.stringify([...new Set([...(before === null ? [] : namesIn(before)), ...tables])]);
}
