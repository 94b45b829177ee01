/** `rowcast/http`: `/sync` and `/health`, as a Web-standard handler and as a listener for node:http. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { toHandler, toListener } from './bridge.ts';
import { type HttpOptions, type Replica, respond } from './respond.ts';

export type { HttpOptions, Replica } from './respond.ts';

/** `Request -> Response`, for Bun.serve, Hono and everything else that speaks the Web's types. */
export function createHandler(manager: Replica, options: HttpOptions = {}): (request: Request) => Promise<Response> {
  return toHandler((incoming) => respond(manager, options, incoming));
}

/** For `http.createServer(listener)`, and for Express before any body parser. */
export function createListener(
  manager: Replica,
  options: HttpOptions = {},
): (request: IncomingMessage, response: ServerResponse) => void {
  return toListener((incoming) => respond(manager, options, incoming));
}
