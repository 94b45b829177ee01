/** Nodes and hubs that grow old together: their tombstones, and who keeps them. */
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

  get clock(): { clock: NonNullable<Config['clock']> } {
    return { clock: { now: () => hurried.now() + this.offset, sleep: hurried.sleep } };
  }

  async member(name: string, peers: string[], more: Partial<Config> = {}): Promise<Member> {
    const member = await this.node(name, peers, { ...this.clock, tombstones: { keep: '90d' }, ...more });
    member.manager.on('warning', ({ code, message }) => this.warnings.push(`${name} ${code} ${message}`));
    return member;
  }

  relay(name: string, edges: string[]): Promise<HubMember> {
    return this.hub(name, edges, this.clock);
  }

  /** Time passes; then all who are there hear of each other, and after a minute look again. */
  async pass(days: number, ...members: Member[]): Promise<void> {
    this.offset += days * DAY;
    this.#passed += 1;
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

  /** What a node has last said to another of what it still has to send. */
  said(by: string): number | undefined {
    const headers = this.requests.map((one) => readIntroduction(one.headers['x-rowcast']));
    return headers.findLast((one) => one?.id === by)?.low;
  }
}

export const tombstones = ({ db }: Pick<Member, 'db'>): unknown[] =>
  rowsOf(db, 'SELECT row_id FROM _tombstones').map((g) => g.row_id);
