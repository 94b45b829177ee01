/** Questions to a peer beside the ship loop, and batches that are answers to what was found out by them. */
import type { Clock } from '../clock.ts';
import type { Exchange } from '../compare/exchange.ts';
import { Remote, TooLarge } from '../compare/remote.ts';
import { messageOf } from '../errors.ts';
import type { Body } from '../wire/body.ts';
import { madeByOthers, writeOrigins } from '../wire/origins.ts';
import { ORIGINS_HEADER, ROWCAST_HEADER } from '../wire/protocol.ts';
import type { Bond } from './bond.ts';
import { NoAnswer, type PeerAnswer, postBatch, postQuestion, type RequestOptions } from './request.ts';
import type { Post } from './transport.ts';
import { judge } from './verdict.ts';

export interface Asker {
  nodeId: string;
  /** What it says of itself to that peer. */
  introduction(peer: string): string | Promise<string>;
  /** Why an answer by this one says nothing of the peer; undefined where it does. */
  another(peer: string, said: string): string | undefined | Promise<string | undefined>;
  fetch: Post;
  clock: Clock;
  requestTimeoutMs: number;
  /** As much of an answer is read as of a request. */
  maxBodyBytes: number;
  stopped: AbortSignal;
  bond?: Bond | undefined;
  /** The peer has no such path. */
  lacks(peer: string, path: string): void;
}

/** How rows and questions get to a peer, for a comparison with it; `here` is what this side does with what comes of it. */
export function comparing(
  asker: Asker,
  peer: string,
  here: Pick<Exchange, 'take' | 'tooLarge'>,
  withdrawn: AbortSignal | undefined,
): { remote: Remote; exchange: Exchange } {
  return {
    remote: new Remote(
      (path, body) => question(asker, peer, path, body, withdrawn),
      (path) => asker.lacks(peer, path),
    ),
    exchange: { send: (...batch) => handOver(asker, peer, ...batch), ...here },
  };
}

/** Rejects where there is no complete answer. */
async function question(
  asker: Asker,
  peer: string,
  path: string,
  body: string,
  withdrawn?: AbortSignal,
): Promise<PeerAnswer> {
  const { nodeId, fetch, maxBodyBytes } = asker;
  const bytes = new TextEncoder().encode(body);
  const introduction = await asker.introduction(peer);
  const request = { nodeId, introduction, body: bytes, maxBodyBytes };
  const asked = postQuestion(fetch, peer, path, request, optionsOf(asker, withdrawn));
  const answer = await asked.catch((error: unknown) => {
    const isOne = error instanceof NoAnswer && (error.isTooLarge || error.isTooLong);
    throw isOne ? new TooLarge(error.message) : error;
  });
  const said = answer.header(ROWCAST_HEADER);
  const objection = said === null ? undefined : await asker.another(peer, said);
  if (objection !== undefined) throw new Error(objection);
  return answer;
}

/** Hands over a batch that is no shipment of the loop's: nothing is noted of it, whatever the answer. */
async function handOver(
  asker: Asker,
  peer: string,
  body: Body,
  batchId: number,
  count: number,
): Promise<'acked' | 'too-large' | { refused: string }> {
  try {
    const introduction = await asker.introduction(peer);
    const headers = { [ORIGINS_HEADER]: writeOrigins(madeByOthers(count)) };
    const batch = { nodeId: asker.nodeId, introduction, body, count, headers };
    const verdict = judge(await postBatch(asker.fetch, peer, batch, optionsOf(asker)), batchId);
    return verdict.kind === 'acked' || verdict.kind === 'too-large' ? verdict.kind : { refused: verdict.reason };
  } catch (error) {
    return error instanceof NoAnswer && error.isTooLarge ? 'too-large' : { refused: messageOf(error) };
  }
}

function optionsOf({ clock, requestTimeoutMs, stopped, bond }: Asker, withdrawn?: AbortSignal): RequestOptions {
  return { clock, timeoutMs: requestTimeoutMs, stopped, bond, ...(withdrawn && { withdrawn }) };
}
