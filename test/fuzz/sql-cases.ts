/**
 * What a seed means for test/fuzz/sql.deep.test.ts: a schema out of features that SQLite's users combine, and statements that
 * an application might run on it. Few ids and few values, so that constraints are hit all the time.
 */
import { Random } from '../support/model.ts';

/** What a schema may have besides two plain tables, by the name under which shrinking takes it away. */
export const FEATURES = [
  'strict',
  'without-rowid',
  'generated',
  'check',
  'not-null',
  'unique',
  'unique-conflict',
  'unique-partial',
  'unique-expression',
  'unique-nocase',
  'id-conflict',
  'foreign-key',
  'audit',
  'touch',
  'fts',
  'recursive-triggers',
  'once',
] as const;
export type Feature = (typeof FEATURES)[number];

export interface Case {
  seed: number;
  features: Feature[];
  statements: string[];
}

/** Not SQL: what was committed is shipped to the peer. */
export const SHIP = '-- ship';

const CONFLICTS = ['ROLLBACK', 'ABORT', 'FAIL', 'IGNORE', 'REPLACE'];
const UNIQUES: Feature[] = ['unique', 'unique-conflict', 'unique-partial', 'unique-expression', 'unique-nocase'];

export function caseOf(seed: number): Case {
  const random = new Random(seed);
  const features = FEATURES.filter((feature) => !UNIQUES.includes(feature) && random.chance(0.2));
  if (random.chance(0.5)) features.push(random.pick(UNIQUES));
  const writer = new Writer(random, features);
  return { seed, features, statements: Array.from({ length: 8 + random.below(30) }, () => writer.statement()) };
}

/** The tables that are synced, and with `own` what the application has beside them; a peer has no triggers of its own. */
export function schemaOf({ seed, features }: Case, own: boolean): string {
  const has = (feature: Feature): boolean => features.includes(feature);
  const random = new Random(seed + 1_000_003);
  const conflict = random.pick(CONFLICTS);
  const options = [...(has('strict') ? ['STRICT'] : []), ...(has('without-rowid') ? ['WITHOUT ROWID'] : [])].join(', ');
  const action = random.pick(['CASCADE', 'SET NULL', 'RESTRICT', 'NO ACTION']);
  const columns = [
    `id TEXT PRIMARY KEY${has('id-conflict') ? ` ON CONFLICT ${conflict}` : ''} NOT NULL`,
    `a TEXT${has('unique') ? ' UNIQUE' : ''}${has('unique-conflict') ? ` UNIQUE ON CONFLICT ${conflict}` : ''}` +
      `${has('unique-nocase') ? ' COLLATE NOCASE UNIQUE' : ''}`,
    `b INTEGER${has('not-null') ? ' NOT NULL DEFAULT 0' : ''}${has('check') ? ' CHECK (b IS NULL OR b < 7)' : ''}`,
    ...(has('generated') ? [`g TEXT AS (a || '/' || b) ${random.chance(0.5) ? 'STORED' : 'VIRTUAL'}`] : []),
    'updated_at INTEGER',
  ];
  const parent = `TEXT${has('foreign-key') ? ` REFERENCES t (id) ON DELETE ${action} ON UPDATE ${action}` : ''}`;
  return [
    `CREATE TABLE t (${columns.join(', ')}) ${options}`,
    `CREATE TABLE child (id TEXT PRIMARY KEY NOT NULL, parent ${parent}, b INTEGER, updated_at INTEGER)`,
    ...(has('unique-partial') ? ['CREATE UNIQUE INDEX t_partial ON t (a) WHERE b > 3'] : []),
    ...(has('unique-expression') ? ['CREATE UNIQUE INDEX t_expression ON t (lower(a))'] : []),
    ...(own ? ['CREATE TABLE audit (n INTEGER PRIMARY KEY, what TEXT)'] : []),
    ...(own && has('audit') ? audit() : []),
    ...(own && has('touch') ? [touch()] : []),
    ...(own || !saysOnConflict(features) ? (has('once') ? once() : []) : []),
    ...(own && has('fts') && !has('without-rowid') ? fts() : []),
  ].join(';\n');
}

function audit(): string[] {
  const note = (event: string, row: string): string =>
    `CREATE TRIGGER audit_${event} AFTER ${event} ON t BEGIN ` +
    `INSERT INTO audit (what) VALUES ('${event} ' || coalesce(${row}.id, '') || ' ' || coalesce(${row}.a, '')); END`;
  return [note('INSERT', 'NEW'), note('UPDATE', 'NEW'), note('DELETE', 'OLD')];
}

/** A table that says itself what becomes of a conflict has received rows written by OR ABORT, which counts for its triggers. */
function saysOnConflict(features: Feature[]): boolean {
  return features.includes('unique-conflict');
}

/** What each value is that was ever written; these must not fail because a value was seen before. */
function once(): string[] {
  const note = (event: string, when: string): string =>
    `CREATE TRIGGER once_${when}_${event} ${when} ${event} ON t BEGIN ` +
    "INSERT OR IGNORE INTO once VALUES (coalesce(NEW.a, 'none')); END";
  return [
    'CREATE TABLE once (what TEXT PRIMARY KEY)',
    note('INSERT', 'BEFORE'),
    note('INSERT', 'AFTER'),
    note('UPDATE', 'AFTER'),
  ];
}

/** The popular one, with a time that two databases agree on. */
function touch(): string {
  return (
    'CREATE TRIGGER touch AFTER UPDATE ON t WHEN NEW.updated_at IS OLD.updated_at BEGIN ' +
    'UPDATE t SET updated_at = coalesce(OLD.updated_at, 0) + 10 WHERE id = NEW.id; END'
  );
}

/** As in SQLite's manual, on external content tables. */
function fts(): string[] {
  const remove = "INSERT INTO t_fts(t_fts, rowid, a) VALUES ('delete', OLD.rowid, OLD.a);";
  const add = 'INSERT INTO t_fts(rowid, a) VALUES (NEW.rowid, NEW.a);';
  return [
    "CREATE VIRTUAL TABLE t_fts USING fts5(a, content='t')",
    `CREATE TRIGGER t_ai AFTER INSERT ON t BEGIN ${add} END`,
    `CREATE TRIGGER t_ad AFTER DELETE ON t BEGIN ${remove} END`,
    `CREATE TRIGGER t_au AFTER UPDATE ON t BEGIN ${remove} ${add} END`,
  ];
}

/** Statements in plain SQL; each is drawn without knowing what the ones before have done. */
class Writer {
  readonly #random: Random;
  readonly #features: Feature[];
  #time = 1_000;
  #columns = 0;

  constructor(random: Random, features: Feature[]) {
    this.#random = random;
    this.#features = features;
  }

  statement(): string {
    const kinds: [number, () => string][] = [
      [20, () => this.#insert()],
      [6, () => this.#upsert()],
      [16, () => this.#update()],
      [6, () => this.#rename()],
      [5, () => this.#byRowid()],
      [8, () => `DELETE FROM t ${this.#where()}`],
      [6, () => this.#child()],
      [
        2,
        () =>
          `INSERT${this.#or()} INTO t (id, a, b, updated_at) SELECT id || 'x', a, b, ${this.#at()} FROM t ${this.#where()}`,
      ],
      [4, () => 'BEGIN'],
      [4, () => 'COMMIT'],
      [1, () => 'ROLLBACK'],
      [1, () => 'SAVEPOINT s'],
      [1, () => 'ROLLBACK TO s'],
      [1, () => 'RELEASE s'],
      [2, () => SHIP],
      [1, () => `ALTER TABLE t ADD COLUMN n${++this.#columns} ${this.#random.pick(['TEXT', "TEXT DEFAULT 'd'"])}`],
    ];
    const deck = kinds.flatMap(([weight, make]) => Array.from({ length: weight }, () => make));
    return this.#random.pick(deck)();
  }

  #insert(): string {
    const verb = this.#random.chance(0.15) ? 'REPLACE' : `INSERT${this.#or()}`;
    const rows = Array.from({ length: this.#random.chance(0.3) ? 3 : 1 }, () => this.#row());
    if (this.#random.chance(0.25)) {
      return `${verb} INTO t (id, a, b) VALUES ${rows.map(([id, a, b]) => `(${id}, ${a}, ${b})`).join(', ')}`;
    }
    return `${verb} INTO t (id, a, b, updated_at) VALUES ${rows.map((row) => `(${row.join(', ')})`).join(', ')}`;
  }

  #upsert(): string {
    const rows = Array.from({ length: this.#random.chance(0.3) ? 2 : 1 }, () => `(${this.#row().join(', ')})`);
    const action = this.#random.chance(0.2)
      ? 'NOTHING'
      : `UPDATE SET a = excluded.a${this.#random.chance(0.7) ? ', updated_at = excluded.updated_at' : ''}`;
    return `INSERT INTO t (id, a, b, updated_at) VALUES ${rows.join(', ')} ON CONFLICT (id) DO ${action}`;
  }

  #update(): string {
    const sets = [
      ...(this.#random.chance(0.7) ? [`a = ${this.#a()}`] : []),
      ...(this.#random.chance(0.5) ? [`b = ${this.#b()}`] : []),
      ...(this.#random.chance(0.6) ? [`updated_at = ${this.#at()}`] : []),
    ];
    return `UPDATE${this.#or()} t SET ${sets.length > 0 ? sets.join(', ') : 'b = b'} ${this.#where()}`;
  }

  #rename(): string {
    const time = this.#random.chance(0.5) ? `, updated_at = ${this.#at()}` : '';
    const to = this.#random.chance(0.6) ? this.#id() : "id || 'y'";
    return `UPDATE${this.#or()} t SET id = ${to}${time} ${this.#where()}`;
  }

  /** An error where there is none. */
  #byRowid(): string {
    const [name, n] = [this.#random.pick(['rowid', '_rowid_', 'oid']), 1 + this.#random.below(6)];
    if (this.#random.chance(0.4)) return `UPDATE${this.#or()} t SET ${name} = ${n} ${this.#where()}`;
    const or = this.#random.chance(0.5) ? ' OR REPLACE' : this.#or();
    return `INSERT${or} INTO t (${name}, id, a, b, updated_at) VALUES (${n}, ${this.#row().join(', ')})`;
  }

  #child(): string {
    const id = `'c${this.#random.below(4)}'`;
    const parent = this.#random.chance(0.2) ? 'NULL' : this.#id();
    return this.#random.pick([
      `INSERT${this.#or()} INTO child VALUES (${id}, ${parent}, ${this.#b()}, ${this.#at()})`,
      `UPDATE${this.#or()} child SET parent = ${parent}, updated_at = ${this.#at()} WHERE id = ${id}`,
      `DELETE FROM child WHERE id = ${id}`,
    ]);
  }

  #row(): [string, string, string, string] {
    return [this.#id(), this.#a(), this.#b(), this.#at()];
  }

  #or(): string {
    return this.#random.chance(0.5) ? '' : ` OR ${this.#random.pick(CONFLICTS)}`;
  }

  #where(): string {
    const kind = this.#random.below(10);
    if (kind < 6) return `WHERE id = ${this.#id()}`;
    if (kind < 8) return `WHERE b = ${this.#b()}`;
    return kind < 9 ? `WHERE a >= ${this.#a()}` : '';
  }

  #id(): string {
    return `'p${this.#random.below(5)}'`;
  }

  #a(): string {
    return this.#random.chance(0.1) ? 'NULL' : this.#random.pick(["'x'", "'X'", "'y'", "'z'", "'w w'", "''"]);
  }

  #b(): string {
    if (this.#random.chance(0.05) && !this.#features.includes('strict')) return "'text'";
    return this.#random.chance(0.1) ? 'NULL' : String(this.#random.below(9));
  }

  /** Mostly an honest clock; now and then equal, backward or missing. */
  #at(): string {
    const kind = this.#random.below(20);
    if (kind === 0) return 'NULL';
    if (kind === 1) return String(this.#time - 50);
    if (kind > 3) this.#time += 1 + this.#random.below(20);
    return String(this.#time);
  }
}
