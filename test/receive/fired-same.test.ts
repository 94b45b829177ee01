/** What a table becomes does not depend on whether triggers of the application fire for it: other statements merge it then. */
import { expect, test } from 'vitest';
import { Random } from '../support/model.ts';
import { node, rowsOf, type TestNode } from '../support/nodes.ts';

const T = 1_700_000_000_000;
const TRIGGERS =
  'CREATE TABLE log (w UNIQUE ON CONFLICT IGNORE); CREATE TRIGGER b BEFORE INSERT ON items BEGIN SELECT 1; END; ' +
  'CREATE TRIGGER u AFTER UPDATE ON items BEGIN INSERT INTO log VALUES (NEW.name); END';

const STATES = [
  'SELECT *, typeof(n) FROM items ORDER BY id',
  'SELECT row_id, version FROM _tombstones ORDER BY row_id',
  'SELECT row_id, version, row_data FROM _hidden ORDER BY row_id',
];

/** Few ids, times and values, so that ties and clashes are met all the time. */
function drawn(random: Random): object {
  const id = `p${random.below(4)}`;
  const at = T + random.below(12);
  if (random.chance(0.05)) return { op: 'DELETE', table: 'items', row: null, old_id: id };
  if (random.chance(0.2)) return { op: 'DELETE', table: 'items', row: { id, updated_at: at }, old_id: id };
  const row: Record<string, unknown> = { id, name: random.pick(['x', 'y', 'z', 'w', null]), updated_at: at };
  if (random.chance(0.9)) row.n = random.pick([1, 1.5, 'a', null]);
  return { op: random.pick(['INSERT', 'UPDATE']), table: 'items', row, old_id: null };
}

test.each(Array.from({ length: 12 }, (_, i) => i + 1))('the batches of seed %i', async (seed) => {
  const random = new Random(seed);
  const unique = random.pick(['', ' UNIQUE', ' UNIQUE ON CONFLICT REPLACE', ' UNIQUE ON CONFLICT IGNORE']);
  const schema = `CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT${unique}, n, updated_at INTEGER)`;
  // Where a constraint says ON CONFLICT, triggers have no clauses of their own: one that counts on them would refuse rows.
  const triggers = unique.includes('CONFLICT')
    ? TRIGGERS.replace('INSERT INTO log VALUES (NEW.name)', 'SELECT 1')
    : TRIGGERS;
  const [plain, fired] = [await node({ schema }), await node({ schema: `${schema}; ${triggers}` })];
  const state = ({ db }: TestNode): unknown => STATES.map((sql) => rowsOf(db, sql));
  for (let batch = 1; batch <= 8; batch++) {
    const changes = Array.from({ length: 1 + random.below(14) }, () => drawn(random));
    const said = random.chance(0.5) ? { said: 'id=x' } : {};
    const give = ({ manager }: TestNode): unknown =>
      manager.receive(JSON.stringify({ batch_id: batch, changes }), said).body;
    const told = JSON.stringify(changes);
    expect(give(fired), told).toEqual(give(plain));
    expect(state(fired), told).toEqual(state(plain));
  }
});
