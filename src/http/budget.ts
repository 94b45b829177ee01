/**
 * How many bytes of bodies may be in memory at one time, over all requests of a server: read, unpacked, or being worked
 * on. The limit of one body does not bound a crowd of them, and thirty strangers with a body each are a crowd.
 */
export const BODIES_BYTES_MAX = 128 * 1024 * 1024;

/** What one request holds of the budget. */
export interface Share {
  /** False where there is no room for so many more; then nothing is taken. */
  take(bytes: number): boolean;
  /** Gives back all of it. */
  release(): void;
}

export class Budget {
  readonly #max: number;
  #held = 0;

  constructor(max: number = BODIES_BYTES_MAX) {
    this.#max = max;
  }

  open(): Share {
    let taken = 0;
    return {
      take: (bytes) => {
        // One body always fits, or a limit of bodies above the budget would refuse for ever.
        if (this.#held > taken && this.#held + bytes > this.#max) return false;
        this.#held += bytes;
        taken += bytes;
        return true;
      },
      release: () => {
        this.#held -= taken;
        taken = 0;
      },
    };
  }
}
