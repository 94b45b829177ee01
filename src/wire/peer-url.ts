/** The URL of a peer, spelt in one way. */
import { named, RowcastError } from '../errors.ts';
import { SYNC_PATH } from './protocol.ts';

/** `http://Host:80/path/` and `http://host/path` are one peer, with one watermark. */
export function normalisePeer(peer: string): string {
  const refuse = (problem: string, hint = 'a peer is a base URL such as http://10.0.0.2:9001'): RowcastError =>
    new RowcastError('INVALID_PEER', `peer ${named(peer)} ${problem}`, { hint });
  if (typeof peer !== 'string') throw refuse('is not a string');
  let url: URL;
  try {
    url = new URL(peer);
  } catch {
    throw refuse('is not a URL');
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw refuse(`uses ${url.protocol} instead of http: or https:`);
  if (url.username !== '' || url.password !== '') throw refuse('carries credentials');
  if (url.search !== '' || url.hash !== '') throw refuse('has a query or a fragment');
  const base = url.origin + url.pathname.replace(/\/+$/, '');
  if (base.endsWith(SYNC_PATH)) {
    throw refuse(`ends in ${SYNC_PATH}, which is appended`, `give the base URL: ${base.slice(0, -SYNC_PATH.length)}`);
  }
  return base;
}
