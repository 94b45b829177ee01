/** Messages that are signed and then tampered with, and the keys for them. */
import type { AuthOptions } from '../../src/auth/index.ts';
import {
  type AnswerToSign,
  createKeyring,
  type Keyring,
  type Sender,
  type SentRequest,
  signAnswer,
  signRequest,
  type Verified,
  type VerifiedAnswer,
  verifyAnswer,
  verifyRequest,
} from '../../src/auth/index.ts';

export const SECRET = 'cm93Y2FzdCB0ZXN0IHZlY3RvciBzZWNyZXQgbm8uIDE=';
export const OTHER_SECRET = 'YW5vdGhlciB0ZXN0IHNlY3JldCwgMzIgYnl0ZXMgbG9uZw==';
export const NOW = 1_700_000_000_000;
export const NONCE = 'AAECAwQFBgcICQoLDA0ODw';

export const BODY =
  '{"batch_id":3,"changes":[{"op":"INSERT","table":"items","row":{"id":"x","name":"first","value":1,' +
  '"created_at":1700000000000,"updated_at":1700000000000},"old_id":null}]}';

export function keys(auth: Partial<AuthOptions> = {}): Keyring {
  return createKeyring({ keys: [{ id: 'k1', secret: SECRET }], ...auth });
}

export type Headers = Record<string, string>;

/** A request as it travels. */
export interface Message {
  method: string;
  path: string;
  headers: Headers;
  body: Uint8Array;
}

export interface Reply {
  status: number;
  headers: Headers;
  body: Uint8Array;
}

export const INTRODUCTION = 'id=a; inc=5f0c1e9a77b2d310; boot=7-21d0b7e4; t0=812; t=840';

export function request(
  given: Partial<Message> = {},
  { keyring = keys(), nonce, now = NOW }: { keyring?: Keyring; nonce?: string; now?: number } = {},
): { message: Message; sent: SentRequest } {
  const { method = 'POST', path = '/sync', body = Buffer.from(BODY) } = given;
  const headers = given.headers ?? { 'content-type': 'application/json', 'x-node-id': 'a' };
  const sent = signRequest(keyring, { method, path, headers, body }, { now, ...(nonce && { nonce }) });
  return { message: { method, path, headers: { ...headers, ...sent.headers }, body }, sent };
}

export function received(message: Message, keyring: Keyring = keys(), now: number = NOW): Verified {
  const { method, path, headers } = message;
  return verifyRequest(keyring, { method, path, header: (name) => headers[name] }, now);
}

export function senderOf(message: Message, keyring: Keyring = keys()): Sender {
  const verified = received(message, keyring);
  if (verified.kind !== 'verified') throw new Error(`not verified: ${JSON.stringify(verified)}`);
  return verified.sender;
}

export function reply(sender: Sender, given: Partial<AnswerToSign> = {}, now: number = NOW): Reply {
  const { status = 200, headers = { 'x-node-id': 'b' }, body = '{"applied":1,"ack":3}' } = given;
  const added = signAnswer(sender, { status, headers, body }, now);
  return { status, headers: { ...headers, ...added }, body: Buffer.from(body) };
}

export function answered(sent: SentRequest, { status, headers, body }: Reply): VerifiedAnswer {
  return verifyAnswer(sent, { status, header: (name) => headers[name], body });
}
