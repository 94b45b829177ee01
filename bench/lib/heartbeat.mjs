import { existsSync, openSync, readSync } from 'node:fs';

/** Less than that, in milliseconds, is the timer itself. */
const BUSY_MS = 0.3;

/**
 * How long the event loop was held. A timer of one millisecond is set again by itself; whatever comes between two of its
 * beats and is longer than the millisecond was synchronous work, or the kernel running somebody else.
 *
 * perf_hooks.monitorEventLoopDelay counts beats into a histogram, in which ten thousand idle beats drown one long block.
 * Here every batch is asked for its own longest block, so that a percentile is one over batches.
 *
 * `cpu` is the most CPU time that the process has used between two beats: where the machine is busy with something else,
 * that is what the block would have been. Never more than the time that has passed without waiting for a core: the threads on
 * which V8 compiles and collects work beside the loop, and do not hold it. `percentile` is one over the beats in which
 * anything was done.
 */
export class Heartbeat {
  #longest = 0;
  #timer;
  #blocks = [];
  #stopped = false;
  #busy = [];
  cpu = 0;

  start() {
    let last = performance.now();
    let used = process.cpuUsage();
    let waited = waitedMs();
    const beat = () => {
      const now = performance.now();
      const { user, system } = process.cpuUsage(used);
      const ran = Math.max(0, now - last - (waitedMs() - waited));
      const held = Math.min((user + system) / 1_000, ran);
      this.cpu = Math.max(this.cpu, held);
      if (held >= BUSY_MS) this.#busy.push(held);
      this.#longest = Math.max(this.#longest, now - last - 1);
      last = now;
      used = process.cpuUsage();
      waited = waitedMs();
      if (!this.#stopped) this.#timer = setTimeout(beat, 1);
    };
    this.#timer = setTimeout(beat, 1);
  }

  /** A batch has ended; the block that it ended with is seen by the next beat, and counted to the next batch. */
  mark() {
    this.#blocks.push(this.#longest);
    this.#longest = 0;
  }

  /** Of the CPU times: as much, or less, had so large a part of them. */
  percentile(part) {
    const sorted = this.#busy.toSorted((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0;
  }

  /** The longest block of every batch, in milliseconds. */
  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.mark();
    return this.#blocks;
  }
}

const SCHEDULED = '/proc/thread-self/schedstat';
const scheduled = existsSync(SCHEDULED) ? openSync(SCHEDULED) : undefined;
const line = Buffer.alloc(64);

/** For how long this thread could have run and somebody else had the core; where the kernel does not say, nothing. */
function waitedMs() {
  if (scheduled === undefined) return 0;
  const bytes = readSync(scheduled, line, 0, line.length, 0);
  return Number(line.toString('latin1', 0, bytes).split(' ')[1]) / 1e6;
}
