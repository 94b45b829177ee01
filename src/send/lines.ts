/** A node's way to its peers: how they are asked, and, where there are keys, who is believed to have answered. */
import type { Clock } from '../clock.ts';
import type { CheckedConfig } from '../config.ts';
import type { Connection } from '../sqlite/connection.ts';
import { yielding } from '../sqlite/yielding.ts';
import { NODE_ID_HEADER } from '../wire/protocol.ts';
import { Bonds } from './bonds.ts';
import { pinnedPeers, pinPeer } from './peers.ts';
import { type Ask, type Post, type Transport, transportFor } from './transport.ts';

export interface LinesOptions {
  clock: Clock;
  warn(code: string, message: string): void;
  /** A peer has answered, and says who it is; where there are keys, it has proved it. */
  onAnswer(peer: string, id: string | null | undefined): void;
}

export class Lines {
  readonly transport: Transport;
  /** Where there are keys. */
  readonly bonds: Bonds | undefined;
  readonly #onAnswer: LinesOptions['onAnswer'];

  constructor(config: CheckedConfig, db: Connection, { clock, warn, onAnswer }: LinesOptions) {
    const { id: nodeId, auth } = config;
    this.transport = transportFor(config);
    this.#onAnswer = onAnswer;
    // With keys there is a way to ask: the options are checked for it.
    const get = this.transport.get as Ask;
    const keep = (url: string, id: string): void | Promise<void> => yielding(db, () => pinPeer(db, url, id));
    this.bonds = auth && new Bonds(auth, { nodeId, clock, warn, onAnswer, get, keep, kept: pinnedPeers(db) });
  }

  async fetch(peer: string, ...request: Parameters<Post>): ReturnType<Post> {
    const answer = await this.transport.fetch(...request);
    if (!this.bonds) this.#onAnswer(peer, answer.headers?.get(NODE_ID_HEADER));
    return answer;
  }
}
