/** Values and ids that are out of the ordinary, and rows that have no id. */
import { describe, expect, test } from 'vitest';
import type { Fetch } from '../../src/send/transport.ts';
import { expectSameElsewhere, expectSameWithout, origin, PEER, standstill } from '../support/elsewhere.ts';
import { captured, node, rowsOf } from '../support/nodes.ts';

describe('odd values in a write', () => {
  test('BLOBs in every column that takes them', async () => {
    const it = await origin();
    const statements = [
      "INSERT INTO items VALUES ('a', x'', x'00', zeroblob(3), 1000)",
      "INSERT INTO items VALUES ('b', x'ff00fe', randomblob(0), x'7b7d', 1000)",
      "UPDATE items SET name = x'24' WHERE id = 'a'",
      "DELETE FROM items WHERE id = 'b'",
    ];
    await expectSameWithout(it, statements);
    await expectSameElsewhere(it);
  });

  test('a JSON value arrives as the text that it is, not as a nested object', async () => {
    const it = await origin({
      schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, a TEXT, b, c ANY, updated_at INTEGER)',
    });
    it.db.exec(
      `INSERT INTO items VALUES ('a', json('{"x":[1,2]}'), json_array(1, '2', NULL), json_object('k', json('[]')), 1000)`,
    );
    it.db.exec(`INSERT INTO items VALUES ('b', json('"text"'), json('1.50'), json('null'), 1000)`);
    it.db.exec(
      `UPDATE items SET a = json_set(a, '$.y', json('true')), b = jsonb('[1]'), updated_at = 2000 WHERE id = 'a'`,
    );
    it.db.exec(
      "UPDATE items SET c = json_group FROM (SELECT json_group_array(id) AS json_group FROM items) WHERE id = 'b'",
    );
    expect(captured(it.db)[0]?.row).toMatchObject({ a: '{"x":[1,2]}', b: '[1,"2",null]', c: '{"k":[]}' });
    expect(captured(it.db)[2]?.row).toMatchObject({ a: '{"x":[1,2],"y":true}' });
    await expectSameElsewhere(it);
  });

  const IDS = [
    "''",
    "'$'",
    "'$blob:00'",
    "'$text:x'",
    "'$int:1'",
    "'['",
    "'[]'",
    "'{}'",
    '\'{"a":1}\'',
    "'\"'",
    "'back\\slash'",
  ];
  const MORE = [
    "' '",
    "'null'",
    "'0'",
    "'1e5'",
    "'é'",
    "'🙂'",
    "'a' || char(0) || 'b'",
    "x'00ff'",
    "x''",
    'char(10)',
    '12',
    '1.5',
  ];
  for (const id of [...IDS, ...MORE, "'' || json('[1]')", "'$blob:' || char(0) || 'x'"]) {
    test(`the id ${id}`, async () => {
      const it = await origin();
      await expectSameWithout(it, [
        `INSERT INTO items VALUES (${id}, 'n', 1, 1, 5000)`,
        "INSERT INTO items VALUES ('other', 'n', 1, 1, 1000)",
        `UPDATE items SET name = 'x' WHERE id = ${id}`,
        `REPLACE INTO items VALUES (${id}, 'replaced', 1, 1, 1)`,
        `DELETE FROM items WHERE id = ${id}`,
        `INSERT INTO items VALUES (${id}, 'again', 1, 1, 1)`,
        `UPDATE items SET id = 'moved' WHERE id = ${id}`,
        `UPDATE items SET id = ${id} WHERE id = 'other'`,
      ]);
      await expectSameElsewhere(it);
    });
  }
});

describe('NULL ids', () => {
  const statements = [
    "INSERT INTO items VALUES (NULL, 'first', 1, 1, 1000), (NULL, 'second', 2, 2, NULL)",
    "INSERT INTO items VALUES ('a', 'named', 1, 1, 1000)",
    "UPDATE items SET value = 5 WHERE name = 'first'",
    "UPDATE items SET value = 6, updated_at = 1 WHERE name = 'first'",
    "INSERT INTO items VALUES (NULL, 'third', 3, 3, 1000)",
    "DELETE FROM items WHERE name = 'third'",
    "INSERT OR REPLACE INTO items VALUES (NULL, 'fourth', 3, 3, 1000)",
  ];

  test('the writes stand, and each row that has none is a dead letter with a reason instead of going missing', async () => {
    const it = await origin();
    await expectSameWithout(it, statements);
    const nameless = captured(it.db).filter(({ row_id }) => row_id === null);
    expect(new Set(nameless.map(({ row }) => row.name))).toEqual(new Set(['first', 'second', 'third', 'fourth']));
    await expectSameElsewhere(it);
    const letters = it.manager.deadLetters.list();
    expect(letters).toHaveLength(3);
    expect(
      letters.every(({ reason, table, rowId }) => /no id/.test(reason ?? '') && table === 'items' && rowId === null),
    ).toBe(true);
    expect(new Set(letters.map(({ row }) => JSON.parse(row ?? '{}').name))).toEqual(
      new Set(['first', 'second', 'fourth']),
    );
    expect(it.manager.health().dead_letter).toBe(3);
  });

  test('a row that gets its id later is replicated from then on', async () => {
    const it = await origin();
    it.db.exec("INSERT INTO items VALUES (NULL, 'late', 1, 1, 1000)");
    it.db.exec("UPDATE items SET id = 'late'");
    it.db.exec("INSERT INTO items VALUES ('lost', 'x', 1, 1, 1000)");
    it.db.exec("UPDATE items SET id = NULL WHERE id = 'lost'");
    await expectSameElsewhere(it);
    expect(it.manager.deadLetters.list().length).toBeGreaterThan(0);
  });

  test('a peer that is enrolled after the write gets a letter for it too, not silence', async () => {
    const first = await node();
    first.db.exec("INSERT INTO items VALUES (NULL, 'nameless', 1, 1, 1000), ('a', 'named', 1, 1, 1000)");
    await first.manager.stop();
    const { attach } = await import('../../src/index.ts');
    const bodies: string[] = [];
    const fetch: Fetch = async (_url, { body }) => {
      bodies.push(new TextDecoder().decode(body));
      return { status: 200, text: async () => JSON.stringify({ ack: JSON.parse(bodies.at(-1) ?? '').batch_id }) };
    };
    const manager = attach(first.db, { id: 'n', peers: [PEER], clock: standstill, batchMs: 3_600_000, fetch }, [
      'items',
    ]);
    await manager.flush();
    expect(bodies.join()).toContain('named');
    expect(manager.deadLetters.list().map(({ row }) => JSON.parse(row ?? '{}').name)).toEqual(['nameless']);
    await manager.stop();
  });
});

test('the letter of a row without an id goes when the row gets one, is written again, or is gone', async () => {
  const from = await origin();
  const rows = (): unknown[] => from.manager.deadLetters.list().map(({ row }) => JSON.parse(row ?? '').name);
  from.db.exec("INSERT INTO items VALUES (NULL, 'a', 1, 1, 1000), (NULL, 'b', 1, 1, 1000), (NULL, 'c', 1, 1, NULL)");
  await from.manager.flush();
  expect(rows().sort()).toEqual(['a', 'b', 'c']);
  expect(from.manager.deadLetters.list().every(({ code }) => code === 'no-id')).toBe(true);
  from.db.exec("UPDATE items SET id = 'now' WHERE name = 'a'");
  await from.manager.flush();
  expect(rows().sort()).toEqual(['b', 'c']);
  from.db.exec("UPDATE items SET name = 'B' WHERE name = 'b'; DELETE FROM items WHERE name = 'c'");
  await from.manager.flush();
  expect(rows()).toEqual(['B']);
  from.db.exec("UPDATE items SET id = 'then' WHERE id IS NULL");
  await from.manager.flush();
  expect(from.manager.health()).toMatchObject({ dead_letter: 0, pending_changes: 0 });
  expect(rowsOf(from.db, 'SELECT count(*) AS n FROM _dead_letter_info')).toEqual([{ n: 0 }]);
  await expectSameElsewhere(from);
});
