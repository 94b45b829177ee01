/**
 * The journal of conflicts has what was replaced by a change that had not seen it. Here it is known what each write has
 * seen: the version that its machine had of the row, and all that this one had seen in its turn. An entry for one of these
 * would be a false alarm, and of those there are none.
 */
import type { Machine } from './machine.ts';
import { canonical, describe, type Key, keyOf, type Version } from './oracle.ts';
import type { Plan } from './plan.ts';

interface Seen {
  version: Version;
  /** What the machine had of the row when it was written. */
  had: Seen | undefined;
}

export class Lineage {
  readonly #writes = new Map<Key, Seen[]>();

  /** A machine has written a row of which it had another version, or none. */
  note(key: Key, version: Version, had: Version | undefined): void {
    const known = this.#writes.get(key) ?? [];
    const parent = had && known.findLast((one) => isSame(one.version, had));
    this.#writes.set(key, [...known, { version, had: parent }]);
  }

  /** What is wrong in the journals; undefined where nothing is. */
  falseAlarm(machines: Machine[]): string | undefined {
    for (const { name, disk, kind, ready } of machines) {
      if (kind === 'hub' || !ready) continue;
      const sql = 'SELECT table_name, row_id, lost_version, lost_row, won_version FROM _conflicts';
      for (const line of disk.all(sql)) {
        const key = keyOf(String(line.table_name), String(line.row_id));
        const lost = this.#only(key, Number(line.lost_version), line.lost_row === null);
        const won = this.#only(key, Number(line.won_version));
        if (!lost || !won || !hasSeen(won, lost)) continue;
        return `${name} says that ${key} ${describe(lost.version)} was lost to ${describe(won.version)}, which had seen it`;
      }
    }
    return undefined;
  }

  /** The write of that time, where there was one alone: which of two is meant cannot be told. */
  #only(key: Key, updatedAt: number, isDelete?: boolean): Seen | undefined {
    const found = (this.#writes.get(key) ?? []).filter(
      ({ version }) => version.updatedAt === updatedAt && (isDelete === undefined || version.isDelete === isDelete),
    );
    return found.length === 1 ? found[0] : undefined;
  }
}

/** Where versions come about in other ways than by writes, it is not known what they have seen. */
export function hasLineage({ faults, lives, futures }: Plan): boolean {
  const others = [
    faults.schema,
    faults.rebuild,
    faults.foreign,
    faults['power-cut'],
    faults.poison,
    faults['wrong-ack'],
  ];
  return !lives && !futures && others.every((rate) => rate === undefined);
}

function hasSeen(won: Seen, lost: Seen): boolean {
  for (let one = won.had; one; one = one.had) if (one === lost) return true;
  return false;
}

function isSame(a: Version, b: Version): boolean {
  return (
    a.updatedAt === b.updatedAt && a.isDelete === b.isDelete && (a.isDelete || canonical(a.row) === canonical(b.row))
  );
}
