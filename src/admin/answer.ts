/**
 * The routes by which an operator's tools speak to a running node or hub. They are never on the port that peers use: whoever
 * can ask here can stop replication. A socket beside the database file, which only its owner can open, is the usual door.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { systemClock } from '../clock.ts';
import { type ErrorCode, messageOf, RowcastError } from '../errors.ts';
import { type Answer, BrokenOff, type Incoming, type Outgoing } from '../http/bridge.ts';
import type { DeadLetter } from '../letters/dead-letters.ts';
import { VERSION } from '../observe/version.ts';
import { openapi } from '../openapi/document.ts';
import { type Administered, membersOf } from './administered.ts';
import { BadRequest, type Body, bodyOf, inQuery, NotNow, numberIn, textIn } from './body.ts';
import { conflictDone, conflictsAsked } from './conflicts.ts';
import { CONSOLE_PATH, consolePage } from './page.ts';
import { Rates } from './rates.ts';
import { VerifyJob } from './verify-job.ts';

export const ADMIN_PREFIX = '/_rowcast/api';
const DOCUMENT_PATH = '/_rowcast/openapi.json';
/** A page of another site cannot send it without being asked first, and is refused then. */
export const ADMIN_HEADER = 'x-rowcast-admin';

export interface AdminOptions {
  /** Whoever asks has to show it, as `Authorization: Bearer`. Without one, whoever can reach the door may. */
  token?: string;
  /** What `log` answers: the lines after this number, as your program keeps them. Without it there is no such route. */
  log?: (after: number) => unknown;
}

interface Asked {
  method: string;
  /** What is behind the prefix, taken apart. */
  path: string[];
  query: URLSearchParams;
  body: Body;
}

/** The token that whoever asks has to show at this moment; undefined where there is none. It may be exchanged meanwhile. */
export type TokenNow = () => string | undefined;

type Route = (asked: Asked) => unknown;

export type Routes = Record<string, Route>;

/** Answers what is under the prefix, and the page that shows it. Several doors may have the same routes. */
export function administer(routes: Routes, token: TokenNow): Answer {
  return async (incoming) => {
    const isDocument = incoming.path === DOCUMENT_PATH;
    const isRoute = isDocument || incoming.path.startsWith(`${ADMIN_PREFIX}/`);
    if (!isRoute) return consolePage(incoming) ?? NOT_FOUND;
    const refusal = refuse(incoming, token());
    if (refusal) return refusal;
    if (isDocument && incoming.method === 'GET') return json(200, openapi(VERSION));
    try {
      const path = incoming.path
        .slice(ADMIN_PREFIX.length + 1)
        .split('/')
        .map(decodeURIComponent);
      const { method } = incoming;
      const query = new URLSearchParams(incoming.query ?? '');
      const route = routes[`${method} ${path[0]}`];
      const isTooLong = path.length - 1 > (WORDS[`${method} ${path[0]}`] ?? path.length);
      if (!route || isTooLong) return json(404, { error: `there is no ${method} ${incoming.path}` });
      const body = method === 'POST' ? await bodyOf(incoming) : {};
      return json(200, (await route({ method, path: path.slice(1), query, body })) ?? { ok: true });
    } catch (error) {
      return failed(error);
    }
  };
}

/** How many words may follow; another would be left unread. */
const WORDS: Record<string, number> = {
  'GET status': 0,
  'GET peers': 0,
  'POST peers': 1,
  'GET dead-letters': 1,
  'POST dead-letters': 2,
  'GET conflicts': 1,
  'POST conflicts': 2,
  'GET why': 0,
  'GET verify': 0,
  'POST verify': 0,
  'POST forget': 0,
  'GET routes': 0,
  'GET rates': 0,
  'GET log': 0,
};

const NOT_FOUND: Outgoing = {
  status: 404,
  headers: { 'content-type': 'text/plain' },
  body: `not found; the console is at ${CONSOLE_PATH}`,
};

export function routesOf(subject: Administered, { log }: AdminOptions = {}): Routes {
  const members = membersOf(subject);
  const { deadLetters } = subject;
  const job = new VerifyJob(subject);
  const rates = new Rates(subject, systemClock);
  const letter = async (text: string | undefined) => {
    const id = numberIn('the number of a dead letter', text);
    const [found] = await deadLetters.list({ after: id - 1, limit: 1 });
    if (found?.id !== id) throw new RowcastError('NO_SUCH_LETTER', `there is no dead letter ${id}`);
    return found;
  };
  const routes: Routes = {
    /** What can be asked: a hub has fewer of them than a node. */
    'GET routes': () => Object.keys(routes),
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
      const cut = query.get('cut');
      const length = cut === null ? Number.POSITIVE_INFINITY : numberIn('cut', cut);
      const list = lettersOf(deadLetters, {
        after: numberIn('after', query.get('after') ?? '0'),
        limit: Math.min(1_000, numberIn('limit', limit)),
        code: query.get('code') ?? undefined,
      });
      return (await list).map((one) => shortened(one, length));
    },
    'POST dead-letters': async ({ path: [first, verb], body }) => {
      if (first === 'retry' && verb === undefined) return retryAll(deadLetters, body.code);
      const { id } = await letter(first);
      if (verb === 'retry') return deadLetters.retry(id);
      if (verb !== 'discard') throw new NotFound('a dead letter can be: retry, discard');
      await deadLetters.discard(id);
      return undefined;
    },
    'GET conflicts': (asked) => conflictsAsked(subject, asked),
    'POST conflicts': (asked) => conflictDone(subject, asked),
    'GET why': ({ query }) => subject.why(inQuery('table', query), inQuery('id', query)),
    'GET verify': () => job.state,
    'POST verify': ({ body }) => job.begin(body),
    'POST forget': ({ body }) => {
      if (!subject.forget) throw new BadRequest('a hub forgets an edge when it is taken out of its edges');
      subject.forget(textIn('id', body));
    },
    'GET rates': ({ query }) => rates.since(numberIn('from', query.get('from') ?? '0')),
    ...(log && { 'GET log': ({ query }: Asked) => log(numberIn('after', query.get('after') ?? '0')) }),
  };
  return routes;
}

/** A row may have megabytes, and a list a hundred rows. */
function shortened(letter: DeadLetter, length: number): DeadLetter & { rowLength?: number } {
  const { row } = letter;
  return row === null || row.length <= length
    ? letter
    : { ...letter, row: row.slice(0, length), rowLength: row.length };
}

/** The first letters after a number, or the first of one code, however many others are in between. */
async function lettersOf(
  letters: Administered['deadLetters'],
  { after, limit, code }: { after: number; limit: number; code: string | undefined },
): Promise<DeadLetter[]> {
  if (code === undefined) return letters.list({ after, limit });
  const found: DeadLetter[] = [];
  for (let last: number | undefined = after; last !== undefined && found.length < limit; ) {
    const page: DeadLetter[] = await letters.list({ after: last, limit: 1_000 });
    found.push(...page.filter((one) => one.code === code));
    last = page.at(-1)?.id;
  }
  return found.slice(0, limit);
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
function refuse(incoming: Incoming, token: string | undefined): Outgoing | undefined {
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
  if ([BadRequest, URIError, BrokenOff].some((kind) => error instanceof kind)) return json(400, said);
  if (error instanceof NotFound) return json(404, said);
  if (error instanceof NotNow) return json(503, said);
  if (!(error instanceof RowcastError)) return json(500, said);
  const status = error.code.startsWith('NO_SUCH') ? 404 : NOT_NOW.has(error.code) ? 503 : 400;
  return json(status, { ...said, code: error.code });
}

/** Nothing that the one who asks could have done otherwise. */
const NOT_NOW: ReadonlySet<string> = new Set<ErrorCode>([
  'STOPPED',
  'DATABASE_BUSY',
  'DATABASE_CLOSED',
  'DATABASE_FAILED',
  'IN_TRANSACTION',
]);

function json(status: number, body: unknown): Outgoing {
  const headers = { 'content-type': 'application/json', 'cache-control': 'no-store' };
  return { status, headers, body: JSON.stringify(body) };
}
