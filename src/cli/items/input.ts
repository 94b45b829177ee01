/**
 * What a client may send. JSON.parse decides the structure; the integers are read by SQLite, because a JavaScript number
 * would round what lies beyond 2^53.
 */
import type { Connection } from '../../sqlite/connection.ts';
import { isUuid } from './uuid.ts';

export const NAME_CHARACTERS_MAX = 1_000;
export const BATCH_ITEMS_MAX = 10_000;
/** Room for a name in which every character is escaped, several times over. */
export const ITEM_BYTES_MAX = 64 * 1024;
export const BATCH_BYTES_MAX = 16 * 1024 * 1024;

export interface NewItem {
  id?: string;
  name: string;
  /** A 64-bit integer in decimal; null where there is none. */
  value: string | null;
}

/** The request is at fault: answered with 400 and this message. */
export class Refused extends Error {}

export function readItem(db: Connection, body: Uint8Array): NewItem {
  return complete(readFields(db, body, ['id', 'name', 'value']));
}

/** The fields to change; at least one. The id is in the path. */
export function readPatch(db: Connection, body: Uint8Array): Partial<NewItem> {
  const fields = readFields(db, body, ['name', 'value']);
  if (Object.keys(fields).length === 0) throw new Refused('give at least one of name, value');
  return fields;
}

/** An array of items, or `{items: [...]}`. What is wrong with one of them names its index. */
export function readItems(db: Connection, body: Uint8Array): NewItem[] {
  const { text, json } = parse(body);
  const wrapped = isObject(json);
  if (wrapped) {
    const unknown = Object.keys(json).find((key) => key !== 'items');
    if (unknown !== undefined) throw new Refused(`unknown field ${show(unknown)}: send an array, or {"items": [...]}`);
  }
  const list = wrapped ? json.items : json;
  if (!Array.isArray(list)) throw new Refused('send an array of items, or {"items": [...]}');
  if (list.length > BATCH_ITEMS_MAX) {
    throw new Refused(`${list.length} items are too many: ${BATCH_ITEMS_MAX} are allowed in one batch`);
  }
  list.forEach((one, index) => {
    at(index, () => checkStructure(one, ['id', 'name', 'value']));
  });
  if (wrapped && db.get('SELECT count(*) AS n FROM json_each(?)', text)?.n !== 1) {
    throw new Refused('field "items" is given twice');
  }
  const scanned = scan(db, text, wrapped ? '$.items' : '$');
  return list.map((one, index) => at(index, () => complete(checkFields(one, scanned[index] as Scanned))));
}

/** Runs `fn`; what it refuses is said of the item at `index`. */
export function at<T>(index: number, fn: () => T): T {
  try {
    return fn();
  } catch (error) {
    throw error instanceof Refused ? new Refused(`item ${index}: ${error.message}`) : error;
  }
}

/** What SQLite sees in one item. */
interface Scanned {
  fields: number;
  json_type: string | null;
  sql_type: string;
  value: string | null;
}

function readFields(db: Connection, body: Uint8Array, allowed: string[]): Partial<NewItem> {
  const { text, json } = parse(body);
  checkStructure(json, allowed);
  return checkFields(json, scan(db, `[${text}]`, '$')[0] as Scanned);
}

function parse(body: Uint8Array): { text: string; json: unknown } {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    throw new Refused('the body is not valid UTF-8');
  }
  try {
    return { text, json: JSON.parse(text) };
  } catch {
    throw new Refused('the body is not JSON');
  }
}

/** Before SQLite looks at it: only flat objects get there. */
function checkStructure(item: unknown, allowed: string[]): asserts item is Record<string, unknown> {
  if (!isObject(item)) throw new Refused(`an item is an object {name, value}, not ${kindOf(item)}`);
  for (const [key, value] of Object.entries(item)) {
    if (!allowed.includes(key)) throw new Refused(`unknown field ${show(key)}: allowed are ${allowed.join(', ')}`);
    const isValue = key === 'value';
    if (typeof value === (isValue ? 'number' : 'string') || (isValue && value === null)) continue;
    throw new Refused(`${key} must be ${isValue ? 'a 64-bit integer or null' : 'a string'}, not ${kindOf(value)}`);
  }
}

function scan(db: Connection, text: string, path: string): Scanned[] {
  return db.all<Scanned & Record<string, never>>(
    "SELECT (SELECT count(*) FROM json_each(e.value)) AS fields, json_type(e.value, '$.value') AS json_type, " +
      "typeof(e.value ->> '$.value') AS sql_type, CAST(e.value ->> '$.value' AS TEXT) AS value " +
      'FROM json_each(?, ?) AS e ORDER BY e.key',
    text,
    path,
  );
}

function checkFields(item: Record<string, unknown>, scanned: Scanned): Partial<NewItem> {
  // Readers of JSON disagree about which of two equal keys counts.
  if (scanned.fields !== Object.keys(item).length) throw new Refused('a field is given twice');
  const fields: Partial<NewItem> = {};
  if (typeof item.id === 'string') {
    if (!isUuid(item.id)) throw new Refused('id must be a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057');
    // One UUID, one row: upper and lower case are the same UUID but not the same text.
    fields.id = item.id.toLowerCase();
  }
  if (typeof item.name === 'string') fields.name = checkName(item.name);
  if (item.value === null) fields.value = null;
  else if (item.value !== undefined) {
    // 1.0 and 1e3 are not written as integers; 2^63 is one that SQLite can only read as a float.
    if (scanned.json_type !== 'integer' || scanned.sql_type !== 'integer') {
      throw new Refused('value must be a 64-bit integer');
    }
    fields.value = String(scanned.value);
  }
  return fields;
}

function checkName(name: string): string {
  // By characters, as SQLite counts them, not by UTF-16 units.
  const length = name.length > NAME_CHARACTERS_MAX ? [...name].length : name.length;
  if (length > NAME_CHARACTERS_MAX) {
    throw new Refused(`name has ${length} characters, ${NAME_CHARACTERS_MAX} are allowed`);
  }
  // It has no UTF-8 form, and would come back as something else.
  if (/\p{Surrogate}/u.test(name)) throw new Refused('name holds half a surrogate pair');
  return name;
}

/** A new item has a name. Its value may be missing, as it may in the table. */
function complete({ id, name, value = null }: Partial<NewItem>): NewItem {
  if (name === undefined) throw new Refused('name is missing');
  return { name, value, ...(id !== undefined && { id }) };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function kindOf(value: unknown): string {
  return value === null
    ? 'null'
    : Array.isArray(value)
      ? 'an array'
      : `a${typeof value === 'object' ? 'n' : ''} ${typeof value}`;
}

function show(key: string): string {
  return JSON.stringify(key.length > 50 ? `${key.slice(0, 50)}...` : key);
}
