/** The choice of visible rows by itself: any history, in any order, ends where the rule says. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { installInternalTables } from '../../src/capture/internal-tables.ts';
import { systemClock } from '../../src/clock.ts';
import { DeadLetters } from '../../src/letters/dead-letters.ts';
import { TimeLimit } from '../../src/letters/time-limit.ts';
import { UniqueRows } from '../../src/receive/unique.ts';
import { Connection, isRowFault } from '../../src/sqlite/connection.ts';
import { describeTable, type Table } from '../../src/sqlite/schema.ts';
import { draws } from '../support/draws.ts';
import { openDatabase } from '../support/lane.ts';
import { visibleOf } from '../support/unique-kernel.ts';

interface Change {
  id: string;
  updatedAt: number;
  /** Undefined for a deletion. */
  row?: { a: string | null; b: string | null; x: number; y: number };
}

const SCHEMA = `CREATE TABLE u (id TEXT PRIMARY KEY, a TEXT UNIQUE, b TEXT COLLATE NOCASE, x INTEGER, y INTEGER,
  sum INTEGER GENERATED ALWAYS AS (x * 10 + y) VIRTUAL, updated_at INTEGER);
  CREATE UNIQUE INDEX u_b ON u (b) WHERE x > 0; CREATE UNIQUE INDEX u_sum ON u (sum);
  CREATE UNIQUE INDEX u_e ON u (lower(a) || '-' || y)`;

type Live = Required<Change>;
const clash = (p: Live, q: Live): boolean =>
  (p.row.a !== null && p.row.a === q.row.a) ||
  (p.row.b !== null &&
    q.row.b !== null &&
    p.row.x > 0 &&
    q.row.x > 0 &&
    p.row.b.toLowerCase() === q.row.b.toLowerCase()) ||
  p.row.x * 10 + p.row.y === q.row.x * 10 + q.row.y ||
  (p.row.a !== null && q.row.a !== null && p.row.a.toLowerCase() === q.row.a.toLowerCase() && p.row.y === q.row.y);

const change: fc.Arbitrary<Change> = fc.record({
  id: fc.constantFrom('r1', 'r2', 'r3', 'r4', 'r5'),
  updatedAt: fc.integer({ min: 1, max: 6 }),
  row: fc.option(
    fc.record({
      a: fc.constantFrom('p', 'P', 'q', 's', null),
      b: fc.constantFrom('k', 'K', 'l', null),
      x: fc.integer({ min: 0, max: 3 }),
      y: fc.integer({ min: 0, max: 3 }),
    }),
    { nil: undefined, freq: 5 },
  ),
}) as fc.Arbitrary<Change>;

test('any history, in any order and with repetitions, ends with the rows that the rule names', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(change, { maxLength: 14 }), fc.infiniteStream(fc.nat()), async (raw, chance) => {
      // One version of a row has one content: that is for the version order to settle, not for this.
      const changes = [
        ...new Map(raw.map((one) => [`${one.id} ${one.updatedAt} ${one.row === undefined}`, one])).values(),
      ];
      const newest = new Map<string, Change>();
      for (const one of changes) {
        const known = newest.get(one.id);
        const beats = !known || one.updatedAt > known.updatedAt || (one.updatedAt === known.updatedAt && !one.row);
        if (beats) newest.set(one.id, one);
      }
      const live = [...newest.values()].filter((one): one is Live => one.row !== undefined);
      const visible = visibleOf(live, clash);
      const hidden = live.filter((one) => !visible.includes(one));
      for (let order = 0; order < 3; order++) {
        const { db, table, unique, end } = await world();
        const shuffled = shuffle([...changes, ...changes.slice(0, 3)], chance);
        for (const one of shuffled) db.transaction(() => apply(db, table, unique, one));
        const names = (rows: { id: string }[]): string[] => rows.map(({ id }) => id).sort();
        expect(names(db.all('SELECT id FROM u'))).toEqual(names(visible));
        expect(names(db.all('SELECT row_id AS id FROM _hidden'))).toEqual(names(hidden));
        const letters = db.all<{ id: string }>('SELECT row_id AS id FROM _dead_letter');
        expect(names(letters)).toEqual(names(hidden));
        for (const one of visible) {
          expect(db.get('SELECT a, b, x, y, updated_at AS updatedAt FROM u WHERE id = ?', one.id)).toEqual({
            ...one.row,
            updatedAt: one.updatedAt,
          });
        }
        end();
      }
    }),
    { numRuns: draws(300) },
  );
});

async function world(): Promise<{ db: Connection; table: Table; unique: UniqueRows; end(): void }> {
  const handle = await openDatabase();
  handle.exec(SCHEMA);
  const db = new Connection(handle);
  db.transaction(() => installInternalTables(db, [{ name: 'u', wireName: 'u', columns: [] }]));
  const table = describeTable(db, 'u');
  return {
    db,
    table,
    unique: new UniqueRows(db, new DeadLetters(db, systemClock, new TimeLimit(systemClock, 0))),
    end: () => {
      db.release();
      handle.close();
    },
  };
}

/** What the careful path does with a single change, in short. */
function apply(db: Connection, table: Table, unique: UniqueRows, { id, updatedAt, row }: Change): void {
  if (!row) {
    const newer = db.get(
      'SELECT 1 AS n FROM (SELECT id, updated_at AS v FROM u UNION ALL SELECT row_id, version FROM _hidden) WHERE id = ? AND v > ?',
      id,
      updatedAt,
    );
    if (newer) return;
    db.run(
      "INSERT INTO _tombstones VALUES ('u', ?, ?) ON CONFLICT DO UPDATE SET version = max(version, excluded.version)",
      id,
      updatedAt,
    );
    db.run('DELETE FROM u WHERE id = ?', id);
  } else {
    const write = (target: Table): boolean => {
      db.run(
        `INSERT INTO ${target.target} AS t (id, a, b, x, y, updated_at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET ` +
          'a = excluded.a, b = excluded.b, x = excluded.x, y = excluded.y, updated_at = excluded.updated_at ' +
          'WHERE excluded.updated_at > t.updated_at',
        id,
        row.a,
        row.b,
        row.x,
        row.y,
        updatedAt,
      );
      return true;
    };
    const isHidden = db.get('SELECT 1 AS n FROM _hidden WHERE row_id = ?', id) !== undefined;
    const dead = db.get('SELECT 1 AS n FROM _tombstones WHERE row_id = ? AND version >= ?', id, updatedAt);
    try {
      if (isHidden) unique.merge(table, id, updatedAt, write);
      else if (!dead) db.savepoint(() => write(table));
    } catch (error) {
      if (!isRowFault(error)) throw error;
      expect(unique.merge(table, id, updatedAt, write)).toBeDefined();
    }
  }
  unique.settle(table);
}

function shuffle<T>(list: T[], chance: fc.Stream<number>): T[] {
  const mixed = [...list];
  for (let i = mixed.length - 1; i > 0; i--) {
    const j = (chance.next().value as number) % (i + 1);
    [mixed[i], mixed[j]] = [mixed[j] as T, mixed[i] as T];
  }
  return mixed;
}
