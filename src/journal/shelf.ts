/**
 * Where bodies wait, in memory that is used again. They wait for seconds, and there are hundreds of them while a backlog
 * comes: each would have grown old enough to be moved to where memory is seldom cleared up, and several times of what may
 * wait would lie there as garbage.
 */

/** A body of many rows takes a few of them; a smaller one stays as it is. */
const PIECE_BYTES = 32 * 1024;

/** A body, laid down: as it came, or in pieces. */
export interface Laid {
  readonly whole: string | Uint8Array;
  readonly pieces: Buffer[];
  /** Of the body, and what it takes of the memory. */
  readonly length: number;
  readonly bytes: number;
}

export class Shelf {
  #spare: Buffer[] = [];

  /** A string has one character per byte. */
  lay(text: string | Uint8Array): Laid {
    const { length } = text;
    if (length < PIECE_BYTES) return { whole: text, pieces: [], length, bytes: length };
    const pieces: Buffer[] = [];
    for (let at = 0; at < length; at += PIECE_BYTES) {
      const piece = this.#spare.pop() ?? Buffer.allocUnsafeSlow(PIECE_BYTES);
      if (typeof text === 'string') piece.write(text.slice(at, at + PIECE_BYTES), 'latin1');
      else piece.set(text.subarray(at, at + PIECE_BYTES));
      pieces.push(piece);
    }
    return { whole: '', pieces, length, bytes: pieces.length * PIECE_BYTES };
  }

  /** It is not asked for any more. */
  letGo({ pieces }: Laid): void {
    this.#spare.push(...pieces);
  }

  /** Nothing is laid down: what was taken for it is given back. */
  clear(): void {
    this.#spare = [];
  }
}

/** The body as it was. */
export function pickedUp({ whole, pieces, length }: Laid): Buffer {
  return pieces.length > 0 ? Buffer.concat(pieces, length) : bytesOf(whole);
}

export function bytesOf(text: string | Uint8Array): Buffer {
  if (typeof text === 'string') return Buffer.from(text, 'latin1');
  return Buffer.from(text.buffer, text.byteOffset, text.byteLength);
}
