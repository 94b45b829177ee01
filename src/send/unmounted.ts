/**
 * Peers that answer batches as Rowcast does and have none of the routes by which they are compared with: whoever wired their
 * server has left them out, or a proxy does not pass them on. Nothing else would ever show it but what nobody finds.
 */
import type { Emitter } from '../events.ts';
import { COMPARE_PATH, FETCH_PATH, SYNC_PATH } from '../wire/protocol.ts';

export class Unmounted {
  readonly #events: Emitter;
  readonly #told = new Set<string>();

  constructor(events: Emitter) {
    this.#events = events;
  }

  /** Told once for each peer. */
  found(peer: string, path: string): void {
    if (this.#told.has(peer)) return;
    this.#told.add(peer);
    const message =
      `${peer} cannot be compared with: it has no ${path}. Mount POST ${COMPARE_PATH} and POST ${FETCH_PATH} there as ` +
      `${SYNC_PATH} is, or have the proxy before it pass them on; until then nobody finds what differs`;
    this.#events.emit('warning', { code: 'cannot-compare', message });
  }
}
