/** The URL of a peer, spelt in one way, and as it may be shown. */
import { named, RowcastError } from '../errors.ts';
import { SYNC_PATH } from './protocol.ts';

/** `http://Host:80/path/` and `http://host/path` are one peer, with one watermark. */
export function normalisePeer(peer: string): string {
  const refuse = (problem: string, hint = 'a peer is a base URL such as http://10.0.0.2:9001'): RowcastError =>
    new RowcastError('INVALID_PEER', `peer ${shown(peer)} ${problem}`, { hint });
  if (typeof peer !== 'string') throw refuse('is not a string');
  let url: URL;
  try {
    url = new URL(peer);
  } catch {
    throw refuse('is not a URL');
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    // What is before the colon may as well be somebody's name.
    throw refuse(peer.includes('@') ? 'is not http: or https:' : `uses ${url.protocol} instead of http: or https:`);
  }
  if (url.username !== '' || url.password !== '') throw refuse('carries credentials, which are not shown here');
  if (url.search !== '' || url.hash !== '') throw refuse('has a query or a fragment, which is not shown here');
  if (/\s|[,;]|:\/\/.*:\/\//.test(peer.trim())) {
    throw refuse(
      'has a space, a comma or a semicolon in it',
      'one URL each: is it several, or is there a word behind it?',
    );
  }
  if (url.port === '0') throw refuse('has the port 0, at which nobody listens');
  const host = spelt(peer);
  if (IPV4.test(url.hostname) && host !== url.hostname) {
    const hint = 'write the four numbers of an address: perhaps the end is missing';
    throw refuse(`has the host ${named(host)}, which would be the address ${url.hostname}`, hint);
  }
  const base = url.origin + url.pathname.replace(/\/+$/, '');
  if (base.endsWith(SYNC_PATH)) {
    throw refuse(`ends in ${SYNC_PATH}, which is appended`, `give the base URL: ${base.slice(0, -SYNC_PATH.length)}`);
  }
  return base;
}

/**
 * A text that is a URL, or was meant to be one, without what may be a secret: the credentials, and whatever follows the path.
 * A password may have any character in it, and then it is no URL: whatever is before the last @ goes.
 */
export function shownUrl(text: string): string {
  const [, scheme = ''] = /^\s*(https?:[\\/]*|[a-z][a-z0-9+.-]*:[\\/]+)/i.exec(text) ?? [];
  const rest = text.trimStart().slice(scheme.length);
  const isWhole = /^http/i.test(scheme) && URL.canParse(text);
  const credentials = isWhole ? (/^[^\\/?#]*/.exec(rest)?.[0] as string) : rest;
  const at = credentials.lastIndexOf('@') + 1;
  return scheme + (scheme === '' && at === 0 ? rest : rest.slice(at).replace(/[?#].*$/s, ''));
}

function shown(peer: unknown): string {
  if (typeof peer === 'string') return named(shownUrl(peer));
  return typeof peer === 'object' && peer !== null ? 'an object' : named(peer);
}

const IPV4 = /^\d+\.\d+\.\d+\.\d+$/;

/** The host of a URL without credentials, as it was written: the parser makes 127.0.0.1 of 127.1, and 127.0.0.0 of 127.0.0. */
function spelt(url: string): string | undefined {
  return /^[a-z]+:[\\/]*([^\\/:?#]*)/i.exec(url.trim().replace(/[\t\n\r]/g, ''))?.[1];
}
