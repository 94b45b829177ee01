/**
 * Nodes with keys. Either somebody is on every way who sees everything, can say anything and has no key, while the key is
 * exchanged for another one; or the keys are rolled out, one machine after the other, with nobody in between.
 *
 * What counts is what counts everywhere: nothing is lost, and nothing is set aside that no peer has refused. An answer that
 * the enemy has made, changed, kept or taken from elsewhere is none; so no refusal of his is noted as one.
 */
import type { AuthOptions } from '../../src/auth/index.ts';
import type { Fetch } from '../../src/send/transport.ts';
import { NODE_ID_HEADER, ROWCAST_HEADER, SYNC_PATH } from '../../src/wire/protocol.ts';
import type { Machine, Surroundings } from './machine.ts';
import type { Request } from './network.ts';
import { lengthen, type Plan } from './plan.ts';
import { type Random, stream } from './random.ts';

type Answer = Awaited<ReturnType<Fetch>>;

export type KeysPlan = 'none' | 'enemy' | 'roll-out';

/** Whether a seed is such a schedule; and makes it one. They are few: signing takes time. */
export function planKeys(plan: Plan, likely: number): void {
  const random = stream(plan.seed, 'keys');
  if (plan.lives || plan.futures || !random.chance(likely)) return;
  plan.keys = random.chance(0.75) ? 'enemy' : 'roll-out';
  // Headers that a signature covers cannot be taken away from a request.
  plan.plain = false;
  plan.pairs = true;
  // Then he is there, too.
  if (random.chance(0.6)) plan.verifies = true;
  // What is refused again and again is refused with pauses in between that are Rowcast's own.
  plan.troubleMs += 1_500;
  lengthen(plan, { writes: 6 });
}

/** Statuses that a peer with keys gives to those who are no peers, or not now: never a refusal of changes. */
export const TURNED_AWAY: ReadonlySet<number> = new Set([401, 403, 425, 429]);

const OLD = { id: 'k1', secret: 'cm93Y2FzdCB0ZXN0IHZlY3RvciBzZWNyZXQgbm8uIDE=' };
const NEW = { id: 'k2', secret: 'YW5vdGhlciB0ZXN0IHNlY3JldCwgMzIgYnl0ZXMgbG9uZw==' };

/** What every machine has, one step after the other. All are at one before any goes to the next. */
const STEPS: Record<Exclude<KeysPlan, 'none'>, (AuthOptions | undefined)[]> = {
  enemy: [{ keys: [OLD] }, { keys: [OLD, NEW] }, { keys: [NEW, OLD] }, { keys: [NEW] }],
  'roll-out': [undefined, { keys: [OLD], mode: 'accept' }, { keys: [OLD], mode: 'require' }],
};

export class Keys {
  readonly #world: Surroundings;
  readonly #machines: Machine[];
  readonly #random: Random;
  readonly #steps: (AuthOptions | undefined)[];

  constructor(world: Surroundings, machines: Machine[]) {
    this.#world = world;
    this.#machines = machines;
    this.#random = stream(world.plan.seed, 'key exchange');
    this.#steps = STEPS[world.plan.keys as 'enemy' | 'roll-out'];
  }

  /** Before anything runs. */
  plan(): void {
    const { timeline, plan } = this.#world;
    const each = plan.troubleMs / this.#steps.length;
    // Who answers at a URL is said beforehand: the first answer on such ways may be anybody's who has the key.
    const peerIds = Object.fromEntries(this.#machines.map(({ url, id }) => [url, id]));
    const steps = this.#steps.map((auth) => auth && (plan.keys === 'enemy' ? { ...auth, peerIds } : auth));
    for (const machine of this.#machines) machine.auth = steps[0];
    steps.slice(1).forEach((auth, i) => {
      for (const machine of this.#machines) {
        const atRunTime = this.#random.chance(0.6);
        timeline.in((i + 0.1 + 0.8 * this.#random.next()) * each, () => this.#give(machine, auth, atRunTime));
      }
    });
  }

  #give(machine: Machine, auth: AuthOptions | undefined, atRunTime: boolean): void {
    const had = machine.auth;
    machine.auth = auth;
    this.#world.trace(`${machine.name} has ${auth?.keys.map(({ id }) => id).join(', ')}`);
    // A second process on the same file is told as well.
    const running = [machine.process, machine.second].filter((one) => one !== undefined && !one.dead);
    if (atRunTime && had && auth && machine.process && running.every((one) => one?.configure({ auth }))) return;
    machine.crash();
    machine.start();
  }
}

const TRICKS = [
  'forge-ack',
  'forge-refusal',
  'replay-answer',
  'swap-answer',
  'strip-answer',
  'change-answer',
  'change-request',
  'claim',
  'replay-request',
  'misroute',
] as const;

/** What comes to something only where it is done again and again. */
const PATIENT = ['forge-refusal', 'replay-answer'] as const;

/** What he does with a request, or with what is answered to it. */
export interface Met {
  trick: (typeof TRICKS)[number];
  /** He answers himself, and nothing is delivered. */
  instead?: Answer;
  /** What is delivered in place of it. */
  request?: Request;
  /** What he delivers besides. */
  also?: Request;
  answer?: (given: Answer) => Answer;
}

const KEPT_MAX = 30;

export class Enemy {
  readonly #machines: Machine[];
  readonly #rate: number;
  /** What he does most of the time: a change is given up after five refusals, and not after one. */
  readonly #favourite: Met['trick'];
  readonly #answers = new Map<string, Answer[]>();
  readonly #requests = new Map<string, Request[]>();

  constructor(seed: number, machines: Machine[]) {
    this.#machines = machines;
    const random = stream(seed, 'enemy');
    this.#rate = random.pick([0.15, 0.5, 0.85, 0.85]);
    this.#favourite = random.pick([...TRICKS, ...PATIENT, ...PATIENT]);
  }

  /** An answer that passes by. */
  sees(link: string, path: string, answer: Answer): void {
    keep(this.#answers, `${link} ${path}`, answer);
  }

  meet(request: Request, link: string): Met | undefined {
    const { random } = request;
    const [drawn, other] = [random.next(), random.pick([...TRICKS])];
    const trick = random.chance(0.8) ? this.#favourite : other;
    const answers = this.#answers.get(`${link} ${request.path}`) ?? [];
    const requests = this.#requests.get(link) ?? [];
    const met = drawn < this.#rate ? this.#play(trick, request, { answers, requests }) : undefined;
    if (request.body) keep(this.#requests, link, request);
    return met && { ...met, trick };
  }

  #play(
    trick: Met['trick'],
    request: Request,
    { answers, requests }: { answers: Answer[]; requests: Request[] },
  ): Omit<Met, 'trick'> | undefined {
    const { random, batch, to, body } = request;
    const forged = (status: number, said: object): Answer => {
      const headers = { get: (name: string) => (name === NODE_ID_HEADER ? to.id : null) };
      return { status, text: () => Promise.resolve(JSON.stringify(said)), headers };
    };
    switch (trick) {
      case 'forge-ack':
        return { instead: forged(200, { ok: true, node_id: to.id, applied: 1, ack: batch.batch_id }) };
      case 'forge-refusal':
        return { instead: forged(random.pick([400, 409, 413, 422]), { error: 'never' }) };
      case 'replay-answer':
        return answers.length === 0 ? undefined : { instead: random.pick(answers) };
      case 'swap-answer':
        return answers.length === 0 ? undefined : { answer: () => random.pick(answers) };
      case 'strip-answer':
        return { answer: ({ status, text }) => ({ status, text, headers: { get: () => null } }) };
      case 'change-answer': {
        if (request.path !== SYNC_PATH) return { answer: withAnotherDigit };
        const said = JSON.stringify({ applied: 0, ack: batch.batch_id + random.pick([0, 1]) });
        return { answer: (given) => ({ ...given, status: 200, text: () => Promise.resolve(said) }) };
      }
      case 'change-request':
        return body && { request: { ...request, body: changed(body) } };
      case 'claim': {
        const said = request.headers[ROWCAST_HEADER]?.replace(/; t=(\d+)/, (_, t) => `; t=${Number(t) + 1_000}`) ?? '';
        return { request: { ...request, headers: { ...request.headers, [ROWCAST_HEADER]: said } } };
      }
      case 'replay-request':
        return requests.length === 0 ? undefined : { also: random.pick(requests) };
      case 'misroute': {
        const others = this.#machines.filter((other) => other !== to && other !== request.from.machine);
        return others.length === 0 ? undefined : { request: { ...request, to: random.pick(others) } };
      }
    }
  }
}

function keep<T>(kept: Map<string, T[]>, link: string, one: T): void {
  const all = kept.get(link) ?? [];
  kept.set(link, [...all, one].slice(-KEPT_MAX));
}

/** A digit for a digit: what is still JSON, and still a batch, is the worse forgery. */
function changed(body: Uint8Array): Uint8Array {
  return new TextEncoder().encode(anotherDigit(new TextDecoder().decode(body)));
}

function withAnotherDigit(answer: Answer): Answer {
  return { ...answer, text: async () => anotherDigit(await answer.text()) };
}

function anotherDigit(text: string): string {
  return text.replace(/\d(?=\D*$)/, (digit) => String((Number(digit) + 1) % 10));
}
