/**
 * Inputs for `receive`: valid batches, and what chance makes of them. Input number `index` of a seed depends on nothing
 * but those two numbers, so any of them can be made again alone.
 *
 * A batch is built as a tree, mutated as a tree (fields removed, doubled, renamed, of another type), written as text in one
 * of the many ways in which JSON may be written, and then, sometimes, damaged as text or as bytes.
 */
import { Buffer } from 'node:buffer';
import { gzipSync } from 'node:zlib';
import { Random } from '../support/model.ts';
import type { Json } from './json.ts';

export interface Input {
  body: string | Uint8Array;
  /** The sender's node id, as the header would have it. */
  from: string | undefined;
  /** How it is asked over HTTP. */
  request?: RequestShape;
}

export interface RequestShape {
  method: string;
  path: string;
  headers: Record<string, string>;
}

/** The tables that the inputs are about; every kind of column, name and constraint. */
export const FUZZ_TABLES = ['items', 'Odd "Table', 'picky', 'exact', 'uniq'];
export const FUZZ_SCHEMA = `
  CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER);
  CREATE TABLE "Odd ""Table" (ID TEXT PRIMARY KEY, "a ""b" TEXT COLLATE NOCASE, __proto__, "é" REAL, "x\\y" NUMERIC, Updated_At INTEGER);
  CREATE TABLE picky (id TEXT PRIMARY KEY, must TEXT NOT NULL, kind TEXT DEFAULT 'd' CHECK (kind <> 'never'), amount REAL, updated_at INTEGER);
  CREATE TABLE exact (id TEXT PRIMARY KEY, i INT, t TEXT, b BLOB, "any" ANY, updated_at INTEGER) STRICT;
  CREATE TABLE uniq (id TEXT PRIMARY KEY, u TEXT UNIQUE, updated_at INTEGER);
  CREATE TABLE private (id TEXT PRIMARY KEY, secret TEXT, updated_at INTEGER);
  INSERT INTO private VALUES ('keep', 'secret', 1000);
`;

const COLUMNS: Record<string, string[]> = {
  items: ['id', 'name', 'value', 'created_at', 'updated_at'],
  'Odd "Table': ['ID', 'a "b', '__proto__', 'é', 'x\\y', 'Updated_At'],
  picky: ['id', 'must', 'kind', 'amount', 'updated_at'],
  exact: ['id', 'i', 't', 'b', 'any', 'updated_at'],
  uniq: ['id', 'u', 'updated_at'],
};

const str = (value: string): Json => ({ kind: 'string', value });
const num = (text: string): Json => ({ kind: 'number', text });
const NULL: Json = { kind: 'null' };

const IDS = ['a', 'b', 'c', 'd', 'e', 'f', 'A', 'ä', '', ' ', '01890a5d-ac96-774b-bcce-b302099a8057', 'x\u0000y', '😀'];
const ODD_IDS = [
  '$text:$int:1',
  '$blob:00ff',
  '$blob:00FF',
  '$text:a',
  '$int:5',
  '$bytes:ff41',
  '$bytes:FF41',
  '$bytes:61',
  '$bytes:zz',
  '5',
  '[1]',
  '{"a":1}',
  '|',
  '\\',
  "a'b",
  'a"b',
  '\ud800',
];
const TIMES = ['2', '3', '4', '5', '6', '7', '1000', '1700000000000', '-5'];
const ODD_TIMES = ['0', '1', '-1', '7258118400000', '7258118400001', '-8640000000000000', '8640000000000000', '-0'];
const WRONG_TIMES = [
  '8640000000000001',
  '-8640000000000001',
  '9223372036854775807',
  '9223372036854775808',
  '5.0',
  '5e0',
  '1e999',
  '123456789012345678901234567890',
];
const TEXTS = [
  'n',
  'name',
  'N',
  '',
  'zebra',
  'ünïcödé 漢字',
  '👩‍👩‍👧',
  '\u202e\u200b\ufeff',
  'e\u0301',
  'line\nbreak',
  'NUL\u0000inside',
  '\ud83d',
  '\udc00tail',
  '$blob:00FF10',
  '$blob:zz',
  '$blob:',
  '$text:$blob:00',
  '$bytes:C3',
  '$bytes:c3a9',
  '$bytes:',
  '$bytes:24626c6f623a',
  '$bytes:0\u0000',
  '$text:',
  '$int:9223372036854775807',
  '$real:9e999',
  '$real:-9e999',
  '$',
  '%',
  '9e999',
  '-9e999',
  '9007199254740993',
  '-9223372036854775808',
  '12',
  '12.0',
  '1e3',
  ' 7 ',
  '0x10',
  'null',
  'never',
  '":',
  '\\":',
  "'); DROP TABLE items; --",
  'x'.repeat(300),
];
const NUMBERS = [
  '0',
  '-0',
  '1',
  '12',
  '5',
  '5.0',
  '5.5',
  '1e3',
  '0.1',
  '-1.5e-7',
  '9007199254740991',
  '9007199254740993',
  '9223372036854775807',
  '-9223372036854775808',
  '9223372036854775808',
  '1e308',
  '1e309',
  '-1e400',
  '5e-324',
  '123456789012345678901234567890',
  '1.7976931348623157e308',
];
const KEYS = [
  'id',
  'ID',
  'Id',
  'updated_at',
  'UPDATED_AT',
  'name',
  'value',
  '__proto__',
  'constructor',
  'toString',
  '',
  'rowid',
  'old_id',
  'id; --',
  "a'b",
  'a"b',
  '$.id',
  'extra',
  'é',
  'É',
];
const OPS = ['INSERT', 'UPDATE', 'DELETE', 'insert', 'Update', 'REPLACE', 'TRUNCATE', '', 'INSERT ', 'DELETE\u0000'];
const FOREIGN = [
  '_meta',
  '_changes',
  '_tombstones',
  '_peer_state',
  '_dead_letter',
  '_dead_letter_info',
  '_stamps',
  '_replaced',
  '_rowcast_stage',
  'sqlite_master',
  'sqlite_schema',
  'sqlite_sequence',
  'pragma_table_info',
  'private',
  'PRIVATE',
  'nothing',
  '',
  'items; DROP TABLE items',
  '"items"',
  'main.items',
  'items\u0000',
  '__proto__',
  'ITEMS',
  'Items',
  'odd "table',
  'İtems',
];
const BATCH_IDS = ['0', '1', '7', '-1', '-0', '9007199254740991', '9007199254740992', '9223372036854775807'];
const WRONG_BATCH_IDS = ['9223372036854775808', '-9223372036854775809', '1.0', '1e2', '1e999', `1${'0'.repeat(400)}`];

/** Input number `index` of `seed`. `corpus` are bodies that a real node has shipped. */
export function makeInput(seed: number, index: number, corpus: readonly Json[]): Input {
  const random = randomOf(seed, index);
  if (index % 50 === 49) return { body: hiddenColumn(random), from: 'b' };
  const tree = random.chance(0.15) ? copy(random.pick(corpus)) : batch(random);
  const from = random.pick([undefined, 'b', 'b', '', '__proto__', 'x'.repeat(60), "'; --", 'ü']);
  return { body: written(tree, random, 0.5), from };
}

/** The tree as a body, with a share of `damaged` ones mutated first. */
export function written(tree: Json, random: Random, damaged: number): string | Uint8Array {
  for (let n = random.chance(damaged) ? 1 + random.below(3) : 0; n > 0; n--) mutateTree(tree, random);
  const style = random.next();
  let text = write(tree, style < 0.7 ? {} : { random, space: random.chance(0.5), escapes: random.chance(0.5) });
  if (random.chance(0.22)) text = mutateText(text, random);
  if (random.chance(0.22)) return mutateBytes(Buffer.from(text), random);
  // A string with half a pair is not what arrives over a wire.
  const asBytes = random.chance(0.6) || /\p{Surrogate}/u.test(text);
  return asBytes ? new Uint8Array(Buffer.from(text)) : text;
}

export function randomOf(seed: number, index: number): Random {
  return new Random(Math.imul(seed, 0x9e3779b1) ^ Math.imul(index + 1, 0x85ebca6b));
}

function batch(random: Random): Json {
  const table = random.pick(FUZZ_TABLES);
  const sameTable = random.chance(0.7);
  const count = random.pick([0, 1, 1, 1, 1, 1, 1, 2, 2, 4]);
  const plain = random.chance(0.5);
  const changes = Array.from({ length: count }, () =>
    change(random, sameTable ? table : random.pick(FUZZ_TABLES), plain),
  );
  return {
    kind: 'object',
    fields: [
      ['batch_id', num(random.chance(0.85) ? String(1 + random.below(1e6)) : random.pick(BATCH_IDS))],
      ['changes', { kind: 'array', items: changes }],
    ],
  };
}

/** A regular change; `plain` ones are what the fast way is for. */
function change(random: Random, table: string, plain: boolean): Json {
  const id = str(plain || random.chance(0.7) ? random.pick(IDS) : random.pick(ODD_IDS));
  const time = num(plain || random.chance(0.9) ? random.pick(TIMES) : random.pick(ODD_TIMES));
  const isDelete = random.chance(0.2);
  const fields = (COLUMNS[table] as string[]).map((name): [string, Json] => {
    const lower = name.toLowerCase();
    if (lower === 'id') return [name, id];
    return [name, lower === 'updated_at' ? time : valueFor(table, name, random)];
  });
  const row: Json =
    isDelete && random.chance(0.1)
      ? NULL
      : {
          kind: 'object',
          fields: isDelete && random.chance(0.3) ? fields.filter(([, v]) => v === id || v === time) : fields,
        };
  return {
    kind: 'object',
    fields: [
      ['op', str(isDelete ? 'DELETE' : random.pick(['INSERT', 'UPDATE']))],
      ['table', str(table)],
      ['row', row],
      ['old_id', isDelete ? id : NULL],
    ],
  };
}

/** A column that is not known, written so that whoever counts keys by their `":` counts one too few. */
function hiddenColumn(random: Random): string {
  const one = change(random, 'items', true);
  const row = one.kind === 'object' ? one.fields.find(([name]) => name === 'row')?.[1] : undefined;
  if (row?.kind === 'object') row.fields.splice(random.below(6), 0, ['hidden', scalar(random)]);
  return `{"batch_id":1,"changes":[${write(one).replace('"hidden":', `"hidden"${random.pick([' ', '\n', '\t', '\r'])}:`)}]}`;
}

/** Mostly what the column takes: a batch that a constraint forbids is not what most are to be about. */
function valueFor(table: string, column: string, random: Random): Json {
  const strict = table === 'exact' && random.chance(0.9);
  if (strict && column === 'i') return random.pick([NULL, num('1'), num('-7'), str('9007199254740993')]);
  if (strict && column === 'b') return random.pick([NULL, str('$blob:'), str('$blob:00FF'), str('$blob:00fe')]);
  if (table === 'picky' && random.chance(0.9) && (column === 'must' || column === 'kind'))
    return str(random.pick(TEXTS));
  if (table === 'uniq' && column === 'u') return str(random.pick(['1', '2', '3', '4', '5', '6']));
  return scalar(random);
}

function scalar(random: Random): Json {
  const roll = random.next();
  if (roll < 0.15) return NULL;
  if (roll < 0.5) return num(random.pick(NUMBERS));
  if (roll < 0.97) return str(random.pick(TEXTS));
  return { kind: random.chance(0.5) ? 'true' : 'false' };
}

function anything(random: Random): Json {
  const roll = random.next();
  if (roll < 0.6) return scalar(random);
  if (roll < 0.7) return { kind: 'array', items: [] };
  if (roll < 0.8) return { kind: 'object', fields: [[random.pick(KEYS), scalar(random)]] };
  if (roll < 0.9) return { kind: 'array', items: [scalar(random), scalar(random)] };
  let nested = scalar(random);
  for (let depth = random.pick([3, 10, 100, 900, 995, 996, 1_100]); depth > 0; depth--) {
    nested = random.chance(0.5) ? { kind: 'array', items: [nested] } : { kind: 'object', fields: [['a', nested]] };
  }
  return nested;
}

/** Every object and array of the tree, down to a depth at which nothing means anything any more. */
function inner(json: Json, depth = 8): Json[] {
  if (depth === 0 || (json.kind !== 'object' && json.kind !== 'array')) return [];
  const children = json.kind === 'array' ? json.items : json.fields.map(([, value]) => value);
  return [json, ...children.flatMap((child) => inner(child, depth - 1))];
}

/** structuredClone has no stack for trees as deep as these. */
function copy(json: Json): Json {
  if (json.kind === 'array') return { kind: 'array', items: json.items.map(copy) };
  if (json.kind !== 'object') return json;
  return { kind: 'object', fields: json.fields.map(([key, value]) => [key, copy(value)]) };
}

function mutateTree(tree: Json, random: Random): void {
  const place = random.pick(inner(tree));
  if (place.kind === 'array') mutateArray(place.items, random);
  else if (place.kind === 'object') mutateObject(place.fields, random);
}

function mutateArray(items: Json[], random: Random): void {
  const at = random.below(items.length + 1);
  const roll = random.below(6);
  if (roll === 0) items.splice(at, 0, anything(random));
  if (roll === 1) items.splice(at, 1);
  if (roll === 2 && items.length > 0) items.push(copy(random.pick(items)));
  if (roll === 3) random.shuffle(items);
  if (roll === 4) items.push(change(random, random.pick(FUZZ_TABLES), false));
  if (roll === 5 && at < items.length) items[at] = anything(random);
}

function mutateObject(fields: [string, Json][], random: Random): void {
  const at = random.below(Math.max(1, fields.length));
  const [key = '', value = NULL] = fields[at] ?? [];
  const roll = random.next();
  if (roll < 0.4) fields[at] = [key, meaningful(key, random)];
  else if (roll < 0.5) fields.splice(at, 1);
  else if (roll < 0.6)
    fields.splice(random.below(fields.length + 1), 0, [key, random.chance(0.5) ? value : meaningful(key, random)]);
  else if (roll < 0.7)
    fields[at] = [random.pick([key.toUpperCase(), key.toLowerCase(), `${key} `, key.slice(1)]), value];
  else if (roll < 0.78) fields.splice(random.below(fields.length + 1), 0, [key.toUpperCase(), meaningful(key, random)]);
  else if (roll < 0.88) fields.splice(random.below(fields.length + 1), 0, [random.pick(KEYS), anything(random)]);
  else if (roll < 0.94) random.shuffle(fields);
  else fields[at] = [random.pick(KEYS), value];
}

/** Another value for this field, mostly one that could have been meant. */
function meaningful(key: string, random: Random): Json {
  if (random.chance(0.3)) return anything(random);
  switch (key.toLowerCase()) {
    case 'op':
      return str(random.pick(OPS));
    case 'table':
      return str(random.pick(random.chance(0.5) ? FOREIGN : FUZZ_TABLES));
    case 'batch_id':
      return num(random.pick(random.chance(0.5) ? BATCH_IDS : WRONG_BATCH_IDS));
    case 'changes':
      return random.pick<Json>([NULL, str('[]'), { kind: 'object', fields: [] }, { kind: 'array', items: [] }]);
    case 'updated_at':
      return num(random.pick(random.chance(0.5) ? ODD_TIMES : WRONG_TIMES));
    case 'id':
    case 'old_id':
      return str(random.pick(random.chance(0.5) ? IDS : ODD_IDS));
    case 'row':
      return NULL;
    default:
      return anything(random);
  }
}

interface Style {
  random?: Random;
  space?: boolean;
  escapes?: boolean;
}

/** The tree as JSON text; with a style, as JSON text that hardly anybody writes and everybody has to read. */
export function write(json: Json, style: Style = {}): string {
  const space = (): string =>
    style.space && style.random?.chance(0.3) ? style.random.pick([' ', '\n', '\t', '\r\n', '   ']) : '';
  switch (json.kind) {
    case 'number':
      return json.text;
    case 'string':
      return quoted(json.value, style);
    case 'array':
      return `[${json.items.map((item) => `${space()}${write(item, style)}${space()}`).join(',')}${space()}]`;
    case 'object':
      return `{${json.fields
        .map(([key, value]) => `${space()}${quoted(key, style)}${space()}:${space()}${write(value, style)}${space()}`)
        .join(',')}}`;
    default:
      return json.kind;
  }
}

function quoted(text: string, { random, escapes }: Style): string {
  if (!escapes || !random) return JSON.stringify(text);
  const units = text.split('').map((unit) => {
    const code = unit.charCodeAt(0);
    const hex = code.toString(16).padStart(4, '0');
    if (random.chance(0.2)) return `\\u${random.chance(0.5) ? hex.toUpperCase() : hex}`;
    if (unit === '/' && random.chance(0.5)) return '\\/';
    return code >= 0xd800 && code <= 0xdfff ? `\\u${hex}` : JSON.stringify(unit).slice(1, -1);
  });
  return `"${units.join('')}"`;
}

function mutateText(text: string, random: Random): string {
  const at = random.below(text.length + 1);
  const insert = (what: string): string => text.slice(0, at) + what + text.slice(at);
  const numberAt = (what: string): string => {
    const numbers = [...text.matchAll(/(?<=[:[,])-?\d+(?:\.\d+)?/g)];
    if (numbers.length === 0) return insert(what);
    const found = random.pick(numbers);
    return text.slice(0, found.index) + what + text.slice(found.index + found[0].length);
  };
  return random.pick([
    () => text.slice(0, at),
    () => text.slice(at),
    () => text + text,
    () => `${text}${random.pick(['x', ',', '}', ']', '\u0000', ' \n', '// end', '\ufeff'])}`,
    () => `${random.pick(['\ufeff', ' ', '\n\n', '/* */', ")]}',\n", '\u0000', '\u00a0', '\v'])}${text}`,
    () =>
      insert(
        random.pick(['"', '{', '}', '[', ']', ',', ':', '\\', ' ', '\n', '0', 'null', '\u0000', '\u0001', '\u2028']),
      ),
    () =>
      numberAt(
        random.pick(['NaN', 'Infinity', '-Infinity', '+1', '.5', '5.', '0x10', '01', '1_000', '--1', '1e', 'True']),
      ),
    () => text.replaceAll('"', "'"),
    () => text.replace(/"(\w+)":/, '$1:'),
    () => text.replace(/([}\]])/, ',$1'),
    () => text.replaceAll('":', '" :'),
    () => text.replace(/\\u/, '\\x'),
    () => text.replace(/"([a-z])/, '"\\$1'),
  ])();
}

function mutateBytes(bytes: Buffer, random: Random): Uint8Array {
  const at = random.below(bytes.length + 1);
  const insert = (...what: number[]): Buffer =>
    Buffer.concat([bytes.subarray(0, at), Buffer.from(what), bytes.subarray(at)]);
  const made = random.pick([
    () => {
      for (let n = 1 + random.below(3); n > 0 && bytes.length > 0; n--) {
        const place = random.below(bytes.length);
        bytes[place] = (bytes[place] as number) ^ (1 << random.below(8));
      }
      return bytes;
    },
    () => insert(random.below(256)),
    () => Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + 1 + random.below(4))]),
    () =>
      insert(
        ...random.pick([[0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xff], [0xc3], [0xe2, 0x82]]),
      ),
    () => Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), bytes]),
    () => Buffer.from(bytes.toString(), 'utf16le'),
    () => Buffer.from(bytes.toString(), 'latin1'),
    () => gzipSync(bytes, { level: 1 }),
    () => bytes.subarray(0, at),
    () => Buffer.concat([bytes, Buffer.alloc(1 + random.below(3))]),
  ])();
  return new Uint8Array(made);
}
