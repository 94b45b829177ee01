/**
 * The name that a table has had here from the first, names that it and its columns had before, and columns that were
 * dropped, kept in `_meta` for each table.
 *
 * Nodes are migrated one after the other. Until all of them are, a column that was renamed here travels under the name
 * that the others still have, in both directions, and so does a table. A node that is not migrated yet, and a hub, which
 * has no schema, therefore notice nothing. Once every node is migrated, each may begin to send the new names
 * (`sendNewNames`). The old ones are understood until somebody says that nobody has anything under them any more, so that
 * this too may happen in any order; until then they are taken (capture/former-names.ts).
 */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';

/** What one name was before. */
export interface Renamed {
  name: string;
  was: string[];
  /** The name under which it travels; absent where that is its own. */
  sentAs?: string | undefined;
}

/** `name` is spelt as it was when the table was first synced: what Rowcast keeps of it is kept under that spelling. */
export interface TableNames extends Renamed {
  columns: Renamed[];
  /** Columns that were dropped by a migration, in lower case. */
  dropped: string[];
  /** Columns that went in another way, in lower case: what others say of them is kept. */
  lost: string[];
}

const PREFIX = 'names:';

/** Everything that is known of names, by the table's present one. */
export class Names {
  readonly #tables = new Map<string, TableNames>();

  private constructor(tables: TableNames[]) {
    for (const table of tables) this.#tables.set(fold(table.name), table);
  }

  static read(db: Connection): Names {
    if (!hasMeta(db)) return new Names([]);
    const rows = db.all<{ value: unknown }>(
      `SELECT value FROM main._meta WHERE key >= '${PREFIX}' AND key < 'names;' ORDER BY key`,
    );
    return new Names(rows.flatMap(({ value }) => parsed(value) ?? []));
  }

  list(): TableNames[] {
    return [...this.#tables.values()];
  }

  has(table: string): boolean {
    return this.#tables.has(fold(table));
  }

  of(table: string): TableNames {
    return this.#tables.get(fold(table)) ?? { name: table, was: [], columns: [], dropped: [], lost: [] };
  }

  /** What the table that had this name before is called now. */
  presentName(table: string): string | undefined {
    return this.list().find((one) => hadBefore(one, table))?.name;
  }

  /** Puts what is known of the names into the description of a table. */
  describe(table: Table): Table {
    const former = this.presentName(table.name);
    if (former !== undefined) table.warnings.push(takenBy(`table "${table.name}"`, former, table.name));
    const known = this.#tables.get(fold(table.name));
    if (!known) return table;
    // Somebody may have changed its case, by way of another name: to SQLite it is the same.
    table.name = known.name;
    table.was = known.was;
    table.wireName = known.sentAs ?? table.name;
    for (const { name, was, sentAs } of known.columns) {
      const column = table.columns.find((one) => fold(one.name) === fold(name));
      // A column that has got such a name since then needs it for itself.
      const free = (alias: string): boolean => !table.columns.some((one) => fold(one.name) === fold(alias));
      for (const alias of was.filter((one) => fold(one) !== fold(name) && !free(one))) {
        table.warnings.push(takenBy(`column "${alias}" of "${table.name}"`, name, `${table.name}.${alias}`));
      }
      if (!column) {
        // What others still send under the names that it had before is given up with it.
        if (isDropped(known, name)) for (const alias of was.filter(free)) table.dropped.add(fold(alias));
        continue;
      }
      for (const alias of was.filter(free)) table.aliases.set(fold(alias), column);
      if (sentAs !== undefined && free(sentAs)) column.wireName = sentAs;
    }
    for (const name of known.dropped) table.dropped.add(fold(name));
    return table;
  }
}

/** Did something that is called otherwise now have this name? */
export function hadBefore({ name, was }: Renamed, former: string): boolean {
  return fold(name) !== fold(former) && was.some((one) => fold(one) === fold(former));
}

export function isDropped({ dropped }: TableNames, column: string): boolean {
  return dropped.includes(fold(column));
}

/** It is there already, so it cannot be refused. */
function takenBy(what: string, former: string, alias: string): string {
  return (
    `${what} has the name that "${former}" had before: what a hub or a backup still has of "${former}" under that name ` +
    'comes into it. Give it another name; or, when nobody has anything under the old one any more, say so on every node: ' +
    `rowcast aliases -forget ${alias}`
  );
}

/** Tables that are synced from now on are known by the names that they have now. In a transaction. */
export function noteNames(db: Connection, tables: Table[]): void {
  const names = Names.read(db);
  for (const { name } of tables) if (!names.has(name)) keepNames(db, names.of(name));
}

/** Writes down what is known of a table. In a transaction. */
export function keepNames(db: Connection, names: TableNames): void {
  const key = `${PREFIX}${fold(names.name)}`;
  const columns = names.columns.filter(({ was }) => was.length > 0);
  db.run(
    'INSERT INTO main._meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value',
    key,
    JSON.stringify({ ...names, columns }),
  );
}

export function forgetNames(db: Connection, table: string): void {
  db.run('DELETE FROM main._meta WHERE key = ?', `${PREFIX}${fold(table)}`);
}

/** The name that `from` has been given: what it was before stays known, and is what it travels as. */
export function renamed(before: Renamed, to: string): Renamed {
  const was = [...before.was.filter((name) => fold(name) !== fold(to)), before.name];
  const sentAs = before.sentAs ?? before.name;
  // It may have got back the name that it always travelled under.
  return { name: to, was, sentAs: fold(sentAs) === fold(to) ? undefined : sentAs };
}

/** A table's names after some of its columns were renamed; each pair is the old name and the new one. */
export function withRenamedColumns(names: TableNames, pairs: (readonly [string, string])[]): TableNames {
  const columns = names.columns.filter(({ name }) => !pairs.some(([from]) => fold(from) === fold(name)));
  for (const [from, to] of pairs) {
    const before = names.columns.find(({ name }) => fold(name) === fold(from)) ?? { name: from, was: [] };
    const there = columns.find(({ name }) => fold(name) === fold(to));
    const now = renamed(before, to);
    if (there) columns.splice(columns.indexOf(there), 1);
    columns.push(there ? { ...now, was: [...new Set([...there.was, ...now.was])] } : now);
  }
  // A column that has got the name of one that was gone is not that one.
  const others = (gone: string[]): string[] => gone.filter((name) => !pairs.some(([, to]) => fold(to) === name));
  return { ...names, columns, dropped: others(names.dropped), lost: others(names.lost) };
}

/** Before the first attach it is not there, or it is the application's own, which is refused in a moment. */
export function hasMeta(db: Connection): boolean {
  const sql = "SELECT count(*) AS n FROM pragma_table_info('_meta', 'main') WHERE name IN ('key', 'value')";
  return db.get(sql)?.n === 2;
}

/** A person may have written anything there. */
function parsed(value: unknown): TableNames | undefined {
  if (typeof value !== 'string') return undefined;
  try {
    const names = JSON.parse(value) as Partial<TableNames> | null;
    const whole =
      typeof names?.name === 'string' &&
      isRenamed(names) &&
      Array.isArray(names.columns) &&
      names.columns.every(isRenamed) &&
      Array.isArray(names.dropped);
    // An earlier build kept no list of those.
    return whole ? { ...(names as TableNames), lost: Array.isArray(names.lost) ? names.lost : [] } : undefined;
  } catch {
    return undefined;
  }
}

function isRenamed(one: Partial<Renamed> | null): boolean {
  const { name, was, sentAs } = one ?? {};
  return typeof name === 'string' && Array.isArray(was) && (sentAs === undefined || typeof sentAs === 'string');
}
