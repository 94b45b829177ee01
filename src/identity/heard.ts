/** What the databases around have last said of themselves since the start, and when. */
import type { Clock } from '../clock.ts';
import type { Introduction } from '../wire/introduction.ts';

interface Said {
  id: string;
  low: number | undefined;
  at: number;
}

export class Heard {
  readonly #clock: Pick<Clock, 'now'>;
  readonly #byInc = new Map<string, Said>();

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock;
  }

  note({ id, inc, low }: Pick<Introduction, 'id' | 'inc' | 'low'>): void {
    // A hub that was started again says nothing until its edges have spoken: what it said before still holds.
    this.#byInc.set(inc, { id, low: low ?? this.lowOf(inc), at: this.#clock.now() });
  }

  /** What it last said of what it still has to send; undefined where it has not. */
  lowOf(inc: string): number | undefined {
    return this.#byInc.get(inc)?.low;
  }

  /** Another node can claim to be this database, but with a key for itself alone not by this name. */
  as(id: string, inc: string): Readonly<Said> | undefined {
    const said = this.#byInc.get(inc);
    if (said?.id !== id) return undefined;
    // By a clock that was ahead, and set right since: nobody knows more than that it is over.
    said.at = Math.min(said.at, this.#clock.now());
    return said;
  }

  forget(inc: string): void {
    this.#byInc.delete(inc);
  }

  clear(): void {
    this.#byInc.clear();
  }
}
