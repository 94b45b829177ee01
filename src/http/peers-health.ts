/**
 * What a peer is told that asks who is there. It does so every fifteen seconds, and a hub has thousands of them: each would have
 * everything counted anew, and be told of all others. So they share what was found out within the last second, and the list
 * of the peers is left out. Whoever does not introduce itself as a peer is told everything, as it is at that moment.
 */
import { type Clock, passedSince } from '../clock.ts';

export class PeersHealth {
  readonly #clock: Clock;
  #latest: { at: number; health: Promise<{ ok: boolean }> } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  async health(ask: () => Promise<{ ok: boolean }>): Promise<{ ok: boolean }> {
    if (!this.#latest || passedSince(this.#clock, this.#latest.at) >= SHARED_MS) {
      const latest = { at: this.#clock.now(), health: briefly(ask) };
      this.#latest = latest;
      latest.health.catch(() => {
        if (this.#latest === latest) this.#latest = undefined;
      });
    }
    return await this.#latest.health;
  }
}

async function briefly(ask: () => Promise<{ ok: boolean }>): Promise<{ ok: boolean }> {
  const { peers: _, peer_states: __, ...health }: Health = await ask();
  return health;
}

interface Health {
  ok: boolean;
  peers?: unknown;
  peer_states?: unknown;
}

const SHARED_MS = 1_000;
