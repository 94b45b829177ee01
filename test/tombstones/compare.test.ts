/** Comparing where tombstones have been collected: what one side has forgotten is no difference, and comes back nowhere. */
import { describe, expect, test } from 'vitest';
import { beginSeed } from '../../src/send/peers.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { type Pair, pair, silently, THERE } from '../compare/pairs.ts';
import { collect } from '../support/collect.ts';
import type { TestDatabase } from '../support/lane.ts';
import { ITEMS, rowsOf } from '../support/nodes.ts';

const T = 1_600_000_000_000;

function insert(db: TestDatabase, id: string, at: number): void {
  db.exec(`INSERT INTO items VALUES ('${id}', 'x', 1, 1, ${at})`);
}

function entomb(db: TestDatabase, id: string, at: number): void {
  db.exec(`INSERT INTO _tombstones (table_name, row_id, version) VALUES ('items', '${id}', ${at})`);
}

const ids = (db: TestDatabase): unknown[] => rowsOf(db, 'SELECT id FROM items ORDER BY id').map(({ id }) => id);
const tombstones = (db: TestDatabase): unknown[] =>
  rowsOf(db, 'SELECT row_id FROM _tombstones ORDER BY row_id').map(({ row_id }) => row_id);

/** Both are known to each other, have `kept`, and once had `gone`, which was deleted at T + 10. */
async function acquainted(): Promise<Pair> {
  const the = await pair({ here: ITEMS });
  the.link.up = true;
  for (const manager of [the.manager, the.other]) await manager.flush();
  silently([the.here, the.there], () => {
    for (const db of [the.here, the.there]) {
      insert(db, 'kept', T);
      entomb(db, 'gone', T + 10);
    }
  });
  return the;
}

/** `there` has not heard that `gone` was deleted, and `here` has forgotten it. */
async function withZombie(): Promise<Pair> {
  const the = await acquainted();
  silently([the.there], () => {
    the.there.exec('DELETE FROM _tombstones');
    insert(the.there, 'gone', T + 10);
  });
  collect(the.here);
  return the;
}

describe('tombstones that one side has collected', () => {
  test('are no difference, from either side', async () => {
    const the = await acquainted();
    collect(the.here);
    expect([tombstones(the.here), tombstones(the.there)]).toEqual([[], ['gone']]);
    for (const manager of [the.manager, the.other]) {
      const [result] = await manager.verify(undefined, { repair: true });
      expect(result).toMatchObject({ equal: true, differences: 0, pending: 0 });
    }
    // Their hashes are the same: nothing further is asked.
    expect(the.requests.filter(({ path }) => path.startsWith('/sync/')).map(({ path }) => path)).toEqual(
      Array(4).fill('/sync/compare'),
    );
  });

  test('above what was collected, one that is missing is still found', async () => {
    const the = await acquainted();
    collect(the.here);
    silently([the.there], () => entomb(the.there, 'later', T + 11));
    expect((await the.manager.verify(THERE, { repair: true }))[0]).toMatchObject({ differences: 1, repaired: 1 });
    expect(tombstones(the.here)).toEqual(['later']);
  });

  test('collected in the middle of a comparison, they are none either', async () => {
    const the = await acquainted();
    const [result] = await the.manager.verify(THERE, { onProgress: () => collect(the.there) });
    expect(result).toMatchObject({ equal: true, differences: 0 });
  });
});

describe('a row that one side was given, and has deleted and forgotten', () => {
  test.each([
    ['that side', 'here'],
    ['the other', 'there'],
  ] as const)('is deleted on the other, whoever compares: %s', async (_, who) => {
    const the = await withZombie();
    const manager = who === 'here' ? the.manager : the.other;
    const [found] = await manager.verify();
    expect(found?.tables[0]?.list).toMatchObject([{ id: 'gone', forgotten: who === 'here' ? 'here' : 'there' }]);
    const [result] = await manager.verify(undefined, { repair: true });
    expect(result).toMatchObject({ equal: true, differences: 1, repaired: 1 });
    expect([ids(the.here), ids(the.there)]).toEqual([['kept'], ['kept']]);
    expect(the.manager.deadLetters.list()).toEqual([]);
    expect((await manager.verify())[0]).toMatchObject({ equal: true, differences: 0 });
  });

  test('also where the peer is given everything', async () => {
    const the = await withZombie();
    const db = new Connection(the.here);
    db.transaction(() => beginSeed(db, THERE, the.clock.now(), 'manual'));
    db.release();
    await the.manager.flush();
    expect([ids(the.here), ids(the.there)]).toEqual([['kept'], ['kept']]);
    expect(the.manager.deadLetters.list()).toEqual([]);
    expect(the.requests.filter(({ path }) => path === '/sync/fetch')).toEqual([]);
  });

  test('unless it was written since', async () => {
    const the = await withZombie();
    silently([the.there], () => the.there.exec(`UPDATE items SET updated_at = ${T + 11} WHERE id = 'gone'`));
    expect((await the.manager.verify(THERE, { repair: true }))[0]).toMatchObject({ equal: true, repaired: 1 });
    expect(ids(the.here)).toEqual(['gone', 'kept']);
  });

  test('unless it has not been delivered: then it arrives, and is set aside', async () => {
    const the = await acquainted();
    collect(the.here);
    the.link.up = false;
    insert(the.there, 'late', T + 5);
    expect((await the.manager.verify(THERE))[0]).toMatchObject({ differences: 0, pending: 1 });
    the.link.up = true;
    await the.other.flush();
    expect(the.manager.deadLetters.list()).toMatchObject([{ code: 'below-floor', rowId: 'late' }]);
    expect(ids(the.there)).toEqual(['kept', 'late']);
  });

  test('unless it has not been delivered, also where the table has another name since and travels under the old one', async () => {
    const the = await acquainted();
    collect(the.here);
    the.link.up = false;
    the.other.migrate('ALTER TABLE items RENAME TO things', { renameTable: { items: 'things' } });
    the.there.exec(`INSERT INTO things VALUES ('late', 'x', 1, 1, ${T + 5})`);
    for (const manager of [the.manager, the.other]) {
      const [result] = await manager.verify(undefined, { repair: true });
      expect(result).toMatchObject({ differences: 0, pending: 1 });
    }
    the.link.up = true;
    await the.other.flush();
    expect(the.manager.deadLetters.list()).toMatchObject([{ code: 'below-floor', rowId: 'late' }]);
    expect(rowsOf(the.there, 'SELECT id FROM things ORDER BY id')).toEqual([{ id: 'kept' }, { id: 'late' }]);
  });

  test.each([
    ['before', 0],
    ['after', 1],
  ] as const)('unless it was set aside, also %s the table has got another name', async (_, order) => {
    const the = await acquainted();
    collect(the.here);
    const steps = [
      async () => {
        insert(the.there, 'late', T + 5);
        await the.other.flush();
      },
      async () => {
        the.manager.migrate('ALTER TABLE items RENAME TO things', { renameTable: { items: 'things' } });
      },
    ];
    for (const step of order === 0 ? steps : steps.reverse()) await step();
    expect(the.manager.deadLetters.list()).toMatchObject([{ code: 'below-floor', rowId: 'late' }]);
    for (const manager of [the.manager, the.other]) {
      const [result] = await manager.verify(undefined, { repair: true });
      expect(result).toMatchObject({ equal: false, differences: 1, repaired: 0 });
    }
    expect(ids(the.there)).toEqual(['kept', 'late']);
  });

  test('unless it was set aside: a person decides', async () => {
    const the = await acquainted();
    collect(the.here);
    insert(the.there, 'late', T + 5);
    await the.other.flush();
    for (const manager of [the.manager, the.other]) {
      const [result] = await manager.verify(undefined, { repair: true });
      expect(result).toMatchObject({ equal: false, differences: 1, repaired: 0 });
    }
    expect(ids(the.there)).toEqual(['kept', 'late']);
    // Whoever discards it says that it is not wanted.
    the.manager.deadLetters.discard(the.manager.deadLetters.list()[0]?.id as number);
    expect((await the.manager.verify(THERE, { repair: true }))[0]).toMatchObject({ equal: true, repaired: 1 });
    expect(ids(the.there)).toEqual(['kept']);
  });
});

test('a row that is here and in use, however old, is compared as ever', async () => {
  const the = await acquainted();
  collect(the.here);
  silently([the.there], () => the.there.exec(`UPDATE items SET name = 'newer', updated_at = ${T + 1}`));
  expect((await the.manager.verify(THERE, { repair: true }))[0]).toMatchObject({ equal: true, repaired: 1 });
  expect(rowsOf(the.here, 'SELECT id, name FROM items')).toEqual([{ id: 'kept', name: 'newer' }]);
});
