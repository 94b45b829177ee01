/**
 * Who has made which version of which row: what came, and what was written here and went out. Noting it with every row that comes would cost every row: a body stays in
 * memory as it came, and what there is to know of it is written to `_arrivals` afterwards, a line for each body, once a
 * second and for at most a hundredth of the time. A process that is killed loses that second of it, and nothing else.
 *
 * Both places are bounded, and whoever holds the most of one makes room: a flood takes away
 * nothing that others have brought.
 */
import type { Clock } from '../clock.ts';
import type { Connection } from '../sqlite/connection.ts';
import { writeIfFree } from '../sqlite/look.ts';
import { fold } from '../sqlite/sql.ts';
import { type OriginRun, originAt, readOrigins, writeOrigins } from '../wire/origins.ts';
import { isNodeId } from '../wire/protocol.ts';
import { canonicalId } from '../wire/values.ts';
import { SELF } from './self.ts';
import { bytesOf, type Laid, pickedUp, Shelf } from './shelf.ts';

const BYTES_MAX = 4 * 1024 * 1024;
/** Of those that wait, one may be as large as a batch mostly is at most. */
const WAITING_BYTES_MAX = 2 * BYTES_MAX;
const LARGE_BYTES = BYTES_MAX;
/** What each holds besides its text. */
const EACH_BYTES = 200;
/** How often it is written down, and how long it may take at a time. */
const KEEP_MS = 1_000;
const KEEPING_MS = 10;

export interface Brought {
  /** The node that made the change; null where whoever brought it does not know. */
  node: string | null;
  /** Who brought it, where that is another. */
  via: string | undefined;
  /** Null of what was written here: its version says when. */
  at: number | null;
}

interface Sought {
  id: string;
  version: number;
  /** A deletion has the version of what it deletes. */
  isDeleted: boolean;
}

interface Arrival {
  body: Laid;
  /** What it holds, where it is too large to wait: one row of some megabytes, mostly. */
  changes?: Came[];
  /** Undefined: it was written here. */
  from: string | undefined;
  origins: OriginRun[] | undefined;
  at: number;
}

/** What is there of one sender, the oldest first. */
interface Waiting {
  list: Arrival[];
  bytes: number;
}

export class Arrivals {
  readonly #db: Connection;
  readonly #clock: Clock;
  /** Not written down yet. */
  readonly #waiting = new Map<string | undefined, Waiting>();
  readonly #shelf = new Shelf();
  #bytes = 0;
  #keepAgainAt = 0;
  /** Bytes that the table holds, as far as is known; undefined before the first look. */
  #held: number | undefined;
  /** The last line that was there at the latest look, or that was written here since. */
  #last: number | undefined;
  #haveComeElsewhere = false;

  constructor(db: Connection, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  /** Once its batch is committed; without `from`, what is written here. The body is as it is, or one character per byte. */
  note(text: string | Uint8Array, from: string | undefined, origins: OriginRun[] | undefined): void {
    const own = this.#waiting.get(from) ?? { list: [], bytes: 0 };
    this.#waiting.set(from, own);
    const isLarge = text.length > LARGE_BYTES;
    const body = this.#shelf.lay(isLarge ? '' : text);
    const changes = isLarge ? { changes: this.#read(bytesOf(text)) } : {};
    own.list.push({ body, ...changes, from, origins, at: this.#clock.now() });
    own.bytes += body.bytes + EACH_BYTES;
    this.#bytes += body.bytes + EACH_BYTES;
    while (this.#bytes > WAITING_BYTES_MAX) this.#drop(this.#largest());
  }

  /** The first that has brought this very version; `names` are those that the table may travel under, in lower case. */
  find(names: string[], { id, version, isDeleted }: Sought): Brought | undefined {
    const spelt = this.#canonical(id);
    const gone = isDeleted ? 1 : 0;
    const kept = this.#db.get<Kept>(KEPT, spelt, JSON.stringify(names), spelt, version, gone);
    if (kept) {
      const { sender, at, told, n, idx, origin } = kept;
      return broughtBy({ from: sender ?? undefined, at, origins: readOrigins(told ?? undefined, n) }, idx, origin);
    }
    for (const arrival of this.#inOrder()) {
      const changes = arrival.changes ?? this.#read(pickedUp(arrival.body));
      const isIt = ([table, row, time, removed]: Came): boolean =>
        row === spelt && time === version && removed === gone && names.includes(table as string);
      const idx = changes.findIndex(isIt);
      if (idx >= 0) return broughtBy(arrival, idx, changes[idx]?.[4]);
    }
    return undefined;
  }

  /** Another process on the file has received something since this was last asked: it is written down a second after it came. */
  haveComeElsewhere(): boolean {
    this.#look();
    const have = this.#haveComeElsewhere;
    this.#haveComeElsewhere = false;
    return have;
  }

  #look(): void {
    const last = this.#lastKept();
    const received = 'SELECT 1 AS n FROM main._arrivals WHERE arrival_id > ? AND sender IS NOT NULL LIMIT 1';
    if (this.#last !== undefined && last > this.#last && this.#db.get(received, this.#last)) {
      this.#haveComeElsewhere = true;
    }
    this.#last = last;
  }

  #lastKept(): number {
    return Number(this.#db.get('SELECT coalesce(max(arrival_id), 0) AS n FROM main._arrivals')?.n);
  }

  /** Writes down some of what waits; on every tick. */
  tick(): void {
    const now = this.#clock.now();
    // A clock that was set back must not stop it.
    const isSoon = now < this.#keepAgainAt && this.#keepAgainAt - now <= KEEP_MS;
    if (this.#waiting.size === 0 || isSoon) return;
    this.#keepAgainAt = now + KEEP_MS;
    this.keep(KEEPING_MS);
  }

  /** Writes down what waits, for at most so long: not where somebody else is writing, or the application is at it. */
  keep(ms: number): void {
    if (this.#waiting.size === 0 || this.#db.isInTransaction) return;
    const until = this.#clock.now() + ms;
    const written: Arrival[] = [];
    let held = 0;
    let last = 0;
    const outcome = writeIfFree(this.#db, () => {
      this.#look();
      const mark = this.#lastKept();
      for (const arrival of this.#inOrder()) {
        if (written.length > 0 && this.#clock.now() >= until) break;
        const { from, origins, at } = arrival;
        const changes = JSON.stringify(arrival.changes ?? this.#read(pickedUp(arrival.body)));
        this.#db.run(KEEP, at, from ?? null, origins ? writeOrigins(origins) : null, changes);
        written.push(arrival);
      }
      last = this.#lastKept();
      held = this.#trimmed(mark);
    });
    if (outcome !== 'done') return;
    this.#held = held;
    this.#last = last;
    for (const { from } of written) this.#drop(from);
  }

  /** Returns how much the table holds: added up as bodies come, and counted anew where it seems to be too much. */
  #trimmed(mark: number): number {
    const sum = (after: number): number =>
      Number(this.#db.get(`SELECT coalesce(sum(${SIZE}), 0) AS n FROM main._arrivals WHERE arrival_id > ?`, after)?.n);
    let held = this.#held === undefined ? sum(0) : this.#held + sum(mark);
    // A second process on the file writes, too.
    if (held > BYTES_MAX) held = sum(0);
    while (held > BYTES_MAX) {
      this.#db.run(LET_GO);
      held = sum(0);
    }
    return held;
  }

  /** By JavaScript: SQLite takes three times as long to look into each, and none of the values is of interest. */
  #read(bytes: Buffer): Came[] {
    const { changes, rows, columns, table, op } = batchIn(bytes.toString());
    if (Array.isArray(changes)) return changes.map((change) => this.#cameAs(change));
    if (!Array.isArray(rows) || !Array.isArray(columns)) return [];
    // The two columns that every table has may be spelt in any case.
    const at = (name: string): number => columns.findIndex((column) => fold(String(column)) === name);
    const [idAt, timeAt] = [at('id'), at('updated_at')];
    return rows.map((row) => this.#came({ op, table, id: row?.[idAt], time: row?.[timeAt] }));
  }

  #cameAs(change: unknown): Came {
    const { op, table, row, old_id: oldId, origin } = asObject(change);
    const { id, updated_at: time } = folded(asObject(row));
    const came = this.#came({ op, table, id: typeof oldId === 'string' ? oldId : id, time });
    return came.length > 0 && typeof origin === 'string' && isNodeId(origin) ? [...came, origin] : came;
  }

  #came({
    op,
    table,
    id,
    time,
  }: Record<'op' | 'table' | 'id' | 'time', unknown>): [string, string, number, number] | [] {
    if (typeof table !== 'string' || typeof id !== 'string' || typeof time !== 'number') return [];
    return [fold(table), this.#canonical(id), time, Number(op === 'DELETE')];
  }

  /** Only ids that begin so have more than one spelling. */
  #canonical(id: string): string {
    if (!id.startsWith('$')) return id;
    return String(this.#db.get(`SELECT ${canonicalId('v')} AS id FROM (SELECT ? AS v LIMIT -1)`, id)?.id);
  }

  #inOrder(): Arrival[] {
    return [...this.#waiting.values()].flatMap(({ list }) => list).sort((a, b) => a.at - b.at);
  }

  #largest(): string | undefined {
    let [most, whose]: [number, string | undefined] = [-1, undefined];
    for (const [from, { bytes }] of this.#waiting) if (bytes > most) [most, whose] = [bytes, from];
    return whose;
  }

  /** The oldest of that sender. */
  #drop(from: string | undefined): void {
    const own = this.#waiting.get(from);
    const gone = own?.list.shift();
    if (!own || !gone) return;
    this.#shelf.letGo(gone.body);
    own.bytes -= gone.body.bytes + EACH_BYTES;
    this.#bytes -= gone.body.bytes + EACH_BYTES;
    if (own.list.length === 0) this.#waiting.delete(from);
    if (this.#waiting.size === 0) this.#shelf.clear();
  }
}

/**
 * A change: its table in lower case, the id and the version of the row, 1 where it deletes it, and who made it, if the
 * body says so. Empty where it is no change: it has its place all the same, because origins are counted.
 */
type Came = [table?: string, id?: string, version?: number, gone?: number, origin?: string];

interface Kept {
  sender: string | null;
  at: number;
  /** Who made the changes, as the header has said it, and how many they are. */
  told: string | null;
  n: number;
  idx: number;
  origin: string | null;
}

/** A peer may say that anybody made what it brings: so who brought it is always named, and no other is `self`. */
function broughtBy(
  { from, origins, at }: Pick<Arrival, 'from' | 'origins' | 'at'>,
  index: number,
  origin: string | null | undefined,
): Brought {
  if (from === undefined) return { node: SELF, via: undefined, at: null };
  const told = originAt(origins, index);
  const said = told ? told.node : (origin ?? from);
  const node = said === SELF && said !== from ? null : said;
  return { node, via: node === from ? undefined : from, at };
}

/** Somebody may have written to the outbox what is no JSON: then nothing is to be known of it. */
function batchIn(body: string): Record<string, unknown> {
  try {
    return asObject(JSON.parse(body));
  } catch {
    return {};
  }
}

function asObject(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

/** The two columns that every table has may be spelt in any case. */
function folded(row: Record<string, unknown>): { id?: unknown; updated_at?: unknown } {
  if ('id' in row && 'updated_at' in row) return row;
  return Object.fromEntries(Object.entries(row).map(([key, value]) => [fold(key), value]));
}

/** Bound are the time, the sender, what it says of who made the changes, and these. */
const KEEP = 'INSERT INTO main._arrivals (at, sender, origins, brought) VALUES (CAST(? AS INTEGER), ?, ?, ?)';

/** Bound are the id, the names of the table, the id once more, the version, and 1 for a deletion. */
const KEPT =
  'SELECT a.sender, a.at, a.origins AS told, json_array_length(a.brought) AS n, r.key AS idx, ' +
  'r.value ->> 4 AS origin FROM main._arrivals AS a, json_each(a.brought) AS r ' +
  'WHERE instr(a.brought, json_quote(?)) > 0 AND r.value ->> 0 IN (SELECT value FROM json_each(?)) ' +
  'AND r.value ->> 1 = ? AND r.value ->> 2 = ? AND r.value ->> 3 = ? ORDER BY a.arrival_id, r.key LIMIT 1';

const SIZE = `octet_length(brought) + ${EACH_BYTES}`;

/** The older half of whoever holds the most. */
const LET_GO =
  'DELETE FROM main._arrivals WHERE arrival_id IN (SELECT arrival_id FROM (SELECT arrival_id, ' +
  'row_number() OVER (ORDER BY arrival_id) AS place, count(*) OVER () AS n FROM main._arrivals WHERE sender IS ' +
  `(SELECT sender FROM main._arrivals GROUP BY sender ORDER BY sum(${SIZE}) DESC LIMIT 1)) WHERE 2 * place <= n + 1)`;
