/** `rowcast/http`: `/sync` and `/health` as one Web-standard handler, and the bridge to node:http. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Manager } from '../attach.ts';
import { type HttpOptions, respond } from './respond.ts';

export type { HttpOptions } from './respond.ts';

/** `Request -> Response`, for Bun.serve, Hono and everything else that speaks the Web's types. */
export function createHandler(manager: Manager, options: HttpOptions = {}): (request: Request) => Promise<Response> {
  return async (request) => {
    const answer = await respond(manager, options, {
      method: request.method,
      path: new URL(request.url).pathname,
      header: (name) => request.headers.get(name),
      read: (max) => readStream(request.body, max),
    });
    return new Response(request.method === 'HEAD' ? null : answer.body, {
      status: answer.status,
      headers: answer.headers,
    });
  };
}

/** For `http.createServer(listener)` and Express; without the cost of a Web Request around every message. */
export function createListener(
  manager: Manager,
  options: HttpOptions = {},
): (request: IncomingMessage, response: ServerResponse) => void {
  return (request, response) => {
    // Express strips the mount path from `url` and keeps the whole in `originalUrl`; either is relative.
    const path = (request.url ?? '/').split('?')[0] as string;
    respond(manager, options, {
      method: request.method ?? 'GET',
      path,
      header: (name) => request.headers[name] as string | undefined,
      read: (max) => readMessage(request, max),
    }).then(
      ({ status, headers, body }) => {
        // An unread remainder would otherwise be taken for the next request on this connection.
        if (!request.complete) response.setHeader('connection', 'close');
        response.writeHead(status, headers);
        response.end(request.method === 'HEAD' ? undefined : body);
      },
      () => {
        // The client went away in the middle of its body: there is nobody to answer.
        response.destroy();
      },
    );
  };
}

async function readStream(stream: ReadableStream<Uint8Array> | null, max: number): Promise<Uint8Array | 'too-large'> {
  if (!stream) return new Uint8Array();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of stream as unknown as AsyncIterable<Uint8Array>) {
    size += chunk.byteLength;
    if (size > max) return 'too-large';
    chunks.push(chunk);
  }
  return chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks);
}

async function readMessage(request: IncomingMessage, max: number): Promise<Uint8Array | 'too-large'> {
  // A body parser before us (express.json) has consumed the stream; what it made of it is no longer exact.
  if (request.readableEnded) throw new Error('the body was already read: mount Rowcast before any body parser');
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > max) return 'too-large';
    chunks.push(chunk);
  }
  return chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
}
