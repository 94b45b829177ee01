/**
 * No deleted row comes back, whatever the network, the peers and the moment of collecting do: random histories of one
 * node, with writes and deletions of its own and received ones, old and new, in any order and on both ways of applying,
 * tombstones collected at any moment, tables rebuilt, taken off the list and put back.
 *
 * The truth is kept beside it: the greatest version of every deletion that the node has ever seen. And nothing is
 * dropped: a received write stands, or is older than what stands, or its tombstone is there, or it is a dead letter.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { attach, type Manager } from '../../src/index.ts';
import { collect } from '../support/collect.ts';
import { draws } from '../support/draws.ts';
import type { TestDatabase } from '../support/lane.ts';
import { database, rowsOf, writeStamps } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const SCHEMAS = {
  plain: 'CREATE TABLE items (id TEXT PRIMARY KEY, code TEXT, updated_at INTEGER)',
  unique: 'CREATE TABLE items (id TEXT PRIMARY KEY, code TEXT UNIQUE, updated_at INTEGER)',
};

const id = fc.constantFrom('a', 'b', 'c', 'd');
const code = fc.constantFrom(null, 'x', 'y');
const time = fc.integer({ min: 0, max: 30 });
const received = fc.record({
  op: fc.constantFrom('INSERT', 'UPDATE', 'UPDATE', 'DELETE'),
  id,
  code,
  time,
  table: fc.constantFrom('items', 'items', 'items', 'ITEMS'),
});

const action = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('receive' as const),
      changes: fc.array(received, { minLength: 1, maxLength: 4 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom('insert' as const, 'replace' as const, 'update' as const),
      id,
      code,
      time,
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('delete' as const), id }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('rename' as const), id, to: id, time }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('collect' as const),
      slice: fc.constantFrom(1, 3, 1_000),
      steps: fc.constantFrom(2, 4, 8, 100, 100, 100),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constantFrom('rebuild' as const, 'off' as const, 'on' as const, 'retry' as const),
    }),
  },
);

class Subject {
  readonly #db: TestDatabase;
  #manager: Manager;
  /** The greatest version of every deletion that the node has seen, by id. */
  readonly #deleted = new Map<string, number>();
  #isOff = false;

  constructor(db: TestDatabase) {
    this.#db = db;
    db.exec('CREATE TABLE other (id TEXT PRIMARY KEY, updated_at INTEGER)');
    this.#manager = this.#attach(['items', 'other']);
  }

  async do(one: typeof action extends fc.Arbitrary<infer A> ? A : never): Promise<void> {
    switch (one.kind) {
      case 'receive':
        return this.#receive(one.changes);
      case 'collect':
        return collect(this.#db, { tables: this.#tables, slice: one.slice }, one.steps);
      case 'rebuild':
        return this.#rebuild();
      case 'off':
      case 'on':
        return this.#list(one.kind === 'off');
      case 'retry':
        for (const letter of this.#manager.deadLetters.list()) this.#manager.deadLetters.retry(letter.id);
        return;
      default:
        // What is written while nobody looks is another matter: see capture/gap.test.ts.
        if (!this.#isOff) this.#write(one);
    }
  }

  async end(): Promise<void> {
    await this.#list(false);
    await this.#manager.stop();
  }

  check(): void {
    for (const { id: row, version } of this.#live()) {
      expect(version, `${row} was deleted at ${this.#deleted.get(row)}`).toBeGreaterThan(
        this.#deleted.get(row) ?? Number.NEGATIVE_INFINITY,
      );
    }
  }

  #receive(changes: { op: string; id: string; code: string | null; time: number; table: string }[]): void {
    const wire = changes.map(({ op, id: row, code: value, time: at, table }) => ({
      op,
      table,
      row: { id: row, code: value, updated_at: T + at },
      old_id: op === 'DELETE' ? row : null,
    }));
    const answer = this.#manager.receive(JSON.stringify({ batch_id: 1, changes: wire }), { said: 'id=sender' });
    expect(answer.status).toBe(200);
    if (this.#isOff) return;
    for (const { op, id: row, time: at } of changes) if (op === 'DELETE') this.#note(row, T + at);
    for (const { op, id: row, time: at } of changes) if (op !== 'DELETE') this.#mustBeSomewhere(row, T + at);
  }

  #mustBeSomewhere(row: string, version: number): void {
    const isLive = this.#live().some((one) => one.id === row && one.version >= version);
    const tombstone = rowsOf(this.#db, 'SELECT 1 FROM _tombstones WHERE row_id = ? AND version >= ?', row, version);
    const letter = rowsOf(
      this.#db,
      "SELECT 1 FROM _dead_letter WHERE row_id = ? AND row_data ->> '$.updated_at' = ?",
      row,
      version,
    );
    expect(isLive || tombstone.length + letter.length > 0, `${row} at ${version - T} is nowhere`).toBe(true);
  }

  #write(one: { kind: string; id: string; code?: string | null; time?: number; to?: string }): void {
    const { kind, id: row, to = '' } = one;
    const before = this.#live();
    const version = (which: string): number | undefined => before.find(({ id: other }) => other === which)?.version;
    const value = one.code == null ? 'NULL' : `'${one.code}'`;
    const at = T + (one.time ?? 0);
    const sql: Record<string, string> = {
      insert: `INSERT INTO items VALUES ('${row}', ${value}, ${at})`,
      replace: `INSERT OR REPLACE INTO items VALUES ('${row}', ${value}, ${at})`,
      update: `UPDATE items SET code = ${value}, updated_at = ${at} WHERE id = '${row}'`,
      delete: `DELETE FROM items WHERE id = '${row}'`,
      rename: `UPDATE items SET id = '${to}', updated_at = ${at} WHERE id = '${row}'`,
    };
    try {
      this.#db.exec(sql[kind] as string);
    } catch (error) {
      // An id or a code that is taken here.
      expect(String(error)).toMatch(/UNIQUE/);
      return;
    }
    writeStamps(this.#manager);
    const after = new Set(this.#live().map(({ id: other }) => other));
    for (const { id: other } of before) if (!after.has(other)) this.#note(other, version(other) as number);
  }

  #rebuild(): void {
    if (this.#isOff) return;
    const declared = rowsOf(this.#db, "SELECT sql FROM sqlite_schema WHERE name = 'items'")[0]?.sql as string;
    this.#db.exec(declared.replace(/items/, 'fresh'));
    this.#db.exec('INSERT INTO fresh SELECT * FROM items; DROP TABLE items; ALTER TABLE fresh RENAME TO items');
    writeStamps(this.#manager);
  }

  async #list(isOff: boolean): Promise<void> {
    if (isOff === this.#isOff) return;
    await this.#manager.stop();
    this.#isOff = isOff;
    const waiting = rowsOf(this.#db, "SELECT row_id, row_data FROM _dead_letter WHERE op = 'DELETE'");
    this.#manager = this.#attach(this.#tables);
    await this.#manager.flush();
    // Deletions that came meanwhile are applied now.
    if (!isOff) {
      for (const { row_id, row_data } of waiting) {
        this.#note(row_id as string, JSON.parse(row_data as string).updated_at);
      }
    }
  }

  get #tables(): string[] {
    return this.#isOff ? ['other'] : ['items', 'other'];
  }

  #attach(tables: string[]): Manager {
    return attach(this.#db, { maxAheadMs: 0, id: 'node', peers: [] }, tables);
  }

  #note(row: string, version: number): void {
    this.#deleted.set(row, Math.max(version, this.#deleted.get(row) ?? version));
  }

  #live(): { id: string; version: number }[] {
    return rowsOf(
      this.#db,
      "SELECT id, updated_at AS version FROM items UNION ALL SELECT row_id, version FROM _hidden WHERE table_name = 'items'",
    ) as { id: string; version: number }[];
  }
}

test.each(Object.entries(SCHEMAS))('a deleted row never comes back (%s)', async (_, schema) => {
  await fc.assert(
    fc.asyncProperty(fc.array(action, { minLength: 3, maxLength: 25 }), async (actions) => {
      const subject = new Subject(await database(schema));
      try {
        for (const one of actions) {
          await subject.do(one);
          subject.check();
        }
      } finally {
        await subject.end();
        subject.check();
      }
    }),
    { numRuns: Number(process.env.ROWCAST_RUNS ?? draws(100)) },
  );
});
