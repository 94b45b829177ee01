/** A comparison that was asked for from outside: it takes longer than a request should, so it is begun and looked at. */
import type { VerifyOptions, VerifyResult } from '../compare/verify.ts';
import { messageOf } from '../errors.ts';
import type { Administered } from './administered.ts';
import { BadRequest, type Body } from './body.ts';

export interface VerifyState {
  /** Which comparison of this process; 0 before the first. */
  number: number;
  running: boolean;
  /** Where it is. */
  at?: { peer: string; table: string; rows: number; differences: number } | undefined;
  results?: VerifyResult[] | undefined;
  /** Why it came to nothing. */
  error?: string | undefined;
}

export class VerifyJob {
  readonly #subject: Administered;
  #state: VerifyState = { number: 0, running: false };

  constructor(subject: Administered) {
    this.#subject = subject;
  }

  get state(): VerifyState {
    return this.#state;
  }

  /** One at a time: somebody who asks during one is told so. */
  begin(body: Body): VerifyState {
    const { peer, options } = asked(body);
    if (this.#state.running) throw new BadRequest('a comparison is under way already: wait for its end');
    const state: VerifyState = { number: this.#state.number + 1, running: true };
    this.#state = state;
    const onProgress: VerifyOptions['onProgress'] = (at) => {
      state.at = at;
    };
    this.#subject.verify(peer, { ...options, onProgress }).then(
      (results) => Object.assign(state, { running: false, results }),
      (error) => Object.assign(state, { running: false, error: messageOf(error) }),
    );
    return state;
  }
}

/** Checked here, before anything begins: what is wrong later would only be seen by whoever looks. */
function asked({ peer, tables, repair = false, limit = 100, ...rest }: Body): {
  peer: string | undefined;
  options: VerifyOptions;
} {
  const unknown = Object.keys(rest)[0];
  if (unknown !== undefined) throw new BadRequest(`"${unknown}" is not known; there are peer, tables, repair, limit`);
  if (peer !== undefined && typeof peer !== 'string') throw new BadRequest('"peer" must be a URL');
  if (tables !== undefined && !(Array.isArray(tables) && tables.every((one) => typeof one === 'string'))) {
    throw new BadRequest('"tables" must be an array of names');
  }
  if (typeof repair !== 'boolean') throw new BadRequest('"repair" must be true or false');
  if (!Number.isSafeInteger(limit) || (limit as number) < 0) throw new BadRequest('"limit" must be a whole number');
  return { peer, options: { ...(tables && { tables: tables as string[] }), repair, limit: limit as number } };
}
