/** Nodes and hubs that grow old together: their tombstones, and who keeps them. */
import { TICK_MS } from '../../src/attach.ts';
import type { Config } from '../../src/index.ts';
import { readIntroduction } from '../../src/wire/introduction.ts';
import { Cluster, type HubMember, hurried, ids, type Member, write } from './cluster.ts';
import { rowsOf, until } from './nodes.ts';

export const DAY = 86_400_000;

/** A cluster whose clocks are moved by hand. */
export class Aging extends Cluster {
  offset = 0;
  /** Of all members: who warned, the code, and what was said. */
  readonly warnings: string[] = [];
  #passed = 0;
  /** How often each member has looked around. */
  readonly #looks = new Map<string, number>();

  get clock(): { clock: NonNullable<Config['clock']> } {
    return { clock: { now: () => hurried.now() + this.offset, sleep: hurried.sleep } };
  }

  async member(name: string, peers: string[], more: Partial<Config> = {}): Promise<Member> {
    const { now, sleep } = this.clock.clock;
    const looking = async (ms: number, signal?: AbortSignal): Promise<void> => {
      await sleep(ms, signal);
      if (ms === TICK_MS) this.#looks.set(name, (this.#looks.get(name) ?? 0) + 1);
    };
    const given = { clock: { now, sleep: looking }, tombstones: { keep: '90d' }, ...more };
    this.#looks.set(name, 0);
    const member = await this.node(name, peers, given);
    member.manager.on('warning', ({ code, message }) => this.warnings.push(`${name} ${code} ${message}`));
    return member;
  }

  relay(name: string, edges: string[]): Promise<HubMember> {
    return this.hub(name, edges, this.clock);
  }

  /** Time passes; then all who are there look around, hear of each other, and after a minute look again. */
  async pass(days: number, ...members: Member[]): Promise<void> {
    this.offset += days * DAY;
    this.#passed += 1;
    // What is written before the first look might be as old as the last one.
    const looks = new Map(this.#looks);
    const counted = members.filter(({ name }) => looks.has(name));
    const hasLooked = ({ name }: Member): boolean => Number(this.#looks.get(name)) >= Number(looks.get(name)) + 2;
    await until('all have looked around', () => counted.every(hasLooked));
    for (const member of members) write(member, `${member.name} ${this.#passed}`);
    await until('all have heard of each other', () =>
      members.every((one) => members.every(({ name }) => ids(one).includes(`${name} ${this.#passed}`))),
    );
    this.offset += 61_000;
  }

  /** The tombstones go, some minute or other. */
  gone(...members: Member[]): Promise<void> {
    return until('the tombstones have gone', () => {
      this.offset += 20_000;
      return members.every((one) => tombstones(one).length === 0);
    });
  }

  /**
   * Each has had an answer at each URL. Who has never answered there is not known to be the one that was removed there, and is
   * waited for: a test that removes a node too early waits for ever for tombstones to go.
   */
  async acquainted(...members: Member[]): Promise<void> {
    // So that each has something to send.
    for (const one of members) write(one, '1');
    await Promise.all(members.map(({ manager }) => manager.flush()));
  }

  /** What a node has last said to another of what it still has to send. */
  said(by: string): number | undefined {
    const headers = this.requests.map((one) => readIntroduction(one.headers['x-rowcast']));
    return headers.findLast((one) => one?.id === by)?.low;
  }
}

export const tombstones = ({ db }: Pick<Member, 'db'>): unknown[] =>
  rowsOf(db, 'SELECT row_id FROM _tombstones').map((g) => g.row_id);
