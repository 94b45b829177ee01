/**
 * What several loops have to do in one turn of the event loop is done in one go: what peers acknowledge is noted in one
 * transaction, however many of them there are.
 */

interface Asked<T, R> {
  one: T;
  resolve(result: R): void;
  reject(error: unknown): void;
}

export class Together<T, R> {
  readonly #nextTurn: () => Promise<void>;
  readonly #act: (all: T[]) => R[] | Promise<R[]>;
  #asked: Asked<T, R>[] = [];

  /** `nextTurn` resolves when the event loop has come round. `act` does all of them or none, and has a result for each. */
  constructor(nextTurn: () => Promise<void>, act: (all: T[]) => R[] | Promise<R[]>) {
    this.#nextTurn = nextTurn;
    this.#act = act;
  }

  /** Resolves when it is done, with what others have asked for in this turn. */
  do(one: T): Promise<R> {
    return new Promise((resolve, reject) => {
      this.#asked.push({ one, resolve, reject });
      if (this.#asked.length === 1) void this.#nextTurn().then(() => this.#actNow());
    });
  }

  async #actNow(): Promise<void> {
    const asked = this.#asked;
    this.#asked = [];
    try {
      const results = await this.#act(asked.map(({ one }) => one));
      asked.forEach(({ resolve }, i) => {
        resolve(results[i] as R);
      });
    } catch (error) {
      for (const { reject } of asked) reject(error);
    }
  }
}
