/**
 * A temporary table with the declaration of a synced one, in which a single row can be looked at as if it were there.
 *
 * A row that a UNIQUE constraint keeps out of its table still has a version, defaults, affinities and generated columns.
 * The mirror gives it all of these by the table's own declaration, and is where a change to such a row is merged.
 */
import type { Connection } from '../sqlite/connection.ts';
import { GAP, QUOTED, reused, TEXT } from '../sqlite/reused.ts';
import { declarationOf, type Table } from '../sqlite/schema.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';
import type { UniqueConstraint } from '../sqlite/unique-indexes.ts';
import { exactJson, exactString } from '../wire/exact-text.ts';
import { toldJson } from '../wire/told-json.ts';
import { BOUND_ID, decode, idForWire } from '../wire/values.ts';
import { KeptOut } from './kept-out.ts';
import { conflictOf } from './merge.ts';

/** A row that stands in the table and shares a UNIQUE value with the row in the mirror. */
export interface Rival {
  /** As it travels. */
  id: string;
  version: number;
  /** 1 where the row in the mirror is the stronger of the two. */
  weaker: number;
}

export class Mirror {
  /** The mirror as a table that the statements of the merge can be made for. */
  readonly table: Table;
  readonly #db: Connection;
  readonly #of: Table;
  readonly #columns: string;
  readonly #rivals: string;
  readonly #declared: string | undefined;

  constructor(db: Connection, of: Table) {
    const name = `_rowcast_mirror_${of.name}`;
    this.#db = db;
    this.#of = of;
    // What is merged in it is live: the floor has nothing to say of it.
    const { floor: _, ...table } = of;
    this.table = { ...table, name, target: `temp.${quote(name)}` };
    this.#columns = of.columns.map((column) => quote(column.name)).join(', ');
    this.#rivals = rivalsSql(of, this.table.target);
    this.#make(`${quote(name)} ${columnsOf(db, of)}`);
    this.#declared = this.#present();
  }

  /** One that stands as it would be made is kept: for each temporary table SQLite prepares every statement anew. */
  #make(declaration: string): void {
    if (this.#present() === `CREATE TABLE ${declaration}`) {
      this.clear();
      return;
    }
    this.#db.exec(`DROP TABLE IF EXISTS ${this.table.target}`);
    this.#db.exec(`CREATE TEMP TABLE ${declaration}`);
  }

  /** False where it was made in a transaction that was taken back, and it with it: an older one may be there again. */
  stands(): boolean {
    return this.#declared !== undefined && this.#present() === this.#declared;
  }

  #present(): string | undefined {
    const sql = "SELECT sql FROM temp.sqlite_schema WHERE type = 'table' AND name = ?";
    return this.#db.get<{ sql: string }>(sql, this.table.name)?.sql;
  }

  clear(): void {
    this.#db.run(`DELETE FROM ${this.table.target}`);
  }

  /** Holds the row as it stands in the table; nothing where there is none. */
  loadVisible(id: string): void {
    this.clear();
    this.#db.run(
      `INSERT OR ABORT INTO ${this.table.target} (${this.#columns}) SELECT ${this.#columns} FROM ${this.#of.target} ` +
        `WHERE ${quote(this.#of.id)} = ${BOUND_ID}`,
      id,
    );
  }

  /** Holds a row from its JSON. A column that the table has got since then has what ALTER TABLE gave to the others. */
  load(rowData: string): void {
    const values = this.#of.columns.map(({ wireName, fallback }) => {
      const key = literal(wireName);
      const value = `(SELECT ${decode('e.atom')} FROM json_each(j.r) AS e WHERE e.key = ${key})`;
      return `iif(EXISTS (SELECT 1 FROM json_each(j.r) WHERE key = ${key}), ${value}, (${fallback}))`;
    });
    this.clear();
    this.#db.run(
      `INSERT OR ABORT INTO ${this.table.target} (${this.#columns}) SELECT ${values.join(', ')} FROM (SELECT ? AS r LIMIT -1) AS j`,
      rowData,
    );
  }

  /** The row that it holds, as JSON, with its version. */
  row(): { id: string; version: number; row: string } | undefined {
    const found = this.#db.get<{ id: Uint8Array; version: number; row: Uint8Array }>(
      `SELECT ${idForWire(`t.${quote(this.#of.id)}`)} AS id, t.${quote(this.#of.updatedAt)} AS version, ` +
        `CAST(${toldJson(this.#of, 't')} AS BLOB) AS "row" FROM ${this.table.target} AS t`,
    );
    return found && { ...found, id: exactString(found.id), row: exactJson(found.row) };
  }

  /** Those that stand in the way of the row that it holds. */
  rivals(): Rival[] {
    const found = this.#db.all<Omit<Rival, 'id'> & { id: Uint8Array }>(this.#rivals);
    return found.map((rival) => ({ ...rival, id: exactString(rival.id) }));
  }

  /** Puts the row that it holds into the table. Nothing may stand in its way. */
  insert(): void {
    this.#db.run(
      `INSERT${conflictOf(this.#of)} INTO ${this.#of.target} (${this.#columns}) SELECT ${this.#columns} FROM ${this.table.target}`,
    );
    const { target, ignores } = this.#of;
    const id = quote(this.#of.id);
    const isThere = `SELECT 1 AS n FROM ${target} WHERE ${id} = (SELECT ${id} FROM ${this.table.target})`;
    if (ignores && !this.#db.get(isThere)) throw new KeptOut(this.#of);
  }
}

/**
 * SQLite keeps the declaration from the name on, comments included. What follows the name is the same for any name, but
 * for a CHECK that says `name.column`.
 */
function columnsOf(db: Connection, table: Table): string {
  const found = DECLARATION.exec(declarationOf(db, table.name));
  if (!found) throw new Error(`the declaration of table ${JSON.stringify(table.name)} cannot be read`);
  const names = [...table.columns.map(({ name }) => name), ...table.generated].map(fold);
  return reused(found[1] as string, table.name, new Set(names));
}

const DECLARATION = new RegExp(
  String.raw`^\s*CREATE\s+TABLE${GAP}(?:${QUOTED}|${TEXT}|[^\s("\[\x60'/-]+)${GAP}(\([\s\S]*)$`,
  'i',
);
/** One look-up per constraint, each by its own index: joined by OR, SQLite would walk the whole table. */
function rivalsSql(table: Table, mirror: string): string {
  const id = quote(table.id);
  const version = quote(table.updatedAt);
  const ofMirror = (expression: string, where?: string): string =>
    `(SELECT ${expression}\n FROM ${mirror}${where === undefined ? '' : ` WHERE ${where}\n`})`;
  const found = table.uniques.map(
    (unique) => `SELECT t.${id} AS id FROM ${table.target} AS t WHERE ${clashes(unique, ofMirror)}`,
  );
  return (
    `SELECT ${idForWire(`t.${id}`)} AS id, t.${version} AS version, ` +
    `(t.${version}, t.${id}) < (SELECT ${version}, ${id} FROM ${mirror}) AS weaker ` +
    `FROM ${table.target} AS t WHERE t.${id} IN (${found.join(' UNION ALL ')}) AND t.${id} IS NOT ${ofMirror(id)}`
  );
}

/** True of a row `t` that shares the values of the constraint. NULL is equal to nothing, as SQLite's own check has it. */
function clashes(
  { columns, where }: UniqueConstraint,
  ofMirror: (expression: string, where?: string) => string,
): string {
  const terms = columns.map(({ name, expression, collation }) => {
    const collate = `COLLATE ${quote(collation)}`;
    // The bracket on a line of its own: an expression may end in a comment.
    // And a row that the index does not have is not asked: the expression may fail for it.
    if (expression !== undefined) return `(${expression}\n) = ${ofMirror(expression, where)} ${collate}`;
    return `t.${quote(name)} = ${ofMirror(quote(name))} ${collate}`;
  });
  if (where !== undefined) terms.unshift(`(${where}\n)`, ofMirror(`(${where}\n)`));
  return terms.join(' AND ');
}
