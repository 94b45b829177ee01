/** Is something growing? Compares the end of a long series with its middle, because the beginning is warming up. */

const SAMPLES_MIN = 12;
/** What levels off still sways: a collector comes late, a page is reused later. */
const ALLOWED = 1.5;

export class Growth {
  #series = new Map();

  add(sample) {
    for (const [what, value] of Object.entries(sample)) {
      const series = this.#series.get(what) ?? [];
      this.#series.set(what, series);
      series.push(value);
    }
  }

  summary() {
    return [...this.#series].map(([what, series]) => `${what} ${mebibytes(series.at(-1))}`).join(', ');
  }

  verdicts() {
    return [...this.#series].map(([what, series]) => {
      if (series.length < SAMPLES_MIN) return { what, ok: true, text: `${series.length} samples are too few to judge` };
      const third = Math.floor(series.length / 3);
      const middle = median(series.slice(third, 2 * third));
      const end = median(series.slice(2 * third));
      const ok = end <= middle * ALLOWED;
      const text = `${mebibytes(middle)} in the middle third, ${mebibytes(end)} in the last: ${ok ? 'level' : 'GROWING'}`;
      return { what, ok, text };
    });
  }
}

function median(numbers) {
  return [...numbers].sort((a, b) => a - b)[numbers.length >> 1];
}

function mebibytes(bytes) {
  return `${(bytes / 1_048_576).toFixed(1)} MiB`;
}
