/** The last lines of a program's log, kept in memory for whoever looks at it through the operator's door. */

export interface LogLine {
  /** Counts from 1 in the life of the process. */
  n: number;
  time: string;
  level: string;
  event: string;
  fields: Record<string, unknown>;
}

export interface LinesAfter {
  /** When the process began to count: other lines have the same numbers after a restart. */
  began: number;
  /** The number of the latest line; 0 before the first. */
  last: number;
  /** Those after the number that was named, as far as they are still kept; oldest first. */
  lines: LogLine[];
}

const LINES_KEPT = 200;

export class RecentLines {
  readonly #began: number;
  readonly #lines: LogLine[] = [];
  #last = 0;

  constructor(began: number) {
    this.#began = began;
  }

  add(line: Omit<LogLine, 'n'>): void {
    this.#last += 1;
    this.#lines.push({ n: this.#last, ...line });
    if (this.#lines.length > LINES_KEPT) this.#lines.shift();
  }

  after(n: number): LinesAfter {
    return { began: this.#began, last: this.#last, lines: this.#lines.filter((line) => line.n > n) };
  }
}
