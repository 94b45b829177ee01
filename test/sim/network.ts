/** The network between the machines: it delivers late, twice, one way only, or not at all, and what comes back may be anything. */
import type { Fetch, Get } from '../../src/send/transport.ts';
import {
  ACCEPT_HEADER,
  ANY_ORDER_HEADER,
  APPLY_MS_HEADER,
  FETCH_PATH,
  HEALTH_PATH,
  ROWCAST_HEADER,
  SYNC_PATH,
} from '../../src/wire/protocol.ts';
import type { WireChange } from '../support/model.ts';
import { batchIn } from '../support/tabular.ts';
import { type Enemy, TURNED_AWAY } from './keys.ts';
import type { Machine, Process } from './machine.ts';
import { inOldNames } from './migration.ts';
import type { Fault, Plan } from './plan.ts';
import { exponential, type Random, stream } from './random.ts';
import type { Timeline } from './timeline.ts';

type Answer = Awaited<ReturnType<Fetch>>;

export interface Request {
  from: Process;
  to: Machine;
  path: string;
  body: Uint8Array | undefined;
  headers: Record<string, string>;
  /** The changes it carries, as a gateway or an observer would read them. */
  batch: { batch_id: number; changes: WireChange[] };
  random: Random;
  /** Nobody waits for the answer any more. */
  givenUp(): boolean;
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
  /** Somebody on every way. */
  enemy?: Enemy | undefined;
  /** A batch was committed by the machine that received it. */
  onCommitted(machine: Machine, request: Committed): void;
}

export interface Committed {
  body: Uint8Array;
  changes: WireChange[];
  /** Nobody waits for its answer any more. */
  givenUp: boolean;
}

/** How an answer says that the tabular form is read. */
const TABULAR = '; reads=tabular';

/** The name of the row that a schedule's gateways refuse, where they do. */
export const POISON = 'poison';

export class Network {
  /** While it is false, nothing goes wrong. */
  troubled = true;
  /** Though nothing else goes wrong, the enemy is there. */
  watched = false;
  /** Answers by which a peer has refused a batch, by `<from> <to>`; nothing else may lead to a dead letter. */
  readonly refusals = new Map<string, number>();
  /** `<from> <to>`: nothing gets through in this direction. */
  readonly cut = new Set<string>();
  readonly #machines = new Map<string, Machine>();
  readonly #o: NetworkOptions;
  readonly #counts = new Map<string, number>();
  #underWay = 0;
  /** Questions who somebody is that have no answer yet, and may never have one. */
  readonly #questions = new Set<() => boolean>();

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

  /** Somebody waits to be told who another is, and asks nobody there again until then. */
  get isAsking(): boolean {
    for (const givenUp of this.#questions) if (givenUp()) this.#questions.delete(givenUp);
    return this.#questions.size > 0;
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

  /** As the checks know it. */
  #inOldNames(change: WireChange): WireChange {
    const { faults, migration } = this.#o.plan;
    return inOldNames(change, faults.schema === undefined ? undefined : migration);
  }

  #send(from: Process, url: string, path: string, { body, headers, signal }: Sent): Promise<Answer> {
    const to = this.at(url.slice(0, -path.length));
    const link = `${from.machine.name} ${to.name}`;
    const count = (this.#counts.get(link) ?? 0) + 1;
    this.#counts.set(link, count);
    const random = stream(this.#o.plan.seed, 'request', link, count);
    const isBatch = body !== undefined && path === SYNC_PATH;
    const batch: Request['batch'] = isBatch ? (batchIn(body) as Request['batch']) : { batch_id: 0, changes: [] };
    batch.changes = batch.changes.map((change) => this.#inOldNames(change));
    const { [ROWCAST_HEADER]: _, ...plain } = headers;
    const givenUp = (): boolean => from.dead || signal.aborted;
    if (path === HEALTH_PATH) this.#questions.add(givenUp);
    const told = this.#o.plan.plain ? plain : headers;
    const request: Request = { from, to, path, body, headers: told, batch, random, givenUp };
    return new Promise((resolve, reject) => {
      const back = (answer: Answer | Error | undefined): void => {
        if (givenUp() || !answer) return;
        this.#questions.delete(givenUp);
        from.machine.looks.touch();
        if (answer instanceof Error) reject(answer);
        else resolve(answer);
      };
      signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true });
      this.#later(this.#latency(random), () => this.#arrive(request, link, back));
      if (this.#happens('duplicate', random)) {
        const again = { ...request, givenUp: () => true };
        this.#later(this.#latency(random) * 3, () => this.#arrive(again, link, () => {}));
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
    else this.#meet(request, link, instead(), answer);
  }

  /** It passes by the enemy, where there is one. */
  #meet(
    request: Request,
    link: string,
    instead: Answer | undefined,
    answer: (what: string, given: Answer | Error | undefined) => void,
  ): void {
    const isMet = (this.troubled || this.watched) && !instead;
    const met = isMet ? this.#o.enemy?.meet(request, link) : undefined;
    if (!met) {
      this.#arriveWhole(request, link, instead, answer);
      return;
    }
    const { also } = met;
    if (also?.to.process) void this.#deliver(also, also.to.process, link, () => {});
    this.#arriveWhole(met.request ?? request, link, met.instead, (what, given) => {
      const said = given && !(given instanceof Error) ? (met.answer?.(given) ?? given) : given;
      answer(`${what}, ${met.trick}`, said);
    });
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
      this.#o.onCommitted(to, { body, changes: batch.changes, givenUp: request.givenUp() });
    // What it has asked for it applies as what it is sent.
    if (path === FETCH_PATH && reply.status === 200)
      from.machine.fetched.push(
        ...JSON.parse(reply.body).changes.map((change: WireChange) => this.#inOldNames(change)),
      );
    const lost = this.#happens('lost-answer', random);
    const torn = this.#happens('torn', random);
    const emptied = body !== undefined && this.#happens('empty', random);
    if (process.dead) answer('dies while answering', new Error('connection reset'));
    else if (lost) answer(`${reply.status}, answer lost`, broken(random));
    else if (torn) answer(`${reply.status}, answer torn`, { status: reply.status, text: tornText });
    else {
      const { plan, enemy } = this.#o;
      const isAboutChanges = reply.status !== 413 && !TURNED_AWAY.has(reply.status);
      const refused = reply.status >= 400 && reply.status < 500 && isAboutChanges;
      if (refused && !emptied && path === SYNC_PATH) this.#note(link);
      // Not all of them: compressed bodies would be made by other threads, in no order that a seed decides.
      const told = (name: string): boolean =>
        !plan.plain &&
        (plan.keys === 'none'
          ? name === APPLY_MS_HEADER || name === ROWCAST_HEADER || (name === ANY_ORDER_HEADER && plan.pairs)
          : name !== ACCEPT_HEADER);
      const get = (name: string): string | null => {
        const said = told(name) ? (reply.headers[name] ?? null) : null;
        return name === ROWCAST_HEADER && !this.#readsTabular(to) ? (said?.replace(TABULAR, '') ?? null) : said;
      };
      const whole = { ...text(reply.status, reply.body), headers: { get } };
      enemy?.sees(link, path, whole);
      answer(`${reply.status}${emptied ? ', emptied' : ''}`, emptied ? text(200, '') : whole);
    }
  }

  /** Some machines are of a build that reads the plain form alone; who signs what it says is not one of them. */
  #readsTabular({ name }: Machine): boolean {
    const { seed, keys } = this.#o.plan;
    return keys !== 'none' || stream(seed, 'tabular', name).chance(0.7);
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

  /** What answers in a peer's place refuses; with keys that is nobody's word. */
  #refused(link: string): void {
    if (this.#o.plan.keys !== 'enemy') this.#note(link);
  }

  #note(link: string): void {
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
