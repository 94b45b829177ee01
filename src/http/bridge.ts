/** One answer function, two ways to be asked: the Web's Request -> Response, and node:http's listener. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Sender } from '../auth/requests.ts';
import { messageOf } from '../errors.ts';
import { Budget, type Share } from './budget.ts';

/** A request, reduced to what a route needs. */
export interface Incoming {
  method: string;
  path: string;
  /** What stands behind the question mark of the URL. */
  query?: string;
  header(name: string): string | null | undefined;
  /**
   * Reads the body, or says why not without reading further. `tap` is shown every part of it as it arrives; then one that is
   * too large is read to its end all the same, without being kept, because only the whole shows whether it is what was signed.
   */
  read(maxBytes: number, tap?: (chunk: Uint8Array) => void): Promise<BodyRead>;
  /** Counts what a body has become besides, unpacked for instance; false where there is no room for it now. */
  hold(bytes: number): boolean;
  /** Where it comes from, where that is known. */
  address?: string | undefined;
  /** Who has signed it, once that is verified. */
  sender?: Sender;
}

/** `no-room`: with the bodies of all other requests it would be too much at this moment. */
export type BodyRead = Uint8Array | 'too-large' | 'no-room';

export interface Outgoing {
  status: number;
  headers: Record<string, string>;
  body: string;
  /** What comes after the body, for as long as there is anything; the answer ends when it resolves. */
  stream?: (outlet: Outlet) => Promise<void>;
}

/** Where a stream goes to. */
export interface Outlet {
  /** Resolves when the reader has taken enough for more to be written, or is gone. */
  write(text: string): Promise<void>;
  /** Aborts when the reader is gone. */
  readonly gone: AbortSignal;
}

export type Answer = (incoming: Incoming) => Promise<Outgoing>;

export function toHandler(answer: Answer, budget = new Budget()): (request: Request) => Promise<Response> {
  return async (request) => {
    const { status, headers, body, stream } = await answering(answer, budget, (share) => ({
      method: request.method,
      path: new URL(request.url).pathname,
      query: new URL(request.url).search.slice(1),
      header: (name) => request.headers.get(name),
      read: (max, tap) => readRequest(request, { max, share, tap }),
      hold: (bytes) => share.take(bytes),
    }));
    const whole = stream && request.method !== 'HEAD' ? webStream(body, stream) : body;
    return new Response(request.method === 'HEAD' ? null : whole, { status, headers });
  };
}

/** Without the cost of a Web Request around every message. */
export function toListener(
  answer: Answer,
  budget = new Budget(),
): (request: IncomingMessage, response: ServerResponse) => void {
  const pipelines = new Pipelines();
  return (request, response) => {
    if (!pipelines.admit(request, response)) return;
    void answering(answer, budget, (share) => ({
      method: request.method ?? 'GET',
      path: (request.url ?? '/').split('?')[0] as string,
      query: (request.url ?? '').split('?')[1] ?? '',
      header: (name) => request.headers[name] as string | undefined,
      read: (max, tap) => readMessage(request, { max, share, tap }),
      hold: (bytes) => share.take(bytes),
      address: request.socket?.remoteAddress,
    })).then(({ status, headers, body, stream }) => {
      // The application has answered by itself, or hung up: writing again would throw where nobody can catch it.
      if (response.headersSent) return;
      // An unread remainder would otherwise be taken for the next request on this connection.
      if (!request.complete) response.setHeader('connection', 'close');
      response.writeHead(status, headers);
      if (stream && request.method !== 'HEAD') void pour(response, body, stream);
      else response.end(request.method === 'HEAD' ? undefined : body);
    });
  };
}

/** Requests of one connection that are not answered yet. Whoever waits for its answers, as all peers do, has one. */
const PIPELINED_MAX = 8;

/**
 * Node hands on all requests of one write in one turn, each of which is worked on and whose answer is kept until it is
 * read: a client that sends many and reads none would take the process for as long as it likes.
 */
class Pipelines {
  readonly #unanswered = new WeakMap<object, number>();

  /** False where the connection was ended for it. */
  admit({ socket, httpVersionMajor }: IncomingMessage, response: ServerResponse): boolean {
    // Made up by a framework or a test; or HTTP/2, whose requests are under way side by side, and which bounds them itself.
    if (!socket || httpVersionMajor !== 1) return true;
    // The rest of what came in one write.
    if (socket.destroyed) return false;
    const before = this.#unanswered.get(socket) ?? 0;
    if (before >= PIPELINED_MAX) {
      socket.destroy();
      return false;
    }
    this.#unanswered.set(socket, before + 1);
    response.once('close', () => this.#unanswered.set(socket, (this.#unanswered.get(socket) ?? 1) - 1));
    return true;
  }
}

/** Whatever goes wrong becomes an answer: a rejection would be logged by a framework, or hang up without a word. */
async function answering(answer: Answer, budget: Budget, incoming: (share: Share) => Incoming): Promise<Outgoing> {
  const share = budget.open();
  try {
    return await answer(incoming(share));
  } catch (error) {
    const isOfClient = error instanceof BrokenOff;
    const isOurs = isOfClient || error instanceof AlreadyRead;
    const body = JSON.stringify({ error: isOurs ? error.message : `the request failed here: ${messageOf(error)}` });
    return { status: isOfClient ? 400 : 500, headers: { 'content-type': 'application/json' }, body };
  } finally {
    share.release();
  }
}

type Stream = NonNullable<Outgoing['stream']>;

async function pour(response: ServerResponse, body: string, stream: Stream): Promise<void> {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  const write = (text: string): Promise<void> =>
    new Promise((resolve) => {
      if (response.destroyed || response.write(text)) return resolve();
      const done = (): void => {
        response.off('drain', done);
        response.off('close', done);
        resolve();
      };
      response.on('drain', done);
      response.on('close', done);
    });
  response.flushHeaders();
  try {
    if (body !== '') await write(body);
    await stream({ write, gone: gone.signal });
    response.end();
  } catch {
    response.destroy();
  }
}

function webStream(body: string, stream: Stream): ReadableStream<Uint8Array> {
  const gone = new AbortController();
  const encoder = new TextEncoder();
  let pulled: (() => void) | undefined;
  return new ReadableStream<Uint8Array>({
    start(controller) {
      const write = (text: string): Promise<void> =>
        new Promise((resolve) => {
          if (gone.signal.aborted) return resolve();
          controller.enqueue(encoder.encode(text));
          if ((controller.desiredSize ?? 0) > 0) return resolve();
          pulled = resolve;
        });
      const end = async (): Promise<void> => {
        try {
          if (body !== '') await write(body);
          await stream({ write, gone: gone.signal });
          if (!gone.signal.aborted) controller.close();
        } catch (error) {
          if (!gone.signal.aborted) controller.error(error);
        }
      };
      void end();
    },
    pull() {
      pulled?.();
      pulled = undefined;
    },
    cancel() {
      gone.abort();
      pulled?.();
    },
  });
}

class AlreadyRead extends Error {
  override message = 'the body was already read: mount Rowcast before any body parser';
}

/** By the one who sends it. */
export class BrokenOff extends Error {
  override message = 'the body broke off';
}

interface Reading {
  max: number;
  share: Share;
  tap: ((chunk: Uint8Array) => void) | undefined;
}

/** No body of ours is larger: it is a value of SQLite's, which holds up to a thousand million bytes. */
const SEEN_BYTES_MAX = 1_000_000_000;

async function readRequest(request: Request, reading: Reading): Promise<BodyRead> {
  // A middleware before us (Hono's validators) has taken the body; 400 would be a verdict on a batch that nobody has seen.
  if (request.bodyUsed || request.body?.locked) throw new AlreadyRead();
  if (!request.body) return new Uint8Array();
  return collect(request.body as unknown as AsyncIterable<Uint8Array>, request.headers.get('content-length'), reading);
}

async function readMessage(request: IncomingMessage, reading: Reading): Promise<BodyRead> {
  // A body parser before us (express.json) has consumed the stream; what it made of it is no longer exact.
  if (request.readableEnded) throw new AlreadyRead();
  return collect(request as AsyncIterable<Uint8Array>, request.headers['content-length'], reading);
}

async function collect(
  chunks: AsyncIterable<Uint8Array>,
  announced: string | null | undefined,
  { max, share, tap }: Reading,
): Promise<BodyRead> {
  if (!tap && Number(announced ?? 0) > max) return 'too-large';
  let parts: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of chunks) {
      size += chunk.byteLength;
      if (size > (tap ? SEEN_BYTES_MAX : max)) return 'too-large';
      tap?.(chunk);
      if (size > max) {
        parts = [];
        share.release();
        continue;
      }
      if (!share.take(chunk.byteLength)) return 'no-room';
      parts.push(chunk);
    }
  } catch {
    throw new BrokenOff();
  }
  if (size > max) return 'too-large';
  return parts.length === 1 ? (parts[0] as Uint8Array) : Buffer.concat(parts);
}
