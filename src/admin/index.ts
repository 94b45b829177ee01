/** `rowcast/admin`: the operator's routes under `/_rowcast/api`, for a server of your own. Never mount them where peers can reach them. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type Answer, toHandler, toListener } from '../http/bridge.ts';
import type { Administered } from './administered.ts';
import { type AdminOptions, administer } from './answer.ts';

export type { Administered, Members } from './administered.ts';
export type { AdminOptions } from './answer.ts';

const NOT_FOUND = { status: 404, headers: { 'content-type': 'text/plain' }, body: 'not found' };

export function createAdminHandler(
  subject: Administered,
  options: AdminOptions = {},
): (request: Request) => Promise<Response> {
  const answer = administer(subject, options);
  return toHandler(async (incoming) => (await answer(incoming)) ?? NOT_FOUND);
}

export function createAdminListener(
  subject: Administered,
  options: AdminOptions = {},
  guard: (answer: Answer) => Answer = (answer) => answer,
): (request: IncomingMessage, response: ServerResponse) => void {
  const answer = administer(subject, options);
  return toListener(guard(async (incoming) => (await answer(incoming)) ?? NOT_FOUND));
}
