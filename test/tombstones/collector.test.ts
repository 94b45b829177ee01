/** Nodes that collect their tombstones when nobody has anything older to send, and who keeps them from it. */
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { attach } from '../../src/index.ts';
import { Aging, DAY, tombstones } from '../support/aging.ts';
import { settled, write } from '../support/cluster.ts';
import { database, node, rowsOf, until } from '../support/nodes.ts';

describe('tombstones', () => {
  test('are kept for so long, and then go on every node', async () => {
    const cluster = new Aging();
    const a = await cluster.member('a', ['b']);
    const b = await cluster.member('b', ['a']);
    write(a, '1', '2');
    await settled('1 2', a, b);
    b.db.exec("DELETE FROM items WHERE id = '1'");
    await settled('2', a, b);
    await cluster.pass(80, a, b);
    await cluster.pass(5, a, b);
    expect([tombstones(a), tombstones(b)]).toEqual([['1'], ['1']]);
    await cluster.pass(40, a, b);
    await until('they have gone', () => [a, b].every((one) => tombstones(one).length === 0));
    expect(a.manager.deadLetters.list()).toEqual([]);
    expect(a.manager.health()).toMatchObject({ ok: true, problems: [] });
  });

  test('are held by a node that is away, until it is forgotten; heard again, it counts again', {
    tags: 'long',
  }, async () => {
    const cluster = new Aging();
    const a = await cluster.member('a', ['b', 'c']);
    const b = await cluster.member('b', ['a', 'c']);
    const c = await cluster.member('c', ['a', 'b']);
    write(a, '1', '2');
    write(b, '3');
    write(c, '4');
    await settled('1 2 3 4', a, b, c);
    a.db.exec("DELETE FROM items WHERE id = '1'");
    await settled('2 3 4', a, b, c);
    await c.stop();
    await cluster.pass(100, a, b);
    await until('it is said', () => cluster.warnings.some((text) => text.startsWith('a tombstones-held-by')));
    expect(cluster.warnings.find((text) => text.startsWith('a '))).toContain('"c"');
    await until('health says so', () => a.manager.health().tombstones_held_by?.join() === 'c');
    expect(a.manager.health().ok).toBe(true);
    expect(tombstones(a)).toEqual(['1']);
    expect(() => a.manager.forget('d')).toThrow(/no node "d" is known here.*"b", "c"/);
    a.manager.forget('c');
    // What only it lacks is still waiting to be sent to it: that is as old as the deletion, and holds it.
    await until('nobody holds them', () => a.manager.health().tombstones_held_by === undefined);
    expect(tombstones(a)).toEqual(['1']);
    await a.stop();
    const again = await cluster.member('a', ['b']);
    await cluster.pass(50, again, b);
    await until('it has gone', () => tombstones(again).length === 0);
  });
});

describe('the option', () => {
  test.each([
    [{ keep: '90 days' }, /"tombstones.keep" must be hours or days.*not "90 days"/],
    [{ keep: '0d' }, /from 1h to 36500d/],
    [{ keep: 90 }, /not 90/],
    [{}, /not undefined/],
    [{ keep: '9d', day: 1 }, /has no "day"/],
    ['90d', /must be an object \{keep\}/],
  ])('%j is refused', async (tombstones, message) => {
    const db = await database();
    expect(() => attach(db, { id: 'a', peers: [], tombstones: tombstones as never }, ['items'])).toThrow(message);
    expect(rowsOf(db, "SELECT 1 FROM sqlite_schema WHERE name = '_changes'")).toEqual([]);
  });

  test('forever is what it is without it', async () => {
    const { db } = await node({ tombstones: { keep: 'forever' } });
    expect(rowsOf(db, "SELECT 1 FROM pragma_table_info('_tombstones') WHERE name = 'day'")).toEqual([]);
  });

  test('a node that knows nobody collects nothing', async () => {
    let now = systemClock.now();
    const clock = { now: () => now, sleep: systemClock.sleep };
    const { db, manager } = await node({ tombstones: { keep: '1h' }, clock, peers: ['http://127.0.0.1:9'] });
    db.exec("INSERT INTO items (id, updated_at) VALUES ('a', 5); DELETE FROM items");
    now += 100 * DAY;
    await until('it is said', () => manager.health().tombstones_held_by !== undefined);
    expect(manager.health().tombstones_held_by).toEqual(['http://127.0.0.1:9']);
    expect(rowsOf(db, 'SELECT row_id FROM _tombstones')).toEqual([{ row_id: 'a' }]);
  });
});
