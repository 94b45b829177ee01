/** Stands still while anything is to be done, and then goes on to the next sleeper. */
export class VirtualClock {
  #now = 1_000;
  #sleepers = [];

  now() {
    return this.#now;
  }

  sleep(ms, signal) {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const sleeper = { at: this.#now + ms, resolve };
      this.#sleepers.push(sleeper);
      signal?.addEventListener('abort', () => {
        this.#sleepers = this.#sleepers.filter((other) => other !== sleeper);
        resolve();
      });
    });
  }

  async runUntil(promise) {
    let ended = false;
    const result = promise.finally(() => {
      ended = true;
    });
    while (!ended) {
      await new Promise(setImmediate);
      if (ended) break;
      const next = this.#sleepers.reduce((least, one) => (one.at < least.at ? one : least), this.#sleepers[0]);
      if (!next) throw new Error('nothing is left to wait for');
      this.#sleepers = this.#sleepers.filter((one) => one !== next);
      this.#now = next.at;
      next.resolve();
    }
    return result;
  }
}
