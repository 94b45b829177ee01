/**
 * Three nodes that are migrated one after the other, in every order, in a mesh and around a hub. All of them write all the
 * time, to their own rows and to common ones, at one moment and at several. At every stage all of them hold the same, and
 * nothing is a dead letter.
 */
import { describe, expect, test } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import { createHub } from '../../src/hub/index.ts';
import { attach, type Manager, type MigrateOptions, type Statement } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import { Random } from '../support/model.ts';
import { cleanUp, database, rowsOf, serve } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const SCHEMA = 'CREATE TABLE items (id TEXT PRIMARY KEY, a TEXT, name TEXT, value INTEGER, updated_at INTEGER)';

interface Kind {
  sql: string;
  options: MigrateOptions;
  /** The table, and what its columns are called after the migration. */
  table: string;
  columns: Record<string, string>;
  /** A column that is new: what is said of it waits in letters where it is not there yet. */
  added?: string;
}

const KINDS: Record<string, Kind> = {
  'a column is renamed': {
    sql: 'ALTER TABLE items RENAME COLUMN name TO title',
    options: { rename: { items: { name: 'title' } } },
    table: 'items',
    columns: { a: 'a', name: 'title', value: 'value' },
  },
  'two columns and the table are renamed': {
    sql: 'ALTER TABLE items RENAME COLUMN a TO zz; ALTER TABLE items RENAME COLUMN name TO b; ALTER TABLE items RENAME TO things',
    options: { rename: { items: { a: 'zz', name: 'b' } }, renameTable: { items: 'things' } },
    table: 'things',
    columns: { a: 'zz', name: 'b', value: 'value' },
  },
  'a column is renamed by rebuilding the table': {
    sql:
      'CREATE TABLE new (id TEXT PRIMARY KEY, title TEXT, a TEXT, value INTEGER, updated_at INTEGER); ' +
      'INSERT INTO new SELECT id, name, a, value, updated_at FROM items; DROP TABLE items; ALTER TABLE new RENAME TO items',
    options: { rename: { items: { name: 'title' } } },
    table: 'items',
    columns: { a: 'a', name: 'title', value: 'value' },
  },
  'a column is dropped': {
    sql: 'ALTER TABLE items DROP COLUMN value',
    options: {},
    table: 'items',
    columns: { a: 'a', name: 'name' },
  },
  'a column is added and filled in': {
    sql: "ALTER TABLE items ADD COLUMN slug TEXT; UPDATE items SET slug = 'slug of ' || name",
    options: {},
    table: 'items',
    columns: { a: 'a', name: 'name', value: 'value' },
    added: 'slug',
  },
  'rows are rewritten': {
    sql: "UPDATE items SET name = upper(name) WHERE id LIKE 'common%'",
    options: {},
    table: 'items',
    columns: { a: 'a', name: 'name', value: 'value' },
  },
};

class Node {
  readonly id: string;
  readonly db: TestDatabase;
  readonly manager: Manager;
  readonly kind: Kind;
  migrated = false;
  readonly #statements = new Map<string, Statement>();

  constructor(id: string, db: TestDatabase, manager: Manager, kind: Kind) {
    this.id = id;
    this.db = db;
    this.manager = manager;
    this.kind = kind;
  }

  get table(): string {
    return this.migrated ? this.kind.table : 'items';
  }

  /** What a column of the old schema is called here; undefined where it is gone. */
  column(name: string): string | undefined {
    return this.migrated ? this.kind.columns[name] : name;
  }

  migrate(): void {
    this.manager.migrate(this.kind.sql, this.kind.options);
    this.migrated = true;
  }

  write(id: string, values: Record<string, string | number>, at: number): void {
    const there = Object.entries(values).flatMap(([name, value]) => {
      const column = this.column(name);
      return column === undefined ? [] : [[column, value] as const];
    });
    const names = there.map(([name]) => name);
    const bound = there.map(([, value]) => value);
    const set = names.map((name) => `${name} = excluded.${name}`).join(', ');
    const sql =
      `INSERT INTO ${this.table} (id, ${names.join(', ')}, updated_at) VALUES (?${', ?'.repeat(names.length + 1)}) ` +
      `ON CONFLICT (id) DO UPDATE SET ${set}, updated_at = excluded.updated_at`;
    // With all the triggers below it, it takes SQLite longer to compile than to run.
    const statement = this.#statements.get(sql) ?? this.db.prepare(sql);
    this.#statements.set(sql, statement);
    statement.run(id, ...bound, at);
  }

  remove(id: string): void {
    this.db.exec(`DELETE FROM ${this.table} WHERE id = '${id}'`);
  }

  /** The rows in the words of the old schema; a column that some node has dropped is not compared. */
  rows(more: string[]): unknown[] {
    const columns = [...Object.keys(this.kind.columns).map((name) => `${this.column(name)} AS ${name}`), ...more];
    return rowsOf(this.db, `SELECT id, ${columns.join(', ')}, updated_at FROM ${this.table} ORDER BY id`);
  }
}

type Shape = 'mesh' | 'star';

async function cluster(shape: Shape, kind: Kind): Promise<{ nodes: Node[]; converge(): Promise<void> }> {
  const ids = ['one', 'two', 'three'];
  const managers = new Map<string, Manager>();
  const urls = new Map<string, string>();
  for (const id of ids) {
    const url = await serve((request, response) => createListener(managers.get(id) as Manager)(request, response));
    urls.set(id, url);
  }
  const relay =
    shape === 'star'
      ? await createHub(await database('SELECT 1'), {
          maxAheadMs: 0,
          id: 'hub',
          edges: [...urls.values()],
          batchMs: 3_600_000,
        })
      : undefined;
  if (relay) cleanUp(() => relay.stop());
  const hub = relay && (await serve(createListener(relay)));
  const nodes: Node[] = [];
  for (const id of ids) {
    const others = ids.filter((other) => other !== id).map((other) => urls.get(other) as string);
    const db = await database(SCHEMA);
    const manager = attach(db, { maxAheadMs: 0, id, peers: hub === undefined ? others : [hub], batchMs: 3_600_000 }, [
      'items',
    ]);
    cleanUp(() => manager.stop());
    managers.set(id, manager);
    nodes.push(new Node(id, db, manager, kind));
  }
  const converge = async (): Promise<void> => {
    // What is merged from two is told on: a few rounds, and then nothing is left to say.
    for (let round = 0; round < 4; round++) {
      for (const { manager } of nodes) await manager.flush();
      await relay?.flush();
    }
  };
  return { nodes, converge };
}

/** Some writes everywhere, several of them at one and the same moment. */
function writeAll(nodes: Node[], stage: number, random: Random, ties: boolean): void {
  const word = (): string => `${'abcxyz'[random.below(6)]}${random.below(100)}`;
  for (const [i, node] of nodes.entries()) {
    const at = T + stage * 1_000 + (ties ? 0 : 100 * i);
    node.write(`${node.id}-${stage}`, { a: word(), name: word(), value: i }, at + random.below(3));
    // Where there are ties, all of them at one time: the content decides.
    node.write('common-tie', { a: word(), name: word(), value: random.below(3) }, at);
    node.write(`common-${random.below(3)}`, { name: word(), value: random.below(9) }, at + random.below(4));
    if (random.below(3) === 0) node.remove(`common-${random.below(3)}`);
  }
}

const ORDERS = [
  [0, 1, 2],
  [0, 2, 1],
  [1, 0, 2],
  [1, 2, 0],
  [2, 0, 1],
  [2, 1, 0],
];

const shapes: Shape[] = ['mesh', 'star'];
const cases = shapes.flatMap((shape) => Object.keys(KINDS).map((kind) => [shape, kind] as const));

describe.each(cases)('%s: %s', (shape, kind) => {
  test.each(ORDERS.map((order) => [order.join(), order] as const))('in the order %s', async (_, order) => {
    const random = new Random(Number(order.join('')));
    const { nodes, converge } = await cluster(shape, KINDS[kind] as Kind);
    const check = async (stage: string): Promise<void> => {
      await converge();
      const [first, ...others] = nodes;
      const { added } = KINDS[kind] as Kind;
      const everywhere = nodes.every(({ migrated }) => migrated);
      const more = added !== undefined && everywhere ? [added] : [];
      for (const other of others) expect(other.rows(more), `${stage}: ${other.id}`).toEqual(first?.rows(more));
      const letters = nodes.flatMap(({ id, manager }) => manager.deadLetters.list().map((one) => ({ ...one, id })));
      if (added === undefined || everywhere) expect(letters, stage).toEqual([]);
    };
    let stage = 0;
    const step = async (what: string, action: () => void, ties = true): Promise<void> => {
      // Writes that wait while it happens, and writes that follow.
      writeAll(nodes, ++stage, random, ties);
      action();
      writeAll(nodes, ++stage, random, ties);
      await check(what);
    };
    await step('before', () => {});
    for (const i of order) await step(`node ${i} is migrated`, () => nodes[i as number]?.migrate());
    // The content is ordered by the names that travel: while these differ, two writes at one moment are not decided alike.
    for (const i of order.toReversed()) {
      await step(`node ${i} sends new names`, () => nodes[i as number]?.manager.aliases.drop(), false);
    }
    await step('all send new names', () => {});
  });
});
