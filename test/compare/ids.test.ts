import { expect, test } from 'vitest';
import { compareIds, isId, keyOf, partsOf } from '../../src/compare/ids.ts';
import { exactString } from '../../src/wire/exact-text.ts';
import { idForWire } from '../../src/wire/values.ts';
import type { TestDatabase } from '../support/lane.ts';
import { database } from '../support/nodes.ts';

/** Text, with its bytes: not all of it is UTF-8. */
const TEXTS = [
  '',
  ' ',
  '#',
  '$',
  '$blob',
  '$blob:',
  '$blob:AB',
  '$blob;',
  '$bytes:',
  '$bytes:FF',
  '$bytes;',
  '$c',
  '$int:',
  '$int:1',
  '$int;',
  '$real:9e999',
  '$s',
  '$text',
  '$text:',
  '$text:$blob:',
  '$text:x',
  '$text;',
  '%',
  '0',
  'A',
  'a',
  'a\u0000b',
  'a\u0000c',
  'B',
  'é',
  '\uffee',
  '😀',
  'zz',
].map((text) => Buffer.from(text));
const NO_UTF8 = [
  [0xff],
  [0x21, 0xff],
  [0x61, 0x00, 0x80],
  [0x61, 0xc3],
  [0xc3, 0xa9, 0x80],
  [0xed, 0xa0, 0x80],
  [...Buffer.from('$blob:'), 0xff],
  [...Buffer.from('$bytes:'), 0xff],
  [...Buffer.from('$c'), 0xff],
  [...Buffer.from('$text:$blob:'), 0xff],
].map((bytes) => Buffer.from(bytes));
const BLOBS = [[], [0], [1, 2], [255]].map((bytes) => Buffer.from(bytes));

async function filled(): Promise<TestDatabase> {
  const db = await database('CREATE TABLE t (id TEXT PRIMARY KEY) WITHOUT ROWID');
  for (const id of [...TEXTS, ...NO_UTF8]) db.prepare('INSERT INTO t VALUES (CAST(? AS TEXT))').run(id);
  for (const id of BLOBS) db.prepare('INSERT INTO t VALUES (?)').run(id);
  return db;
}

const WIRE = `SELECT ${idForWire('id')} AS id FROM t`;
const wireOf = (row: unknown): string => exactString((row as { id: Uint8Array }).id);

test('every spelling on the wire is canonical, and no other is an id', async () => {
  const wire = (await filled()).prepare(WIRE).all().map(wireOf);
  expect(new Set(wire).size).toBe(TEXTS.length + NO_UTF8.length + BLOBS.length);
  for (const id of wire) expect(isId(id), id).toBe(true);
  const wrong = ['$blob:1', '$blob:ab', '$blob:zz', '$int:1', '$real:1', '$text:a', '$text:', '$bytes:41', '$bytes:ff'];
  for (const id of [...wrong, '$bytes:F', '$bytes:']) expect(isId(id), id).toBe(false);
});

test('a range on the wire is exactly the ids between its bounds, in the order of the wire', {
  tags: 'long',
}, async () => {
  const db = await filled();
  const wire = db.prepare(WIRE).all().map(wireOf).sort(compareIds);
  const bytes = wire.map((id) => Buffer.from(keyOf(id), 'latin1'));
  expect(bytes.toSorted(Buffer.compare)).toEqual(bytes);
  const bounds = [null, ...wire];
  for (const after of bounds) {
    for (const upTo of [...wire, null]) {
      if (after !== null && upTo !== null && compareIds(after, upTo) > 0) continue;
      const expected = wire.filter(
        (id) => (after === null || compareIds(id, after) > 0) && (upTo === null || compareIds(id, upTo) <= 0),
      );
      const found = partsOf({ after, upTo }).flatMap(({ where, params }) =>
        db
          .prepare(`${WIRE} WHERE ${where('id')} ORDER BY t.id`)
          .all(...params)
          .map(wireOf),
      );
      expect(found, `(${after}, ${upTo}]`).toEqual(expected);
    }
  }
});
