/**
 * The only place where a request to a peer is made and its answer taken, be it a batch for `/sync` or a question to
 * `/health`. Whatever every request must carry, and whatever every answer must prove, belongs here.
 */
import { alarm, type Clock } from '../clock.ts';
import type { Body } from '../wire/body.ts';
import { readIntroduction } from '../wire/introduction.ts';
import { HEALTH_PATH, NODE_ID_HEADER, ROWCAST_HEADER, SYNC_PATH } from '../wire/protocol.ts';
import { type Bond, NotProven, type RawAnswer, type Unsigned } from './bond.ts';
import { explainFailure } from './tls.ts';
import { AnswerTooLong, type Ask, type BoundedResponse, type Post } from './transport.ts';

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
  /** Somebody before the peer takes no request that large: a smaller one may get through. */
  readonly isTooLarge: boolean;
  /** There was one, and more of it than may be read. */
  readonly isTooLong: boolean;

  constructor(message: string, withdrawn: boolean, isTooLarge = false, isTooLong = false) {
    super(message);
    this.withdrawn = withdrawn;
    this.isTooLarge = isTooLarge;
    this.isTooLong = isTooLong;
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

/** Asks for something at one of a peer's addresses. A single row may be as large as any batch. Throws NoAnswer. */
export function postQuestion(
  post: Post,
  peer: string,
  path: string,
  question: { nodeId: string; introduction: string; body: Body; maxBodyBytes: number },
  options: RequestOptions,
): Promise<PeerAnswer> {
  const { maxBodyBytes, ...message } = question;
  const answerBytes = Math.max(ANSWER_BYTES_COMPARED, maxBodyBytes);
  return postTo(post, peer, path, { ...message, headers: {} }, answerBytes, options);
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
    return { status, header, body: textOf(bytes) };
  } catch (error) {
    throw error instanceof NotProven ? new NoAnswer(error.message, false, error.isTooLarge) : error;
  }
}

/** Without the mark that some servers put before every text, which is no JSON: `text()` of a fetch leaves it out as well. */
function textOf(bytes: Uint8Array): string {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString();
  return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
}

/** The node that has answered for its `/health`, by the body or, where it tells strangers nothing, by its introduction. */
export function nodeIdOf({ body, header }: PeerAnswer): string | undefined {
  return nodeIdIn(body) ?? readIntroduction(header(ROWCAST_HEADER))?.id;
}

function nodeIdIn(body: string): string | undefined {
  try {
    const { node_id: id } = JSON.parse(body) as { node_id?: unknown };
    // What no text can hold everywhere is nobody's: a store that cannot keep it would keep none that answer meanwhile.
    return typeof id === 'string' && /^[^\p{Cc}\p{Cs}]{1,200}$/u.test(id) ? id : undefined;
  } catch {
    return undefined;
  }
}

async function exchange(
  { clock, timeoutMs, stopped, withdrawn, silence }: RequestOptions,
  answerBytes: number,
  send: (signal: AbortSignal) => Promise<BoundedResponse>,
): Promise<RawAnswer> {
  if (stopped.aborted || withdrawn?.aborted) throw new NoAnswer('stopped', true);
  const request = new AbortController();
  let giveUp = (_: Error): void => {};
  // A transport that does not heed the signal must not hold up the loop, or its end.
  const aborted = new Promise<never>((_, reject) => {
    giveUp = reject;
  });
  aborted.catch(() => {});
  const cancel = (): void => {
    request.abort();
    giveUp(new Error('aborted'));
  };
  for (const signal of [stopped, withdrawn]) signal?.addEventListener('abort', cancel, { once: true });
  let timedOut = false;
  const before = silence && silence.afterMs < timeoutMs ? silence.afterMs : 0;
  const untilTimeOut = (): (() => void) =>
    alarm(clock, timeoutMs - before, () => {
      timedOut = true;
      cancel();
    });
  const untilSilent = (): (() => void) =>
    alarm(clock, before, () => {
      turnOff = untilTimeOut();
      silence?.tell();
    });
  let turnOff = before > 0 ? untilSilent() : untilTimeOut();
  try {
    const answering = send(request.signal).then(async (response) => {
      const bytes = await response.bytes(answerBytes);
      return { status: response.status, bytes, header: (name: string) => response.headers?.get(name) ?? null };
    });
    return await Promise.race([answering, aborted]);
  } catch (error) {
    if (timedOut) throw new NoAnswer(`no answer within ${timeoutMs} ms`, false);
    throw new NoAnswer(explainFailure(error), request.signal.aborted, false, error instanceof AnswerTooLong);
  } finally {
    turnOff();
    for (const signal of [stopped, withdrawn]) signal?.removeEventListener('abort', cancel);
  }
}
