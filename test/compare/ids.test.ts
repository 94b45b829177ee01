import { expect, test } from 'vitest';
import { compareIds, isId, type OwnId, partsOf, toWire } from '../../src/compare/ids.ts';
import type { TestDatabase } from '../support/lane.ts';
import { database } from '../support/nodes.ts';

const bytes = (...values: number[]): Uint8Array => Uint8Array.from(values);
const IDS: OwnId[] = [
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
  bytes(),
  bytes(0),
  bytes(1, 2),
  bytes(255),
];

test('every spelling on the wire is canonical, and no other is an id', () => {
  expect(new Set(IDS.map(toWire)).size).toBe(IDS.length);
  for (const id of IDS) expect(isId(toWire(id)), toWire(id)).toBe(true);
  for (const id of ['$blob:1', '$blob:ab', '$blob:zz', '$int:1', '$real:1', '$text:a', '$text:'])
    expect(isId(id), id).toBe(false);
});

test('a range on the wire is exactly the ids between its bounds, in the order of the wire', async () => {
  const db = await database('CREATE TABLE t (id TEXT PRIMARY KEY) WITHOUT ROWID');
  for (const id of IDS) db.prepare('INSERT INTO t VALUES (?)').run(id);
  const wire = IDS.map(toWire).sort(compareIds);
  const bounds = [null, ...wire];
  for (const after of bounds) {
    for (const upTo of [...wire, null]) {
      if (after !== null && upTo !== null && compareIds(after, upTo) > 0) continue;
      const expected = wire.filter(
        (id) => (after === null || compareIds(id, after) > 0) && (upTo === null || compareIds(id, upTo) <= 0),
      );
      expect(idsIn(db, after, upTo), `(${after}, ${upTo}]`).toEqual(expected);
    }
  }
});

function idsIn(db: TestDatabase, after: string | null, upTo: string | null): string[] {
  return partsOf({ after, upTo }).flatMap(({ where, params }) =>
    db
      .prepare(`SELECT id FROM t WHERE ${where('id')} ORDER BY id`)
      .all(...params)
      .map((row) => toWire((row as { id: OwnId }).id)),
  );
}
