/**
 * One case, three databases: one with Rowcast, a shadow without it, and a peer that has only what was shipped. Every statement
 * must do on the first what it does on the second, but for `updated_at`, which Rowcast advances; and in the end the third
 * must hold what the first does. A failing case is made small by leaving out features and statements.
 */

import { attach, type Fetch, type Manager } from '../../src/index.ts';
import { PEER, standstill, state } from '../support/elsewhere.ts';
import { openDatabase, type TestDatabase } from '../support/lane.ts';
import { rowsOf } from '../support/nodes.ts';
import { type Case, type Feature, SHIP, schemaOf } from './sql-cases.ts';

const TABLES = ['t', 'child'];

export interface Shrunk {
  case: Case;
  violation: string;
  tries: number;
}

/** Runs a case; resolves to what does not hold, or to undefined. */
export async function violationOf(one: Case): Promise<string | undefined> {
  const [attached, shadow, other] = await Promise.all([openDatabase(), openDatabase(), openDatabase()]);
  const managers: Manager[] = [];
  try {
    for (const db of [attached, shadow]) {
      db.exec(`PRAGMA foreign_keys = ON; PRAGMA recursive_triggers = ${has(one, 'recursive-triggers') ? 'ON' : 'OFF'}`);
      db.exec(schemaOf(one, true));
    }
    other.exec(schemaOf(one, false));
    const peer = attach(other, { maxAheadMs: 0, id: 'peer', peers: [], clock: standstill }, TABLES);
    managers.push(peer);
    const config = { id: 'one', peers: [PEER], clock: standstill, batchMs: 3_600_000, random: () => 1 };
    const manager = attach(attached, { maxAheadMs: 0, ...config, fetch: into(peer) }, TABLES);
    managers.push(manager);
    return await compare(one, { attached, shadow, other, manager, peer });
  } finally {
    for (const manager of managers) await manager.stop();
    for (const db of [attached, shadow, other]) db.close();
  }
}

interface World {
  attached: TestDatabase;
  shadow: TestDatabase;
  other: TestDatabase;
  manager: Manager;
  peer: Manager;
}

async function compare(one: Case, world: World): Promise<string | undefined> {
  const { attached, shadow } = world;
  for (const [i, statement] of one.statements.entries()) {
    if (statement === SHIP) {
      const told = isOpen(attached) ? undefined : await shipUnseen(world);
      if (told) return `statement ${i + 1}, ${statement}: ${told}`;
      continue;
    }
    const [here, there] = [attached, shadow].map((db) => run(db, statement, !has(one, 'without-rowid'))) as [Ran, Ran];
    const where = `statement ${i + 1}, ${statement}`;
    if (here.error !== there.error) return `${where}: ${here.error ?? 'ok'}, without Rowcast ${there.error ?? 'ok'}`;
    if (here.counts !== there.counts) {
      return `${where}: changes() and last_insert_rowid() are ${here.counts}, without Rowcast ${there.counts}`;
    }
    const difference = differenceOf(users(attached, one), users(shadow, one));
    if (difference) return `${where}: ${difference}`;
  }
  if (isOpen(attached)) for (const db of [attached, shadow]) db.exec('COMMIT');
  return (await atTheEnd(one, world)) ?? undefined;
}

async function atTheEnd(one: Case, world: World): Promise<string | undefined> {
  const { attached, other, peer } = world;
  const check = JSON.stringify(rowsOf(attached, 'PRAGMA integrity_check'));
  if (!check.includes('"ok"')) return `integrity_check: ${check}`;
  if (has(one, 'fts') && !has(one, 'without-rowid')) {
    const { error } = run(attached, "INSERT INTO t_fts(t_fts, rank) VALUES ('integrity-check', 1)");
    const without = run(world.shadow, "INSERT INTO t_fts(t_fts, rank) VALUES ('integrity-check', 1)");
    if (error !== without.error)
      return `the full-text index: ${error ?? 'ok'}, without Rowcast ${without.error ?? 'ok'}`;
  }
  const failed = await ship(world);
  if (failed) return failed;
  for (const letter of peer.deadLetters.list()) peer.deadLetters.retry(letter.id);
  const [letter] = peer.deadLetters.list();
  if (letter)
    return `the peer has a dead letter: ${letter.code} ${letter.op} ${letter.table} ${letter.row}, ${letter.reason}`;
  const difference = differenceOf(state(attached, TABLES).flat(), state(other, TABLES).flat());
  return difference && `the peer differs: ${difference}`;
}

/**
 * Before it ships, Rowcast writes the versions that it has given into their rows, and an audit trigger without a guard sees
 * these UPDATEs (docs/your-database.md). It may see them of rows whose time has changed by it, as they stand, and nothing else.
 */
async function shipUnseen(world: World): Promise<string | undefined> {
  const { attached } = world;
  const rows = (): Map<unknown, unknown> =>
    new Map(
      rowsOf(attached, "SELECT 'UPDATE ' || id || ' ' || coalesce(a, '') AS what, updated_at FROM t").map((row) => [
        row.what,
        row.updated_at,
      ]),
    );
  const last = Number(rowsOf(attached, 'SELECT coalesce(max(n), 0) AS n FROM audit')[0]?.n);
  const before = rows();
  await ship(world);
  const after = rows();
  const seen = rowsOf(attached, `SELECT what FROM audit WHERE n > ${last}`).map(({ what }) => what);
  const strange = seen.find((what) => !before.has(what) || before.get(what) === after.get(what));
  if (strange !== undefined) return `shipping has audit ${JSON.stringify(strange)}`;
  attached.exec(`DELETE FROM audit WHERE n > ${last}`);
  return undefined;
}

/** Columns that were added here are added there first, as in a rolling migration done right. */
async function ship({ attached, other, manager }: World): Promise<string | undefined> {
  const added = rowsOf(attached, "SELECT name, dflt_value FROM pragma_table_info('t') WHERE name GLOB 'n[0-9]*'");
  const known = rowsOf(other, "SELECT name FROM pragma_table_info('t')").map(({ name }) => name);
  for (const { name, dflt_value } of added) {
    if (!known.includes(name)) other.exec(`ALTER TABLE t ADD COLUMN ${name} TEXT DEFAULT ${dflt_value ?? 'NULL'}`);
  }
  const { unreachable } = await manager.flush();
  return unreachable.length > 0 ? 'the changes cannot be shipped' : undefined;
}

function into(peer: Manager): Fetch {
  return async (_url, { body }) => {
    const answer = peer.receive(body, { from: 'one' });
    return { status: answer.status, text: async () => JSON.stringify(answer.body) };
  };
}

interface Ran {
  error?: string;
  counts: string;
}

function run(db: TestDatabase, statement: string, hasRowid = true): Ran {
  try {
    db.exec(statement);
  } catch (error) {
    return { error: (error as Error).message, counts: '' };
  }
  if (!/^(INSERT|REPLACE|UPDATE|DELETE)/.test(statement)) return { counts: '' };
  const [row] = rowsOf(db, 'SELECT changes() AS changes, last_insert_rowid() AS rowid') as {
    changes: number;
    rowid: number;
  }[];
  // Only who has just inserted asks for the rowid.
  const isInsert =
    hasRowid && /^(INSERT|REPLACE)/.test(statement) && !statement.includes('DO UPDATE') && row?.changes !== 0;
  return { counts: isInsert ? `${row?.changes} and ${row?.rowid}` : String(row?.changes) };
}

/** Everything that the application would see, but for the times. */
function users(db: TestDatabase, one: Case): string[] {
  const rowid = has(one, 'without-rowid') ? '' : 'rowid, ';
  const lines = (what: string, sql: string): string[] =>
    rowsOf(db, sql).map(({ updated_at, ...row }) => `${what} ${JSON.stringify(row)}`);
  return [
    ...lines('t', `SELECT ${rowid}* FROM t ORDER BY id`),
    ...lines('child', 'SELECT rowid, * FROM child ORDER BY id'),
    ...lines('audit', 'SELECT * FROM audit ORDER BY n'),
  ];
}

function differenceOf(here: string[], there: string[]): string | undefined {
  const extra = here.filter((line) => !there.includes(line));
  const gone = there.filter((line) => !here.includes(line));
  if (extra.length + gone.length === 0) return undefined;
  return `${extra.length > 0 ? `has ${extra.slice(0, 2).join(', ')}` : ''} ${gone.length > 0 ? `lacks ${gone.slice(0, 2).join(', ')}` : ''}`;
}

/** Asked of SQLite itself: the bindings have different names for it. */
function isOpen(db: TestDatabase): boolean {
  try {
    db.exec('BEGIN');
  } catch {
    return true;
  }
  db.exec('ROLLBACK');
  return false;
}

function has({ features }: Case, feature: Feature): boolean {
  return features.includes(feature);
}

/** What is wrong, without the statement and without the values. */
export function complaintOf(violation: string): string {
  const complaint = violation.replace(/^statement \d+, .*?: (?=changes|has|lacks|ok|[A-Za-z ]+,)/, '');
  return complaint
    .replace(/\{.*?\}|'[^']*'|\d+/g, '')
    .replace(/ +/g, ' ')
    .slice(0, 30);
}

/** Leaves out pieces of the statements, then features, for as long as something still does not hold. */
export async function shrink(failing: Case, violation: string): Promise<Shrunk> {
  let best: Shrunk = { case: failing, violation, tries: 0 };
  const attempt = async (smaller: Case): Promise<boolean> => {
    best.tries += 1;
    const found = await violationOf(smaller);
    // The same complaint: on its way to something smaller, a rare failure must not become a frequent one.
    const isSame = found !== undefined && complaintOf(found) === complaintOf(violation);
    if (isSame) best = { case: smaller, violation: found, tries: best.tries };
    return isSame;
  };
  for (let piece = Math.ceil(failing.statements.length / 2); piece >= 1; piece = Math.floor(piece / 2)) {
    for (let at = 0; at < best.case.statements.length; ) {
      const statements = best.case.statements.toSpliced(at, piece);
      if (!(await attempt({ ...best.case, statements }))) at += piece;
    }
  }
  for (const feature of failing.features) {
    await attempt({ ...best.case, features: best.case.features.filter((other) => other !== feature) });
  }
  return best;
}
