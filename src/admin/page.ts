/**
 * The console: one HTML file without a request to anywhere else, served beside the routes that it asks. It holds no data, so
 * it may be read without the token.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { messageOf } from '../errors.ts';
import type { Incoming, Outgoing } from '../http/bridge.ts';

export const CONSOLE_PATH = '/_rowcast/';

/** Read once, and only where somebody asks. */
let page: Outgoing | undefined;

/** Undefined where something else is asked for. */
export function consolePage({ method, path }: Incoming): Outgoing | undefined {
  if (method !== 'GET' && method !== 'HEAD') return undefined;
  // Its own requests are relative to this path, and would go astray without the slash.
  if (path === CONSOLE_PATH.slice(0, -1)) return { status: 308, headers: { location: '_rowcast/' }, body: '' };
  if (path !== CONSOLE_PATH) return undefined;
  const found = page ?? pageAt(new URL('../console/index.html', import.meta.url));
  if (found.status === 200) page = found;
  return found;
}

/** In a bundle of somebody's the code is elsewhere, and the file is not beside it. */
export function pageAt(file: URL): Outgoing {
  try {
    return pageOf(readFileSync(file, 'utf8'));
  } catch (error) {
    const remedy = 'where this program is a bundle, keep rowcast external, so that it runs from its own package';
    const body = JSON.stringify({ error: `the page of the console cannot be read (${messageOf(error)}): ${remedy}` });
    return { status: 500, headers: { 'content-type': 'application/json' }, body };
  }
}

export function pageOf(html: string): Outgoing {
  const headers = {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': policyFor(html),
    'cache-control': 'no-store',
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
  };
  return { status: 200, headers, body: html };
}

/**
 * Rows, ids and names that the page shows come from strangers. Even if one of them came to be markup, nothing of it would
 * run or be fetched; and where the browser knows trusted types, no text can become markup at all.
 */
function policyFor(html: string): string {
  return [
    "default-src 'none'",
    `script-src ${hashes(html, /<script[^>]*>([\s\S]*?)<\/script>/g)}`,
    `style-src ${hashes(html, /<style>([\s\S]*?)<\/style>/g)}`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; ');
}

function hashes(html: string, element: RegExp): string {
  return [...html.matchAll(element)]
    .map(([, text]) => `'sha256-${createHash('sha256').update(String(text)).digest('base64')}'`)
    .join(' ');
}
