/** What `/sync` and `/health` answer, told apart from how a runtime hands over a request. */

import { isPeerPath } from '../auth/requests.ts';
import type { Strangers } from '../auth/strangers.ts';
import type { Trust } from '../auth/trust.ts';
import { type Clock, systemClock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { type Received, type ReceiveOptions, SYNC_HEADERS } from '../receive/answer.ts';
import { unpack, unpackedMax } from '../wire/gzip.ts';
import { readIntroduction } from '../wire/introduction.ts';
import {
  COMPARE_PATH,
  encodeAck,
  FETCH_PATH,
  HEALTH_PATH,
  NODE_ID_HEADER,
  ORIGINS_HEADER,
  ROWCAST_HEADER,
  SEND_AGAIN_HEADER,
  SYNC_PATH,
} from '../wire/protocol.ts';
import type { Incoming, Outgoing } from './bridge.ts';
import { letIn } from './gate.ts';
import { PeersHealth } from './peers-health.ts';
import { type Exposition, probeAt } from './probes.ts';

/** Who asks, by its headers. */
interface AnswerOptions {
  from?: string | undefined;
  said?: string | undefined;
}

/** A node's manager, or a hub. */
export interface Replica {
  receive(body: Uint8Array, options: ReceiveOptions): Received | Promise<Received>;
  health(): { ok: boolean } | Promise<{ ok: boolean }>;
  /** Where what keeps it from work is not all that is wrong: of one of several that do the same, what the others have as well. */
  readiness?(): { ok: boolean } | Promise<{ ok: boolean }>;
  /** What `/sync/compare` and `/sync/fetch` answer; without it there is nothing at either. */
  answer?(path: string, body: Uint8Array, options: AnswerOptions): Promise<Outgoing>;
  /** Told to whoever sends to it. */
  readonly id?: string;
  /** Who has asked for `/health` says who it is, in the header `x-rowcast`: the headers that the answer has besides. */
  hello?(said: string): Record<string, string> | Promise<Record<string, string>>;
  /** The largest body that it takes; a request is not read any further. */
  readonly maxBodyBytes: number;
  /** Its keys; without them whoever asks is answered. */
  readonly trust?: Trust | undefined;
}

export interface RespondOptions {
  prefix?: string | undefined;
  /** In place of those that the replica brings. */
  trust?: Trust | undefined;
  /** Served at `/metrics`; without it there is nothing. */
  metrics?: Exposition | undefined;
  /** Who may read how much; without it everybody may read everything. */
  readers?: Readers | undefined;
  /** What the server itself has to say in `/health` beside the replica. */
  alsoInHealth?: ((health: { ok: boolean }) => { ok: boolean }) | undefined;
  /** By which a batch waits for somebody else's lock. */
  clock?: Clock | undefined;
  /** How many changes of a large batch are applied before others have their turn. */
  atOnce?: number | undefined;
}

/** Those who ask how a replica is, and are no peers. */
export interface Readers {
  /** How much of `/health` this one is told: everything, `ok` alone, or a refusal. Undefined: nobody has to show anything. */
  ofHealth(incoming: Incoming): 'all' | 'short' | Outgoing | undefined;
  /** The answer to one who may not have the figures; undefined where it may. */
  refusal(incoming: Incoming, scope: 'health'): Outgoing | undefined;
}

const JSON_TYPE = { 'content-type': 'application/json' };

export async function respond(manager: Replica, options: RespondOptions, incoming: Incoming): Promise<Outgoing> {
  const path = withoutPrefix(incoming.path, options.prefix ?? '');
  const trust = options.trust ?? manager.trust;
  if (!trust || !isPeerPath(path)) return await route(manager, options, path, incoming);
  return await letIn(trust, path, incoming, {
    peer: (verified) => route(manager, options, path, verified),
    // To whom no token says otherwise, keys make a stranger of whoever has none.
    stranger: (unknown) => healthFor(manager, options, unknown, 'short', trust.strangers),
  });
}

async function route(
  manager: Replica,
  options: RespondOptions,
  path: string | undefined,
  incoming: Incoming,
): Promise<Outgoing> {
  if (path === HEALTH_PATH) {
    return await healthFor(manager, options, incoming, 'all');
  }
  // What is wrong, and with which peers, is for those who have the key: as in /health.
  const otherwise = (options.trust ?? manager.trust) ? 'short' : 'all';
  const probe = path === undefined ? undefined : probeAt(path, told(manager, options), { ...options, otherwise });
  if (probe) return isReading(incoming) ? await probe(incoming) : notAllowed('GET, HEAD');
  const answerTo = path === COMPARE_PATH || path === FETCH_PATH ? manager.answer?.bind(manager, path) : undefined;
  if (answerTo) return await question(manager, answerTo, incoming);
  if (path !== SYNC_PATH) return { status: 404, headers: { 'content-type': 'text/plain' }, body: 'not found' };
  const { headers, ...answer } = await sync(manager, options, incoming);
  const self = manager.id === undefined ? {} : { [NODE_ID_HEADER]: manager.id };
  return { ...answer, headers: { ...SYNC_HEADERS, ...self, ...headers } };
}

async function sync(manager: Replica, options: RespondOptions, incoming: Incoming): Promise<Outgoing> {
  const body = await bodyOf(manager, incoming);
  if (!(body instanceof Uint8Array)) return body;
  const {
    status,
    body: answer,
    headers,
  } = await received(manager, options, body, {
    from: incoming.header(NODE_ID_HEADER) ?? undefined,
    sendAgain: incoming.header(SEND_AGAIN_HEADER) ?? undefined,
    said: incoming.header(ROWCAST_HEADER) ?? undefined,
    origins: incoming.header(ORIGINS_HEADER) ?? undefined,
    rights: incoming.sender?.key.rights,
  });
  const text = 'ack' in answer ? encodeAck(answer) : JSON.stringify(answer);
  return { status, headers: { ...JSON_TYPE, ...headers }, body: text };
}

/**
 * A large batch is applied in parts, and everything else goes on between them. So it does where somebody else has the lock of
 * the database, who may be another connection of this process: until it is free, for as long as SQLite itself would have waited.
 */
async function received(
  manager: Replica,
  { clock = systemClock, atOnce = PART_CHANGES }: RespondOptions,
  body: Uint8Array,
  options: ReceiveOptions,
): Promise<Received> {
  let waited = 0;
  let patience = Number.POSITIVE_INFINITY;
  let part: number | undefined = 0;
  for (;;) {
    const inParts = part === undefined ? {} : { atOnce };
    const answer = await manager.receive(body, { ...options, ...inParts, comesAgain: waited < patience });
    if (answer.status !== 503) return answer;
    if (answer.goesOn !== undefined) {
      // A replica of somebody's own may hand on other bytes each time, and would never come to an end.
      part = part !== undefined && answer.goesOn > part ? answer.goesOn : undefined;
      waited = 0;
      await clock.sleep(0);
    } else if (answer.held !== undefined) {
      patience = answer.held;
      waited += HELD_MS;
      await clock.sleep(HELD_MS);
    } else return answer;
  }
}

/** After so long a batch is tried again. */
const HELD_MS = 20;

/** So many rows of five columns keep a node for some eight milliseconds. */
const PART_CHANGES = 1_250;

async function question(
  manager: Replica,
  answerTo: (body: Uint8Array, options: AnswerOptions) => Promise<Outgoing>,
  incoming: Incoming,
): Promise<Outgoing> {
  const body = await bodyOf(manager, incoming);
  if (!(body instanceof Uint8Array)) return body;
  try {
    const { headers, ...answer } = await answerTo(body, {
      from: incoming.header(NODE_ID_HEADER) ?? undefined,
      said: incoming.header(ROWCAST_HEADER) ?? undefined,
    });
    return { ...answer, headers: { ...JSON_TYPE, ...headers } };
  } catch (error) {
    return refused(503, messageOf(error));
  }
}

/** The body of a POST with JSON, or the answer that says what is wrong with it. */
async function bodyOf(manager: Replica, incoming: Incoming): Promise<Uint8Array | Outgoing> {
  const max = manager.maxBodyBytes;
  if (incoming.method !== 'POST') return notAllowed('POST');
  const type = incoming.header('content-type')?.split(';')[0]?.trim().toLowerCase();
  if (type !== 'application/json')
    return refused(415, `content-type must be application/json, not ${type ?? 'missing'}`);
  const encoding = incoming.header('content-encoding')?.trim().toLowerCase() || 'identity';
  if (encoding !== 'gzip' && encoding !== 'identity')
    return refused(415, `content-encoding must be gzip or identity, not ${encoding}`);
  if (fromBrowser(incoming)) return refused(403, 'a web page may not send to this route');
  const announced = Number(incoming.header('content-length') ?? 0);
  if (announced > max) return tooLarge(max, incoming.sender && announced);
  const read = await incoming.read(max);
  const body = typeof read !== 'string' && encoding === 'gzip' ? await unpack(read, max) : read;
  if (body === 'too-large') return tooLarge(typeof read === 'string' ? max : unpackedMax(read.byteLength, max));
  if (body === 'garbage') return refused(400, 'the body is not gzip, or breaks off');
  if (body === 'no-room' || (body !== read && !incoming.hold(body.byteLength))) return noRoom();
  return body;
}

/** `otherwise` is what somebody is told who is no peer, where nobody has to show a token. */
async function healthFor(
  manager: Replica,
  options: RespondOptions,
  incoming: Incoming,
  otherwise: 'all' | 'short',
  strangers?: Strangers,
): Promise<Outgoing> {
  if (!isReading(incoming)) return notAllowed('GET, HEAD');
  const much = incoming.sender ? 'all' : (options.readers?.ofHealth(incoming) ?? otherwise);
  if (typeof much !== 'string') return much;
  // Where there are keys, only a peer is introduced to.
  const said = otherwise === 'all' ? incoming.header(ROWCAST_HEADER) : undefined;
  const replica = told(manager, options);
  const asked = said && readIntroduction(said) ? peersHealth(manager, options, replica.health) : replica.health;
  const ask = (): Promise<Outgoing> => healthOf({ ...replica, health: asked }, said);
  const answer = await (much === 'short' && strangers ? strangers.told(ask) : ask());
  return much === 'all' ? answer : { ...answer, body: JSON.stringify({ ok: answer.status === 200 }) };
}

const peersAsk = new WeakMap<Replica, PeersHealth>();

function peersHealth(manager: Replica, { clock = systemClock }: RespondOptions, ask: Ask): Ask {
  const shared = peersAsk.get(manager) ?? new PeersHealth(clock);
  peersAsk.set(manager, shared);
  return () => shared.health(ask);
}

type Ask = () => Promise<{ ok: boolean }>;

/** The replica as its server tells of it. */
function told(
  manager: Replica,
  { alsoInHealth = (health) => health }: RespondOptions,
): Pick<Replica, 'readiness' | 'hello'> & { health: Ask } {
  const { readiness } = manager;
  return {
    health: async () => alsoInHealth(await manager.health()),
    ...(readiness && { readiness: async () => alsoInHealth(await readiness.call(manager)) }),
    ...(manager.hello && { hello: manager.hello.bind(manager) }),
  };
}

/** A stopped manager has no health to report; a load balancer reads 503 as "not here". */
async function healthOf(
  { health: ask, hello }: Pick<Replica, 'health' | 'hello'>,
  said: string | null | undefined,
): Promise<Outgoing> {
  try {
    const health = await ask();
    const self = said && hello ? await hello(said) : {};
    return { status: health.ok ? 200 : 503, headers: { ...JSON_TYPE, ...self }, body: JSON.stringify(health) };
  } catch (error) {
    return refused(503, messageOf(error));
  }
}

function isReading({ method }: Incoming): boolean {
  return method === 'GET' || method === 'HEAD';
}

function withoutPrefix(path: string, prefix: string): string | undefined {
  const clean = prefix.replace(/\/+$/, '');
  return path.startsWith(clean) ? path.slice(clean.length) : undefined;
}

/**
 * Browsers say where a request comes from, and no peer does. A page that a user of this machine looks at must not write
 * to a node that trusts the machine.
 */
function fromBrowser(incoming: Incoming): boolean {
  const site = incoming.header('sec-fetch-site');
  return incoming.header('origin') != null || (site != null && site !== 'none');
}

/** Not the sender's fault, and over in a moment: it keeps the batch and tries again. */
export function noRoom(): Outgoing {
  const outgoing = refused(503, 'too many bodies at a time: try again');
  return { ...outgoing, headers: { ...outgoing.headers, 'retry-after': '1' } };
}

/** `announced`: by a header that is not signed. Whoever sent the request knows whether it is so. */
function tooLarge(max: number, announced?: number): Outgoing {
  const answer = refused(413, `the body is larger than ${max} bytes`);
  if (announced === undefined) return answer;
  return { ...answer, body: JSON.stringify({ ...JSON.parse(answer.body), length: announced }) };
}

function notAllowed(allow: string): Outgoing {
  return { status: 405, headers: { ...JSON_TYPE, allow }, body: JSON.stringify({ error: `use ${allow}` }) };
}

function refused(status: number, error: string): Outgoing {
  return { status, headers: JSON_TYPE, body: JSON.stringify({ error }) };
}
