/** Time that is the same in every process of a run. */

const offset = align();

/** Milliseconds, with the resolution of performance.now(). */
export function sharedClock() {
  return performance.now() + offset;
}

/**
 * Two processes have to agree on the time to a fraction of a millisecond, and the runtimes' fine clocks begin where they
 * like. The system's clock is shared and coarse, but its ticks are not: the fine clock is aligned to one.
 */
function align() {
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 5; i++) {
    const start = Date.now();
    let now = start;
    let fine = performance.now();
    while (now === start) {
      fine = performance.now();
      now = Date.now();
    }
    // Whatever comes between the two readings makes the offset too great, never too small.
    best = Math.min(best, now - fine);
  }
  return best;
}
