/**
 * Which edges of a group this process serves. Nothing is leased: every process that is alive has a number for every edge, and
 * the highest one serves it, so only the edges of one that has gone, or has come, change hands. All see that at about the
 * same time. Two that serve an edge for a moment, or none, cost traffic or time, and nothing else (I7).
 */
import { type Clock, passedSince } from '../clock.ts';
import { messageOf } from '../errors.ts';
import type { EdgeRoster } from './roster.ts';
import { GROUP_TTL_MS, type HubGroup, type HubStore } from './store.ts';

export interface OwnershipOptions {
  store: HubStore;
  group: HubGroup;
  roster: EdgeRoster;
  clock: Clock;
}

const BEAT_MS = 500;
/** Twice as long as the others wait: a machine with much to do is late now and then. */
const UNSEEN_MS = 2 * GROUP_TTL_MS;

export class Ownership {
  readonly #o: OwnershipOptions;
  readonly #refuseIfStopped: () => void;
  readonly #stop = new AbortController();
  #failed: string | undefined;
  /** When it was last seen. */
  #beatenAt: number | undefined;
  #beating: Promise<void> | undefined;
  #settling: Promise<unknown> = Promise.resolve();
  /** Those that were alive at the latest look, and those that were at two in a row. */
  #seen = '';
  #members: string[] = [];
  /** Of which members and roster the present edges are. */
  #settled = '';

  constructor(options: OwnershipOptions, refuseIfStopped: () => void) {
    this.#o = options;
    this.#refuseIfStopped = refuseIfStopped;
  }

  /** What keeps this process from being seen. A statement that waits for somebody's lock has not failed, and is as bad. */
  get problem(): string | undefined {
    if (this.#failed !== undefined) return `this hub is not seen by its group: ${this.#failed}`;
    const isLate = this.#beatenAt !== undefined && passedSince(this.#o.clock, this.#beatenAt) > UNSEEN_MS;
    return isLate ? 'this hub is not seen by its group: the store has given no answer for seconds' : undefined;
  }

  start(): void {
    this.#beating ??= this.#beatOn();
  }

  /** The others take over as soon as they have seen it. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all([this.#beating, this.#settling]);
    await this.#o.group.leave().catch(() => {});
  }

  /** Resolves when this process serves its share of the edges that there are now. */
  async look(): Promise<void> {
    this.#refuseIfStopped();
    await this.#beat(true);
  }

  async #beatOn(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        await this.#beat(false);
        this.#failed = undefined;
      } catch (error) {
        this.#failed = messageOf(error);
      }
      // Until it has been seen twice it serves nobody.
      if (this.#members.length > 0 || this.#failed !== undefined) await this.#o.clock.sleep(BEAT_MS, signal);
    }
  }

  async #beat(anyway: boolean): Promise<void> {
    const { members, roster } = await this.#o.group.beat(GROUP_TTL_MS);
    this.#beatenAt = this.#o.clock.now();
    const seen = JSON.stringify(members);
    // Somebody who is late once has not gone.
    if (seen === this.#seen || (anyway && this.#members.length === 0)) this.#members = members;
    this.#seen = seen;
    if (this.#members.length === 0) return;
    const state = JSON.stringify([this.#members, roster]);
    if (!anyway && state === this.#settled) return;
    const done = this.#settling.then(() => this.#settle());
    this.#settling = done.catch(() => {});
    await done;
    this.#settled = state;
  }

  async #settle(): Promise<void> {
    if (this.#stop.signal.aborted) return;
    const { store, group, roster } = this.#o;
    const members = this.#members;
    const rows = await store.edges();
    await roster.settle(rows.filter(({ url }) => ownerOf(url, members) === group.instance));
  }
}

/** The member with the highest number for this edge. */
export function ownerOf(url: string, members: string[]): string | undefined {
  let [owner, most]: [string | undefined, number] = [undefined, -1];
  for (const member of members) {
    const number = hash(`${member}\n${url}`);
    if (number > most) [owner, most] = [member, number];
  }
  return owner;
}

/** FNV-1a, and a last mix: addresses that differ in one digit must not go to one member. */
function hash(text: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
