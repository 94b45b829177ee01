/**
 * A link on which nothing moves because of what somebody before the peer says, who cannot prove that he may: the change is
 * neither delivered nor set aside, and the peer's `/health` may answer all the while. Somebody has to be told.
 */
import { TOO_LARGE_ON_THE_WAY } from './verdict.ts';

export interface StandStillOptions {
  peer: string;
  warn(code: string, message: string): void;
}

export class StandStill {
  readonly #o: StandStillOptions;
  #problem: string | undefined;

  constructor(options: StandStillOptions) {
    this.#o = options;
  }

  /** For health; undefined where things move. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** A round of attempts is over without an answer, for that reason. */
  failed(reason: string): void {
    if (reason !== TOO_LARGE_ON_THE_WAY || this.#problem !== undefined) return;
    this.#problem = `nothing gets to ${this.#o.peer}: ${reason}`;
    this.#o.warn('stands-still', this.#problem);
  }

  /** The peer has acknowledged something. */
  moved(): void {
    this.#problem = undefined;
  }
}
