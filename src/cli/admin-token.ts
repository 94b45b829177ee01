/** The token of the operator's port, from its file: read again when that changes, so that a new one takes the place of the old. */
import { readText } from './config-file.ts';
import { UsageError } from './flags.ts';
import type { Held } from './reload.ts';
import { readableByOthers } from './secrets.ts';

const FLAG = '-admin-token-file';
const CHARACTERS_MIN = 16;

export class AdminToken implements Held {
  readonly name = 'admin token';
  readonly #path: string | undefined;
  #now: string | undefined;

  /** Without a file there is no token. Throws a UsageError where the file is wrong. */
  constructor(path: string | undefined) {
    this.#path = path;
    this.#now = path === undefined ? undefined : readToken(path);
  }

  /** The one that counts; undefined where nobody has to show one. */
  readonly now = (): string | undefined => this.#now;

  get files(): string[] {
    return this.#path === undefined ? [] : [this.#path];
  }

  get warnings(): { code: string; message: string }[] {
    return this.#path === undefined ? [] : readableByOthers(FLAG, this.#path);
  }

  reread(): (() => void) | undefined {
    if (this.#path === undefined) return undefined;
    const next = readToken(this.#path);
    if (next === this.#now) return undefined;
    return () => {
      this.#now = next;
    };
  }
}

export function readToken(path: string): string {
  const text = readText(FLAG, path).trim();
  if (text.length >= CHARACTERS_MIN) return text;
  throw new UsageError(`${FLAG}: the token in ${path} has fewer than ${CHARACTERS_MIN} characters`);
}
