/**
 * The only place where a request to a peer is made and its answer taken, be it a batch for `/sync` or a question to
 * `/health`. Whatever every request must carry, and whatever every answer must prove, belongs here.
 */
import type { Clock } from '../clock.ts';
import type { Body } from '../wire/body.ts';
import { readIntroduction } from '../wire/introduction.ts';
import { HEALTH_PATH, NODE_ID_HEADER, ROWCAST_HEADER, SYNC_PATH } from '../wire/protocol.ts';
import { type Bond, NotProven, type RawAnswer, type Unsigned } from './bond.ts';
import { deadlinesOf } from './deadlines.ts';
import { explainFailure } from './tls.ts';
import type { Ask, BoundedResponse, Post } from './transport.ts';

/** A complete answer; a torn one is an error. */
export interface PeerAnswer {
  status: number;
  body: string;
  header(name: string): string | null;
}

export interface RequestOptions {
  clock: Clock;
  timeoutMs: number;
  /** Aborted when nothing more is to be asked; it ends what is on its way. */
  stopped: AbortSignal;
  /** Aborted to take this one request back. */
  withdrawn?: AbortSignal;
  /** The request itself, where somebody may want to take it back: without another signal for that. */
  request?: AbortController | undefined;
  /** Where there are keys: it signs the request, and has the answer prove what it must. */
  bond?: Bond | undefined;
  /** Told once where there is no answer after so long; the request goes on. */
  silence?: { afterMs: number; tell(): void } | undefined;
}

/** How long an answer may be: it names, at most, each change of the batch with a reason. A longer one is not read. */
const ANSWER_BYTES = 64 * 1024;
const ANSWER_BYTES_A_CHANGE = 1_000;
/** A `/health` has a line for each peer, and a hub may have thousands. */
const HEALTH_BYTES = 8 * 1024 * 1024;

/** There is no complete answer, and `message` says why. */
export class NoAnswer extends Error {
  /** We took the request back ourselves, which says nothing about the peer. */
  readonly withdrawn: boolean;

  constructor(message: string, withdrawn: boolean) {
    super(message);
    this.withdrawn = withdrawn;
  }
}

/** Hands a batch to a peer. Throws NoAnswer. */
export function postBatch(
  post: Post,
  peer: string,
  batch: { nodeId: string; introduction: string; body: Body; count: number; headers: Record<string, string> },
  options: RequestOptions,
): Promise<PeerAnswer> {
  const answerBytes = ANSWER_BYTES + batch.count * ANSWER_BYTES_A_CHANGE;
  return postTo(post, peer, SYNC_PATH, batch, answerBytes, options);
}

/** What a comparison may answer: some thousand ids, or as many rows as one batch has. */
const ANSWER_BYTES_COMPARED = 16 * 1024 * 1024;

/** Asks for something at one of a peer's addresses. Throws NoAnswer. */
export function postQuestion(
  post: Post,
  peer: string,
  path: string,
  question: { nodeId: string; introduction: string; body: Body },
  options: RequestOptions,
): Promise<PeerAnswer> {
  return postTo(post, peer, path, { ...question, headers: {} }, ANSWER_BYTES_COMPARED, options);
}

function postTo(
  post: Post,
  peer: string,
  path: string,
  message: { nodeId: string; introduction: string; body: Body; headers: Record<string, string> },
  answerBytes: number,
  options: RequestOptions,
): Promise<PeerAnswer> {
  const { nodeId, introduction, body } = message;
  const identity = { [NODE_ID_HEADER]: nodeId, [ROWCAST_HEADER]: introduction };
  const headers = { 'content-type': 'application/json', ...message.headers, ...identity };
  return proven(
    options,
    { method: 'POST', path, headers, body },
    (signed) =>
      exchange(options, answerBytes, (signal) =>
        post(peer + path, { method: 'POST', headers: signed, body, redirect: 'manual', signal }),
      ),
    (bond) => askHealth(bond.get, peer, introduction, options),
  );
}

/** Asks a peer how it is. Throws NoAnswer. */
export function askHealth(get: Ask, peer: string, introduction: string, options: RequestOptions): Promise<PeerAnswer> {
  return proven(options, { method: 'GET', path: HEALTH_PATH, headers: { [ROWCAST_HEADER]: introduction } }, (headers) =>
    exchange(options, HEALTH_BYTES, (signal) => get(peer + HEALTH_PATH, { headers, signal })),
  );
}

/** Where there are keys, the request goes out signed, and the answer counts once it has proved what it must. */
async function proven(
  { bond }: RequestOptions,
  request: Unsigned,
  attempt: (headers: Record<string, string>) => Promise<RawAnswer>,
  hello: (bond: Bond) => Promise<unknown> = async () => {},
): Promise<PeerAnswer> {
  try {
    const { status, bytes, header } =
      bond && !bond.isExempt
        ? await bond.exchange(request, attempt, () => hello(bond))
        : await attempt(request.headers);
    return { status, header, body: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString() };
  } catch (error) {
    throw error instanceof NotProven ? new NoAnswer(error.message, false) : error;
  }
}

/** The node that has answered for its `/health`, by the body or, where it tells strangers nothing, by its introduction. */
export function nodeIdOf({ body, header }: PeerAnswer): string | undefined {
  return nodeIdIn(body) ?? readIntroduction(header(ROWCAST_HEADER))?.id;
}

function nodeIdIn(body: string): string | undefined {
  try {
    const { node_id: id } = JSON.parse(body) as { node_id?: unknown };
    return typeof id === 'string' && id !== '' && id.length <= 200 ? id : undefined;
  } catch {
    return undefined;
  }
}

async function exchange(
  { clock, timeoutMs, stopped, withdrawn, request = new AbortController(), silence }: RequestOptions,
  answerBytes: number,
  send: (signal: AbortSignal) => Promise<BoundedResponse>,
): Promise<RawAnswer> {
  const { signal } = request;
  if (stopped.aborted || withdrawn?.aborted || signal.aborted) throw new NoAnswer('stopped', true);
  const cancel = (): void => request.abort();
  stopped.addEventListener('abort', cancel, { once: true });
  withdrawn?.addEventListener('abort', cancel, { once: true });
  const deadlines = deadlinesOf(clock);
  let timedOut = false;
  const isOver = deadlines.after(timeoutMs, () => {
    timedOut = true;
    request.abort();
  });
  const isHeard = silence && silence.afterMs < timeoutMs ? deadlines.after(silence.afterMs, silence.tell) : undefined;
  try {
    // A transport that does not heed the signal must not hold up the loop, or its end.
    return await new Promise<RawAnswer>((resolve, reject) => {
      signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true });
      answered(send(signal), answerBytes).then(resolve, reject);
    });
  } catch (error) {
    if (timedOut) throw new NoAnswer(`no answer within ${timeoutMs} ms`, false);
    throw new NoAnswer(explainFailure(error), signal.aborted);
  } finally {
    isOver();
    isHeard?.();
    stopped.removeEventListener('abort', cancel);
    withdrawn?.removeEventListener('abort', cancel);
  }
}

async function answered(answering: Promise<BoundedResponse>, answerBytes: number): Promise<RawAnswer> {
  const { status, headers, bytes } = await answering;
  return { status, bytes: await bytes(answerBytes), header: (name) => headers?.get(name) ?? null };
}
