/** What `/sync` and `/health` answer, told apart from how a runtime hands over a request. */

import { messageOf } from '../errors.ts';
import { mannerOf, type Received } from '../receive/answer.ts';
import { unpack } from '../wire/gzip.ts';

import {
  ACCEPT_HEADER,
  ANY_ORDER_HEADER,
  APPLY_MS_HEADER,
  BODY_BYTES_DEFAULT,
  encodeAck,
  HEALTH_PATH,
  NODE_ID_HEADER,
  SEND_AGAIN_HEADER,
  SYNC_PATH,
} from '../wire/protocol.ts';
import type { Incoming, Outgoing } from './bridge.ts';

/** A node's manager, or a hub. */
export interface Replica {
  receive(body: Uint8Array, options: { from?: string | undefined; sendAgain?: string | undefined }): Received;
  health(): object;
  /** Told to whoever sends to it. */
  readonly id?: string;
  /** The largest body that it takes. */
  readonly maxBodyBytes?: number;
}

export interface HttpOptions {
  /** Largest body that is read at all. Default: as the manager was told. */
  maxBodyBytes?: number;
  /** A prefix before `/sync` and `/health`, such as `/replication`. */
  prefix?: string;
}

const JSON_TYPE = { 'content-type': 'application/json' };

export async function respond(manager: Replica, options: HttpOptions, incoming: Incoming): Promise<Outgoing> {
  const path = withoutPrefix(incoming.path, options.prefix ?? '');
  if (path === HEALTH_PATH) {
    if (incoming.method !== 'GET' && incoming.method !== 'HEAD') return notAllowed('GET, HEAD');
    return healthOf(manager);
  }
  if (path !== SYNC_PATH) return { status: 404, headers: { 'content-type': 'text/plain' }, body: 'not found' };
  // Every answer says who answers, and that the next batch may be compressed.
  const { headers, ...answer } = await sync(
    manager,
    options.maxBodyBytes ?? manager.maxBodyBytes ?? BODY_BYTES_DEFAULT,
    incoming,
  );
  const self = manager.id === undefined ? {} : { [NODE_ID_HEADER]: manager.id };
  return { ...answer, headers: { ...headers, ...self, [ACCEPT_HEADER]: 'gzip' } };
}

async function sync(manager: Replica, max: number, incoming: Incoming): Promise<Outgoing> {
  if (incoming.method !== 'POST') return notAllowed('POST');
  const type = incoming.header('content-type')?.split(';')[0]?.trim().toLowerCase();
  if (type !== 'application/json')
    return refused(415, `content-type must be application/json, not ${type ?? 'missing'}`);
  const encoding = incoming.header('content-encoding')?.trim().toLowerCase() || 'identity';
  if (encoding !== 'gzip' && encoding !== 'identity')
    return refused(415, `content-encoding must be gzip or identity, not ${encoding}`);
  if (Number(incoming.header('content-length') ?? 0) > max) return tooLarge(max);
  const read = await incoming.read(max);
  const body = read !== 'too-large' && encoding === 'gzip' ? await unpack(read, max) : read;
  if (body === 'too-large') return tooLarge(max);
  if (body === 'garbage') return refused(400, 'the body is not gzip, or breaks off');
  const result = manager.receive(body, {
    from: incoming.header(NODE_ID_HEADER) ?? undefined,
    sendAgain: incoming.header(SEND_AGAIN_HEADER) ?? undefined,
  });
  const manner = mannerOf(result);
  return {
    status: result.status,
    headers: {
      ...JSON_TYPE,
      ...(manner && { [APPLY_MS_HEADER]: String(manner.applyMs) }),
      ...(manner?.anyOrder && { [ANY_ORDER_HEADER]: '1' }),
    },
    body: result.status === 200 ? encodeAck(result.body) : JSON.stringify(result.body),
  };
}

/** A load balancer reads 503 as "not here": for a node that is not well, and for a stopped one, which has no health. */
function healthOf(manager: Replica): Outgoing {
  try {
    const health: { ok?: unknown } = manager.health();
    return { status: health.ok === false ? 503 : 200, headers: JSON_TYPE, body: JSON.stringify(health) };
  } catch (error) {
    return refused(503, messageOf(error));
  }
}

function withoutPrefix(path: string, prefix: string): string | undefined {
  const clean = prefix.replace(/\/+$/, '');
  return path.startsWith(clean) ? path.slice(clean.length) : undefined;
}

function tooLarge(max: number): Outgoing {
  return refused(413, `the body is larger than ${max} bytes`);
}

function notAllowed(allow: string): Outgoing {
  return { status: 405, headers: { ...JSON_TYPE, allow }, body: JSON.stringify({ error: `use ${allow}` }) };
}

function refused(status: number, error: string): Outgoing {
  return { status, headers: JSON_TYPE, body: JSON.stringify({ error }) };
}
