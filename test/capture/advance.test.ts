/** A local write always advances the version of its row, whatever time it brings. */
import { describe, expect, test } from 'vitest';
import { expectAdvanced, insert } from '../support/capture.ts';
import { expectSameElsewhere, origin } from '../support/elsewhere.ts';
import { captured } from '../support/nodes.ts';

describe('a local write always advances the version', () => {
  const FUTURE = 4_102_444_800_000;

  test('an honest clock is left alone', async () => {
    const it = await origin();
    it.db.exec(insert('a', 1_700_000_000_000));
    it.db.exec("UPDATE items SET updated_at = 1700000000001 WHERE id = 'a'");
    expect(captured(it.db).map(({ row }) => row.updated_at)).toEqual([1_700_000_000_000, 1_700_000_000_001]);
    await expectSameElsewhere(it);
  });

  test('an UPDATE that forgets updated_at is stamped with the time', async () => {
    const it = await origin();
    it.db.exec(insert('a', 1000));
    const before = Date.now();
    it.db.exec("UPDATE items SET name = 'forgot' WHERE id = 'a'");
    const at = expectAdvanced(it, 'a', 1000);
    // SQLite's clock and ours may round differently.
    expect(at).toBeGreaterThanOrEqual(before - 1);
    expect(at).toBeLessThanOrEqual(Date.now() + 1);
    expect(captured(it.db)).toHaveLength(2);
    await expectSameElsewhere(it);
  });

  test('forgotten on a row from the future, it goes up by one', async () => {
    const it = await origin();
    it.db.exec(insert('a', FUTURE));
    it.db.exec("UPDATE items SET name = 'forgot' WHERE id = 'a'");
    expect(expectAdvanced(it, 'a', FUTURE)).toBe(FUTURE + 1);
    await expectSameElsewhere(it);
  });

  test('many forgetful writes within a millisecond all differ', async () => {
    const it = await origin();
    it.db.exec(insert('a', 1000));
    it.db.exec('BEGIN');
    for (let i = 0; i < 50; i++) it.db.exec(`UPDATE items SET value = ${i} WHERE id = 'a'`);
    it.db.exec('COMMIT');
    const versions = captured(it.db).map(({ row }) => Number(row.updated_at));
    expect(versions).toEqual([...new Set(versions)].sort((x, y) => x - y));
    expect(versions).toHaveLength(51);
    expectAdvanced(it, 'a', versions.at(-2) as number);
    await expectSameElsewhere(it);
  });

  test('two writes with the same updated_at are two versions', async () => {
    const it = await origin();
    it.db.exec(insert('a', FUTURE, 'zzz'));
    it.db.exec(`UPDATE items SET name = 'aaa', updated_at = ${FUTURE} WHERE id = 'a'`);
    expect(expectAdvanced(it, 'a', FUTURE)).toBe(FUTURE + 1);
    await expectSameElsewhere(it);
  });

  test('a clock that goes backwards takes the last version plus one', async () => {
    const it = await origin();
    it.db.exec(insert('a', 5000));
    it.db.exec("UPDATE items SET name = 'b', updated_at = 4000 WHERE id = 'a'");
    expect(expectAdvanced(it, 'a', 5000)).toBe(5001);
    it.db.exec("UPDATE items SET name = 'a', updated_at = 3000 WHERE id = 'a'");
    expect(expectAdvanced(it, 'a', 5001)).toBe(5002);
    await expectSameElsewhere(it);
  });

  const invalid = [
    'NULL',
    "'yesterday'",
    '12.5',
    "x'01'",
    '8640000000000001',
    '-8640000000000001',
    '9223372036854775807',
  ];
  for (const at of [...invalid, '9e999']) {
    test(`updated_at = ${at} is stamped with the time, on INSERT and on UPDATE`, async () => {
      const it = await origin();
      const before = Date.now();
      it.db.exec(insert('a', at));
      expect(expectAdvanced(it, 'a', 0)).toBeGreaterThanOrEqual(before - 1);
      it.db.exec(insert('b', 1000));
      it.db.exec(`UPDATE items SET name = 'x', updated_at = ${at} WHERE id = 'b'`);
      const stamped = expectAdvanced(it, 'b', before - 2);
      expect(stamped).toBeLessThanOrEqual(Date.now() + 1);
      it.db.exec(insert('c', FUTURE));
      it.db.exec(`UPDATE items SET name = 'x', updated_at = ${at} WHERE id = 'c'`);
      expect(expectAdvanced(it, 'c', FUTURE)).toBe(FUTURE + 1);
      expect(captured(it.db).every(({ row }) => Number.isSafeInteger(row.updated_at))).toBe(true);
      await expectSameElsewhere(it);
    });
  }

  for (const at of ['0', '1', '-1', '-5000', '-8640000000000000', "'1000'", '1e3']) {
    test(`updated_at = ${at} is a time, and the next write is above it`, async () => {
      const it = await origin();
      it.db.exec(insert('a', at));
      const first = Number(it.all('SELECT updated_at FROM items')[0]?.updated_at);
      expect(first).toBe(Number(at.replaceAll("'", '')));
      it.db.exec(`UPDATE items SET name = 'x', updated_at = ${at} WHERE id = 'a'`);
      expectAdvanced(it, 'a', first);
      await expectSameElsewhere(it);
    });
  }

  test('re-inserting a deleted id ends above the tombstone', async () => {
    const it = await origin();
    for (const at of ['500', '1000', 'NULL', '2000', '1']) {
      const before = Number(it.all('SELECT coalesce(max(version), 999) AS v FROM _tombstones')[0]?.v);
      it.db.exec(insert('a', at, `born ${at}`.replaceAll("'", '')));
      if (before > 999) expectAdvanced(it, 'a', before);
      it.db.exec("DELETE FROM items WHERE id = 'a'");
    }
    it.db.exec(insert('a', 3, 'stays'));
    await expectSameElsewhere(it);
    expect(it.all('SELECT name FROM items')).toEqual([{ name: 'stays' }]);
  });

  test('a delete carries the version of the row it removes, and wins against it', async () => {
    const it = await origin();
    it.db.exec(insert('a', 1000));
    it.db.exec("UPDATE items SET name = 'x', updated_at = 500 WHERE id = 'a'");
    it.db.exec("DELETE FROM items WHERE id = 'a'");
    expect(captured(it.db).at(-1)).toMatchObject({ op: 'DELETE', row: { updated_at: 1001 } });
    expect(it.all('SELECT row_id, version FROM _tombstones')).toEqual([{ row_id: 'a', version: 1001 }]);
    await expectSameElsewhere(it);
  });

  test('after a deletion was received, a local re-insert with an older time ends above it', async () => {
    const it = await origin();
    it.manager.applyChanges([{ op: 'DELETE', table: 'items', row: { id: 'a', updated_at: FUTURE }, old_id: 'a' }]);
    it.db.exec(insert('a', 1000));
    expect(expectAdvanced(it, 'a', FUTURE)).toBe(FUTURE + 1);
    await expectSameElsewhere(it);
  });

  test('after a newer row was received, a local update with an older time ends above it', async () => {
    const it = await origin();
    it.db.exec(insert('a', 1000));
    const row = { id: 'a', name: 'theirs', value: 1, created_at: 1, updated_at: FUTURE };
    expect(it.manager.applyChanges([{ op: 'UPDATE', table: 'items', row, old_id: null }])).toBe(1);
    it.db.exec("UPDATE items SET name = 'ours', updated_at = 2000 WHERE id = 'a'");
    expect(expectAdvanced(it, 'a', FUTURE)).toBe(FUTURE + 1);
    await expectSameElsewhere(it);
  });

  test('the notes that capture takes for REPLACE do not pile up', async () => {
    const it = await origin();
    it.db.exec(insert('a', 5000));
    for (let i = 0; i < 20; i++) it.db.exec(`REPLACE INTO items VALUES ('a', 'n${i}', 1, 1, 1)`);
    it.db.exec("INSERT OR IGNORE INTO items VALUES ('a', 'n', 1, 1, 1)");
    await expectSameElsewhere(it);
    expect(it.all('SELECT * FROM _stamps')).toEqual([]);
    expect(it.all('SELECT * FROM _replaced')).toEqual([]);
  });
});
