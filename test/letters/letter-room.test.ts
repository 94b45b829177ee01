import { describe, expect, test } from 'vitest';
import { createHub } from '../../src/hub/index.ts';
import { LETTERS_MAX } from '../../src/letters/letter-room.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database, node, rowsOf } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const wrong = (id: string) => ({ op: 'INSERT', table: 'items', row: { id, updated_at: 'never' }, old_id: null });
const right = (id: string) => ({ op: 'INSERT', table: 'items', row: { id, updated_at: 1000 }, old_id: null });
const batch = (...changes: object[]): string => JSON.stringify({ batch_id: 7, changes });

/** As many letters of one sender, each with a row of so many bytes. */
function keep(db: TestDatabase, count: number, from: string, bytes = 2): void {
  const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${count}) SELECT`;
  const last = Number(rowsOf(db, 'SELECT coalesce(max(dead_id), 0) AS n FROM _dead_letter')[0]?.n);
  db.exec(
    `INSERT INTO _dead_letter (dead_id, op, row_id, row_data) ${numbers} i + ${last}, 'INSERT', i, ` +
      `printf('%.*c', ${bytes}, 'x') FROM n`,
  );
  db.exec(
    `INSERT INTO _dead_letter_info (dead_id, direction, table_name, peer, code) ${numbers} i + ${last}, 'in', 'items', ` +
      `'${from}', 'bad-timestamp' FROM n`,
  );
}

describe('letters of one sender', () => {
  test('are kept up to a limit; then its batches with more are put off, and nobody else is', async () => {
    const clock = new VirtualClock();
    const { db, manager } = await node({ clock });
    keep(db, LETTERS_MAX.sender.letters, 'liar');
    const answer = manager.receive(batch(right('a'), wrong('b')), { from: 'liar' });
    expect(answer).toMatchObject({ status: 503 });
    expect(answer.body).toEqual({ error: expect.stringContaining('from node "liar"') });
    // The whole batch waits: acknowledged in part, the rest would be lost.
    expect(rowsOf(db, 'SELECT id FROM items')).toEqual([]);
    expect(manager.health()).toMatchObject({ ok: false, problems: [expect.stringContaining('from node "liar"')] });

    expect(manager.receive(batch(right('a')), { from: 'liar' }).status).toBe(200);
    expect(manager.receive(batch(wrong('c')), { from: 'honest' }).status).toBe(200);

    db.exec('DELETE FROM _dead_letter WHERE dead_id <= 10');
    db.exec('DELETE FROM _dead_letter_info WHERE dead_id <= 10');
    await clock.advance(10_000);
    expect(manager.receive(batch(wrong('b')), { from: 'liar' }).status).toBe(200);
    expect(manager.health().ok).toBe(true);
  });

  test('are counted by their size, too', { tags: 'long' }, async () => {
    const { db, manager } = await node();
    keep(db, 257, 'liar', 1024 * 1024);
    expect(manager.receive(batch(wrong('b')), { from: 'liar' }).status).toBe(503);
    expect(manager.receive(batch(wrong('b')), { from: 'honest' }).status).toBe(200);
  });

  test('under many names are counted together', { tags: 'long' }, async () => {
    const { db, manager } = await node();
    for (const name of ['a', 'b', 'c']) keep(db, 84_000, name);
    expect(manager.receive(batch(wrong('x')), { from: 'd' }).status).toBe(503);
    expect(manager.receive(batch(right('x')), { from: 'd' }).status).toBe(200);
  });

  test('are limited at a hub as well', { tags: 'long' }, async () => {
    const db = await database('SELECT 1');
    const hub = await createHub(db, { id: 'hub', edges: [] });
    cleanUp(() => hub.stop());
    keep(db, LETTERS_MAX.sender.letters, 'liar');
    expect((await hub.receive(batch(right('a'), wrong('b')), { from: 'liar' })).status).toBe(503);
    expect(await hub.health()).toMatchObject({ ok: false, item_count: 0 });
    expect((await hub.receive(batch(right('a')), { from: 'liar' })).status).toBe(200);
  });
});
