/** All that a node has of the conflict journal: noting, looking, and the story of one row. */

import type { Registry } from '../capture/registry.ts';
import type { Clock } from '../clock.ts';
import { unlessRefused } from '../errors.ts';
import type { Emitter } from '../events.ts';
import type { DeadLetters } from '../letters/dead-letters.ts';
import type { Connection } from '../sqlite/connection.ts';
import type { Body } from '../wire/body.ts';
import type { Arrivals } from './arrivals.ts';
import { type Conflicts, JournalConflicts } from './conflicts.ts';
import { Journal, type JournalLimits } from './journal.ts';
import { type Why, whyOf } from './why.ts';

interface Parts {
  registry: Registry;
  letters: DeadLetters;
  clock: Clock;
  events: Emitter;
  limits: () => JournalLimits | undefined;
  refuseIfStopped: () => void;
  /** Something was written here. */
  onWrite: () => void;
}

export class NodeJournal {
  readonly journal: Journal;
  readonly conflicts: Conflicts;

  readonly #db: Connection;
  readonly #registry: Registry;
  readonly #letters: DeadLetters;

  constructor(db: Connection, { registry, letters, refuseIfStopped, ...around }: Parts) {
    this.#db = db;
    this.#registry = registry;
    this.#letters = letters;
    this.journal = new Journal(db, around);
    const [tableOf, tables] = [(name: string) => registry.get(name), () => registry.list().map(({ name }) => name)];
    const conflicts = new JournalConflicts(db, { ...around, tableOf, tables });
    this.conflicts = {
      list: unlessRefused(refuseIfStopped, (page) => conflicts.list(page)),
      get: unlessRefused(refuseIfStopped, (id) => conflicts.get(id)),
      restore: unlessRefused(refuseIfStopped, (id, options) => conflicts.restore(id, options)),
      dismiss: unlessRefused(refuseIfStopped, (id) => conflicts.dismiss(id)),
    };
  }

  get arrivals(): Arrivals {
    return this.journal.arrivals;
  }

  /** Changes of this node are on their way to its peers, and may be gone from the outbox soon. */
  readonly left = (body: Body): void => this.journal.left(body);

  why(table: string, id: string): Why {
    const [registry, letters] = [this.#registry, this.#letters];
    const tables = (): string[] => registry.list().map(({ name }) => name);
    const { arrivals } = this;
    return whyOf(this.#db, { tableOf: (name) => registry.get(name), tables, letters, arrivals }, table, id);
  }
}
