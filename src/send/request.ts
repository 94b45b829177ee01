/**
 * The only place where a request to a peer is made and its answer taken, be it a batch for `/sync` or a question to
 * `/health`. Whatever every request must carry, and whatever every answer must prove, belongs here.
 */
import type { Clock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import type { Body } from '../wire/body.ts';
import { HEALTH_PATH, NODE_ID_HEADER, ROWCAST_HEADER, SYNC_PATH } from '../wire/protocol.ts';
import type { Fetch, Get } from './transport.ts';

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
}

/** There is no complete answer, and `message` says why. */
export class NoAnswer extends Error {
  /** We took the request back ourselves, which says nothing about the peer. */
  readonly withdrawn: boolean;

  constructor(message: string, withdrawn: boolean) {
    super(message);
    this.withdrawn = withdrawn;
  }
}

interface Message {
  nodeId: string;
  body: Body;
  headers: Record<string, string>;
}

/** Hands a batch to a peer. Throws NoAnswer. */
export function postBatch(post: Fetch, peer: string, batch: Message, options: RequestOptions): Promise<PeerAnswer> {
  return postQuestion(post, peer + SYNC_PATH, batch, options);
}

/** Asks for something at one of a peer's addresses. Throws NoAnswer. */
export function postQuestion(
  post: Fetch,
  url: string,
  { nodeId, body, headers: more }: Message,
  options: RequestOptions,
): Promise<PeerAnswer> {
  const identity = { [NODE_ID_HEADER]: nodeId, [ROWCAST_HEADER]: `id=${nodeId}` };
  const headers = { 'content-type': 'application/json', ...more, ...identity };
  return exchange(options, (signal) => post(url, { method: 'POST', headers, body, redirect: 'manual', signal }));
}

/** Asks a peer how it is. Throws NoAnswer. */
export function askHealth(get: Get, peer: string, options: RequestOptions): Promise<PeerAnswer> {
  return exchange(options, (signal) => get(peer + HEALTH_PATH, { signal }));
}

/** The node that a `/health` speaks of; undefined where the body is no such answer. */
export function nodeIdIn(body: string): string | undefined {
  try {
    const { node_id: id } = JSON.parse(body) as { node_id?: unknown };
    return typeof id === 'string' && id !== '' && id.length <= 200 ? id : undefined;
  } catch {
    return undefined;
  }
}

async function exchange(
  { clock, timeoutMs, stopped, withdrawn }: RequestOptions,
  send: (signal: AbortSignal) => ReturnType<Fetch>,
): Promise<PeerAnswer> {
  if (stopped.aborted || withdrawn?.aborted) throw new NoAnswer('stopped', true);
  const request = new AbortController();
  const cancel = (): void => request.abort();
  for (const signal of [stopped, withdrawn]) signal?.addEventListener('abort', cancel, { once: true });
  // A transport that does not heed the signal must not hold up the loop, or its end.
  const aborted = new Promise<never>((_, reject) => {
    request.signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true });
  });
  aborted.catch(() => {});
  const timer = new AbortController();
  let timedOut = false;
  void clock.sleep(timeoutMs, timer.signal).then(() => {
    if (timer.signal.aborted) return;
    timedOut = true;
    request.abort();
  });
  try {
    const answering = send(request.signal).then(async (response) => {
      const body = await response.text();
      return { status: response.status, body, header: (name: string) => response.headers?.get(name) ?? null };
    });
    return await Promise.race([answering, aborted]);
  } catch (error) {
    if (timedOut) throw new NoAnswer(`no answer within ${timeoutMs} ms`, false);
    throw new NoAnswer(messageOf(error), request.signal.aborted);
  } finally {
    timer.abort();
    for (const signal of [stopped, withdrawn]) signal?.removeEventListener('abort', cancel);
  }
}
