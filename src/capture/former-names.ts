/**
 * A name that a table or a column had before is taken. Nodes that are not migrated yet still send it, a hub keeps what
 * came under it, and an old backup brings it back; all of that is meant for what had the name then. A new table or column
 * of that name would be given it as its own. Whoever knows that nobody has anything under the name any more frees it
 * (migrate/aliases.ts).
 */
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';
import { fold } from '../sqlite/sql.ts';
import { capturedTables } from './capture-record.ts';
import { tableExists } from './installed-triggers.ts';
import { Names } from './names.ts';

/** A table that is to be synced, as it was named, and as it was last seen: that is what is meant, also when the name is free. */
interface Listed {
  name: string;
  seen: string;
}

export class TableList {
  readonly #db: Connection;
  readonly #tables: Listed[] = [];

  constructor(db: Connection, names: string[]) {
    this.#db = db;
    this.add(names);
  }

  add(names: string[]): void {
    for (const name of names) this.#tables.push({ name, seen: name });
  }

  get length(): number {
    return this.#tables.length;
  }

  /** Takes back what was added since it was as long as that. */
  cut(length: number): void {
    this.#tables.length = length;
  }

  /** Each by the name under which it was last seen. */
  seen(): string[] {
    return this.#tables.map(({ seen }) => seen);
  }

  /** Each by the name that it has in the database as it is. */
  present(): string[] {
    const names = Names.read(this.#db);
    return this.#tables.map((table) => this.#presentOf(table, names));
  }

  see(): void {
    const names = Names.read(this.#db);
    for (const table of this.#tables) table.seen = this.#presentOf(table, names);
  }

  #presentOf({ name, seen }: Listed, names: Names): string {
    const meant = this.#meant(seen, names);
    // Somebody may have put a state of before under a running process.
    return tableExists(this.#db, meant) ? meant : this.#meant(name, names);
  }

  /** Another table where that had the name before. */
  #meant(name: string, names: Names): string {
    const present = names.presentName(name);
    return present === undefined || isCaptured(this.#db, name) ? name : present;
  }
}

/** Before tables are synced that were not yet. One that is captured already, by an earlier build, is warned of. */
export function refuseFormerNames(db: Connection, tables: string[]): void {
  const names = Names.read(db);
  for (const name of tables) {
    const present = names.presentName(name);
    if (present === undefined || !tableExists(db, name) || isCaptured(db, name)) continue;
    throw new RowcastError(
      'INVALID_TABLE',
      `table "${name}" has the name that "${present}" had before: a hub or a backup may still have rows of ` +
        `"${present}" under it, and those would come into the new table`,
      { hint: freeing(name) },
    );
  }
}

/** What to do about a name that is taken. */
export function freeing(name: string): string {
  return (
    `give it another name, or free this one on every node, rowcast aliases -forget ${name}, once nobody has anything under ` +
    'it any more: "Using a name again" in docs/migrations.md; nothing was changed'
  );
}

function isCaptured(db: Connection, name: string): boolean {
  return tableExists(db, name) && capturedTables(db).includes(fold(name));
}
