/** Answers to signed requests, each bound to the signature of its request: one for another is none. */
import { systemClock } from '../clock.ts';
import { ANY_ORDER_HEADER, APPLY_MS_HEADER, NODE_ID_HEADER, ROWCAST_HEADER } from '../wire/protocol.ts';
import { contentDigest, digestFits } from './digest.ts';
import { Malformed } from './fields.ts';
import type { Sender, SentRequest } from './requests.ts';
import {
  ALGORITHM,
  DIGEST_HEADER,
  findSignature,
  isSignedBy,
  requireCovered,
  requireParams,
  sign,
} from './signature.ts';

const TAG = 'rowcast-answer';
const STATUS = '"@status"';
const OF_REQUEST = '"signature";req;key="rowcast"';
const ALWAYS = [DIGEST_HEADER, NODE_ID_HEADER];
/** Covered where they are there: by what they say a sender acts. */
const WHERE_PRESENT = [ROWCAST_HEADER, APPLY_MS_HEADER, ANY_ORDER_HEADER];

type Header = (name: string) => string | null | undefined;

export interface AnswerToSign {
  status: number;
  /** By their names in lower case; `x-node-id`, of who answers, must be among them. */
  headers: Record<string, string>;
  /** As it travels; empty in the answer to a HEAD. */
  body: string | Uint8Array;
}

/** The headers that the answer has besides. `now` in milliseconds. */
export function signAnswer(
  sender: Sender,
  answer: AnswerToSign,
  now: number = systemClock.now(),
): Record<string, string> {
  const added = {
    [DIGEST_HEADER]: contentDigest(answer.body),
    // What is unpacked, packed or kept on the way is not what was signed.
    'cache-control': 'no-store, no-transform',
  };
  const all: Record<string, string> = { ...answer.headers, ...added };
  const header: Header = (name) => all[name];
  const params: [string, string | number][] = [
    ['created', Math.floor(now / 1_000)],
    ['keyid', sender.key.id],
    ['alg', ALGORITHM],
    ['tag', TAG],
  ];
  const values = valuesOf(answer.status, sender.signature, header);
  return { ...added, ...sign(sender.key, componentsOf(header), params, values).headers };
}

export interface AnswerToVerify {
  status: number;
  header: Header;
  /** As it travelled. */
  body: string | Uint8Array;
}

export type VerifiedAnswer =
  /** Given by a node that has the key, to this very request. */
  { kind: 'verified'; nodeId: string } | { kind: 'unsigned' } | { kind: 'forged'; reason: string };

const ANSWER_PARAMS = {
  created: /^(0|[1-9]\d*)$/,
  keyid: /^"[A-Za-z0-9._-]{1,64}"$/,
  alg: new RegExp(`^"${ALGORITHM}"$`),
  tag: new RegExp(`^"${TAG}"$`),
};

export function verifyAnswer(sent: Pick<SentRequest, 'key' | 'signature'>, answer: AnswerToVerify): VerifiedAnswer {
  try {
    const found = findSignature(answer.header);
    if (!found) return { kind: 'unsigned' };
    const { keyid } = requireParams(found.input, ANSWER_PARAMS);
    if (keyid !== sent.key.id) throw new Malformed('the answer is signed by another key than the request');
    requireCovered(found.input, componentsOf(answer.header));
    const values = valuesOf(answer.status, sent.signature, answer.header);
    if (!isSignedBy(sent.key, found, values)) throw new Malformed('the signature of the answer is wrong');
    if (!digestFits(answer.header(DIGEST_HEADER)?.trim(), answer.body)) {
      throw new Malformed('the answer is not what was signed');
    }
    return { kind: 'verified', nodeId: answer.header(NODE_ID_HEADER)?.trim() ?? '' };
  } catch (error) {
    if (error instanceof Malformed) return { kind: 'forged', reason: error.message };
    throw error;
  }
}

function componentsOf(header: Header): string[] {
  const names = [...ALWAYS, ...WHERE_PRESENT.filter((name) => header(name) != null)];
  return [STATUS, ...names.map((name) => `"${name}"`), OF_REQUEST];
}

function valuesOf(status: number, ofRequest: string, header: Header): (component: string) => string | undefined {
  return (component) => {
    if (component === STATUS) return String(status);
    if (component === OF_REQUEST) return ofRequest;
    return header(component.slice(1, -1)) ?? undefined;
  };
}
