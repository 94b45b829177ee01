/** The network between the machines: it delivers late, twice, one way only, or not at all, and what comes back may be anything. */
import type { Fetch, Get } from '../../src/send/transport.ts';
import {
  ANY_ORDER_HEADER,
  APPLY_MS_HEADER,
  FETCH_PATH,
  HEALTH_PATH,
  ROWCAST_HEADER,
  SYNC_PATH,
} from '../../src/wire/protocol.ts';
import type { WireChange } from '../support/model.ts';
import type { Machine, Process } from './machine.ts';
import { inOldNames } from './migration.ts';
import type { Fault, Plan } from './plan.ts';
import { exponential, type Random, stream } from './random.ts';
import type { Timeline } from './timeline.ts';

type Answer = Awaited<ReturnType<Fetch>>;

interface Request {
  from: Process;
  to: Machine;
  path: string;
  body: Uint8Array | undefined;
  headers: Record<string, string>;
  /** The changes it carries, as a gateway or an observer would read them. */
  batch: { batch_id: number; changes: WireChange[] };
  random: Random;
}

interface Sent {
  body: Uint8Array | undefined;
  headers: Record<string, string>;
  signal: AbortSignal;
}

export interface NetworkOptions {
  plan: Plan;
  timeline: Timeline;
  trace(line: string): void;
  /** A batch was committed by the machine that received it. */
  onCommitted(machine: Machine, request: { body: Uint8Array; changes: WireChange[]; from: string }): void;
}

/** The name of the row that a schedule's gateways refuse, where they do. */
export const POISON = 'poison';

export class Network {
  /** While it is false, nothing goes wrong. */
  troubled = true;
  /** Answers by which a peer has refused a batch, by `<from> <to>`; nothing else may lead to a dead letter. */
  readonly refusals = new Map<string, number>();
  /** `<from> <to>`: nothing gets through in this direction. */
  readonly cut = new Set<string>();
  readonly #machines = new Map<string, Machine>();
  readonly #o: NetworkOptions;
  readonly #counts = new Map<string, number>();
  #underWay = 0;

  constructor(options: NetworkOptions) {
    this.#o = options;
  }

  add(machine: Machine): void {
    this.#machines.set(machine.url, machine);
  }

  /** A machine is at another URL from now on. */
  move(machine: Machine, url: string): void {
    if (this.#machines.get(machine.url) === machine) this.#machines.delete(machine.url);
    machine.url = url;
    this.#machines.set(url, machine);
  }

  /** Requests that will still arrive somewhere. */
  get underWay(): number {
    return this.#underWay;
  }

  at(url: string): Machine {
    const machine = this.#machines.get(url);
    if (!machine) throw new Error(`there is no machine at ${url}`);
    return machine;
  }

  fetchOf(from: Process): Fetch {
    return (url, { body, headers, signal }) => {
      const path = url.slice(url.indexOf(SYNC_PATH));
      return this.#send(from, url, path, { body, headers, signal });
    };
  }

  getOf(from: Process): Get {
    return (url, { headers, signal }) => this.#send(from, url, HEALTH_PATH, { body: undefined, headers, signal });
  }

  #send(from: Process, url: string, path: string, { body, headers, signal }: Sent): Promise<Answer> {
    const to = this.at(url.slice(0, -path.length));
    const link = `${from.machine.name} ${to.name}`;
    const count = (this.#counts.get(link) ?? 0) + 1;
    this.#counts.set(link, count);
    const random = stream(this.#o.plan.seed, 'request', link, count);
    const isBatch = body !== undefined && path === SYNC_PATH;
    const batch = isBatch ? JSON.parse(new TextDecoder().decode(body)) : { batch_id: 0, changes: [] };
    batch.changes = batch.changes.map(inOldNames);
    const { [ROWCAST_HEADER]: _, ...plain } = headers;
    const request: Request = { from, to, path, body, headers: this.#o.plan.plain ? plain : headers, batch, random };
    return new Promise((resolve, reject) => {
      const back = (answer: Answer | Error | undefined): void => {
        if (from.dead || signal.aborted || !answer) return;
        if (answer instanceof Error) reject(answer);
        else resolve(answer);
      };
      signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true });
      this.#later(this.#latency(random), () => this.#arrive(request, link, back));
      if (this.#happens('duplicate', random)) {
        this.#later(this.#latency(random) * 3, () => this.#arrive(request, link, () => {}));
      }
    });
  }

  #later(ms: number, run: () => void): void {
    this.#underWay += 1;
    this.#o.timeline.in(ms, () => {
      this.#underWay -= 1;
      run();
    });
  }

  #arrive(request: Request, link: string, back: (answer: Answer | Error | undefined) => void): void {
    const { from, to, random, batch } = request;
    const answer = (what: string, given: Answer | Error | undefined): void => {
      this.#o.trace(`${link} ${request.path} #${batch.batch_id} x${batch.changes.length}: ${what}`);
      if (!given) return;
      this.#later(this.#latency(random), () => {
        if (this.cut.has(`${to.name} ${from.machine.name}`)) back(broken(random));
        else back(given);
      });
    };
    const instead = request.body && this.troubled ? () => this.#gateway(request, link) : () => undefined;
    if (this.cut.has(link)) answer('cut off', broken(random));
    else if (this.#happens('drop', random)) answer('dropped', broken(random));
    else if (this.#happens('hang', random)) answer('hangs', undefined);
    else this.#arriveWhole(request, link, instead(), answer);
  }

  #arriveWhole(
    request: Request,
    link: string,
    instead: Answer | undefined,
    answer: (what: string, given: Answer | Error | undefined) => void,
  ): void {
    const { process } = request.to;
    if (instead) answer(`gateway says ${instead.status}`, instead);
    else if (process) void this.#deliver(request, process, link, answer);
    else answer('nobody there', new Error('connection refused'));
  }

  async #deliver(
    request: Request,
    process: Process,
    link: string,
    answer: (what: string, given: Answer | Error | undefined) => void,
  ): Promise<void> {
    const { from, to, body, headers, path, batch, random } = request;
    const reply = await process.answer(path, body, batch.changes, headers);
    if (body && reply.committed && path === SYNC_PATH)
      this.#o.onCommitted(to, { body, changes: batch.changes, from: from.machine.name });
    // What it has asked for it applies as what it is sent.
    if (path === FETCH_PATH && reply.status === 200)
      from.machine.fetched.push(...JSON.parse(reply.body).changes.map(inOldNames));
    const lost = this.#happens('lost-answer', random);
    const torn = this.#happens('torn', random);
    const emptied = body !== undefined && this.#happens('empty', random);
    if (process.dead) answer('dies while answering', new Error('connection reset'));
    else if (lost) answer(`${reply.status}, answer lost`, broken(random));
    else if (torn) answer(`${reply.status}, answer torn`, { status: reply.status, text: tornText });
    else {
      const refused = reply.status >= 400 && reply.status < 500 && reply.status !== 413;
      if (refused && !emptied && path === SYNC_PATH) this.#refused(link);
      // Not all of them: compressed bodies would be made by other threads, in no order that a seed decides.
      const told = (name: string): boolean =>
        !this.#o.plan.plain &&
        (name === APPLY_MS_HEADER || name === ROWCAST_HEADER || (name === ANY_ORDER_HEADER && this.#o.plan.pairs));
      const get = (name: string): string | null => (told(name) ? (reply.headers[name] ?? null) : null);
      const whole = { ...text(reply.status, reply.body), headers: { get } };
      answer(`${reply.status}${emptied ? ', emptied' : ''}`, emptied ? text(200, '') : whole);
    }
  }

  /** What stands between the machines and answers in their place, without having passed anything on. */
  #gateway({ batch, random }: Request, link: string): Answer | undefined {
    const { faults } = this.#o.plan;
    if (faults['too-large'] !== undefined && batch.changes.length > faults['too-large']) return text(413, 'too large');
    if (faults.poison !== undefined && batch.changes.some(({ row }) => row?.name === POISON)) {
      this.#refused(link);
      return text(422, '{"error":"refused"}');
    }
    if (this.#happens('throttled', random)) return text(429, 'later');
    if (this.#happens('failing', random)) return text(random.pick([500, 502, 503, 404]), 'failed');
    if (this.#happens('html', random))
      return text(random.pick([200, 403, 422]), '<!doctype html><title>Welcome</title>');
    if (this.#happens('wrong-ack', random)) {
      this.#refused(link);
      const ack = batch.batch_id + random.pick([-1, 1, 1_000]);
      return text(200, JSON.stringify({ applied: batch.changes.length, ack }));
    }
    return undefined;
  }

  #refused(link: string): void {
    this.refusals.set(link, (this.refusals.get(link) ?? 0) + 1);
  }

  #happens(fault: Fault, random: Random): boolean {
    const rate = this.#o.plan.faults[fault];
    // Drawn in any case: what happens next must not depend on whether this could have happened.
    const drawn = random.next();
    return this.troubled && rate !== undefined && drawn < rate;
  }

  #latency(random: Random): number {
    const { delay } = this.#o.plan.faults;
    const usual = 1 + random.below(4);
    const extra = exponential(random);
    return delay === undefined || !this.troubled ? usual : usual + Math.round(extra * delay);
  }
}

/** A connection that breaks says so, or says nothing until the sender gives up. */
function broken(random: Random): Error | undefined {
  return random.chance(0.7) ? new Error('connection reset') : undefined;
}

function tornText(): Promise<string> {
  return Promise.reject(new Error('the answer broke off'));
}

function text(status: number, body: string): Answer {
  return { status, text: () => Promise.resolve(body) };
}
