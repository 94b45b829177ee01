/** `rowcast/admin`: the operator's routes under `/_rowcast/api` and the console at `/_rowcast/`, for a server of your own. Never mount them where peers can reach them. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { toHandler, toListener } from '../http/bridge.ts';
import type { Administered } from './administered.ts';
import { type AdminOptions, administer, routesOf } from './answer.ts';

export type { Administered, Members } from './administered.ts';
export type { AdminOptions } from './answer.ts';

export function createAdminHandler(
  subject: Administered,
  options: AdminOptions = {},
): (request: Request) => Promise<Response> {
  return toHandler(administer(routesOf(subject, options), () => options.token));
}

export function createAdminListener(
  subject: Administered,
  options: AdminOptions = {},
): (request: IncomingMessage, response: ServerResponse) => void {
  return toListener(administer(routesOf(subject, options), () => options.token));
}
