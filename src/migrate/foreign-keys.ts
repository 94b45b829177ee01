/**
 * Foreign keys are not enforced while a migration runs: to rebuild a table is to drop it, and that would delete what refers
 * to it. `PRAGMA foreign_keys = OFF`, which generated migrations say for that reason, has no effect within a transaction.
 * What they would have refused is looked for at the end.
 */
import { RowcastError } from '../errors.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import { fold, literal, quote } from '../sqlite/sql.ts';

interface Orphan {
  table: string;
  rowid: Value;
  parent: string;
  fkid: number;
}

export class ForeignKeys {
  readonly #db: Connection;
  readonly #enforced: boolean;
  #before = new Map<string, number>();

  /** Outside the transaction, where they are still as the application has set them. */
  constructor(db: Connection) {
    this.#db = db;
    this.#enforced = Number(db.get('PRAGMA foreign_keys')?.foreign_keys) === 1;
  }

  /** Received rows may refer to others that have not come yet. */
  note(): void {
    if (this.#enforced) for (const { refers } of this.#orphans()) count(this.#before, refers);
  }

  check(): void {
    if (!this.#enforced) return;
    const now = new Map<string, number>();
    for (const { refers, table, parent } of this.#orphans()) {
      if (count(now, refers) <= (this.#before.get(refers) ?? 0)) continue;
      throw new RowcastError(
        'INVALID_MIGRATION',
        `rows of "${table}" would refer to rows of "${parent}" that are gone`,
        {
          hint: `they refer to ${refers.length > SHOWN ? `${refers.slice(0, SHOWN)}...` : refers}; nothing was changed`,
        },
      );
    }
  }

  /**
   * Each by what it refers to: tables may get other names, and rows are numbered anew where a table is rebuilt. A row that has
   * no number cannot be found again here, and is one of so many.
   */
  *#orphans(): Generator<Orphan & { refers: string }> {
    const statements = new Map<string, string | undefined>();
    for (const orphan of this.#db.all<Orphan & Record<string, Value>>('PRAGMA main.foreign_key_check')) {
      const { table, fkid, rowid } = orphan;
      const which = JSON.stringify([table, fkid]);
      if (!statements.has(which)) statements.set(which, this.#reading(table, fkid));
      const sql = rowid === null ? undefined : statements.get(which);
      yield { ...orphan, refers: String((sql !== undefined && this.#db.get(sql, rowid)?.refers) || 'others') };
    }
  }

  /** What reads the values of a foreign key in one row of a table; undefined where its rows have no name that says their number. */
  #reading(table: string, fkid: number): string | undefined {
    const columns = this.#db
      .all<{ id: number; from: string }>(
        'SELECT id, "from" FROM pragma_foreign_key_list(?, \'main\') ORDER BY id, seq',
        table,
      )
      .filter(({ id }) => Number(id) === Number(fkid))
      .map(({ from }) => `quote(${quote(from)})`);
    const taken = this.#db.all<{ name: string }>(`SELECT name FROM pragma_table_xinfo(${literal(table)}, 'main')`);
    const rowid = ['rowid', '_rowid_', 'oid'].find((one) => !taken.some(({ name }) => fold(name) === one));
    if (rowid === undefined || columns.length === 0) return undefined;
    return `SELECT ${columns.join(` || ', ' || `)} AS refers FROM main.${quote(table)} WHERE ${rowid} = ?`;
  }
}

const SHOWN = 200;

function count(counts: Map<string, number>, refers: string): number {
  const n = (counts.get(refers) ?? 0) + 1;
  counts.set(refers, n);
  return n;
}
