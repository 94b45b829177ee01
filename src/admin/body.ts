/** The body of an operator's request: a small JSON object, checked key by key. */
import type { Incoming } from '../http/bridge.ts';

export type Body = Record<string, unknown>;

/** Told to whoever asked, with status 400. */
export class BadRequest extends Error {}

/** With status 503. */
export class NotNow extends Error {}

const BYTES_MAX = 64 * 1024;

/** Nothing at all is an empty object. */
export async function bodyOf(incoming: Incoming): Promise<Body> {
  const read = await incoming.read(BYTES_MAX);
  if (read === 'no-room') throw new NotNow('too many bodies at a time: try again');
  if (typeof read === 'string') throw new BadRequest(`the body is larger than ${BYTES_MAX} bytes`);
  if (read.byteLength === 0) return {};
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder().decode(read));
  } catch {
    throw new BadRequest('the body is not JSON');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new BadRequest('the body must be a JSON object');
  }
  return value as Body;
}

export function textIn(key: string, body: Body): string {
  const value = body[key];
  if (typeof value === 'string' && value !== '') return value;
  throw new BadRequest(`"${key}" must be given, as text`);
}

export function numberIn(what: string, text: string | undefined): number {
  if (text !== undefined && /^\d{1,15}$/.test(text)) return Number(text);
  throw new BadRequest(`${what} must be a whole number, not ${JSON.stringify(text ?? null)}`);
}

/** What a question names behind its path. */
export function inQuery(key: string, query: URLSearchParams): string {
  const value = query.get(key);
  if (value !== null) return value;
  throw new BadRequest(`"${key}" must be given, as ?${key}=`);
}
