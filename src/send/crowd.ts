/**
 * Where a node has many peers, all of their loops want to go on at the same moment: when something was written, and again
 * when as many of them as are dead are tried again. To read and to begin a request takes each about a millisecond, so only
 * a few do in one turn of the event loop, in the order in which they came. Nobody waits for anybody's answer: a dead peer
 * delays another by that millisecond, however long it is silent.
 */

import { nextTurn } from './transport.ts';

/** As many go on in one turn. A node that has no more peers than this knows of no turns. */
export const AT_ONCE = 8;

export class Crowd {
  readonly #size: () => number;
  readonly #nextTurn: () => Promise<void>;
  readonly #waiting: (() => void)[] = [];
  /** How many have gone on in this turn; undefined where nobody counts turns, because none has. */
  #begun: number | undefined;

  /** `size`: how many peers there are. `turn` resolves when the event loop has come round. */
  constructor(size: () => number, turn: () => Promise<void> = nextTurn) {
    this.#size = size;
    this.#nextTurn = turn;
  }

  /** Resolves when it is one's turn; undefined where it is now. */
  enter(): Promise<void> | undefined {
    if (this.#size() <= AT_ONCE && this.#waiting.length === 0) return undefined;
    if (this.#begun === undefined) void this.#countTurns();
    if (this.#waiting.length > 0 || this.#begun === AT_ONCE) return new Promise((go) => this.#waiting.push(go));
    this.#begun = (this.#begun ?? 0) + 1;
    return undefined;
  }

  async #countTurns(): Promise<void> {
    do {
      await this.#nextTurn();
      const next = this.#waiting.splice(0, AT_ONCE);
      this.#begun = next.length;
      for (const go of next) go();
    } while (this.#begun > 0);
    this.#begun = undefined;
  }
}
