/**
 * Comparisons at the end of a schedule, when the trouble is over. A row is lost, or put back to what it was, unseen by
 * everybody; then two machines are compared with while the application writes. What was unseen must be found and put
 * right by the version order, and what is merely on its way must not be found.
 */
import type { VerifyResult } from '../../src/index.ts';
import type { WireRow } from '../support/model.ts';
import type { Machine } from './machine.ts';
import { NEW_COLUMN, spelt, tableNamed, tableOn, unsaidIn } from './migration.ts';
import { canonical } from './oracle.ts';
import { type Random, stream } from './random.ts';
import { rowsOn } from './rows.ts';

export interface Verifying {
  seed: number;
  machines: Machine[];
  now(): number;
  /** Lets the enemy at what passes by, or not; false where there is none. */
  watched(on: boolean): boolean;
  /** Lets time pass until it says so. */
  until(done: () => boolean): Promise<boolean>;
  trace(line: string): void;
  fail(what: string): void;
}

/** At least so often while a comparison goes on, which takes seconds. */
const WRITTEN_MS = 400;

export async function verifyInTheEnd(world: Verifying): Promise<void> {
  const random = stream(world.seed, 'verify');
  const nodes = world.machines.filter(({ kind, counts }) => kind === 'node' && counts);
  // A deletion may cascade there, unseen as well.
  if (nodes.some(({ disk }) => disk.kind === 'node-foreign-keys')) return;
  const node = random.pick(nodes);
  const peer = node.configured[0];
  if (!node.process || peer === undefined || node.second) return;
  const unsaid = unsaidOn(
    world.machines.find(({ url }) => url === peer),
    node,
  );
  const lost = unseenLoss(node, random);
  world.trace(`${node.name} has lost ${lost?.id ?? 'nothing'} unseen, and compares with ${peer}`);
  if (world.watched(true)) {
    // It may come to nothing, and to no harm.
    let tried = false;
    const end = (): void => {
      tried = true;
    };
    void node.process.verify(peer).then(end, end);
    await world.until(() => tried);
    world.watched(false);
  }
  let over = false;
  let found: VerifyResult[] | undefined;
  void node.process.verify(peer).then(
    (results) => {
      found = results;
      over = true;
    },
    () => {
      over = true;
    },
  );
  // While it goes on, others are written to: rows that are on their way all the time.
  let next = world.now();
  const written = await world.until(() => {
    if (world.now() >= next && random.chance(0.4)) {
      writeTo(random.pick(nodes), random);
      next = world.now() + random.below(WRITTEN_MS);
    }
    return over;
  });
  const [result] = found ?? [];
  if (!written || !result || result.error !== undefined) {
    world.fail(`${node.name} cannot be compared with ${peer}: ${result?.error ?? 'no end of it'}`);
    return;
  }
  const listed = result.tables.flatMap(({ table, list }) => list.map(({ id }) => `${tableNamed(table)}/${id}`));
  const wrong = listed.filter((one) => one !== lost?.key && !unsaid.has(one));
  if (wrong.length > 0) world.fail(`${node.name}: ${wrong[0]} is said to differ from ${peer}, and was only on its way`);
  if (!lost) return;
  if (versionOf(node, lost.table, lost.id) < lost.version)
    world.fail(`${node.name}: ${lost.key} was lost unseen, and a comparison with ${peer} has not brought it back`);
  const has = rowsOn(node.disk).get(lost.key);
  if (lost.row && canonical(has ?? {}) !== canonical(lost.row))
    world.fail(`${node.name}: ${lost.key} was lost unseen, and is back as ${has && canonical(has)}`);
}

/** A hub has no schema: where nobody has told it of a new column it has nothing there, and a node has a default. */
function unsaidOn(peer: Machine | undefined, { disk }: Machine): Set<string> {
  if (peer?.kind !== 'hub' || !disk.migrated || unsaidIn(disk.migration) === null) return new Set();
  const sql =
    `SELECT row_id AS id FROM _hub_rows WHERE table_name = 'items' AND op <> 'DELETE' ` +
    `AND json_type(row_data, '$.${NEW_COLUMN}') IS NULL`;
  return new Set(peer.disk.all(sql).map(({ id }) => `items/${id}`));
}

/** Two rows that are never at rest. */
function writeTo(machine: Machine, random: Random): void {
  const { disk, process } = machine;
  if (!process || process.dead || disk.inTransaction) return;
  disk.setClock(machine.now());
  const id = random.pick(['hot', 'warm']);
  const sql =
    'INSERT INTO items (id, value, updated_at) VALUES (?, ?, NULL) ON CONFLICT DO UPDATE SET value = value + 1';
  process.handle.prepare(spelt(disk, sql)).run(id, random.below(100));
  if (random.chance(0.1)) process.handle.prepare(spelt(disk, 'DELETE FROM items WHERE id = ?')).run(id);
}

interface Loss {
  key: string;
  table: string;
  id: string;
  version: number;
  /** As it was, and must be again. */
  row: WireRow | undefined;
}

/** Puts a row back to an earlier version, or takes it away, as if nobody had ever told this node of it. */
function unseenLoss(node: Machine, random: Random): Loss | undefined {
  const { disk } = node;
  if (disk.inTransaction) return undefined;
  const table = tableOn(disk, 'items');
  const rows = disk.all(
    `SELECT id, updated_at AS version FROM ${table} WHERE typeof(updated_at) = 'integer' ORDER BY id`,
  );
  const row = rows[random.below(Math.max(1, rows.length))];
  if (!row) return undefined;
  const [id, version] = [String(row.id), Number(row.version)];
  const before = rowsOn(disk).get(`items/${id}`);
  disk.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
  if (random.chance(0.5)) disk.prepare(`DELETE FROM ${table} WHERE id = ?`).run(id);
  else disk.prepare(`UPDATE ${table} SET updated_at = updated_at - 1 WHERE id = ?`).run(id);
  disk.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
  return { key: `items/${id}`, table, id, version, row: before };
}

function versionOf({ disk }: Machine, table: string, id: string): number {
  const rows = disk.all(
    `SELECT updated_at AS v FROM ${table} WHERE id = ? UNION ALL SELECT version FROM _tombstones WHERE table_name = ? AND row_id = ?`,
    id,
    table,
    id,
  );
  return Math.max(Number.NEGATIVE_INFINITY, ...rows.map(({ v }) => Number(v)));
}
