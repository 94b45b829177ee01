/** Letters that are tried together may be more than a request may have: they have been let in one by one. */
import { describe, expect, test } from 'vitest';
import { deliver, hub, live } from '../support/hubs.ts';
import { attached, type NodeOptions, node, rowsOf, type TestNode } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const NOW = 1_700_000_000_000;
const DAY = 86_400_000;
const SAID = { said: 'id=sender' };
/** Ten of these rows are more than a body may have. */
const SMALL = { maxBodyBytes: 2_048 };
const LONG = 'n'.repeat(400);
const IDS = Array.from({ length: 10 }, (_, i) => `r${i}`);

function put(id: string, at: number, more: object = {}): object {
  return { op: 'UPDATE', table: 'items', row: { id, name: LONG, ...more, updated_at: at }, old_id: null };
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

describe('letters that are more together than a body may have', () => {
  test('are applied on a node when their time has come', async () => {
    const b = await timed({ ...SMALL, maxAheadMs: DAY });
    for (const id of IDS) b.manager.receive(batch(put(id, NOW + 2 * DAY)), SAID);
    await b.clock.jump(2 * DAY);
    await b.clock.advance(2_000);
    expect(letters(b)).toEqual([]);
    expect(ids(b)).toEqual(IDS);
  });

  test('are applied on a node when what was in the way is gone', async () => {
    const b = await timed({ ...SMALL });
    b.db.exec("CREATE TRIGGER no BEFORE INSERT ON items BEGIN SELECT RAISE(ABORT, 'no'); END");
    for (const id of IDS) b.manager.receive(batch(put(id, NOW)), SAID);
    expect(letters(b)).toHaveLength(IDS.length);
    b.db.exec('DROP TRIGGER no');
    await b.clock.advance(180_000);
    expect(letters(b)).toEqual([]);
    expect(ids(b)).toEqual(IDS);
  });

  test('are applied on a node when their table is there', async () => {
    const b = await timed({
      ...SMALL,
      schema: `${table()}; CREATE TABLE others (id TEXT PRIMARY KEY, updated_at INTEGER)`,
    });
    await b.manager.stop();
    const first = attached(b.db, { ...SMALL }, ['others']);
    for (const id of IDS) first.receive(batch(put(id, NOW)), SAID);
    expect(first.health().dead_letter).toBe(IDS.length);
    await first.stop();
    const second = attached(b.db, { ...SMALL });
    await second.flush();
    expect(second.health().dead_letter).toBe(0);
    expect(ids(b)).toEqual(IDS);
  });

  test('are compared once more on a node where their column decides', async () => {
    const b = await timed(SMALL);
    for (const id of IDS) b.manager.receive(batch(put(id, NOW, { name: `z${LONG}` })), SAID);
    for (const id of IDS) b.manager.receive(batch(put(id, NOW, { name: `a${LONG}`, c: 9 })), SAID);
    b.db.exec('ALTER TABLE items ADD COLUMN c');
    b.manager.receive(batch(), SAID);
    await b.manager.flush();
    expect(b.manager.health().dead_letter).toBe(0);
    expect(rowsOf(b.db, 'SELECT DISTINCT c FROM items')).toEqual([{ c: 9 }]);
  });

  test('are applied on a hub when their time has come', async () => {
    const clock = new VirtualClock();
    const made = await hub({ clock, ...SMALL, maxAheadMs: DAY });
    for (const id of IDS) await deliver(made.hub, [live(id, NOW + 2 * DAY, { name: LONG })], 'a');
    expect(await made.hub.deadLetters.list()).toHaveLength(IDS.length);
    await clock.jump(2 * DAY);
    await clock.advance(2_000);
    expect(await made.hub.deadLetters.list()).toEqual([]);
    expect(made.rows()).toHaveLength(IDS.length);
  });

  test('as one alone may be, since a lower limit is set', async () => {
    const b = await timed({ schema: table(" CHECK (name <> '')"), maxAheadMs: DAY });
    b.manager.receive(batch(put('x', NOW + 2 * DAY, { name: 'n'.repeat(4_000) })), SAID);
    await b.manager.stop();
    attached(b.db, { ...SMALL, clock: b.clock, maxAheadMs: DAY });
    await b.clock.jump(2 * DAY);
    await b.clock.advance(2_000);
    expect(ids(b)).toEqual(['x']);
  });
});
