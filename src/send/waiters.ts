/** Those who wait until a peer has what was pending when they came: who calls `flush`. */
import type { IsPaid, Outbox } from './shipment.ts';

/** How one pass over the outbox ended. */
export type Pass = 'empty' | 'unreachable' | 'stopped';

interface Waiter {
  tell(pass: Pass): void;
  /** What was pending, which is found out with the next look. */
  isPaid?: IsPaid;
  /** How often there was more to send although the peer had all of that. */
  more: number;
}

/** Mostly there is nothing more after what was pending, and then who waits may rely on it. */
const MORE_MAX = 20;

export class Waiters {
  #all: Waiter[] = [];

  /** Resolves at the latest when a pass ends that began after this. */
  wait(): Promise<Pass> {
    return new Promise((tell) => this.#all.push({ tell, more: 0 }));
  }

  /** A pass begins: whoever is there now is to be told of its end. */
  begin(): (pass: Pass) => void {
    const those = [...this.#all];
    return (pass) => this.#tell(those, pass);
  }

  /** A pass has no end while there is always more to send: whoever has waited for what was pending, and a little more, is told. */
  async look(outbox: Pick<Outbox<unknown>, 'owed'>): Promise<void> {
    if (!outbox.owed) return;
    for (const one of [...this.#all]) {
      one.isPaid ??= await outbox.owed();
      if (!(await one.isPaid())) continue;
      one.more += 1;
      if (one.more > MORE_MAX) this.#tell([one], 'empty');
    }
  }

  stop(): void {
    this.#tell([...this.#all], 'stopped');
  }

  #tell(those: Waiter[], pass: Pass): void {
    this.#all = this.#all.filter((one) => !those.includes(one));
    for (const { tell } of those) tell(pass);
  }
}
