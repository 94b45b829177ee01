/** Makes node:sqlite's DatabaseSync fit: it has exec and prepare, but no transaction(fn). */
import type { Database, Statement } from './connection.ts';

/** The part of DatabaseSync that is used; structural, so that importing this needs no particular Node. */
export interface DatabaseSyncLike {
  exec(sql: string): void;
  prepare(sql: string): unknown;
}

/** The handle for `attach`. Go on using your DatabaseSync as before; both are one connection. */
export function fromNodeSqlite(db: DatabaseSyncLike): Database {
  const handle: Database & { readonly inTransaction: boolean | undefined } = {
    /** By the name that the other bindings have for it. */
    get inTransaction() {
      return (db as { isTransaction?: boolean }).isTransaction;
    },
    exec: (sql) => db.exec(sql),
    prepare: (sql) => db.prepare(sql) as Statement,
    transaction:
      <A extends unknown[], R>(fn: (...args: A) => R) =>
      (...args: A): R => {
        db.exec('BEGIN IMMEDIATE');
        try {
          const result = fn(...args);
          db.exec('COMMIT');
          return result;
        } catch (error) {
          db.exec('ROLLBACK');
          throw error;
        }
      },
  };
  return handle;
}
