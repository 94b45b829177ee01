/**
 * What the answers of peers tell of their clocks: each says a time that its own has passed. Nobody's clock is set by that, but
 * one that most of the others are far ahead of makes all that they write wait, and whoever looks has to see it.
 */
interface Heard {
  aheadMs: number;
  at: number;
}

/** Peers that are up are asked more often; of one that is not, nothing is known. */
const HEARD_MS = 10 * 60_000;

export class PeerClocks {
  readonly #maxAheadMs: number;
  /** By the database that has answered. */
  readonly #heard = new Map<string, Heard>();

  /** What is further ahead is not let in; 0: everything is. */
  constructor(maxAheadMs: number) {
    this.#maxAheadMs = maxAheadMs;
  }

  /** Its clock has passed that time, at this one by ours. */
  note(inc: string, time: number, now: number): void {
    this.#heard.set(inc, { aheadMs: time - now, at: now });
  }

  problem(now: number): string | undefined {
    if (this.#maxAheadMs === 0) return undefined;
    for (const [inc, { at }] of this.#heard) if (Math.abs(now - at) >= HEARD_MS) this.#heard.delete(inc);
    const heard = [...this.#heard.values()];
    const ahead = heard.filter(({ aheadMs }) => aheadMs > this.#maxAheadMs).length;
    if (2 * ahead <= heard.length) return undefined;
    const who = `${ahead} of ${heard.length} peers`;
    return `clock: it is far behind the clocks of ${who}, and what they write waits here: set the one that is wrong`;
  }
}
