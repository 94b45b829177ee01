/** What comes while the server is busy with the same is done together after it: one at a time, however many there are. */
import type { Clock } from '../../clock.ts';

interface Asked<T, R> {
  all: T[];
  resolve(results: R[]): void;
  reject(error: unknown): void;
}

/** How long it is waited for more after each time, unless so many have come. */
export interface Rest {
  clock: Clock;
  ms: number;
  crowd: number;
}

/** In one transaction: no longer than a moment, and no parameter of megabytes. */
const TOGETHER = 1_000;

export class Gathered<T, R> {
  readonly #act: (all: T[]) => Promise<R[]>;
  readonly #rest: Rest | undefined;
  readonly #asked: Asked<T, R>[] = [];
  #isActing = false;
  /** Ends the rest. */
  #crowded = new AbortController();

  /**
   * `act` does all of them or none, and has a result for each. With `rest` it is done less often where that makes little
   * difference to anybody: what comes in a moment is done together as well.
   */
  constructor(act: (all: T[]) => Promise<R[]>, rest?: Rest) {
    this.#act = act;
    this.#rest = rest;
  }

  do(all: T[]): Promise<R[]> {
    return new Promise((resolve, reject) => {
      this.#asked.push({ all, resolve, reject });
      if (this.#isCrowd) this.#crowded.abort();
      if (!this.#isActing) void this.#actOn();
    });
  }

  get #isCrowd(): boolean {
    return this.#rest !== undefined && this.#asked.length >= this.#rest.crowd;
  }

  async #actOn(): Promise<void> {
    this.#isActing = true;
    while (this.#asked.length > 0) {
      const taken = this.#take();
      try {
        const results = await this.#act(taken.flatMap(({ all }) => all));
        let at = 0;
        for (const { all, resolve } of taken) {
          resolve(results.slice(at, at + all.length));
          at += all.length;
        }
      } catch (error) {
        for (const { reject } of taken) reject(error);
      }
      if (this.#rest && !this.#isCrowd) {
        this.#crowded = new AbortController();
        await this.#rest.clock.sleep(this.#rest.ms, this.#crowded.signal);
      }
    }
    this.#isActing = false;
  }

  /** The first, and those behind it as long as they are not too many. */
  #take(): Asked<T, R>[] {
    let count = 0;
    const end = this.#asked.findIndex(({ all }, i) => {
      count += all.length;
      return i > 0 && count > TOGETHER;
    });
    return this.#asked.splice(0, end < 0 ? this.#asked.length : end);
  }
}
