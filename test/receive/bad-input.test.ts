/** What is not a batch is refused, what is not a change is parked, and neither touches anything else. */
import { describe, expect, test } from 'vitest';
import type { Manager } from '../../src/index.ts';
import { draws } from '../support/draws.ts';
import type { TestDatabase } from '../support/lane.ts';
import { Random } from '../support/model.ts';
import { cleanUp, type NodeOptions, node, rowsOf, type TestNode } from '../support/nodes.ts';

const SCHEMA = `
  CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT NOT NULL CHECK (name <> 'never'), value INTEGER, created_at INTEGER, updated_at INTEGER);
  CREATE TABLE "select" (id TEXT PRIMARY KEY, "a ""b" TEXT, updated_at INTEGER);
  CREATE TABLE private (id TEXT PRIMARY KEY, secret TEXT, updated_at INTEGER)
`;

/** A node with something to lose: rows, captured changes, tombstones, a table that is not synced. */
async function target(options: NodeOptions = {}): Promise<TestNode> {
  const made = await node({ schema: SCHEMA, tables: ['items', 'select'], ...options });
  made.db.exec("INSERT INTO items VALUES ('keep', 'kept', 1, 1, 1000), ('gone', 'n', 1, 1, 1000)");
  made.db.exec("DELETE FROM items WHERE id = 'gone'");
  made.db.exec(`INSERT INTO "select" VALUES ('keep', 'kept', 1000)`);
  made.db.exec("INSERT INTO private VALUES ('keep', 'secret', 1000)");
  // Nothing here has foreign keys; suspending them for every one of the bodies would take most of the time.
  made.db.exec('PRAGMA foreign_keys = OFF');
  return made;
}

/** Everything in the database but the dead letters: the schema, and each value of each table with its type. */
function dump(db: TestDatabase): string[] {
  const schema = rowsOf(db, 'SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name').map((one) =>
    JSON.stringify(one),
  );
  const tables = rowsOf(
    db,
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '\\_dead\\_letter%' ESCAPE '\\' AND name <> '_nodes' ORDER BY name",
  );
  const rows = tables.flatMap(({ name }) => {
    const table = `"${String(name).replaceAll('"', '""')}"`;
    const columns = rowsOf(db, 'SELECT name FROM pragma_table_info(?)', name).map(
      (column) => `quote("${String(column.name).replaceAll('"', '""')}")`,
    );
    const where = name === 'sqlite_sequence' ? "WHERE name <> '_dead_letter'" : '';
    return rowsOf(db, `SELECT ${columns.join(" || '|' || ")} AS line FROM ${table} ${where} ORDER BY 1`).map(
      ({ line }) => `${name}: ${line}`,
    );
  });
  return [...schema, ...rows];
}

function good(id: string): Record<string, unknown> {
  return {
    op: 'INSERT',
    table: 'items',
    row: { id, name: 'n', value: 1, created_at: 1, updated_at: 2000 },
    old_id: null,
  };
}

const VALID = JSON.stringify({ batch_id: 3, changes: [good('x'), good('y')] });

/** What a body may be instead of a batch. */
const REFUSED: [string, string | Uint8Array][] = [
  ['empty', ''],
  ['empty bytes', new Uint8Array()],
  ['white space', ' \n\t '],
  ['a word', 'hello'],
  ['a form', 'batch_id=1&changes=[]'],
  ['XML', '<batch><changes/></batch>'],
  ['null', 'null'],
  ['a number', '7'],
  ['a string', JSON.stringify(VALID)],
  ['an array', '[]'],
  ['a list of changes', JSON.stringify([good('x')])],
  ['an empty object', '{}'],
  ['two bodies in one', VALID + VALID],
  ['something after the end', `${VALID}x`],
  ['a byte order mark', `\ufeff${VALID}`],
  ['a byte order mark as bytes', Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from(VALID)])],
  ['UTF-16', Buffer.from(VALID, 'utf16le')],
  ['a NUL at the end', `${VALID}\0`],
  ['a NUL inside', VALID.replace('"n"', '"n\0"')],
  ['a NUL as bytes', Buffer.from(`${VALID}\0`)],
  ['a raw newline in a string', VALID.replace('"n"', '"n\n"')],
  ['a comment', `/* hello */${VALID}`],
  ['a line comment', `${VALID}// bye`],
  ['a comma too many', VALID.replace(']}', ',]}')],
  ['single quotes', VALID.replaceAll('"', "'")],
  ['keys without quotes', VALID.replace('"batch_id"', 'batch_id')],
  ['a hexadecimal number', VALID.replace('"batch_id":3', '"batch_id":0x3')],
  ['a plus sign', VALID.replace('"batch_id":3', '"batch_id":+3')],
  ['NaN', VALID.replace('"value":1', '"value":NaN')],
  ['Infinity', VALID.replace('"value":1', '"value":Infinity')],
  ['a number with a leading dot', VALID.replace('"value":1', '"value":.5')],
  ['a leading zero', VALID.replace('"value":1', '"value":01')],
  ['True', VALID.replace('"value":1', '"value":True')],
  ['an unknown escape', VALID.replace('"n"', '"\\x41"')],
  ['half an escape', VALID.replace('"n"', '"\\u12"')],
  ['nesting 100,000 deep', `{"batch_id":1,"changes":${'['.repeat(100_000)}${']'.repeat(100_000)}}`],
  ['nesting 100,000 deep, never closed', '['.repeat(100_000)],
  ['objects 100,000 deep', `{"batch_id":1,"changes":${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}}`],
  ['a row nested 100,000 deep', VALID.replace('"n"', `${'['.repeat(100_000)}${']'.repeat(100_000)}`)],
  ['11,000 changes', JSON.stringify({ batch_id: 1, changes: Array.from({ length: 11_000 }, (_, i) => good(`r${i}`)) })],
  ['10,001 changes', JSON.stringify({ batch_id: 1, changes: Array.from({ length: 10_001 }, (_, i) => good(`r${i}`)) })],
  ...[
    'null',
    '"3"',
    'true',
    '3.5',
    '3.0',
    '3e0',
    '1e400',
    '-1e400',
    '9223372036854775808',
    '-9223372036854775809',
    `1${'0'.repeat(5_000)}`,
    '[]',
    '[3]',
    '{}',
  ].map((id): [string, string] => [`batch_id ${id.slice(0, 30)}`, VALID.replace('"batch_id":3', `"batch_id":${id}`)]),
  ...['null', '"[]"', '{}', '7', 'true', '{"0":{},"length":1}'].map((changes): [string, string] => [
    `changes ${changes}`,
    `{"batch_id":3,"changes":${changes}}`,
  ]),
  ['no batch_id', '{"changes":[]}'],
  ['no changes', '{"batch_id":3}'],
  ['names in another case', '{"Batch_Id":3,"Changes":[]}'],
  ['__proto__ in place of the fields', '{"__proto__":{"batch_id":3,"changes":[]}}'],
  ['batch_id twice, the first one wrong', VALID.replace('{"batch_id":3', '{"batch_id":"x","batch_id":3')],
];

/** A refusal: 4xx with a text, and not a trace in the database. */
function expectRefused(target: TestNode, before: string[], body: string | Uint8Array, what: string): void {
  const answer = target.manager.receive(body, { from: 'somebody', said: 'id=somebody' });
  expect([400, 413], what).toContain(answer.status);
  expect((answer.body as { error: string }).error, what).toMatch(/\w{3}/);
  expect(dump(target.db), what).toEqual(before);
}

describe('a body that is not a batch is refused and changes nothing', () => {
  test.each(REFUSED)('%s', async (what, body) => {
    const made = await target();
    expectRefused(made, dump(made.db), body, what);
    expect(made.manager.deadLetters.list()).toEqual([]);
    expect(made.manager.health().ok).toBe(true);
  });

  test('one that is larger than allowed', async () => {
    const made = await target({ maxBodyBytes: 2_000 });
    const body = JSON.stringify({ batch_id: 1, changes: [good('é'.repeat(1_000))] });
    const before = dump(made.db);
    for (const form of [body, Buffer.from(body)]) {
      expect(made.manager.receive(form)).toEqual({
        status: 413,
        body: { error: expect.stringContaining('2000') },
        headers: expect.any(Object),
      });
    }
    expect(dump(made.db)).toEqual(before);
  });

  test('hundreds of torn, damaged or mistyped ones', { tags: 'long' }, async () => {
    const made = await target();
    const before = dump(made.db);
    const random = new Random(32);
    const bytes = Buffer.from(VALID);
    for (let i = 0; i < draws(800); i++) {
      const body = random.pick([
        () => VALID.slice(0, random.below(VALID.length)),
        () => bytes.subarray(0, random.below(bytes.length)),
        () => withByte(bytes, random.below(bytes.length), 0x80 + random.below(0x80)),
        () => withByte(bytes, random.below(bytes.length), random.below(0x20)),
        () => Buffer.from(Array.from({ length: 1 + random.below(50) }, () => random.below(256))),
        () => `{"batch_id":${wrong(random, ['integer'])},"changes":[]}`,
        () => `{"batch_id":3,"changes":${wrong(random, ['array'])}}`,
      ])();
      if (isBatch(body)) continue;
      expectRefused(made, before, body, `body ${i}: ${Buffer.from(body).toString('latin1')}`);
    }
    expect(made.manager.deadLetters.list()).toEqual([]);
  });
});

function withByte(bytes: Buffer, at: number, byte: number): Buffer {
  const copy = Buffer.from(bytes);
  copy[at] = byte;
  return copy;
}

/** Damage may leave a batch intact: white space for white space, or one character of a name for another. */
function isBatch(body: string | Uint8Array): boolean {
  try {
    const text =
      typeof body === 'string' ? body : new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body);
    const parsed = JSON.parse(text);
    return Number.isInteger(parsed.batch_id) && Array.isArray(parsed.changes);
  } catch {
    return false;
  }
}

type Kind = 'null' | 'boolean' | 'integer' | 'real' | 'text' | 'array' | 'object' | 'missing';

/** A JSON value that is of none of the given kinds. */
function wrong(random: Random, not: Kind[]): string {
  const values: Record<Exclude<Kind, 'missing'>, string[]> = {
    null: ['null'],
    boolean: ['true', 'false'],
    integer: ['0', '-7', '5', '9007199254740993', '9223372036854775807'],
    real: ['1.5', '-0.0', '1e3', '1e400', '-1e400', '99999999999999999999', '1e-400'],
    text: [
      '""',
      '"x"',
      '"1000"',
      '"__proto__"',
      '"\'; DROP TABLE items; --"',
      '"\\u0000"',
      '"\\ud800"',
      '"$int:5"',
      '"null"',
    ],
    array: ['[]', '[1]', '["x"]', '[[[[]]]]', '[null]', `${'['.repeat(500)}${']'.repeat(500)}`],
    object: [
      '{}',
      '{"id":"x"}',
      '{"__proto__":{"polluted":true}}',
      '{"length":1}',
      '{"constructor":{"prototype":{"polluted":true}}}',
    ],
  };
  const kinds = (Object.keys(values) as Exclude<Kind, 'missing'>[]).filter((kind) => !not.includes(kind));
  return random.pick(values[random.pick(kinds)]);
}

const FOREIGN_TABLES = [
  '_changes',
  '_meta',
  '_META',
  '_tombstones',
  '_dead_letter',
  '_dead_letter_info',
  '_peer_state',
  '_replaced',
  '_rowcast_stage',
  'temp._rowcast_stage',
  'sqlite_schema',
  'sqlite_master',
  'sqlite_sequence',
  'sqlite_temp_master',
  'pragma_table_info',
  'json_each',
  'private',
  'main.items',
  'main"."items',
  '"items"',
  '[items]',
  ' items',
  'items ',
  'items\0',
  'items\0x',
  'items; DROP TABLE items; --',
  "items' OR '1'='1",
  'items" (id) VALUES (1); --',
  'ıtems',
  'item',
  '',
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  'x'.repeat(10_000),
];

/** One change as JSON text in which exactly one thing is wrong, and the code by which it is to be set aside. */
function badChange(random: Random): { text: string; codes: string[] } {
  const id = JSON.stringify(`bad${random.below(50)}`);
  const isDelete = random.chance(0.3);
  const parts = {
    op: isDelete ? '"DELETE"' : random.pick(['"INSERT"', '"UPDATE"']),
    table: '"items"',
    id,
    time: '5000',
    name: '"n"',
    oldId: isDelete ? id : 'null',
  };
  const row = (): string =>
    `{"id":${parts.id},"name":${parts.name},"value":1,"created_at":1,"updated_at":${parts.time}}`;
  const change = (rowText = row()): string =>
    `{"op":${parts.op},"table":${parts.table},"row":${rowText},"old_id":${parts.oldId}}`;
  const without = (field: string): string => change().replace(new RegExp(`"${field}":("[^"]*"|\\d+|null),?`), '');
  const made = random.pick<() => { text: string; codes: string[] }>([
    () => ({ text: wrong(random, ['object']), codes: ['bad-change'] }),
    () => {
      const names = ['insert', 'Update', 'TRUNCATE', 'INSERT ', 'INSERT\0', 'INSERT; DROP TABLE items', '', 'REPLACE'];
      parts.op = random.chance(0.5) ? JSON.stringify(random.pick(names)) : wrong(random, []);
      return { text: change(), codes: ['bad-op'] };
    },
    () => ({ text: without('op'), codes: ['bad-op'] }),
    () => {
      parts.table = random.chance(0.8) ? JSON.stringify(random.pick(FOREIGN_TABLES)) : wrong(random, []);
      return { text: change(), codes: ['unknown-table'] };
    },
    () => ({ text: without('table'), codes: ['unknown-table'] }),
    () => ({ text: change(wrong(random, isDelete ? ['object', 'null'] : ['object'])), codes: ['bad-row'] }),
    () => {
      const times = ['8640000000000001', '-8640000000000001', '9223372036854775807', '-9223372036854775808'];
      parts.time = random.chance(0.3) ? random.pick(times) : wrong(random, ['integer']);
      return { text: change(), codes: ['bad-timestamp'] };
    },
    () => ({ text: change().replace(',"updated_at":5000', ''), codes: ['bad-timestamp'] }),
    () => {
      // A deletion may name its row in either place, so both have to be wrong.
      parts.id = wrong(random, ['text']);
      parts.oldId = isDelete ? wrong(random, ['text']) : parts.oldId;
      return { text: change(), codes: ['bad-id'] };
    },
    () => {
      parts.op = '"DELETE"';
      parts.oldId = '"somebody else"';
      return { text: change(), codes: ['bad-id'] };
    },
    () => {
      parts.op = '"DELETE"';
      parts.oldId = wrong(random, ['text']);
      return { text: change('null'), codes: ['bad-id'] };
    },
    () => {
      parts.op = '"INSERT"';
      parts.name = random.pick(['"never"', 'null']);
      return { text: change(), codes: ['constraint'] };
    },
    () => {
      parts.op = '"INSERT"';
      const text = change(`{"id":${id},"updated_at":5000}`);
      return { text, codes: ['constraint'] };
    },
  ])();
  return made;
}

function receive(
  manager: Manager,
  body: string,
): { applied: number; rejected: { index: number; code: string; message: string }[] } {
  const answer = manager.receive(body, { said: 'id=somebody' });
  expect(answer.status, body).toBe(200);
  if (answer.status !== 200) throw new Error(answer.body.error);
  return { applied: answer.body.applied, rejected: answer.body.rejected ?? [] };
}

describe('a change that is not one is parked', () => {
  test('hundreds of batches of bad changes are parked with a reason and change nothing else', {
    tags: 'long',
  }, async () => {
    const made = await target();
    const before = dump(made.db);
    const random = new Random(320);
    const seen = new Set<string>();
    const batches = draws(1_000);
    for (let i = 0; i < batches; i++) {
      const bad = Array.from({ length: 1 + random.below(4) }, () => badChange(random));
      const body = `{"batch_id":${i},"changes":[${bad.map(({ text }) => text).join(',')}]}`;
      const { applied, rejected } = receive(made.manager, body);
      expect(applied, body).toBe(0);
      expect(
        rejected.map(({ index }) => index),
        body,
      ).toEqual(bad.map((_, index) => index));
      for (const { index, code, message } of rejected) {
        expect(bad[index]?.codes, body).toContain(code);
        expect(message, body).toMatch(/\w{3}/);
        seen.add(code);
      }
      expect(dump(made.db), body).toEqual(before);
    }
    expect([...seen].sort()).toEqual([
      'bad-change',
      'bad-id',
      'bad-op',
      'bad-row',
      'bad-timestamp',
      'constraint',
      'unknown-table',
    ]);
    expect(made.manager.deadLetters.list({ limit: 10_000 }).length).toBeGreaterThan(batches * 0.4);
    expect(made.manager.deadLetters.list({ limit: 10_000 }).every(({ reason }) => reason !== null)).toBe(true);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
    expect(made.manager.health()).toMatchObject({ ok: true });

    // Trying them all again, or attaching again, does not make them any better.
    for (const { id } of made.manager.deadLetters.list({ limit: 10_000 })) {
      expect(made.manager.deadLetters.retry(id).outcome).toBe('kept');
    }
    expect(dump(made.db)).toEqual(before);
  });

  test('good changes among bad ones are applied, a hundred times over and more', async () => {
    const made = await target();
    const random = new Random(321);
    let expected = rowsOf(made.db, 'SELECT id FROM items').length;
    for (let i = 0; i < draws(400); i++) {
      const entries = Array.from({ length: 1 + random.below(5) }, () => badChange(random).text);
      const bad = entries.length;
      const kept = Array.from({ length: 1 + random.below(3) }, (_, n) => JSON.stringify(good(`good-${i}-${n}`)));
      expected += kept.length;
      const body = `{"batch_id":${i},"changes":[${random.shuffle([...entries, ...kept]).join(',')}]}`;
      const { applied, rejected } = receive(made.manager, body);
      expect([applied, rejected.length], body).toEqual([kept.length, bad]);
      expect(rowsOf(made.db, 'SELECT count(*) AS n FROM items'), body).toEqual([{ n: expected }]);
    }
    expect(rowsOf(made.db, "SELECT name FROM items WHERE id = 'keep'")).toEqual([{ name: 'kept' }]);
  });

  const columns = [
    '__proto__',
    'constructor',
    'a"b',
    "a'b",
    'a\\b',
    'a.b',
    '$.id',
    '',
    'rowid',
    '"id"',
    'id; --',
    'x'.repeat(5_000),
  ];
  test.each(columns)('a column %j that is not there is parked, and the known ones are applied', async (column) => {
    const made = await target();
    const text = JSON.stringify(good('x')).replace(
      '"value":1',
      `"value":1,${JSON.stringify(column)}:{"polluted":true}`,
    );
    const { applied, rejected } = receive(made.manager, `{"batch_id":1,"changes":[${text}]}`);
    expect([applied, rejected.map(({ code }) => code)]).toEqual([0, ['unknown-column']]);
    expect(rowsOf(made.db, "SELECT id, value FROM items WHERE id = 'x'")).toEqual([{ id: 'x', value: 1 }]);
    expect(made.manager.deadLetters.list()).toHaveLength(1);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });

  test('keys that come twice are read one way: one row, with one id and one version', async () => {
    const made = await target();
    const twice =
      '{"op":"INSERT","table":"items","row":{"id":"first","id":"second","name":"n","value":1,"created_at":1,"updated_at":5,"updated_at":6},"old_id":null}';
    const { applied } = receive(made.manager, `{"batch_id":1,"changes":[${twice}]}`);
    const rows = rowsOf(made.db, "SELECT id, updated_at FROM items WHERE id <> 'keep'");
    expect(rows.length).toBe(applied);
    for (const row of rows) {
      expect([
        { id: 'first', updated_at: 5 },
        { id: 'second', updated_at: 6 },
      ]).toContainEqual(row);
    }
    expect(receive(made.manager, `{"batch_id":1,"changes":[${twice}]}`).applied).toBe(applied);
  });

  test('one bad change of each kind a thousand times is one letter of each kind', async () => {
    const made = await target();
    const bad = [
      '5',
      '{"op":"NO"}',
      '{"op":"INSERT","table":"items","row":{"id":"x","updated_at":"soon"},"old_id":null}',
    ];
    const all = Array.from({ length: 999 }, (_, i) => bad[i % 3]);
    expect(receive(made.manager, `{"batch_id":1,"changes":[${all.join(',')}]}`).rejected).toHaveLength(999);
    expect(made.manager.deadLetters.list()).toHaveLength(3);
  });
});

test('a listener that throws does not reach the sender', async () => {
  const made = await target();
  const stop = made.manager.on('dead-letter', () => {
    throw new Error('mine');
  });
  cleanUp(stop);
  expect(receive(made.manager, '{"batch_id":1,"changes":[5]}').rejected).toHaveLength(1);
});

test.each([
  ['updated_at', '1790000000000.0', 'not 1790000000000.0'],
  ['updated_at', '"1790000000000"', 'not "1790000000000"'],
  ['updated_at', '9007199254740993', 'not 9007199254740993'],
  ['id', '26', 'not 26'],
  ['id', 'null', 'not "null"'],
  ['op', '5', 'not 5'],
])('the letter of a change whose %s is %s has it as it came', async (field, value, said) => {
  const { manager } = await target();
  const change = JSON.stringify(good('x')).replace(new RegExp(`"${field}":("[^"]*"|\\d+)`), `"${field}":${value}`);
  manager.receive(`{"batch_id":3,"changes":[${change}]}`);
  const [letter] = manager.deadLetters.list();
  expect(letter?.reason?.endsWith(said), letter?.reason ?? 'none').toBe(true);
});
