/**
 * Foreign keys are not enforced while a migration runs: to rebuild a table is to drop it, and that would delete what refers
 * to it. `PRAGMA foreign_keys = OFF`, which generated migrations say for that reason, has no effect within a transaction.
 * What they would have refused is looked for at the end.
 */
import { RowcastError } from '../errors.ts';
import type { Connection } from '../sqlite/connection.ts';

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
    if (this.#enforced) this.#before = this.#violations();
  }

  check(): void {
    if (!this.#enforced) return;
    for (const [which, count] of this.#violations()) {
      if (count <= (this.#before.get(which) ?? 0)) continue;
      const [child, parent] = JSON.parse(which) as [string, string];
      throw new RowcastError(
        'INVALID_MIGRATION',
        `rows of "${child}" would refer to rows of "${parent}" that are gone`,
        {
          hint: 'nothing was changed',
        },
      );
    }
  }

  /** How many there are, by child and parent; rows are numbered anew where a table is rebuilt. */
  #violations(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const { table, parent } of this.#db.all<{ table: string; parent: string }>('PRAGMA main.foreign_key_check')) {
      const which = JSON.stringify([table, parent]);
      counts.set(which, (counts.get(which) ?? 0) + 1);
    }
    return counts;
  }
}
