/** What comes while the server is busy with the same is done together after it: one at a time, however many there are. */

interface Asked<T, R> {
  all: T[];
  resolve(results: R[]): void;
  reject(error: unknown): void;
}

/** In one transaction: no longer than a moment, and no parameter of megabytes. */
const TOGETHER = 1_000;

export class Gathered<T, R> {
  readonly #act: (all: T[]) => Promise<R[]>;
  readonly #asked: Asked<T, R>[] = [];
  #isActing = false;

  /** `act` does all of them or none, and has a result for each. */
  constructor(act: (all: T[]) => Promise<R[]>) {
    this.#act = act;
  }

  do(all: T[]): Promise<R[]> {
    return new Promise((resolve, reject) => {
      this.#asked.push({ all, resolve, reject });
      if (!this.#isActing) void this.#actOn();
    });
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
