/**
 * Acknowledgements that do not count: another database has given them, or an earlier state of the peer, or the peer is being
 * given everything anew. The same is sent again: not at once, and after five in a row once a tick, whoever it is that keeps
 * acknowledging what he should not.
 */
import { ATTEMPTS, type Rest } from './rest.ts';

export class Uncounted {
  readonly #rest: Pick<Rest, 'backOff'>;
  /** So many in a row. */
  #count = 0;

  constructor(rest: Pick<Rest, 'backOff'>) {
    this.#rest = rest;
  }

  /** One has counted. */
  isOver(): void {
    this.#count = 0;
  }

  /** One has not. Resolves when it may be tried again, and to why it is given up for now, where it is. */
  async again(): Promise<string | undefined> {
    this.#count += 1;
    await this.#rest.backOff(this.#count);
    return this.#count < ATTEMPTS ? undefined : WHY;
  }
}

const WHY =
  'what the peer acknowledges does not count: it answers as it was before, or another one answers there; it is sent the ' +
  'same again';
