/** Requests between peers, signed and verified. */
import { randomBytes } from 'node:crypto';
import { systemClock } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import { readIntroduction } from '../wire/introduction.ts';
import {
  COMPARE_PATH,
  FETCH_PATH,
  HEALTH_PATH,
  NODE_ID_HEADER,
  ORIGINS_HEADER,
  ROWCAST_HEADER,
  SEND_AGAIN_HEADER,
  SYNC_PATH,
} from '../wire/protocol.ts';
import { contentDigest, isDigest } from './digest.ts';
import { Malformed } from './fields.ts';
import type { Key, Keyring } from './keys.ts';
import {
  ALGORITHM,
  DIGEST_HEADER,
  findSignature,
  isSignedBy,
  requireCovered,
  requireParams,
  sign,
} from './signature.ts';

/** What is asked, as the signature says it: proxies may rewrite a path, and a signature for one is none for another. */
const TAGS: Record<string, string> = {
  [SYNC_PATH]: 'rowcast-sync',
  [COMPARE_PATH]: 'rowcast-compare',
  [FETCH_PATH]: 'rowcast-fetch',
  [HEALTH_PATH]: 'rowcast-hello',
};

/** Is this one of the paths at which peers speak to each other? */
export function isPeerPath(path: string | undefined): path is string {
  return path !== undefined && Object.hasOwn(TAGS, path);
}

const ALWAYS = [NODE_ID_HEADER];
const WITH_BODY = ['content-type', DIGEST_HEADER, NODE_ID_HEADER];
/** Covered where they are there, so that none of them can be changed, taken away or put there on the way. */
const WHERE_PRESENT = ['content-encoding', ROWCAST_HEADER, SEND_AGAIN_HEADER, ORIGINS_HEADER];

type Header = (name: string) => string | null | undefined;

export interface RequestToSign {
  method: string;
  /** `/sync`, `/sync/compare`, `/sync/fetch` or `/health`, whatever stands before it at the peer. */
  path: string;
  /** All that the request has, by their names in lower case. `x-node-id` must be among them. */
  headers: Record<string, string>;
  /** As it travels. */
  body?: Uint8Array;
  /** Its `Content-Digest`, where that is known already. */
  digest?: string;
  /** The peer's URL, where the keys say which of them is for it. */
  peer?: string;
}

/** For whoever signs: the time in milliseconds, and a nonce of 16 bytes as base64url. Only tests give one. */
export interface SigningOptions {
  now?: number;
  nonce?: string;
}

/** A request as it was signed; its answer is verified against it. */
export interface SentRequest {
  /** To be sent besides those that were signed. */
  headers: Record<string, string>;
  readonly key: Key;
  /** The signature as it is written. */
  readonly signature: string;
}

export function signRequest(keyring: Keyring, request: RequestToSign, options: SigningOptions = {}): SentRequest {
  const { method, path, headers, body } = request;
  const key = keyring.keyFor(request.peer);
  const tag = TAGS[path];
  if (!key) throw refused(`there is no key for ${request.peer}`);
  if (tag === undefined) throw refused(`${path} is none of ${Object.keys(TAGS).join(', ')}`);
  const { now = systemClock.now(), nonce = randomBytes(16).toString('base64url') } = options;
  const digest = hasBody(path) ? { [DIGEST_HEADER]: request.digest ?? contentDigest(body ?? new Uint8Array()) } : {};
  const all: Record<string, string> = { ...headers, ...digest };
  const params: [string, string | number][] = [
    ['created', Math.floor(now / 1_000)],
    ['nonce', nonce],
    ['keyid', key.id],
    ['alg', ALGORITHM],
    ['tag', tag],
  ];
  const header: Header = (name) => all[name];
  try {
    const signed = sign(key, componentsOf(path, header), params, valuesOf(method, header));
    return { headers: { ...digest, ...signed.headers }, key, signature: signed.spelt };
  } catch (error) {
    throw error instanceof Malformed ? refused(error.message) : error;
  }
}

export interface RequestToVerify {
  method: string;
  path: string;
  header: Header;
}

/** Who has signed a request; its answer is signed for that. */
export interface Sender {
  readonly key: Key;
  readonly nodeId: string;
  /** The request's signature as it is written. */
  readonly signature: string;
  /** Of its body, which has to be compared with it before it is used: see `digestFits`. */
  readonly digest: string | undefined;
}

export type Verified =
  | { kind: 'verified'; sender: Sender }
  /** It has no signature of ours. Whether that is enough is for `mode` to say. */
  | { kind: 'unsigned' }
  /** A stranger, who is told nothing: 401. `reason` is for the log, and has nothing of a secret. */
  | { kind: 'stranger'; reason: string }
  /** Its sender has the key, and is answered why not; that answer is to be signed. */
  | { kind: 'denied'; sender: Sender; status: 401 | 403 | 425; error: object; reason: string };

const REQUEST_PARAMS = {
  created: /^(0|[1-9]\d*)$/,
  nonce: /^"[A-Za-z0-9_-]{21}[AQgw]"$/,
  keyid: /^"[A-Za-z0-9._-]{1,64}"$/,
  alg: new RegExp(`^"${ALGORITHM}"$`),
  tag: /^"[a-z-]{1,64}"$/,
};

/** By the headers alone, before anything of the body is read. `now` in milliseconds. */
export function verifyRequest(keyring: Keyring, request: RequestToVerify, now: number = systemClock.now()): Verified {
  try {
    return verified(keyring, request, Math.floor(now / 1_000));
  } catch (error) {
    if (error instanceof Malformed) return { kind: 'stranger', reason: error.message };
    throw error;
  }
}

function verified(keyring: Keyring, { method, path, header }: RequestToVerify, now: number): Verified {
  const found = findSignature(header);
  if (!found) return { kind: 'unsigned' };
  const params = requireParams(found.input, REQUEST_PARAMS);
  if (params.tag !== TAGS[path]) throw new Malformed('the signature is for something else');
  requireCovered(found.input, componentsOf(path, header));
  const key = keyring.find(params.keyid);
  const isRight = isSignedBy(key ?? keyring.decoy, found, valuesOf(method, header));
  if (!key) throw new Malformed(`the key "${params.keyid}" is not known here`);
  if (!isRight) throw new Malformed(`the signature by the key "${key.id}" is wrong`);
  const nodeId = header(NODE_ID_HEADER)?.trim() ?? '';
  const digest = hasBody(path) ? (header(DIGEST_HEADER)?.trim() ?? '') : undefined;
  const sender = { key, nodeId, signature: found.spelt, digest };
  const denied = (status: 401 | 403 | 425, error: object, reason: string): Verified => {
    return { kind: 'denied', sender, status, error, reason };
  };
  if (key.nodes && !key.nodes.has(nodeId)) {
    return denied(403, { error: 'this key is not for this node id' }, `the key "${key.id}" is not for this node id`);
  }
  // Who it is stands in both; a key that is for one node must not introduce another.
  const introduced = readIntroduction(header(ROWCAST_HEADER))?.id ?? nodeId;
  if (introduced !== nodeId) {
    const reason = `a request by the key "${key.id}" introduces another node than it is from`;
    return denied(403, { error: 'the introduction is not that of the node that has signed' }, reason);
  }
  if (digest !== undefined && !isDigest(digest)) return denied(401, { error: 'digest' }, 'the digest cannot be read');
  const created = Number(params.created);
  const nonces = keyring.noncesOf(key);
  if (!nonces.isTimely(created, now)) {
    const off = `the clock of the sender is off by ${created - now} s, or the request is old`;
    return denied(401, { error: 'clock', now }, off);
  }
  if (!nonces.take(params.nonce, created, now)) {
    return denied(425, { error: 'this request was seen before' }, 'a request was seen before');
  }
  return { kind: 'verified', sender };
}

function hasBody(path: string): boolean {
  return path !== HEALTH_PATH;
}

function componentsOf(path: string, header: Header): string[] {
  const names = [...(hasBody(path) ? WITH_BODY : ALWAYS), ...WHERE_PRESENT.filter((name) => header(name) != null)];
  return ['"@method"', ...names.map((name) => `"${name}"`)];
}

function valuesOf(method: string, header: Header): (component: string) => string | undefined {
  return (component) => (component === '"@method"' ? method : (header(component.slice(1, -1)) ?? undefined));
}

function refused(problem: string): RowcastError {
  return new RowcastError('INVALID_OPTION', `a request cannot be signed: ${problem}`);
}
