/** A median, with the least and the greatest beside it. */
import { median } from '../lib/statistics.mjs';

export function spread(values, digits = 1) {
  const show = (value) => value.toFixed(digits);
  if (values.length === 1) return show(values[0]);
  return `${show(median(values))} (${show(Math.min(...values))} to ${show(Math.max(...values))})`;
}

export function ratios(of, to) {
  return of.map((value, i) => value / to[i]);
}
