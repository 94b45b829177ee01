/** Hidden rows from the strongest on: see unique.ts. */
import { idBytes } from '../wire/exact-text.ts';

export interface Hidden {
  /** As it travels, which is how an id is held here: as text it could lose bytes. */
  id: string;
  version: number;
  row: string;
}

/** Rows in the order of their strength, each of them once. */
export class StrongestFirst {
  /** As each was added last. */
  readonly #rows = new Map<string, Ranked>();
  /** The strongest last; some were taken or replaced meanwhile. */
  #order: Ranked[];

  constructor(rows: Hidden[]) {
    this.#order = rows.map(ranked).sort(byStrength);
    for (const one of this.#order) this.#rows.set(one.row.id, one);
  }

  /** Each to its place: to sort all of them for a few would take a second for a thousand. */
  add(rows: Hidden[]): void {
    for (const row of rows) {
      const one = ranked(row);
      this.#rows.set(row.id, one);
      let [from, to] = [0, this.#order.length];
      while (from < to) {
        const middle = (from + to) >> 1;
        if (byStrength(this.#order[middle] as Ranked, one) > 0) to = middle;
        else from = middle + 1;
      }
      this.#order.splice(from, 0, one);
    }
  }

  take(): Hidden | undefined {
    for (let one = this.#order.pop(); one; one = this.#order.pop()) {
      if (this.#rows.get(one.row.id) !== one) continue;
      this.#rows.delete(one.row.id);
      return one.row;
    }
    return undefined;
  }
}

/** A row with its id as it is compared. */
interface Ranked {
  row: Hidden;
  id: ReturnType<typeof idBytes>;
}

function ranked(row: Hidden): Ranked {
  return { row, id: idBytes(row.id) };
}

function byStrength(a: Ranked, b: Ranked): number {
  return (
    a.row.version - b.row.version || Number(a.id.isBlob) - Number(b.id.isBlob) || Buffer.compare(a.id.bytes, b.id.bytes)
  );
}
