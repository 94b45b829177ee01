/** The rows that every figure writes: the same for the same number, so that any process can name row i again. */

/** 2025-01-01, the time in the ids; what a row's own timestamps say is up to whoever writes it. */
const ID_EPOCH = 1_735_689_600_000;

const BASE_COLUMNS = ['id', 'name', 'value', 'created_at', 'updated_at'];

/** Column names of an items table with `columns` columns in all: the specification's five, then c6, c7 and so on. */
export function columnNames(columns = 5) {
  return [...BASE_COLUMNS, ...Array.from({ length: columns - 5 }, (_, i) => `c${i + 6}`)];
}

/** Every other additional column is TEXT, the rest INTEGER. `check` is a condition on a row. */
export function createTable(columns = 5, check) {
  const more = columnNames(columns)
    .slice(5)
    .map((name, i) => `, ${name} ${i % 2 === 0 ? 'TEXT' : 'INTEGER'}`);
  return `CREATE TABLE IF NOT EXISTS items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER${more.join('')}${check ? `, CHECK (${check})` : ''})`;
}

/** Row number `i` as an array in the order of the columns. `bytes` is the size of its name. */
export function makeRow(i, { columns = 5, bytes = 0, ids = 'v7', now }) {
  const row = [rowId(i, ids), nameOf(i, bytes), i, now, now];
  for (let c = 5; c < columns; c++) row.push(c % 2 === 1 ? `text ${c} of row ${i}` : i * c);
  return row;
}

/** UUIDv7: a millisecond for every ten rows, a counter, and random digits. UUIDv4: random digits. */
export function rowId(i, ids = 'v7') {
  const a = hex8(i * 2 + 1);
  const b = hex8(i * 2 + 2);
  if (ids === 'v4') {
    const c = hex8(i * 2 + 0x4000_0001);
    return `${a}-${b.slice(0, 4)}-4${b.slice(5)}-8${c.slice(1, 4)}-${c.slice(4)}${hex8(i * 2 + 0x4000_0002)}`;
  }
  const time = (ID_EPOCH + Math.floor(i / 10)).toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${(i % 10).toString(16)}${a.slice(0, 2)}-8${a.slice(2, 5)}-${b}${a.slice(4)}`;
}

function nameOf(i, bytes) {
  const name = `item number ${i}`;
  if (bytes <= name.length) return name;
  let text = name;
  for (let word = i; text.length < bytes; word += 7_919) text += ` ${hex8(word)}`;
  return text.slice(0, bytes);
}

/** The finaliser of MurmurHash3: every bit of the number changes half of the result. */
function hex8(n) {
  let h = n | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return ((h ^ (h >>> 16)) >>> 0).toString(16).padStart(8, '0');
}
