/** Another build on the same file, which wants triggers of another text. What it does is done by hand: see OtherBuild. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { TRIGGER_FORM } from '../../src/capture/triggers.ts';
import { attach, type Manager } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import { captured, cleanUp, database, ITEMS, rowsOf, scratchFolder } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const TICK_MS = 40;

interface Program {
  db: TestDatabase;
  manager: Manager;
  clock: VirtualClock;
  warnings: { code: string; message: string }[];
}

async function programOn(path: string): Promise<Program> {
  const db = await database(ITEMS.replace('TABLE', 'TABLE IF NOT EXISTS'), path);
  const clock = new VirtualClock();
  const manager = attach(db, { id: 'node', peers: [], batchMs: 3_600_000, maxAheadMs: 0, clock }, ['items']);
  cleanUp(() => manager.stop());
  const warnings: Program['warnings'] = [];
  manager.on('warning', (warning) => warnings.push(warning));
  await clock.advance(TICK_MS);
  return { db, manager, clock, warnings };
}

interface Row {
  name: string;
  sql: string;
}

const triggersOn = (db: TestDatabase): Row[] =>
  rowsOf(
    db,
    "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND name LIKE '!_rowcast!_%' ESCAPE '!'",
  ) as never;

/**
 * It finds others in place of its own triggers, puts its own there and notes them, as every build does. Its own do what those
 * do that it has found, in another text. Of a `form`, it says so in its note; without, it is a build from before there were any.
 */
class OtherBuild {
  readonly db: TestDatabase;
  readonly #form: number | undefined;
  /** How often it has put its own there. */
  times = 0;

  constructor(db: TestDatabase, form?: number) {
    this.db = db;
    this.#form = form;
  }

  areThere(): boolean {
    return triggersOn(this.db).every(({ sql }) => sql.includes(' /* another */ '));
  }

  look(): void {
    if (this.areThere()) return;
    const own = triggersOn(this.db).map(({ name, sql }) => ({
      name,
      sql: sql.replace(' BEGIN ', ' BEGIN /* another */ '),
    }));
    own.sort((a, b) => (a.name < b.name ? -1 : 1));
    this.db.exec('BEGIN IMMEDIATE');
    const hash = createHash('sha256');
    for (const { name, sql } of own) {
      this.db.exec(`DROP TRIGGER "${name}"; ${sql}`);
      hash.update(`${name}\0${sql}\0`);
    }
    const set = `json_set(value, '$.texts', '${hash.digest('hex')}')`;
    const form =
      this.#form === undefined ? `json_remove(${set}, '$.form')` : `json_set(${set}, '$.form', ${this.#form})`;
    this.db.exec(`UPDATE _meta SET value = ${form} WHERE key = 'capture:items'; COMMIT`);
    this.times += 1;
  }
}

/** Both live side by side, tick by tick. */
async function pass(ms: number, { clock }: Program, other?: OtherBuild): Promise<void> {
  for (let passed = 0; passed < ms; passed += TICK_MS) {
    other?.look();
    await clock.advance(TICK_MS);
  }
}

const codes = ({ warnings }: Program): string[] => warnings.map(({ code }) => code);
const schemaOf = ({ db }: Program): number => Number(rowsOf(db, 'PRAGMA schema_version')[0]?.schema_version);

async function both(form?: number): Promise<{ own: Program; other: OtherBuild }> {
  const path = join(scratchFolder(), 'shared.db');
  const own = await programOn(path);
  return { own, other: new OtherBuild(await database('SELECT 1', path), form) };
}

const SAYS = /puts its own capture triggers in place of ours.*"items".*run one build on a file/i;

// A build that says the same form has another text all the same where it was built between two releases.
test.each([
  ['that knows of no forms', undefined],
  ['of the same form', TRIGGER_FORM],
])('a build %s: its triggers are replaced once a second, it is said once, and health says so', async (_of, form) => {
  const { own, other } = await both(form);
  await pass(2_000, own, other);
  const before = other.times;
  await pass(10_000, own, other);
  expect(other.times - before).toBeGreaterThan(8);
  expect(other.times - before).toBeLessThan(12);
  expect(codes(own)).toEqual(['two-builds']);
  expect(own.warnings[0]?.message).toMatch(SAYS);
  const { ok, problems } = own.manager.health();
  expect({ ok, problems }).toEqual({ ok: false, problems: [expect.stringMatching(SAYS)] });
});

test('every write is captured meanwhile, by whichever triggers are there', { tags: 'long' }, async () => {
  const { own, other } = await both();
  const ids = Array.from({ length: 100 }, (_, i) => `row-${String(i).padStart(3, '0')}`);
  for (const id of ids) {
    other.db.exec(`INSERT INTO items VALUES ('${id}', 'n', 1, 1, 1000)`);
    await pass(TICK_MS, own, other);
  }
  expect(captured(own.db).map(({ row_id }) => row_id)).toEqual(ids);
  expect(codes(own)).toEqual(['two-builds']);
});

test('when the other program is stopped, ours are back within a second, and all is well by itself', async () => {
  const { own, other } = await both();
  await pass(3_000, own, other);
  other.look();
  // Nobody touches the file any more: it is time that brings them back.
  await pass(1_040, own);
  expect(other.areThere()).toBe(false);
  expect(own.manager.health().ok).toBe(false);
  const schema = schemaOf(own);
  await pass(10_000, own);
  expect(own.manager.health().problems).toEqual([]);
  expect([schemaOf(own), codes(own)]).toEqual([schema, ['two-builds']]);
});

test('begun again, it is said again', { tags: 'long' }, async () => {
  const { own, other } = await both();
  await pass(3_000, own, other);
  await pass(15_000, own);
  await pass(3_000, own, other);
  expect(codes(own)).toEqual(['two-builds', 'two-builds']);
  expect(own.manager.health().ok).toBe(false);
});

test('an upgrade, where the old program ends while the new one begins, is nothing to tell', async () => {
  const { own, other } = await both();
  for (let i = 0; i < 2; i++) await pass(TICK_MS, own, other);
  await pass(1_000, own);
  expect(other.areThere()).toBe(false);
  expect([codes(own), own.manager.health().problems]).toEqual([[], []]);
});

test('a change of the schema is followed at once, also while another build is about', async () => {
  const { own, other } = await both();
  await pass(2_000, own, other);
  other.look();
  own.db.exec('ALTER TABLE items ADD COLUMN more TEXT');
  await own.clock.advance(TICK_MS);
  expect(other.areThere()).toBe(false);
  own.db.exec("INSERT INTO items VALUES ('a', 'n', 1, 1, 1000, 'told')");
  expect(captured(own.db).map(({ row }) => row.more)).toEqual(['told']);
});

test('triggers that a person has altered are a gap as ever, and are put back at once', async () => {
  const { own, other } = await both();
  await pass(2_000, own, other);
  own.db.exec('DROP TRIGGER _rowcast_items_delete');
  await own.clock.advance(TICK_MS);
  expect(codes(own)).toEqual(['two-builds', 'capture-gap']);
  expect(triggersOn(own.db).map(({ name }) => name)).toContain('_rowcast_items_delete');
});

test('the triggers of a newer form are left where its program is there, and nothing is wrong with them', async () => {
  const { own, other } = await both(TRIGGER_FORM + 1);
  other.look();
  const schema = schemaOf(own);
  expect(own.manager.health().problems).toEqual([]);
  await pass(5_000, own, other);
  own.db.exec('CREATE TABLE another (a)');
  await pass(5_000, own, other);
  expect([schemaOf(own), other.times, other.areThere()]).toEqual([schema + 1, 1, true]);
  expect([codes(own), own.manager.health().problems]).toEqual([[], []]);
  own.db.exec("INSERT INTO items VALUES ('a', 'n', 1, 1, 1000)");
  expect(captured(own.db)).toHaveLength(1);
  // Somebody has altered those: that is a gap, whoever has made them.
  own.db.exec('DROP TRIGGER _rowcast_items_delete');
  expect(own.manager.health().problems).toEqual([expect.stringMatching(/missing or changed/)]);
  await pass(TICK_MS, own);
  expect([other.areThere(), codes(own)]).toEqual([false, ['capture-gap']]);
});

test('an attach, and a change of the table, put the own ones there; whoever has a newer form answers, or is gone', async () => {
  const { own, other } = await both(TRIGGER_FORM + 1);
  await pass(1_000, own, other);
  own.db.exec('ALTER TABLE items ADD COLUMN more TEXT');
  await own.clock.advance(TICK_MS);
  expect(other.areThere()).toBe(false);
  await pass(1_000, own, other);
  expect([other.areThere(), other.times]).toEqual([true, 2]);
  await own.manager.stop();
  // The newer program is stopped for good: what it leaves is replaced with the next start of the older one.
  const again = await programOn(rowsOf(own.db, 'PRAGMA database_list')[0]?.file as string);
  expect(other.areThere()).toBe(false);
  await pass(1_000, again);
  expect([codes(own), codes(again), again.manager.health().problems]).toEqual([[], [], []]);
});

// There is none below the first one; a half stands for it.
test('of those of an older form that is known to give way, nothing is said: it puts them there once with each change', async () => {
  const { own, other } = await both(TRIGGER_FORM - 0.5);
  for (let i = 0; i < 5; i++) {
    own.db.exec(`ALTER TABLE items ADD COLUMN c${i} TEXT`);
    await own.clock.advance(TICK_MS);
    await pass(TICK_MS, own, other);
    expect(other.areThere()).toBe(false);
  }
  expect([other.times, codes(own)]).toEqual([5, []]);
});

test('two of one build are nothing to tell, whichever of them is the first to see a change of the schema', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const [one, two] = [await programOn(path), await programOn(path)];
  for (let i = 0; i < 5; i++) {
    one.db.exec(`ALTER TABLE items ADD COLUMN c${i} TEXT`);
    two.db.exec(`CREATE UNIQUE INDEX u${i} ON items (c${i})`);
    await pass(200, one);
    await pass(200, two);
  }
  expect([...codes(one), ...codes(two)]).toEqual([]);
});
