/**
 * Prometheus's text format: families of samples, each with a name, a type and a sentence. Written here because it is
 * forty lines, and a library without dependencies should not get one for them.
 */

export type Labels = Record<string, string>;

export interface Sample {
  labels?: Labels;
  value: number;
  /** What a histogram puts behind the name of its family. */
  suffix?: '_bucket' | '_sum' | '_count';
}

export interface Family {
  name: string;
  type: 'counter' | 'gauge' | 'histogram';
  help: string;
  samples: Sample[];
}

export const EXPOSITION_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** Families without a sample are left out: there is nothing to be said of them yet. */
export function exposition(families: Family[]): string {
  const lines = families
    .filter(({ samples }) => samples.length > 0)
    .flatMap(({ name, type, help, samples }) => [
      `# HELP ${name} ${help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}`,
      `# TYPE ${name} ${type}`,
      ...samples.map(({ labels = {}, value, suffix = '' }) => `${name}${suffix}${labelled(labels)} ${spelt(value)}`),
    ]);
  return `${lines.join('\n')}\n`;
}

function labelled(labels: Labels): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escaped(value)}"`);
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}

function escaped(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}

function spelt(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? '+Inf' : '-Inf';
  return String(value);
}

/** Numbers that only grow, told apart by their labels. */
export class Counter {
  readonly #values = new Map<string, { labels: Labels; value: number }>();

  add(labels: Labels, by = 1): void {
    const key = JSON.stringify(labels);
    const found = this.#values.get(key) ?? { labels, value: 0 };
    found.value += by;
    this.#values.set(key, found);
  }

  get samples(): Sample[] {
    return [...this.#values.values()].map(({ labels, value }) => ({ labels, value }));
  }

  /** Forgets the samples with such labels. */
  forget(isGone: (labels: Labels) => boolean): void {
    for (const [key, { labels }] of this.#values) if (isGone(labels)) this.#values.delete(key);
  }
}

/** How long things take, in seconds. */
export class Histogram {
  readonly #bounds: number[];
  readonly #series = new Map<string, { labels: Labels; buckets: number[]; sum: number; count: number }>();

  constructor(bounds: number[]) {
    this.#bounds = bounds;
  }

  observe(labels: Labels, seconds: number): void {
    const key = JSON.stringify(labels);
    const found = this.#series.get(key) ?? { labels, buckets: this.#bounds.map(() => 0), sum: 0, count: 0 };
    this.#bounds.forEach((bound, i) => {
      if (seconds <= bound) found.buckets[i] = (found.buckets[i] as number) + 1;
    });
    found.sum += seconds;
    found.count += 1;
    this.#series.set(key, found);
  }

  get samples(): Sample[] {
    return [...this.#series.values()].flatMap(({ labels, buckets, sum, count }): Sample[] => [
      ...this.#bounds.map((bound, i): Sample => {
        return { suffix: '_bucket', labels: { ...labels, le: spelt(bound) }, value: buckets[i] as number };
      }),
      { suffix: '_bucket', labels: { ...labels, le: '+Inf' }, value: count },
      { suffix: '_sum', labels, value: sum },
      { suffix: '_count', labels, value: count },
    ]);
  }

  forget(isGone: (labels: Labels) => boolean): void {
    for (const [key, { labels }] of this.#series) if (isGone(labels)) this.#series.delete(key);
  }
}
