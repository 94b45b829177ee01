/** Everything that happens, as lines. Only the last ones are kept; of all of them there is a hash. */

const KEPT = 60;

export class Trace {
  readonly #onLine: ((line: string) => void) | undefined;
  readonly #lines: string[] = [];
  #a = 0x811c9dc5;
  #b = 0x1b873593;

  constructor(onLine?: (line: string) => void) {
    this.#onLine = onLine;
  }

  add(line: string): void {
    this.#onLine?.(line);
    for (let i = 0; i < line.length; i++) {
      const code = line.charCodeAt(i);
      this.#a = Math.imul(this.#a ^ code, 0x01000193);
      this.#b = Math.imul(this.#b + code, 0x5bd1e995) ^ (this.#b >>> 15);
    }
    this.#lines.push(line);
    if (this.#lines.length > 2 * KEPT) this.#lines.splice(0, KEPT);
  }

  get hash(): string {
    return [this.#a, this.#b].map((half) => (half >>> 0).toString(16).padStart(8, '0')).join('');
  }

  get tail(): string[] {
    return this.#lines.slice(-KEPT);
  }
}
