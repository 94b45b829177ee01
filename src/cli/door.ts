/** Who may knock at a program's door: how many at a time, and under which name the program may be asked for. */
import type { Answer } from '../http/bridge.ts';
import { failure } from './failure.ts';

/** The host of `-listen` is an address that only this machine can reach. */
export function isLoopback(host: string | undefined): boolean {
  if (host === undefined) return false;
  const name = host.toLowerCase();
  return name === 'localhost' || name === '::1' || /^127(\.\d{1,3}){3}$/.test(name);
}

/**
 * On a loopback address only this machine is trusted, and a browser on it can be made to ask in a stranger's name: a page
 * whose own domain is pointed at 127.0.0.1 counts as the same origin. Its requests still carry that domain as `Host`.
 */
export function onlyByName(answer: Answer, names: string[]): Answer {
  const allowed = new Set(names.map((name) => name.toLowerCase()));
  return async (incoming) => {
    const said = incoming.header('host');
    // Who says no name at all is no browser, but an old client or a probe of HTTP/1.0.
    if (typeof said !== 'string') return await answer(incoming);
    const host = hostName(said);
    if (isLoopback(host) || allowed.has(host)) return await answer(incoming);
    return failure(403, 'this node listens on a loopback address and answers to that alone; -host allows another name');
  };
}

/** Without the port and the brackets. */
function hostName(header: string): string {
  const [, name = ''] = /^(\[[^\]]*\]|[^:]*)(?::\d*)?$/.exec(header.trim()) ?? [];
  return name.replace(/^\[|\]$/g, '').toLowerCase();
}

/** Counts what one address has open. */
export class Doorman {
  readonly #perAddress: number;
  readonly #open = new Map<string, number>();

  /** 0: without a limit, as behind a proxy, where all come from one address. */
  constructor(perAddress: number) {
    this.#perAddress = perAddress;
  }

  /** False where the address has as many as it may; otherwise `leave` has to follow. */
  enter(address: string): boolean {
    const open = this.#open.get(address) ?? 0;
    if (this.#perAddress > 0 && open >= this.#perAddress) return false;
    this.#open.set(address, open + 1);
    return true;
  }

  leave(address: string): void {
    const open = (this.#open.get(address) ?? 1) - 1;
    if (open > 0) this.#open.set(address, open);
    else this.#open.delete(address);
  }
}
