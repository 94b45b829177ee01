/** Asks a peer how it is, beside the loop, which goes on with what is written meanwhile. */
import type { Clock } from '../clock.ts';
import type { Courier } from './courier.ts';

export interface CheckupOptions {
  courier: Pick<Courier<never>, 'answeredAt' | 'ask'>;
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
