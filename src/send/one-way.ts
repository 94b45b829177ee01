/**
 * Notices a node that sends to this one and is sent nothing: most often an URL that was forgotten in one of two
 * configurations. It is known only once every peer has told its id with an answer, and said once for each sender.
 */

/** Senders remembered at the most; a header may hold anything. */
const SENDERS_MAX = 1_000;

export class OneWay {
  readonly #ownId: string;
  readonly #peers: () => string[];
  readonly #warn: (code: string, message: string) => void;
  readonly #idOf = new Map<string, string>();
  readonly #senders = new Set<string>();
  readonly #named = new Set<string>();

  constructor(ownId: string, peers: () => string[], warn: (code: string, message: string) => void) {
    this.#ownId = ownId;
    this.#peers = peers;
    this.#warn = warn;
  }

  /** A peer has answered, and says who it is. */
  heard(peer: string, id: string | null | undefined): void {
    if (!id || this.#idOf.get(peer) === id) return;
    this.#idOf.set(peer, id);
    this.#compare();
  }

  /** Changes have come from the node with that id. */
  received(from: string | undefined): void {
    if (from === undefined || from === this.#ownId || this.#senders.has(from)) return;
    if (this.#senders.size >= SENDERS_MAX) return;
    this.#senders.add(from);
    this.#compare();
  }

  #compare(): void {
    const peers = this.#peers();
    if (!peers.every((peer) => this.#idOf.has(peer))) return;
    const known = new Set(peers.map((peer) => this.#idOf.get(peer)));
    for (const sender of this.#senders) {
      if (known.has(sender) || this.#named.has(sender)) continue;
      this.#named.add(sender);
      const why = peers.length === 0 ? 'this node has no peers' : 'none of the peers of this node has that id';
      this.#warn(
        'one-way',
        `node ${JSON.stringify(sender)} sends changes, and ${why}: what is written here does not go there. ` +
          'Add its URL to the peers, unless that is intended',
      );
    }
  }
}
