/**
 * How long the event loop was held. A timer of one millisecond is set again by itself; whatever comes between two of its
 * beats and is longer than the millisecond was synchronous work, or the kernel running somebody else.
 *
 * perf_hooks.monitorEventLoopDelay counts beats into a histogram, in which ten thousand idle beats drown one long block.
 * Here every batch is asked for its own longest block, so that a percentile is one over batches.
 *
 * `cpu` is the most CPU time that the process has used between two beats: where the machine is busy with something else,
 * that is what the block would have been.
 */
export class Heartbeat {
  #longest = 0;
  #timer;
  #blocks = [];
  #stopped = false;
  cpu = 0;

  start() {
    let last = performance.now();
    let used = process.cpuUsage();
    const beat = () => {
      const now = performance.now();
      this.#longest = Math.max(this.#longest, now - last - 1);
      last = now;
      const { user, system } = process.cpuUsage(used);
      this.cpu = Math.max(this.cpu, (user + system) / 1_000);
      used = process.cpuUsage();
      if (!this.#stopped) this.#timer = setTimeout(beat, 1);
    };
    this.#timer = setTimeout(beat, 1);
  }

  /** A batch has ended; the block that it ended with is seen by the next beat, and counted to the next batch. */
  mark() {
    this.#blocks.push(this.#longest);
    this.#longest = 0;
  }

  /** The longest block of every batch, in milliseconds. */
  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.mark();
    return this.#blocks;
  }
}
