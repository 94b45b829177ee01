/**
 * The routes by which an operator's tools speak to a running node or hub. They are never on the port that peers use: whoever
 * can ask here can stop replication. A socket beside the database file, which only its owner can open, is the usual door.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { systemClock } from '../clock.ts';
import { messageOf, RowcastError } from '../errors.ts';
import type { Incoming, Outgoing } from '../http/bridge.ts';
import { type Administered, membersOf } from './administered.ts';
import { BadRequest, type Body, bodyOf, numberIn, textIn } from './body.ts';
import { VerifyJob } from './verify-job.ts';

export const ADMIN_PREFIX = '/_rowcast/api';
/** A page of another site cannot send it without being asked first, and is refused then. */
export const ADMIN_HEADER = 'x-rowcast-admin';

export interface AdminOptions {
  /** Whoever asks has to show it, as `Authorization: Bearer`. Without one, whoever can reach the door may. */
  token?: string;
}

interface Asked {
  method: string;
  /** What is behind the prefix, taken apart. */
  path: string[];
  query: URLSearchParams;
  body: Body;
}

type Route = (asked: Asked) => unknown;

/** Answers what is under the prefix; undefined where the path is not. */
export function administer(
  subject: Administered,
  options: AdminOptions = {},
): (incoming: Incoming) => Promise<Outgoing | undefined> {
  const routes = routesOf(subject);
  return async (incoming) => {
    if (!incoming.path.startsWith(`${ADMIN_PREFIX}/`)) return undefined;
    const refusal = refuse(incoming, options);
    if (refusal) return refusal;
    try {
      const path = incoming.path
        .slice(ADMIN_PREFIX.length + 1)
        .split('/')
        .map(decodeURIComponent);
      const { method } = incoming;
      const query = new URLSearchParams(incoming.query ?? '');
      const route = routes[`${method} ${path[0]}`];
      if (!route) return json(404, { error: `there is no ${method} ${incoming.path}` });
      const body = method === 'POST' ? await bodyOf(incoming) : {};
      return json(200, (await route({ method, path: path.slice(1), query, body })) ?? { ok: true });
    } catch (error) {
      return failed(error);
    }
  };
}

function routesOf(subject: Administered): Record<string, Route> {
  const members = membersOf(subject);
  const { deadLetters } = subject;
  const job = new VerifyJob(subject);
  const letter = async (text: string | undefined) => {
    const id = numberIn('the number of a dead letter', text);
    const [found] = await deadLetters.list({ after: id - 1, limit: 1 });
    if (found?.id !== id) throw new RowcastError('NO_SUCH_LETTER', `there is no dead letter ${id}`);
    return found;
  };
  return {
    'GET status': () => subject.status(),
    'GET peers': () => members.list(),
    'POST peers': async ({ path: [verb], body }) => {
      const verbs = {
        add: members.add,
        remove: members.remove,
        pause: members.pause,
        resume: members.resume,
        reseed: members.reseed,
      };
      if (verb === undefined || !Object.hasOwn(verbs, verb))
        throw new NotFound(`peers can be: ${Object.keys(verbs).join(', ')}`);
      await verbs[verb as keyof typeof verbs].call(members, textIn('url', body));
    },
    'GET dead-letters': async ({ path: [id], query }) => {
      if (id !== undefined) return letter(id);
      const limit = query.get('limit') ?? '100';
      return deadLetters.list({
        after: numberIn('after', query.get('after') ?? '0'),
        limit: Math.min(1_000, numberIn('limit', limit)),
      });
    },
    'POST dead-letters': async ({ path: [first, verb], body }) => {
      if (first === 'retry' && verb === undefined) return retryAll(deadLetters, body.code);
      const { id } = await letter(first);
      if (verb === 'retry') return deadLetters.retry(id);
      if (verb !== 'discard') throw new NotFound('a dead letter can be: retry, discard');
      await deadLetters.discard(id);
      return undefined;
    },
    'GET verify': () => job.state,
    'POST verify': ({ body }) => job.begin(body),
  };
}

/** Tried again at a time before others get their turn. */
const RETRIED_TOGETHER = 20;

/** Letters of one code, or all of them, as far as they are there now: a retry may write new ones. */
async function retryAll(letters: Administered['deadLetters'], code: unknown): Promise<Record<string, number>> {
  if (code !== undefined && typeof code !== 'string') throw new BadRequest('"code" must be text');
  const ids: number[] = [];
  for (let page = await letters.list({ limit: 1_000 }); page.length > 0; ) {
    ids.push(...page.filter((one) => code === undefined || one.code === code).map(({ id }) => id));
    page = await letters.list({ limit: 1_000, after: page.at(-1)?.id as number });
  }
  const outcomes: Record<string, number> = {};
  for (const [i, id] of ids.entries()) {
    if (i % RETRIED_TOGETHER === 0) await systemClock.sleep(0);
    const outcome = await retryOne(letters, id);
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  }
  return outcomes;
}

/** One that went by itself meanwhile is none any more. */
async function retryOne(letters: Administered['deadLetters'], id: number): Promise<string> {
  try {
    return (await letters.retry(id)).outcome;
  } catch (error) {
    if (error instanceof RowcastError && error.code === 'NO_SUCH_LETTER') return 'gone';
    if (error instanceof RowcastError) return 'refused';
    throw error;
  }
}

class NotFound extends Error {}

/** Why nobody may ask so; undefined where they may. */
function refuse(incoming: Incoming, { token }: AdminOptions): Outgoing | undefined {
  if (token !== undefined && !isToken(incoming.header('authorization'), token)) {
    const { headers, ...answer } = json(401, { error: 'an administrator has to show the token' });
    return { ...answer, headers: { ...headers, 'www-authenticate': 'Bearer' } };
  }
  const origin = incoming.header('origin');
  if (origin != null && origin.replace(/^https?:\/\//, '') !== incoming.header('host')) {
    return json(403, { error: 'a page of another site may not ask this' });
  }
  if (incoming.method !== 'GET' && incoming.header(ADMIN_HEADER) !== '1') {
    return json(403, { error: `a request that changes something needs the header ${ADMIN_HEADER}: 1` });
  }
  return undefined;
}

function isToken(header: string | null | undefined, token: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  const given = /^Bearer (.+)$/i.exec(header ?? '')?.[1] ?? '';
  return timingSafeEqual(digest(given), digest(token));
}

function failed(error: unknown): Outgoing {
  const said = { error: messageOf(error) };
  if (error instanceof BadRequest || error instanceof URIError) return json(400, said);
  if (error instanceof NotFound) return json(404, said);
  if (!(error instanceof RowcastError)) return json(500, said);
  const status = error.code === 'NO_SUCH_LETTER' ? 404 : error.code === 'STOPPED' ? 503 : 400;
  return json(status, { ...said, code: error.code });
}

function json(status: number, body: unknown): Outgoing {
  const headers = { 'content-type': 'application/json', 'cache-control': 'no-store' };
  return { status, headers, body: JSON.stringify(body) };
}
