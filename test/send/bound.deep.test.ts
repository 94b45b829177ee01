/** The bound on a backlog where nobody has set one: it takes a hundred thousand changes to come to it. */
import { expect, test } from 'vitest';
import { away, B, writeMany } from '../support/away.ts';
import { changeIds } from '../support/receivers.ts';

test.each([['unlimited' as const], [{ changes: 'unlimited' as const, bytes: 'unlimited' as const }]])(
  '%j keeps everything',
  async (limit) => {
    const { db, minute, told } = await away(limit, {}, [B]);
    writeMany(db, 1, 60_000);
    db.exec("UPDATE items SET updated_at = 2000 WHERE id LIKE 'row-%'");
    await minute();
    expect(told).toEqual([]);
    expect(changeIds(db)).toHaveLength(120_000);
  },
);

/** Enough for what is counted in the background to come to its end. */
const LOOKS = 5;

test('auto: as many changes as there are rows and tombstones, and at least 100,000', async () => {
  const { db, minute, told } = await away(undefined, {}, [B]);
  writeMany(db, 1, 60_000);
  db.exec("UPDATE items SET updated_at = 2000 WHERE id LIKE 'row-%'");
  // 120,000 changes of 60,001 rows. At the first look it is not known yet that there are not more: they are being counted.
  for (let looks = 0; told.length === 0 && looks < LOOKS; looks++) await minute();
  expect(told).toMatchObject([{ peer: B, changes: 120_000 }]);
});

test('auto is not exceeded by new rows, nor by the deletion of old ones', async () => {
  const { db, minute, told } = await away(undefined, {}, [B]);
  writeMany(db, 1, 110_000);
  for (let looks = 0; looks < LOOKS; looks++) await minute();
  expect(told).toEqual([]);
  expect(changeIds(db)).toHaveLength(110_000);
  const other = await away(undefined, {}, [B]);
  other.db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
  writeMany(other.db, 1, 110_000);
  other.db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'; DELETE FROM items");
  await other.minute();
  expect(other.told).toEqual([]);
  expect(changeIds(other.db)).toHaveLength(110_001);
});
