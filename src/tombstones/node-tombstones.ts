/** All that a node has to do with its tombstones: what it says of itself, for whom it keeps them, and collecting them. */
import type { Clock } from '../clock.ts';
import type { Emitter } from '../events.ts';
import type { BacklogAge } from '../send/backlog-age.ts';
import type { Parts } from './collect.ts';
import { Collector } from './collector.ts';
import { Members, type MembersOptions } from './members.ts';
import { OwnLow } from './own-low.ts';

export interface TombstoneOptions {
  /** How long they are kept, in milliseconds; undefined for ever. */
  keep: number | undefined;
  /** The node id. */
  id: string;
  company: Pick<MembersOptions['company'], 'others'>;
  /** Those that are configured at the moment. */
  peers: () => string[];
  age: BacklogAge;
  clock: Clock;
  events: Emitter;
  warn(code: string, message: string): void;
}

export class NodeTombstones {
  readonly #low: OwnLow;
  readonly #members: Members;
  readonly #collector: Collector | undefined;

  constructor(parts: Parts, options: TombstoneOptions) {
    const { keep, id, company, peers, age, clock, events, warn } = options;
    this.#low = new OwnLow(parts.db, { peers, age, clock });
    const speaking = { low: () => this.#low.now(), others: () => company.others() };
    this.#members = new Members(parts.db, { id, company: speaking, peers, clock });
    if (keep === undefined) return;
    const onCollected = (removed: number): void => events.emit('tombstones-collected', { removed });
    this.#collector = new Collector(parts, { keep, clock, members: this.#members, warn, onCollected });
  }

  /** The nodes for which they are kept longer than they should be. */
  get heldBy(): string[] {
    return this.#collector?.heldBy ?? [];
  }

  /** What another database is told of what is still to come from here. */
  lowFor(inc: string | null | undefined): number | undefined {
    return this.#low.toldTo(inc);
  }

  forget(id: string): void {
    this.#members.forget(id);
    this.#collector?.lookAgain();
  }

  tick(): void {
    this.#collector?.tick();
  }
}
