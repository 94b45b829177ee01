/**
 * Against a model that knows everything: a write has seen exactly the versions that its node ever had of the row. Whatever
 * the schedule, nothing is in a journal that was seen by what replaced it; and most of what was not seen is there.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { attach, type Manager } from '../../src/index.ts';
import { draws } from '../support/draws.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database, ITEMS, rowsOf, writeStamps } from '../support/nodes.ts';

const NODES = ['a', 'b', 'c'];
const ROWS = ['r', 's'];
/** What stands for a row that is deleted, or was never there. */
const NOTHING = 'nothing';

/** `twice`: without a time and then with one, in one transaction, so that a stamp is pending at the second. */
type Hows = 'dated' | 'forgotten' | 'twice' | 'replace' | 'rename';
const HOW: Hows[] = [
  ...Array<Hows>(8).fill('dated'),
  'forgotten',
  'forgotten',
  'twice',
  'twice',
  'replace',
  'rename',
  'rename',
];

type Step =
  | { kind: 'write'; node: number; row: number; how: Hows; ahead: number }
  | { kind: 'delete'; node: number; row: number }
  | { kind: 'deliver'; from: number; to: number; few: boolean };

const node = fc.nat(NODES.length - 1);
const row = fc.nat(ROWS.length - 1);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('write' as const),
      node,
      row,
      how: fc.constantFrom(...HOW),
      ahead: fc.constantFrom(0, 0, 1, 5, 40),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('delete' as const), node, row }) },
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('deliver' as const),
      from: node,
      to: node,
      few: fc.constantFrom(...Array(7).fill(false), true),
    }),
  },
);

type Edit = Omit<Extract<Step, { kind: 'write' }>, 'kind' | 'node'>;

/** What a write has seen, by its name; and the edits that were lost somewhere, and those that some journal has. */
interface Truth {
  seen: Map<string, Set<string>>;
  lost: Set<string>;
  found: Set<string>;
}

class Member {
  /** Every version that it ever had, by row. */
  readonly had = new Map(ROWS.map((id) => [id, new Set<string>()]));
  /** How far each other has been told. */
  readonly told = new Map<Member, number>();
  readonly conflicts: string[] = [];

  readonly db: TestDatabase;
  readonly manager: Manager;

  constructor(db: TestDatabase, manager: Manager) {
    this.db = db;
    this.manager = manager;
  }

  /** The write that stands, by the name that it gave; a deletion is named by its version. */
  standing(id: string): string {
    const [live] = rowsOf(this.db, 'SELECT name FROM items WHERE id = ?', id);
    if (live) return String(live.name);
    const [grave] = rowsOf(this.db, 'SELECT version FROM _tombstones WHERE row_id = ?', id);
    return grave ? `deleted ${grave.version}` : NOTHING;
  }

  note(id: string): void {
    this.had.get(id)?.add(this.standing(id));
  }
}

async function member(name: string): Promise<Member> {
  const db = await database(ITEMS);
  const manager = attach(db, { id: name, peers: [], maxAheadMs: 0 }, ['items']);
  cleanUp(() => manager.stop());
  const made = new Member(db, manager);
  manager.on('conflict', ({ conflictId }) => {
    const { id, lost, lostVersion } = manager.conflicts.get(conflictId);
    made.conflicts.push(`${id} ${lost === null ? `deleted ${lostVersion}` : lost.name}`);
  });
  return made;
}

function write(one: Member, { row: at, how, ahead }: Edit, clock: number, truth: Truth, inTransaction = false): void {
  const id = ROWS[at] as string;
  const run = (sql: string, ...params: unknown[]): void => void one.db.prepare(sql).run(...(params as never[]));
  const isThere = rowsOf(one.db, 'SELECT 1 AS n FROM items WHERE id = ?', id).length > 0;
  if (isThere && how === 'twice') one.db.exec('BEGIN');
  if (isThere && how === 'twice') write(one, { row: at, how: 'forgotten', ahead }, clock, truth, true);
  const touched = how === 'rename' ? ROWS : [id];
  const name = `w${truth.seen.size}`;
  for (const other of touched) one.note(other);
  truth.seen.set(name, new Set(touched.flatMap((other) => [...(one.had.get(other) as Set<string>)])));
  const time = clock + ahead;
  if (!isThere || how === 'replace') run('INSERT OR REPLACE INTO items VALUES (?, ?, 1, 1, ?)', id, name, time);
  else if (how === 'forgotten') run('UPDATE items SET name = ? WHERE id = ?', name, id);
  else if (how !== 'rename') run('UPDATE items SET name = ?, updated_at = ? WHERE id = ?', name, time, id);
  else run('UPDATE OR REPLACE items SET id = ?, name = ?, updated_at = ? WHERE id = ?', ROWS[1 - at], name, time, id);
  if (isThere && how === 'twice') one.db.exec('COMMIT');
  if (!inTransaction) writeStamps(one.manager);
  for (const other of touched) one.note(other);
}

/** The next changes in their order, or the latest alone, as a hub or another road might bring them. */
function deliver(from: Member, to: Member, few: boolean, truth: Truth): void {
  const after = from.told.get(to) ?? 0;
  const rows = rowsOf(
    from.db,
    'SELECT change_id, op, row_id, row_data, base FROM _changes WHERE change_id > ? ORDER BY change_id',
    after,
  );
  const taken = few ? rows.slice(-1) : rows;
  if (!few && rows.length > 0) from.told.set(to, Number(rows.at(-1)?.change_id));
  const changes = taken.map(({ op, row_id, row_data, base }) => ({
    op,
    table: 'items',
    row: JSON.parse(String(row_data)),
    old_id: op === 'DELETE' ? row_id : null,
    ...(base !== null && { base }),
  }));
  for (const one of changes) {
    // One at a time, so that the model knows what has replaced what; the other test has them together.
    const id = String(one.row.id);
    const before = to.standing(id);
    const told = to.conflicts.length;
    const body = JSON.stringify({ batch_id: 1, changes: [one] });
    expect(to.manager.receive(body, { from: 'x', said: 'id=x' }).status).toBe(200);
    const after = to.standing(id);
    to.note(id);
    const alarms = to.conflicts.slice(told);
    const seen = truth.seen.get(after);
    const wasLost = before !== after && before !== NOTHING && seen !== undefined && !seen.has(before);
    if (alarms.length > 0 && !wasLost)
      throw new Error(`false alarm: ${alarms} by ${after}, which saw ${[...(seen ?? [])]}`);
    if (!wasLost || one.base === undefined || before.startsWith('deleted')) continue;
    truth.lost.add(before);
    if (alarms.length > 0) truth.found.add(before);
  }
}

test('nothing is told to be lost that was seen, and most of what was not seen is told', async () => {
  const truth: Truth = { seen: new Map(), lost: new Set(), found: new Set() };
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 30, maxLength: 80 }), async (steps) => {
      const members = await Promise.all(NODES.map(member));
      // Ahead of SQLite's: what gets a time from that one is then told by versions alone, however long a step takes.
      let clock = Date.now() + 3_600_000;
      const [first, ...others] = members as [Member, ...Member[]];
      for (const at of ROWS.keys()) {
        write(first, { row: at, how: 'dated', ahead: 0 }, clock, truth);
      }
      for (const one of others) deliver(first, one, false, truth);
      for (const one of steps) {
        clock += 3;
        if (one.kind === 'write') write(members[one.node] as Member, one, clock, truth);
        else if (one.kind === 'deliver') {
          const [from, to] = [members[one.from] as Member, members[one.to] as Member];
          if (from !== to) deliver(from, to, one.few, truth);
        } else {
          const it = members[one.node] as Member;
          it.db.prepare('DELETE FROM items WHERE id = ?').run(ROWS[one.row] as never);
          writeStamps(it.manager);
          it.note(ROWS[one.row] as string);
        }
      }
      await Promise.all(members.map(({ manager }) => manager.stop()));
    }),
    { numRuns: draws(120) },
  );
  expect(truth.found.size).toBeGreaterThan(draws(200));
  expect(truth.found.size / truth.lost.size).toBeGreaterThan(0.8);
});
