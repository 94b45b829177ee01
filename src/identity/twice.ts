/** The ids that two databases were found to use at once, for as long as that may still be so. */
import { noteAt } from './strangers.ts';

/** How long it is a problem after it was last noticed, where none of the two is heard under another id. */
export const TWICE_MS = 10 * 60_000;

export class UsedTwice {
  /** When that was last noticed, and which databases it was; of an id of our own, the other one. */
  readonly #ids = new Map<string, { at: number; by: string[] }>();

  note(id: string, by: string[], at: number): void {
    noteAt(this.#ids, id, { at, by });
  }

  /** This database is gone as far as anybody knows; where it is not, it is heard again. */
  forget(inc: string): void {
    for (const [id, { by }] of this.#ids) if (by.includes(inc)) this.#ids.delete(id);
  }

  /** `idOf`: the id under which a database was last heard. One that has another by now has given this one up. */
  ids(now: number, idOf: (inc: string) => string | undefined): string[] {
    for (const [id, { at, by }] of this.#ids) {
      const isOver = Math.abs(now - at) >= TWICE_MS || by.some((inc) => (idOf(inc) ?? id) !== id);
      if (isOver) this.#ids.delete(id);
    }
    return [...this.#ids.keys()];
  }
}

export function isUsedTwice(id: string): string {
  return `node id ${JSON.stringify(id)} is used by two databases: give one of them another id`;
}
