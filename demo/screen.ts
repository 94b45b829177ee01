/** The terminal, borrowed: a screen of its own, only changed lines rewritten, and everything given back at the end. */
import { writeSync } from 'node:fs';
import type { Size } from './view.ts';

const ENTER = '\x1b[?1049h\x1b[?25l\x1b[2J';
const LEAVE = '\x1b[?25h\x1b[?1049l';

export class Screen {
  readonly #out: NodeJS.WriteStream;
  readonly #in: NodeJS.ReadStream;
  readonly #forget = (): void => {
    this.#shown = [];
  };
  #shown: string[] = [];
  #open = false;

  constructor(input: NodeJS.ReadStream, out: NodeJS.WriteStream) {
    this.#in = input;
    this.#out = out;
  }

  get size(): Size {
    return { columns: this.#out.columns || 80, rows: this.#out.rows || 24 };
  }

  open(onKey: (key: string) => void): void {
    this.#open = true;
    this.#in.setRawMode(true);
    this.#in.setEncoding('utf8');
    // Keys typed quickly arrive together.
    this.#in.on('data', (keys) => {
      // An arrow or a function key begins with an escape; its letters are nobody's command.
      if (!String(keys).startsWith('\x1b')) for (const key of String(keys)) onKey(key);
    });
    this.#out.on('resize', this.#forget);
    this.#out.write(ENTER);
  }

  draw(lines: string[]): void {
    if (!this.#open) return;
    // After a resize, or at first, what the screen shows is not known.
    let update = this.#shown.length === 0 ? '\x1b[2J' : '';
    for (let row = 0; row < Math.max(lines.length, this.#shown.length); row++) {
      const line = lines[row] ?? '';
      if (line !== this.#shown[row]) update += `\x1b[${row + 1};1H${line}\x1b[K`;
    }
    this.#shown = lines;
    if (update) this.#out.write(update);
  }

  /** Synchronous, so that an exit handler can do it as well. */
  close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#out.off('resize', this.#forget);
    try {
      this.#in.setRawMode(false);
      writeSync(1, LEAVE);
    } catch {
      // The terminal itself is gone.
    }
    this.#in.pause();
  }
}
