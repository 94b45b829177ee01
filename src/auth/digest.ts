/** Content-Digest (RFC 9530): SHA-256 of a body as it travels. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { readBytes, writeBytes } from './fields.ts';

const PREFIX = 'sha-256=';
const SHA_256_BYTES = 32;

/** The value of the header for a body. */
export function contentDigest(body: Uint8Array | string): string {
  return PREFIX + writeBytes(createHash('sha256').update(body).digest());
}

/** The bytes that the header names; undefined where it is not exactly one digest by SHA-256. */
function digestIn(header: string): Buffer | undefined {
  return header.startsWith(PREFIX) ? readBytes(header.slice(PREFIX.length), SHA_256_BYTES) : undefined;
}

export function isDigest(header: string): boolean {
  return digestIn(header) !== undefined;
}

/** Hashes a body as it arrives. */
export class Hashing {
  readonly #hash = createHash('sha256');

  take(chunk: Uint8Array): void {
    this.#hash.update(chunk);
  }

  /** Does it fit the header? Asked once, at the end. */
  fits(header: string | undefined): boolean {
    const named = header === undefined ? undefined : digestIn(header);
    return named !== undefined && timingSafeEqual(this.#hash.digest(), named);
  }
}

export function digestFits(header: string | undefined, body: Uint8Array | string): boolean {
  const hashing = new Hashing();
  hashing.take(typeof body === 'string' ? Buffer.from(body) : body);
  return hashing.fits(header);
}
