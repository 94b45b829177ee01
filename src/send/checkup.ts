/** Asks a peer how it is, beside the loop, which goes on with what is written meanwhile. */
import type { Clock } from '../clock.ts';
import type { Courier } from './courier.ts';

export interface CheckupOptions {
  courier: Pick<Courier<never>, 'answeredAt' | 'ask' | 'isStranger'>;
  clock: Clock;
  stopped: AbortSignal;
  /** As with batches, so many failures in a row make a peer down, with a pause after each. */
  attempts: number;
  backOff(failures: number): Promise<void>;
  onAlive(said: string | null): Promise<void>;
  /** One attempt has failed. */
  onSilent(reason: string): void;
  onDown(reason: string): void;
}

export class Checkup {
  readonly #o: CheckupOptions;
  #asking: Promise<void> | undefined;
  /** When it was last asked; 0 before the first time. */
  askedAt = 0;
  #wasStranger = false;

  constructor(options: CheckupOptions) {
    this.#o = options;
  }

  /** Nobody is asked twice at once. */
  begin(): void {
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
  }

  /** Resolves when nothing is under way. */
  async ended(): Promise<void> {
    await this.#asking;
  }

  /**
   * Asks a stranger, before each attempt to send it its first batch: what a change has seen is told to a Rowcast alone, and
   * of edits that were told without that, none would be known to be lost. True where it has become known, by whatever,
   * since this was last called: what was read for it before is to be read again.
   */
  async meets(): Promise<boolean> {
    const { courier, clock, stopped, onAlive } = this.#o;
    if (courier.isStranger && !stopped.aborted) {
      this.#wasStranger = true;
      this.askedAt = clock.now();
      const pulse = await courier.ask();
      if (pulse.kind === 'alive' && !stopped.aborted) await onAlive(pulse.said);
    }
    const isMet = this.#wasStranger && !courier.isStranger;
    if (isMet) this.#wasStranger = false;
    return isMet;
  }

  async #ask(): Promise<void> {
    const { courier, clock, stopped, attempts, backOff, onAlive, onSilent, onDown } = this.#o;
    const heard = courier.answeredAt;
    for (let failures = 1; failures <= attempts; failures++) {
      this.askedAt = clock.now();
      const pulse = await courier.ask();
      const overtaken = pulse.kind !== 'alive' && courier.answeredAt !== heard;
      if (pulse.kind === 'unknown' || overtaken || stopped.aborted) return;
      if (pulse.kind === 'alive') return onAlive(pulse.said);
      onSilent(pulse.reason);
      await backOff(failures);
      if (failures === attempts) onDown(pulse.reason);
    }
  }
}
