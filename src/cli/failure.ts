import type { Outgoing } from '../http/bridge.ts';

/** An answer that is an error, as JSON. */
export function failure(status: number, error: string): Outgoing {
  const headers: Record<string, string> = { 'content-type': 'application/json' };
  if (status === 503) headers['retry-after'] = '1';
  return { status, headers, body: JSON.stringify({ error }) };
}
