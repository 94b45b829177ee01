/** Medians and what surrounds them. Every value has its spread beside it; no average is taken anywhere. */

/** The value below which the share `p` of the values lies, interpolated between neighbours. */
export function quantile(values, p) {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (sorted.length - 1) * p;
  const low = sorted[Math.floor(at)];
  return low + (sorted[Math.ceil(at)] - low) * (at - Math.floor(at));
}

export function median(values) {
  return quantile(values, 0.5);
}

export function summary(values) {
  return {
    median: median(values),
    min: Math.min(...values),
    max: Math.max(...values),
    q1: quantile(values, 0.25),
    q3: quantile(values, 0.75),
    values,
  };
}

/**
 * An interval that holds the true median with at least 93 % probability, whatever the distribution: between two order
 * statistics, by the binomial distribution. Five values are the fewest for which there is one.
 */
export function medianInterval(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const n = sorted.length;
  let cut = 0;
  while (cut + 1 < n / 2 && 1 - 2 * tail(n, cut + 1) >= 0.93) cut += 1;
  return { low: sorted[cut], high: sorted[n - 1 - cut], confidence: 1 - 2 * tail(n, cut) };
}

/** The probability that at most `k` of `n` coins fall one way. */
function tail(n, k) {
  let term = 0.5 ** n;
  let sum = term;
  for (let i = 1; i <= k; i++) {
    term = (term * (n - i + 1)) / i;
    sum += term;
  }
  return sum;
}
