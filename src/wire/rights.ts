/** What one sender may do. Without rights, whoever may send may do everything. */
import { fold } from '../sqlite/sql.ts';

export interface Rights {
  /** The tables that it may write, in lower case; undefined: all of them. */
  readonly write: ReadonlySet<string> | undefined;
  /** It may delete a row without saying which version of it: such a change, heard again later, deletes what came since. */
  readonly rowless: boolean;
}

/** Names of tables are matched without regard to case. */
export function writeRights(tables: readonly string[]): Rights['write'] {
  return tables.includes('*') ? undefined : new Set(tables.map(fold));
}

export function mayWrite({ write }: Rights, name: string): boolean {
  return write === undefined || write.has(fold(name));
}

/** What one of the two allows. */
export function eitherOf(a: Rights, b: Rights): Rights {
  const write = a.write && b.write && new Set([...a.write, ...b.write]);
  return { write, rowless: a.rowless || b.rowless };
}

/** What both of them allow. */
export function bothOf(a: Rights, b: Rights): Rights {
  const write = a.write && b.write ? new Set([...a.write].filter((name) => b.write?.has(name))) : (a.write ?? b.write);
  return { write, rowless: a.rowless && b.rowless };
}
