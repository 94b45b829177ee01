/**
 * Somebody on the way who sees everything, can say anything, and has no key: an HTTP proxy that, from a seed, forges
 * acknowledgements and refusals, replays what it has seen, changes, swaps, delays, misroutes and truncates.
 */
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Random } from '../support/model.ts';

export const ATTACKS = [
  'pass',
  'delay',
  'forge an acknowledgement',
  'forge a refusal',
  'replay an answer',
  'replay a request',
  'change the request',
  'make the request too large',
  'add a header',
  'change the answer',
  'take the signature away',
  'misroute',
  'truncate the request',
  'truncate the answer',
  'drop',
] as const;
export type Attack = (typeof ATTACKS)[number];

/** What the nodes take; no batch of theirs is near it. */
export const BODY_BYTES_MAX = 1_000_000;

interface Message {
  method: string;
  path: string;
  headers: http.IncomingHttpHeaders;
  body: Buffer;
}

interface Reply {
  status: number;
  headers: http.IncomingHttpHeaders;
  body: Buffer;
}

export class ManInTheMiddle {
  readonly done = new Map<Attack, number>();
  /** How many batches he has met before he was healed. */
  batches = 0;
  readonly #target: () => string;
  readonly #elsewhere: () => string;
  readonly #random: Random;
  readonly #attacks: readonly Attack[];
  readonly #server = http.createServer(
    (request, response) => void this.#serve(request, response).catch(() => response.destroy()),
  );
  readonly #seen: Message[] = [];
  readonly #replies: Reply[] = [];
  #healed = false;

  constructor(target: () => string, elsewhere: () => string, random: Random, attacks: readonly Attack[] = ATTACKS) {
    this.#target = target;
    this.#elsewhere = elsewhere;
    this.#random = random;
    this.#attacks = attacks;
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  heal(): void {
    this.#healed = true;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #serve(incoming: http.IncomingMessage, outgoing: http.ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const message: Message = {
      method: incoming.method ?? 'GET',
      path: incoming.url ?? '/',
      headers: incoming.headers,
      body: Buffer.concat(chunks),
    };
    const attack = this.#healed ? 'pass' : this.#random.pick([...this.#attacks]);
    this.done.set(attack, (this.done.get(attack) ?? 0) + 1);
    if (!this.#healed && batchId(message) > 0) this.batches += 1;
    const reply = await this.#attack(attack, message, outgoing);
    if (message.method === 'POST' && this.#seen.length < 500) this.#seen.push(message);
    if (!reply) return void outgoing.destroy();
    if (attack === 'pass' && this.#replies.length < 500) this.#replies.push(reply);
    outgoing.writeHead(reply.status, clean(reply.headers, reply.body)).end(reply.body);
  }

  async #attack(attack: Attack, message: Message, outgoing: http.ServerResponse): Promise<Reply | undefined> {
    const random = this.#random;
    switch (attack) {
      case 'pass':
        return forward(this.#target(), message);
      case 'delay':
        await new Promise((resolve) => setTimeout(resolve, random.below(40)));
        return forward(this.#target(), message);
      case 'forge an acknowledgement':
        return forged(
          200,
          message.method === 'GET' ? { ok: true, node_id: 'b' } : { applied: 1, ack: batchId(message) },
        );
      case 'forge a refusal':
        return forged(random.pick([400, 409, 413, 422]), { error: 'never' });
      case 'replay an answer':
        return this.#replies.length === 0 ? undefined : random.pick(this.#replies);
      case 'replay a request': {
        for (let i = 0; i < 3 && this.#seen.length > 0; i++) await forward(this.#target(), random.pick(this.#seen));
        if (this.#seen.length > 0) await forward(this.#elsewhere(), random.pick(this.#seen));
        return forward(this.#target(), message);
      }
      case 'change the request':
        return forward(this.#target(), { ...message, body: flipped(message.body, random) });
      case 'make the request too large': {
        const body = Buffer.concat([message.body, Buffer.alloc(BODY_BYTES_MAX, ' ')]);
        return forward(this.#target(), message.method === 'GET' ? message : { ...message, body });
      }
      case 'add a header': {
        const [name, value] = random.pick([
          ['x-send-again', '*'],
          ['x-rowcast', 'id=b; inc=5f0c1e9a77b2d310; boot=9-21d0b7e4; t0=812000; t=840000'],
          ['content-encoding', 'identity'],
        ]) as [string, string];
        return forward(this.#target(), { ...message, headers: { ...message.headers, [name]: value } });
      }
      case 'change the answer': {
        const reply = await forward(this.#target(), message);
        return { ...reply, body: flipped(reply.body, random) };
      }
      case 'take the signature away': {
        const { headers, ...reply } = await forward(this.#target(), message);
        const { signature: _, 'signature-input': __, ...rest } = headers;
        return { ...reply, headers: rest };
      }
      case 'misroute':
        return forward(this.#elsewhere(), message);
      case 'truncate the request':
        return forward(this.#target(), { ...message, body: message.body.subarray(0, message.body.length >> 1) });
      case 'truncate the answer': {
        const { status, headers, body } = await forward(this.#target(), message);
        outgoing.writeHead(status, { ...clean(headers, body), 'content-length': String(body.length) });
        outgoing.write(body.subarray(0, body.length >> 1));
        return undefined;
      }
      case 'drop':
        return undefined;
    }
  }
}

function forward(target: string, { method, path, headers, body }: Message): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const { host: _, connection: __, ...rest } = headers;
    const sent = method === 'GET' ? rest : { ...rest, 'content-length': String(body.length) };
    const outgoing = http.request(target + path, { method, headers: sent, agent: false }, (incoming) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk) => chunks.push(chunk));
      incoming.on('error', reject);
      incoming.on('end', () =>
        resolve({ status: incoming.statusCode ?? 502, headers: incoming.headers, body: Buffer.concat(chunks) }),
      );
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

function clean(headers: http.IncomingHttpHeaders, body: Buffer): http.OutgoingHttpHeaders {
  const { connection: _, 'transfer-encoding': __, 'keep-alive': ___, ...rest } = headers;
  return { ...rest, 'content-length': String(body.length) };
}

function forged(status: number, body: object): Reply {
  const headers = { 'content-type': 'application/json', 'x-node-id': 'b', 'x-any-order': '1', 'x-apply-ms': '1' };
  return { status, headers, body: Buffer.from(JSON.stringify(body)) };
}

function batchId({ body }: Message): number {
  return Number(/"batch_id":(\d+)/.exec(body.toString())?.[1] ?? 0);
}

function flipped(body: Buffer, random: Random): Buffer {
  if (body.length === 0) return body;
  const changed = Buffer.from(body);
  // Digits for digits: what is still JSON, and still a batch, is the worse forgery.
  const digits = [...changed.keys()].filter((i) => (changed[i] as number) >= 0x30 && (changed[i] as number) <= 0x39);
  const at = random.pick(digits.length > 0 ? digits : [...changed.keys()]);
  changed[at] = (changed[at] as number) ^ 1;
  return changed;
}
