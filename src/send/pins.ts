/**
 * Which node answers at which URL, where there are keys: the one that is configured, or the first that has shown the key
 * there. An acknowledgement by another node, however well signed, is none: that one has the changes, and not this one.
 */
import type { Keyring } from '../auth/keys.ts';
import { isNodeId } from '../wire/protocol.ts';

export interface PinsOptions {
  /** Our own node id. */
  nodeId: string;
  keyring: Keyring;
  /** What was kept, of the peers that are configured. */
  kept: Map<string, string>;
  /** Keeps an id for a URL. */
  keep(url: string, id: string): void | Promise<void>;
  warn(code: string, message: string): void;
}

export class Pins {
  readonly #o: PinsOptions;
  readonly #kept: Map<string, string>;
  /** Who has answered last at a URL, where it was one that may. */
  readonly #answers = new Map<string, string>();
  readonly #told = new Set<string>();

  constructor(options: PinsOptions) {
    this.#o = options;
    this.#kept = new Map(options.kept);
  }

  /** The node that must answer at this URL; undefined where that is not known yet. */
  idAt(url: string): string | undefined {
    return this.#o.keyring.idAt(url) ?? this.#kept.get(url);
  }

  /** What was kept elsewhere, of a peer that has come. */
  remember(url: string, id: string): void {
    this.#kept.set(url, id);
  }

  /** Somebody has shown the key at this URL before: from then on nothing unsigned is believed of it. */
  hasSigned(url: string): boolean {
    return this.#kept.has(url);
  }

  /** The node that answers at this URL, with the key. Says what is wrong with that; undefined where nothing is. */
  async objection(url: string, id: string): Promise<string | undefined> {
    const { nodeId, keep } = this.#o;
    if (!isNodeId(id)) return 'the answer has no node id';
    // Whoever is not believed here is at no URL: that it says so must not stop the one that is.
    this.#answers.delete(url);
    if (id === nodeId)
      return this.#tell('own-peer', url, `the peer ${url} is this node itself: take it out of the peers`);
    const pinned = this.idAt(url);
    if (pinned !== undefined && pinned !== id) {
      const told = `node ${JSON.stringify(id)} answers at ${url}, where ${JSON.stringify(pinned)} did before or should`;
      return this.#tell(
        'other-node',
        url,
        `${told}: nothing is sent there until the URL was taken out of the peers once`,
      );
    }
    this.#answers.set(url, id);
    const twin = this.#twinOf(url, id);
    if (twin !== undefined) {
      const message = `node ${JSON.stringify(id)} answers at ${twin} and at ${url}: nothing is sent to either`;
      return this.#tell('same-id', url, message);
    }
    if (this.#kept.get(url) !== id) {
      await keep(url, id);
      this.#kept.set(url, id);
    }
    return undefined;
  }

  /** It is none of the peers any more: named again, it is a new one. */
  forget(url: string): void {
    this.#kept.delete(url);
    this.#answers.delete(url);
    for (const told of this.#told) if (told.startsWith(`${url} `)) this.#told.delete(told);
  }

  #twinOf(url: string, id: string): string | undefined {
    const others = [...this.#answers, ...this.#kept].filter(([other]) => other !== url);
    return others.find(([other, theirs]) => theirs === id && (this.#answers.get(other) ?? theirs) === id)?.[0];
  }

  #tell(code: string, url: string, message: string): string {
    const key = `${url} ${message}`;
    if (!this.#told.has(key)) this.#o.warn(code, message);
    this.#told.add(key);
    return message;
  }
}
