/** The flags of a command: where it is to look may stand in the environment, what it is asked for is typed. */
import type { Environment, Flags } from './flags.ts';

/** Where to look, and by what. */
const PLACES = new Set(['db', 'url', 'adminTokenFile', 'binding', 'busyMs', 'store', 'storeFile']);

/**
 * A container has ROWCAST_ID and ROWCAST_PEER for its program: a command there that took them for the row, or the peer, which
 * it is asked about would answer another question than the one that was put.
 */
export function asked<F extends Flags>(flags: F): F {
  const marked = Object.entries(flags).map(([key, flag]) => [key, PLACES.has(key) ? flag : { ...flag, typed: true }]);
  return Object.fromEntries(marked) as F;
}

/** Whoever types -url means that one, although the environment names the program's own file; and the other way round. */
export function placed(args: string[], env: Environment): Environment {
  const isTyped = (name: string): boolean => args.some((arg) => new RegExp(`^--?${name}(=|$)`).test(arg));
  return {
    ...env,
    ...(isTyped('url') && { ROWCAST_DB: undefined }),
    ...(isTyped('db') && { ROWCAST_URL: undefined }),
  };
}
