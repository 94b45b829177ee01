/**
 * Reading the configuration again while the program runs: on SIGHUP, and when one of its files has changed. What is wrong
 * with a file is logged, and then nothing changes.
 */

import type { AuthOptions } from '../auth/keys.ts';
import type { Clock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { readConfigFile, readPeersFile, signatureOf } from './config-file.ts';
import { type Environment, type Flags, flagName, parseFlags, refuseMisspelt, type Values } from './flags.ts';
import { KEYS_VARIABLE, type KeyValues, readAuth } from './keys.ts';
import type { Log } from './log.ts';
import { TOKENS_VARIABLE } from './tokens.ts';

/** How often the files are looked at. */
const LOOK_MS = 5_000;
/** A file that has changed is read when it has been the same for this long: whoever writes it may be in the middle. */
const SETTLED_MS = 200;

/** What the program is to be, as the command line, the environment and the files say at one moment. */
export interface Configured<F extends Flags> {
  flags: Values<F>;
  /** Those of the flags and those of the file. */
  peers: string[];
  files: string[];
  /** The keys; undefined where there are none. */
  auth: AuthOptions | undefined;
}

/** Which flags name the peers: of a node, or of a hub. */
export interface PeerFlags {
  peer: 'peer' | 'edge';
  file: 'peersFile' | 'edgesFile';
}

export const NODE_PEERS: PeerFlags = { peer: 'peer', file: 'peersFile' };
export const HUB_PEERS: PeerFlags = { peer: 'edge', file: 'edgesFile' };

/**
 * Reads everything; throws a UsageError that says what is wrong and where. Which files have the peers and the keys is said at
 * the start: where the program runs already, those are read again, whatever the flags say by now.
 */
export function configured<F extends Flags>(
  description: F,
  names: PeerFlags,
  args: string[],
  env: Environment,
  running?: Configured<F>,
): Configured<F> | 'help' {
  const flags = parseFlags(description, args, env, readConfigFile);
  if (flags === 'help') return 'help';
  refuseMisspelt(description, env, [KEYS_VARIABLE, TOKENS_VARIABLE]);
  const values = { ...(flags as Record<string, unknown>) };
  const started = running?.flags as Record<string, unknown> | undefined;
  if (started) for (const name of [names.file, 'keysFile']) values[name] = started[name];
  const path = values[names.file] as string | undefined;
  const parse = description[names.peer]?.parse as (url: string) => string;
  const listed = path === undefined ? [] : readPeersFile(`-${flagName(names.file)}`, path, parse);
  const peers = [...new Set([...(values[names.peer] as string[]), ...listed])];
  const files = [values.config, path, values.keysFile].filter((file) => typeof file === 'string');
  return { flags, peers, files, auth: readAuth(values as KeyValues, env) };
}

/** A node's peers, or a hub's edges. */
interface Members {
  add(url: string): unknown;
  remove(url: string): unknown;
  /** Those that there are at present: an operator may have added some, and removed others. Not where others serve some of them. */
  list?(): { url: string }[] | Promise<{ url: string }[]>;
}

/** What a program has in files beside its flags: certificates, tokens, keys. */
export interface Held {
  /** What the log calls it. */
  readonly name: string;
  readonly files: string[];
  /** What about its files is worth a warning; told at the start and whenever they were read again. */
  readonly warnings: { code: string; message: string }[];
  /**
   * Reads the files again, and throws a UsageError where they are wrong. What it returns makes the new content count, and
   * is called when everything else could be read as well; undefined where nothing has changed.
   */
  reread(): (() => void | Promise<void>) | undefined;
}

export interface ReloadOptions<F extends Flags> {
  /** As the program was started. */
  first: Configured<F>;
  held: Held[];
  names: PeerFlags;
  /** Given what runs. */
  read(running: Configured<F>): Configured<F>;
  members: Members;
  /** The flags that can be changed at run time besides the peers. */
  reloadable: readonly (keyof F & string)[];
  /** Is told the present values of these flags, and the keys, where one of them has changed. */
  apply(flags: Values<F>, auth: AuthOptions | undefined): void;
  log: Log;
  clock: Clock;
}

/** What has changed in its files, read and not yet in force. */
interface Renewed {
  held: Held;
  become(): void | Promise<void>;
}

export class Reload<F extends Flags> {
  readonly #o: ReloadOptions<F>;
  #now: Configured<F>;
  #signature: string;
  readonly #stop = new AbortController();
  readonly #watching: Promise<void>;
  /** One after the other. */
  #reloading: Promise<void> = Promise.resolve();

  constructor(options: ReloadOptions<F>) {
    this.#o = options;
    this.#now = options.first;
    this.#signature = this.#look();
    this.#watching = this.#files.length === 0 ? Promise.resolve() : this.#watch();
  }

  /** On SIGHUP. */
  reload(): Promise<void> {
    this.#signature = this.#look();
    this.#reloading = this.#reloading.then(() => this.#reload());
    return this.#reloading;
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#watching;
    await this.#reloading;
  }

  get #files(): string[] {
    return [...this.#now.files, ...this.#o.held.flatMap(({ files }) => files)];
  }

  #look(): string {
    return this.#files.map(signatureOf).join('\n');
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    for (;;) {
      await this.#o.clock.sleep(LOOK_MS, signal);
      if (signal.aborted) return;
      const seen = this.#look();
      if (seen === this.#signature) continue;
      await this.#o.clock.sleep(SETTLED_MS, signal);
      if (signal.aborted) return;
      // Still being written: the next look finds it. Or read meanwhile, on SIGHUP.
      if (this.#look() === seen && seen !== this.#signature) await this.reload();
    }
  }

  async #reload(): Promise<void> {
    const { log, read, held } = this.#o;
    if (this.#stop.signal.aborted) return;
    if (this.#files.length === 0) {
      const message =
        'there is nothing to reload: start with -config, -peers-file or -keys-file, or restart with other flags';
      log('info', 'reload-ignored', {
        signal: 'SIGHUP',
        message: message.replace('peers', this.#o.names.file.replace('File', '')),
      });
      return;
    }
    let next: Configured<F>;
    let renewed: Renewed[];
    try {
      next = read(this.#now);
      renewed = held.flatMap((one) => {
        const become = one.reread();
        return become ? [{ held: one, become }] : [];
      });
    } catch (error) {
      log('error', 'reload-failed', { message: `${messageOf(error)}; nothing was changed` });
      return;
    }
    try {
      await this.#become(next, renewed);
    } catch (error) {
      log('error', 'reload-failed', { message: `${messageOf(error)}; what is left to do is tried again` });
      this.#signature = 'not done';
    }
  }

  async #become(next: Configured<F>, renewed: Renewed[]): Promise<void> {
    const { log, members, reloadable, apply, names: flagged } = this.#o;
    const before = this.#now;
    const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);
    const differing = (Object.keys(next.flags) as (keyof F & string)[]).filter(
      (key) => key !== flagged.peer && !same(next.flags[key], before.flags[key]),
    );
    const changed = differing.filter((key) => reloadable.includes(key));
    const ignored = differing.filter((key) => !reloadable.includes(key)).map(flagName);
    // There may be thousands of them.
    const [were, are] = [new Set(before.peers), new Set(next.peers)];
    const there = members.list && new Set((await members.list()).map(({ url }) => url));
    const added = next.peers.filter((url) => !were.has(url) || there?.has(url) === false);
    const removed = before.peers.filter((url) => !are.has(url));
    for (const { held, become } of renewed) {
      await become();
      for (const warning of held.warnings) log('warn', 'warning', warning);
    }
    // Whether there are keys at all is said at the start.
    const auth = before.auth && next.auth ? next.auth : before.auth;
    if (auth !== next.auth) ignored.push(KEYS);
    const rekeyed = !same(auth, before.auth);
    if (changed.length > 0 || rekeyed) apply(next.flags, auth);
    // What can be said again by the next reload is not taken for said: each step counts when it is done.
    this.#now = { ...before, auth, files: next.files, flags: keeping(next.flags, before.flags, ignored) };
    for (const url of added) {
      await members.add(url);
      if (!were.has(url)) this.#now = { ...this.#now, peers: [...this.#now.peers, url] };
    }
    for (const url of removed) {
      // By hand, before it was taken out of the file.
      if (there?.has(url) !== false) await members.remove(url);
      this.#now = { ...this.#now, peers: this.#now.peers.filter((other) => other !== url) };
    }
    if (ignored.length > 0) {
      const message = `read at the start alone: restart to change ${ignored.join(', ')}`;
      log('warn', 'reload-ignored', { keys: ignored, message });
    }
    const names = [...changed.map(flagName), ...(rekeyed ? [KEYS] : []), ...renewed.map(({ held }) => held.name)];
    log('info', 'reloaded', { added, removed, changed: names });
  }
}

/** What is said to have changed where the content of the keys has. */
const KEYS = 'keys';

/** The new flags, but those that are read once stay what the program runs with. */
function keeping<V extends object>(next: V, before: V, ignored: string[]): V {
  const kept = Object.entries(before).filter(([key]) => ignored.includes(flagName(key)));
  return { ...next, ...Object.fromEntries(kept) };
}
