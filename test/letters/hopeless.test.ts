/** Letters that are tried together: one that is hopeless does not keep the others from their turn. */
import { describe, expect, test } from 'vitest';
import { attached, type NodeOptions, node, rowsOf, type TestNode } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const NOW = 1_700_000_000_000;
const SAID = { said: 'id=sender' };
const IDS = Array.from({ length: 10 }, (_, i) => `r${i}`);

function put(id: string, at: number, more: object = {}): object {
  return { op: 'UPDATE', table: 'items', row: { id, name: 'n', ...more, updated_at: at }, old_id: null };
}

function batch(...changes: unknown[]): string {
  return JSON.stringify({ batch_id: 1, changes });
}

const table = (more = ''): string => `CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT${more}, updated_at INTEGER)`;

async function timed(options: NodeOptions = {}): Promise<TestNode & { clock: VirtualClock }> {
  const clock = new VirtualClock();
  return { ...(await node({ schema: table(), clock, ...options })), clock };
}

const ids = ({ db }: TestNode): unknown[] => rowsOf(db, 'SELECT id FROM items ORDER BY id').map(({ id }) => id);
const letters = ({ manager }: TestNode): unknown[] =>
  manager.deadLetters.list().map(({ code, rowId, retryCount }) => [code, rowId, retryCount]);

describe('one letter that is hopeless does not hold up the others', () => {
  const others = IDS.slice(1).map((id) => ({ id, c: 9 }));

  test.each([
    ['a CHECK forbids its value', 'c CHECK (c <> 1)', ''],
    ['a UNIQUE value is taken', 'c', 'CREATE UNIQUE INDEX once ON items (c) WHERE c = 1'],
    ['a trigger ends the transaction', 'c', notOne('ROLLBACK')],
    ['a trigger refuses it', 'c', notOne('ABORT')],
  ])('where %s', async (_, column, more) => {
    const b = await timed();
    b.manager.receive(batch(put('taken', NOW)), SAID);
    b.manager.receive(batch(...IDS.map((id, i) => put(id, NOW, { c: i === 0 ? 1 : 9 }))), SAID);
    b.db.exec(`ALTER TABLE items ADD COLUMN ${column}`);
    b.db.exec(`UPDATE items SET c = 1 WHERE id = 'taken' AND ${more.includes('once') ? 1 : 0}; ${more}`);
    b.manager.receive(batch(), SAID);
    await b.clock.advance(5_000);
    expect(rowsOf(b.db, "SELECT id, c FROM items WHERE id NOT IN ('taken', 'r0') ORDER BY id")).toEqual(others);
    expect(letters(b)).toEqual([['unknown-column', 'r0', 1]]);
    expect(b.manager.deadLetters.list()[0]?.reason).not.toContain('has no column');
    // And it is not lost: when nothing is in the way any more, a person may try it.
    b.db.exec("DROP TRIGGER IF EXISTS no; DROP INDEX IF EXISTS once; UPDATE items SET c = NULL WHERE id = 'taken'");
    if (column === 'c') {
      const [letter] = b.manager.deadLetters.list();
      expect(b.manager.deadLetters.retry(letter?.id as number)).toMatchObject({ outcome: 'applied' });
      expect(rowsOf(b.db, "SELECT c FROM items WHERE id = 'r0'")).toEqual([{ c: 1 }]);
    }
  });

  test.each(['no JSON', '[1]', '5'])('where its row has become %j', async (row) => {
    const b = await timed();
    b.manager.receive(batch(...IDS.map((id) => put(id, NOW, { c: 9 }))), SAID);
    b.db.prepare("UPDATE _dead_letter SET row_data = ? WHERE row_id = 'r0'").run(row);
    b.db.exec('ALTER TABLE items ADD COLUMN c');
    b.manager.receive(batch(), SAID);
    await b.clock.advance(5_000);
    expect(rowsOf(b.db, "SELECT id, c FROM items WHERE id <> 'r0' ORDER BY id")).toEqual(others);
    expect(letters(b)).toEqual([['unknown-column', 'r0', 1]]);
  });

  test('where what it says of its columns cannot be read', async () => {
    const b = await timed();
    b.manager.receive(batch(...IDS.map((id) => put(id, NOW, { c: 9 }))), SAID);
    b.db.exec('UPDATE _dead_letter_info SET unknown_columns = \'{"a":"c"}\' WHERE dead_id = 1');
    b.db.exec('ALTER TABLE items ADD COLUMN c');
    b.manager.receive(batch(), SAID);
    await b.clock.advance(5_000);
    expect(rowsOf(b.db, "SELECT id, c FROM items WHERE id <> 'r0' ORDER BY id")).toEqual(others);
    expect(letters(b)).toEqual([['unknown-column', 'r0', 1]]);
  });

  test.each(['row_data', 'change'])('where the %s of one for a table cannot be read', async (column) => {
    const b = await timed({
      schema: 'CREATE TABLE others (id TEXT PRIMARY KEY, updated_at INTEGER)',
      tables: ['others'],
    });
    b.manager.receive(batch(...IDS.map((id) => put(id, NOW))), SAID);
    b.db.exec(
      column === 'change'
        ? "UPDATE _dead_letter_info SET change = 'no JSON' WHERE dead_id = 1"
        : "UPDATE _dead_letter SET row_data = 'no JSON' WHERE dead_id = 1",
    );
    await b.manager.stop();
    b.db.exec(table());
    const again = attached(b.db, { clock: b.clock });
    await b.clock.advance(5_000);
    expect(ids(b)).toEqual(IDS.slice(1));
    expect(again.deadLetters.list()).toMatchObject([{ code: 'unknown-table', rowId: 'r0', retryCount: 1 }]);
  });
});

function notOne(how: string): string {
  return `CREATE TRIGGER no BEFORE UPDATE ON items WHEN NEW.c = 1 BEGIN SELECT RAISE(${how}, 'not one'); END`;
}
