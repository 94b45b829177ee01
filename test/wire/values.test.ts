/** Values on the wire: every storage class in every affinity arrives bit for bit, on each way that a row can travel. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import type { Fetch } from '../../src/send/transport.ts';
import type { Column } from '../../src/sqlite/schema.ts';
import { content } from '../../src/wire/content.ts';
import { anyText } from '../support/any-text.ts';
import { draws, shared } from '../support/draws.ts';
import { PEER, standstill } from '../support/elsewhere.ts';
import type { TestDatabase } from '../support/lane.ts';
import { attached, captured, cleanUp, database, node, recording, rowsOf, type TestNode } from '../support/nodes.ts';
import { VALUES } from '../support/values.ts';

/** A node whose bodies go to `receive`; what that answers is the peer's answer. */
function shippingTo(receive: (body: Uint8Array) => { status: number; body: unknown }) {
  const fetch: Fetch = async (_url, { body }) => {
    const answer = receive(body);
    return { status: answer.status, text: async () => JSON.stringify(answer.body) };
  };
  return { id: 'origin', peers: [PEER], clock: standstill, batchMs: 3_600_000, random: () => 1, fetch };
}

/** Deletes nothing, but no batch that holds it is regular. */
const STRANGER = '{"op":"DELETE","table":"items","row":null,"old_id":"nobody"}';

function carefully(body: Uint8Array): string {
  return new TextDecoder().decode(body).replace(/\]\}$/, `,${STRANGER}]}`);
}

/** A node, and whether a batch went the careful way: that lays the changes out in a temporary table. */
async function watched(schema: string) {
  const db = await database(schema);
  const { handle, sql } = recording(db);
  const manager = attached(handle);
  return { db, manager, wentCarefully: () => sql.some((text) => text.startsWith('INSERT INTO temp._rowcast_stage')) };
}

/** id, storage class, value and bytes. quote() alone stops at a NUL character. */
function cells(db: TestDatabase, columns = ['v'], where = 'true'): string[] {
  const cell = (name: string): string => `typeof(${name}) || ' ' || quote(${name}) || ' ' || hex(${name})`;
  const line = columns.map(cell).join(" || '; ' || ");
  return rowsOf(db, `SELECT id || ': ' || ${line} AS line FROM items WHERE ${where} ORDER BY id`).map(({ line: l }) =>
    String(l),
  );
}

/** These hold `":`, by which a batch is suspected of unknown columns and takes the careful path. */
const LIKE_JSON = [
  `'{"a":1,"b":[null,{"c":"d"}]}'`,
  `json('{"x":"y"}')`,
  `'":'`,
  `json_array(json_object('k', 1))`,
  `'{"a":1}}'`,
];

const TYPES: Record<string, string> = {
  TEXT: 'TEXT',
  'VARCHAR(3)': 'VARCHAR(3)',
  INTEGER: 'INTEGER',
  BOOLEAN: 'BOOLEAN',
  REAL: 'REAL',
  'DOUBLE PRECISION': 'DOUBLE PRECISION',
  NUMERIC: 'NUMERIC',
  'DECIMAL(10,2)': 'DECIMAL(10,2)',
  BLOB: 'BLOB',
  'no type': '',
  'a type named ANY': 'ANY',
  'TEXT COLLATE NOCASE': 'TEXT COLLATE NOCASE',
  'no type COLLATE NOCASE': 'COLLATE NOCASE',
  'STRICT INT': 'INT',
  'STRICT INTEGER': 'INTEGER',
  'STRICT REAL': 'REAL',
  'STRICT TEXT': 'TEXT',
  'STRICT BLOB': 'BLOB',
  'STRICT ANY': 'ANY',
};

const schemaFor = (what: string): string =>
  `CREATE TABLE items (id TEXT PRIMARY KEY, v ${TYPES[what]}, updated_at INTEGER)${what.startsWith('STRICT') ? ' STRICT' : ''}`;

/** Writes every value that the type takes at all, and says how many those were. */
function fill(db: TestDatabase, values: string[]): number {
  let taken = 0;
  values.forEach((value, i) => {
    try {
      db.exec(
        `INSERT INTO items VALUES ('${String(i).padStart(3, '0')} ${value.slice(0, 30).replaceAll(/['"\\]|[^ -~]/g, '_')}', ${value}, ${1000 + i})`,
      );
      taken += 1;
    } catch (error) {
      // A STRICT table refuses other types, capture or not.
      expect(String((error as Error).message)).toMatch(/cannot store/);
    }
  });
  return taken;
}

describe('every value in every kind of column', () => {
  const kinds = Object.keys(TYPES);
  const taken = shared(kinds);
  let cellsChecked = 0;

  for (const what of taken) {
    test(`${what}: the same storage class and bytes on the fast path, the careful path and in a snapshot`, async () => {
      const schema = schemaFor(what);
      const plain = await database(schema);
      fill(plain, VALUES);

      const [fast, careful] = [await watched(schema), await watched(schema)];
      const bodies: Uint8Array[] = [];
      const origin = await node({
        schema,
        ...shippingTo((body) => {
          bodies.push(body);
          expect(careful.manager.receive(carefully(body)).body).not.toHaveProperty('rejected');
          return fast.manager.receive(body);
        }),
      });
      const count = fill(origin.db, VALUES);
      const expected = cells(plain);
      expect(cells(origin.db), 'capture does not change what the application wrote').toEqual(expected);
      expect(expected).toHaveLength(count);
      cellsChecked += count;

      expect(await origin.manager.flush()).toEqual({ delivered: [PEER], unreachable: [] });
      expect(cells(fast.db), 'fast').toEqual(expected);
      expect(cells(careful.db), 'careful').toEqual(expected);
      expect(fast.wentCarefully()).toBe(false);
      expect(careful.wentCarefully()).toBe(true);

      // Sent again, every value is recognised as already in place: its canonical content is the same on both sides.
      const [body] = bodies as [Uint8Array];
      expect(fast.manager.receive(body).body, 'fast, again').toMatchObject({ applied: count });
      // The stranger counts as well: there is nothing left to delete.
      expect(careful.manager.receive(carefully(body)).body, 'careful, again').toMatchObject({ applied: count + 1 });
      expect(cells(fast.db)).toEqual(expected);

      await origin.manager.stop();
      const late = await node({ schema });
      const again = attach(
        origin.db,
        { ...shippingTo((body) => late.manager.receive(body)), peers: ['http://late.test'] },
        ['items'],
      );
      cleanUp(() => again.stop());
      await again.flush();
      expect(cells(late.db), 'snapshot').toEqual(expected);
      expect(again.deadLetters.list()).toEqual([]);
    });

    test(`${what}: an UPDATE and a DELETE carry the value as the INSERT did, and text like JSON is only text`, async () => {
      const schema = schemaFor(what);
      const other = await node({ schema });
      const origin = await node({ schema, ...shippingTo((body) => other.manager.receive(body)) });
      fill(origin.db, [...VALUES, ...LIKE_JSON]);
      const expected = cells(origin.db);
      origin.db.exec('UPDATE items SET v = v, updated_at = updated_at + 100000');
      const before = rowsOf(origin.db, "SELECT row_data FROM _changes WHERE op = 'UPDATE' ORDER BY change_id");
      await origin.manager.flush();
      expect(cells(other.db)).toEqual(expected);
      origin.db.exec('DELETE FROM items');
      expect(rowsOf(origin.db, "SELECT row_data FROM _changes WHERE op = 'DELETE' ORDER BY change_id")).toEqual(before);
      await origin.manager.flush();
      expect(cells(other.db)).toEqual([]);
    });
  }

  test('that were a thousand cells and more, of which each runtime has its share', () => {
    expect(cellsChecked).toBeGreaterThan((1000 * taken.length) / kinds.length);
  });
});

describe('the wire format', () => {
  const wire = async (type: string, value: string): Promise<unknown> => {
    const { db } = await node({ schema: `CREATE TABLE items (id TEXT PRIMARY KEY, v ${type}, updated_at INTEGER)` });
    db.exec(`INSERT INTO items VALUES ('a', ${value}, 1000)`);
    return captured(db)[0]?.row.v;
  };
  const CASES: [type: string, value: string, onTheWire: unknown][] = [
    ['TEXT', "'plain'", 'plain'],
    ['TEXT', 'NULL', null],
    ['TEXT', '5', '5'],
    ['INTEGER', '5', 5],
    ['REAL', '5', 5],
    ['REAL', '0.1', 0.1],
    ['INTEGER', '9007199254740991', 9007199254740991],
    ['INTEGER', '9007199254740992', '9007199254740992'],
    ['INTEGER', '-9007199254740993', '-9007199254740993'],
    ['NUMERIC', '9223372036854775807', '9223372036854775807'],
    ['BLOB', '9223372036854775807', '$int:9223372036854775807'],
    ['', '-9223372036854775808', '$int:-9223372036854775808'],
    ['', '9007199254740991', 9007199254740991],
    ['REAL', '9e999', '9e999'],
    ['REAL', '-9e999', '-9e999'],
    ['NUMERIC', '9e999', '9e999'],
    ['TEXT', "x'00ff'", '$blob:00FF'],
    ['BLOB', "x''", '$blob:'],
    ['TEXT', "'$blob:00'", '$text:$blob:00'],
    ['TEXT', "'$text:x'", '$text:$text:x'],
    ['', "'$int:5'", '$text:$int:5'],
    ['TEXT', "'$5 off'", '$5 off'],
    ['TEXT', "'9e999'", '9e999'],
    ['TEXT', `json('{"a":[1]}')`, '{"a":[1]}'],
    ['', "json('[1]')", '[1]'],
    ['TEXT', "'a' || char(0) || 'b'", 'a\0b'],
  ];
  for (const [type, value, expected] of shared(CASES)) {
    test(`${value} in a column of type ${type || 'none'} is ${JSON.stringify(expected)}`, async () => {
      expect(await wire(type, value)).toBe(expected);
    });
  }

  test('a real is printed as a real where the column would not make it one', async () => {
    const { db } = await node({ schema: 'CREATE TABLE items (id TEXT PRIMARY KEY, v, updated_at INTEGER)' });
    db.exec("INSERT INTO items VALUES ('a', 1.0, 1000)");
    expect(rowsOf(db, 'SELECT row_data FROM _changes')).toEqual([{ row_data: '{"id":"a","v":1.0,"updated_at":1000}' }]);
  });

  const FOREIGN: [type: string, json: string, stored: string][] = [
    ['TEXT', '"$blob:00ff"', 'blob'],
    ['TEXT', '"$blob:0"', 'text'],
    ['TEXT', '"$blob:zz"', 'text'],
    ['TEXT', '"$unknown:1"', 'text'],
    ['INTEGER', '"9223372036854775807"', 'integer'],
    ['INTEGER', '5.0', 'integer'],
    ['REAL', '5', 'real'],
    ['BLOB', '5', 'integer'],
    ['BLOB', '5.0', 'real'],
    ['BLOB', 'true', 'integer'],
    ['BLOB', 'null', 'null'],
    ['BLOB', '"\\u0000"', 'text'],
  ];
  for (const [type, json, stored] of shared(FOREIGN)) {
    test(`${json} from another implementation becomes ${stored} in a column of type ${type}, on both paths`, async () => {
      for (const extra of ['', `,${STRANGER}`]) {
        const { db, manager } = await node({
          schema: `CREATE TABLE items (id TEXT PRIMARY KEY, v ${type}, updated_at INTEGER)`,
        });
        const change = `{"op":"INSERT","table":"items","row":{"id":"a","v":${json},"updated_at":1000},"old_id":null}`;
        expect(manager.receive(`{"batch_id":1,"changes":[${change}${extra}]}`).status).toBe(200);
        expect(rowsOf(db, 'SELECT typeof(v) AS type FROM items')).toEqual([{ type: stored }]);
      }
    });
  }
});

describe('large and broken text', () => {
  const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, v, updated_at INTEGER)';
  const sizes: Record<string, string> = {
    'a megabyte of text': "replace(hex(zeroblob(500000)), '00', 'é')",
    'a megabyte of text with NUL in the middle':
      "replace(hex(zeroblob(250000)), '00', 'ab') || char(0) || replace(hex(zeroblob(250000)), '00', 'cd')",
    'a megabyte of bytes': 'randomblob(1000000)',
    'a megabyte of quotes and backslashes': `replace(hex(zeroblob(500000)), '00', '"\\')`,
    'a megabyte that begins like a blob': "'$blob:' || hex(zeroblob(500000))",
  };
  for (const [what, sql] of shared(Object.entries(sizes))) {
    test(what, async () => {
      const [fast, careful] = [await node({ schema }), await node({ schema })];
      const origin = await node({
        schema,
        ...shippingTo((body) => {
          careful.manager.receive(carefully(body));
          return fast.manager.receive(body);
        }),
      });
      origin.db.exec(`INSERT INTO items VALUES ('big', ${sql}, 1000), ('small', 'x', 1000)`);
      await origin.manager.flush();
      const measure = (it: TestNode): unknown =>
        it.all("SELECT typeof(v) AS type, octet_length(v) AS bytes FROM items WHERE id = 'big'");
      const hex = (it: TestNode): unknown => it.all("SELECT hex(v) AS hex FROM items WHERE id = 'big'")[0]?.hex;
      expect(measure(fast)).toEqual(measure(origin));
      expect(hex(fast) === hex(origin)).toBe(true);
      expect(hex(careful) === hex(origin)).toBe(true);
    });
  }
});

test('any values, in any columns, arrive as they were written', async () => {
  const types = ['TEXT', 'INTEGER', 'REAL', 'NUMERIC', 'BLOB', ''];
  const columns = types.map((_, i) => `c${i}`);
  const schema = `CREATE TABLE items (id TEXT PRIMARY KEY, ${types.map((type, i) => `c${i} ${type}`).join(', ')}, updated_at INTEGER)`;
  const [fast, careful] = [await node({ schema }), await node({ schema })];
  const refusals: unknown[] = [];
  const origin = await node({
    schema,
    ...shippingTo((body) => {
      const answers = [careful.manager.receive(carefully(body)), fast.manager.receive(body)];
      refusals.push(...answers.filter((answer) => answer.status !== 200 || 'rejected' in answer.body));
      return answers[1] as { status: number; body: unknown };
    }),
  });

  const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
  const [version] = rowsOf(await database(), 'SELECT sqlite_version() AS v');
  const [major = 0, minor = 0] = String(version?.v).split('.').map(Number);
  const exactReals = major > 3 || minor >= 53;
  // Before 3.53 SQLite itself converts very large and very small numbers inexactly, both ways (docs/your-database.md).
  const double = fc
    .double({ noNaN: true })
    .filter((d) => exactReals || d === 0 || !Number.isFinite(d) || (Math.abs(d) > 1e-70 && Math.abs(d) < 1e100));
  const text = fc.oneof(
    anyText({ maxLength: 12 }),
    fc.string({
      unit: fc.constantFrom('$', 'blob:', 'text:', 'int:', 'real:', '0', 'f', '\0', '"', ':', '\\', '}'),
      maxLength: 6,
    }),
    double.map(String),
    fc.json({ maxDepth: 2 }).filter((json) => exactReals || !/e[+-]?\d\d/i.test(json)),
  );
  const value = fc.oneof(
    fc.constant('NULL'),
    fc.bigInt({ min: -(2n ** 63n) + 1n, max: 2n ** 63n - 1n }).map(String),
    fc.integer().map(String),
    double.map((d) => (Number.isFinite(d) ? `CAST('${d}' AS REAL)` : d > 0 ? '9e999' : '-9e999')),
    fc.uint8Array({ maxLength: 12 }).map((bytes) => `x'${hex(bytes)}'`),
    text.map((t) => `CAST(x'${hex(Buffer.from(t, 'utf8'))}' AS TEXT)`),
  );
  const row = fc.tuple(...columns.map(() => value));

  let run = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(row, { minLength: 1, maxLength: 8 }), async (rows) => {
      run += 1;
      for (const [i, literals] of rows.entries()) {
        origin.db.exec(`INSERT INTO items VALUES ('${run}-${i}', ${literals.join(', ')}, 1000)`);
      }
      await origin.manager.flush();
      const written = cells(origin.db, columns, `id GLOB '${run}-*'`);
      expect(refusals).toEqual([]);
      expect(cells(fast.db, columns, `id GLOB '${run}-*'`)).toEqual(written);
      expect(cells(careful.db, columns, `id GLOB '${run}-*'`)).toEqual(written);
    }),
    { numRuns: draws(60) },
  );
});

test('in the content of a row a REAL is the same text whatever SQLite prints: two integers, m and e, for m * 1024^e', async () => {
  const db = await database('CREATE TABLE v (x)');
  const texts: [string, string][] = [
    ['1.0 / 3', '384307168202282304p-6'],
    ['-1.0 / 3', '-384307168202282304p-6'],
    ['1.0', '1152921504606846976p-6'],
    ['0.0', '0.0'],
    ['9e999', '"$real:9e999"'],
    ['1', '1'],
  ];
  for (const [x, text] of texts) {
    const line = content([{ name: 'x', wireName: 'x', affinity: 'BLOB' } as Column], () => 's.x');
    expect(rowsOf(db, `SELECT ${line} AS line FROM (SELECT ${x} AS x) AS s`), x).toEqual([{ line: `${text}\n` }]);
  }
});
