/** `rowcast/http`: `/sync` and `/health`, and the feed, as a Web-standard handler and as a listener for node:http. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type AuthOptions, createKeyring } from '../auth/keys.ts';
import { Trust } from '../auth/trust.ts';
import { systemClock } from '../clock.ts';
import { checkOptions, named, RowcastError } from '../errors.ts';
import { type Answer, toHandler, toListener } from './bridge.ts';
import { answerChanges, type ChangesOptions, type Fed } from './changes.ts';
import type { Exposition } from './probes.ts';
import { type Replica, respond } from './respond.ts';

export type { ChangesOptions, Fed } from './changes.ts';
export type { Replica } from './respond.ts';

export interface HttpOptions {
  /** A prefix before `/sync` and `/health`, such as `/replication`. */
  prefix?: string;
  /** Keys for a replica of your own. A manager or a hub that was given `auth` brings them, and needs nothing here. */
  auth?: AuthOptions;
  /** Served at `/metrics`; without it there is nothing. */
  metrics?: Exposition | undefined;
}

/** `Request -> Response`, for Bun.serve, Hono and everything else that speaks the Web's types. */
export function createHandler(manager: Replica, options: HttpOptions = {}): (request: Request) => Promise<Response> {
  return toHandler(answering(manager, options));
}

/** For `http.createServer(listener)`, and for Express before any body parser. */
export function createListener(
  manager: Replica,
  options: HttpOptions = {},
): (request: IncomingMessage, response: ServerResponse) => void {
  return toListener(answering(manager, options));
}

/**
 * `GET /_rowcast/changes` for a server of your own. Whoever can ask it can read every synced row: let in whom you let read
 * these, as for any other route.
 */
export function createChangesHandler(fed: Fed, options: ChangesOptions = {}): (request: Request) => Promise<Response> {
  const answer = answerChanges(fed, options);
  return toHandler(async (incoming) => (await answer(incoming)) ?? NOT_FOUND);
}

export function createChangesListener(
  fed: Fed,
  options: ChangesOptions = {},
): (request: IncomingMessage, response: ServerResponse) => void {
  const answer = answerChanges(fed, options);
  return toListener(async (incoming) => (await answer(incoming)) ?? NOT_FOUND);
}

const NOT_FOUND = { status: 404, headers: { 'content-type': 'text/plain' }, body: 'not found' };

const OPTIONS = ['prefix', 'auth', 'metrics'];

function answering(manager: Replica, options: HttpOptions): Answer {
  check(manager, options);
  const { prefix, auth, metrics } = options;
  const { id } = manager;
  if (auth && id === undefined) {
    throw new RowcastError(
      'INVALID_OPTION',
      'option "auth" needs a replica that has an id: it signs its answers by it',
    );
  }
  const trust = auth && new Trust(createKeyring(auth), { id: id as string, clock: systemClock, warn: () => {} });
  return (incoming) => respond(manager, { prefix, trust, metrics }, incoming);
}

/** Without this, a wrong argument is an answer of 404, or an error with the first batch. */
function check(manager: Replica, options: HttpOptions): void {
  const wrong = (message: string): RowcastError => new RowcastError('INVALID_OPTION', message);
  if (typeof manager?.receive !== 'function')
    throw wrong('the first argument must be what attach or createHub returned');
  checkOptions('a handler or listener', options, OPTIONS);
  const { prefix } = options;
  if (prefix !== undefined && (typeof prefix !== 'string' || !/^(\/|$)/.test(prefix))) {
    throw wrong(`option "prefix" must be a path such as /replication, not ${named(prefix)}`);
  }
}
