/** Bodies made smaller and larger again, beside the event loop. */
import { constants, gunzip, gzip } from 'node:zlib';

export type Bytes = Uint8Array<ArrayBuffer>;

/** Bodies are never written to after they were made, and one may go to several peers. */
const smaller = new WeakMap<Bytes, Promise<Bytes | undefined>>();

/** Undefined where it cannot be had: then the body goes as it is. Runs beside the event loop. */
export function compressed(body: Bytes): Promise<Bytes | undefined> {
  const known = smaller.get(body);
  if (known) return known;
  const made = new Promise<Bytes | undefined>((resolve) => {
    gzip(body, { level: constants.Z_BEST_SPEED }, (error, packed) => resolve(error ? undefined : packed));
  });
  smaller.set(body, made);
  return made;
}

/** How much is unpacked in one go beside the event loop: a batch in a few, and nothing to speak of for a small body. */
const CHUNK_BYTES = 64 * 1024;

/** No batch becomes so many times its size; what does is made to fill a memory. Small bodies may. */
const RATIO_MAX = 200;
const RATIO_FREE_BYTES = 1024 * 1024;

/** How large a packed body of so many bytes may be unpacked. */
export function unpackedMax(packed: number, max: number): number {
  return Math.min(max, Math.max(RATIO_FREE_BYTES, packed * RATIO_MAX));
}

/** The bodies that are being unpacked, one after the other. */
let unpacking: Promise<void> = Promise.resolve();

/**
 * A body as it was before gzip; `too-large` beyond `max` bytes, without going on, and `garbage` where it is none.
 * One at a time: a small body may become a large one, and a crowd of them must not take a crowd's memory.
 */
export function unpack(body: Uint8Array, max: number): Promise<Uint8Array | 'too-large' | 'garbage'> {
  const unpacked = unpacking.then(() => decompressed(body, max));
  // Without the bytes: whoever waits for the turn must not keep them.
  unpacking = unpacked.then(() => {});
  return unpacked;
}

function decompressed(body: Uint8Array, max: number): Promise<Uint8Array | 'too-large' | 'garbage'> {
  return new Promise((resolve) => {
    gunzip(body, { maxOutputLength: unpackedMax(body.byteLength, max), chunkSize: CHUNK_BYTES }, (error, plain) => {
      if (!error) resolve(plain);
      else resolve((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE' ? 'too-large' : 'garbage');
    });
  });
}
