/** The arguments of verify(), checked: a misspelt or ill-typed one is an error that names it, and nothing is asked. */
import { named, RowcastError, suggest } from '../errors.ts';
import { fold } from '../sqlite/sql.ts';
import type { VerifyOptions } from './verify.ts';

const KNOWN = ['tables', 'repair', 'limit', 'signal', 'onProgress'];
const LIMIT_MAX = 100_000;

/** The peers to compare with: the one that is named, or all. `known` are the synced tables; undefined: any will do. */
export function checkVerifyCall(
  peer: string | undefined,
  options: VerifyOptions,
  peers: string[],
  known: string[] | undefined,
): string[] {
  if (peer !== undefined && !peers.includes(peer)) {
    throw new RowcastError('INVALID_PEER', `${peer} is none of the peers${suggest(peer, peers)}`);
  }
  if (typeof options !== 'object' || options === null) throw wrong('the options of verify() must be an object');
  for (const key of Object.keys(options)) {
    if (!KNOWN.includes(key)) throw wrong(`verify() has no option "${key}"${suggest(key, KNOWN)}`);
  }
  const { tables, repair, limit, signal, onProgress } = options as Record<string, unknown>;
  if (tables !== undefined) checkNames(tables, known);
  if (repair !== undefined && typeof repair !== 'boolean') throw wrong('option "repair" must be true or false');
  if (limit !== undefined && !(Number.isInteger(limit) && Number(limit) >= 0 && Number(limit) <= LIMIT_MAX)) {
    throw wrong(`option "limit" must be an integer from 0 to ${LIMIT_MAX}, not ${named(limit)}`);
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw wrong('option "signal" must be an AbortSignal');
  if (onProgress !== undefined && typeof onProgress !== 'function')
    throw wrong('option "onProgress" must be a function');
  return peer === undefined ? peers : [peer];
}

function checkNames(tables: unknown, known: string[] | undefined): void {
  if (!Array.isArray(tables) || tables.length === 0) throw wrong('option "tables" must be a non-empty array of names');
  for (const name of tables) {
    const there = typeof name === 'string' && (known === undefined || known.some((one) => fold(one) === fold(name)));
    if (there) continue;
    const near = typeof name === 'string' ? suggest(name, known ?? []) : '';
    throw new RowcastError('INVALID_TABLE', `table ${named(name)} is not synced here${near}`);
  }
}

function wrong(message: string): RowcastError {
  return new RowcastError('INVALID_OPTION', message);
}
