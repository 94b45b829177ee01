/** The loop of one peer, which can be ended and begun again while it runs: to pause the peer, or to remove it. */
import type { Shipper } from './shipper.ts';

/** A Shipper that has ended does not begin again: a new one takes its place, when the one before is over. */
export class Loop {
  readonly url: string;
  isRunning = false;
  /** Made when it is needed: of thousands that are ended because all is, none is. */
  #shipper: Shipper | undefined;
  #lastAckedAt: number | undefined;
  /** The end of every shipper before this one. */
  #ended: Promise<void> | undefined;
  readonly #make: () => Shipper;

  /** `after`: the end of another loop to the same peer, for which this one waits. */
  constructor(url: string, make: () => Shipper, after?: Promise<void>) {
    this.url = url;
    this.#make = make;
    this.#ended = after;
  }

  get shipper(): Shipper {
    if (this.#shipper) return this.#shipper;
    this.#shipper = this.#make();
    this.#shipper.lastAckedAt = this.#lastAckedAt;
    return this.#shipper;
  }

  /** Resolves when nothing of what has been told to end is left: no timer, no request. */
  get ended(): Promise<void> {
    return this.#ended ?? Promise.resolve();
  }

  begin(): void {
    if (this.isRunning) return;
    this.isRunning = true;
    const { shipper } = this;
    if (!this.#ended) shipper.start();
    else void this.#ended.then(() => this.isRunning && this.shipper === shipper && shipper.start());
  }

  end(): void {
    if (!this.isRunning) return;
    this.isRunning = false;
    const { shipper } = this;
    const before = this.#ended;
    this.#ended = before ? Promise.all([shipper.stop(), before]).then(() => {}) : shipper.stop();
    this.#shipper = undefined;
    this.#lastAckedAt = shipper.lastAckedAt;
  }

  /** True when the peer has everything that was pending. */
  async flush(): Promise<boolean> {
    return this.isRunning && this.shipper.flush();
  }
}

/** Ships now to all of them: who then has everything that was pending, and who cannot be reached or is paused. */
export async function flushAll(loops: Loop[]): Promise<{ delivered: string[]; unreachable: string[] }> {
  const result = { delivered: [] as string[], unreachable: [] as string[] };
  await Promise.all(
    loops.map(async (loop) => {
      const list = (await loop.flush()) ? result.delivered : result.unreachable;
      list.push(loop.url);
    }),
  );
  return result;
}
