/** The certificates of a program, from the files that its flags name: read, checked, read again, and watched for their end. */
import type { Clock } from '../clock.ts';
import { type TlsOptions, tlsProblem, validityOf } from '../send/tls.ts';
import { readText } from './config-file.ts';
import { file, UsageError, type Values } from './flags.ts';
import type { Log } from './log.ts';
import type { Held } from './reload.ts';
import { readableByOthers } from './secrets.ts';

export const tlsFlags = {
  tlsCert: file('Serve HTTPS alone, by this certificate: PEM, with its chain.'),
  tlsKey: file('The private key of -tls-cert: PEM, without a passphrase.'),
  tlsClientCa: file('Mutual TLS: only clients with a certificate of these authorities may connect.'),
  tlsCa: file('For sending to https URLs: believe these authorities alone, instead of the usual ones.'),
  tlsClientCert: file('For sending: the certificate to show where mutual TLS asks for one.'),
  tlsClientKey: file('The private key of -tls-client-cert.'),
};

/** What a server needs; with `ca` its clients must have a certificate of these authorities. */
export interface ServerTls {
  cert: string;
  key: string;
  ca?: string;
}

interface Contents {
  server: ServerTls | undefined;
  sending: TlsOptions | undefined;
}

type Flag = 'tls-cert' | 'tls-key' | 'tls-client-ca' | 'tls-ca' | 'tls-client-cert' | 'tls-client-key';
type Paths = Partial<Record<Flag, string>>;

/** The flags that make up each side, by the parts of TlsOptions. */
const SERVER = { cert: 'tls-cert', key: 'tls-key', ca: 'tls-client-ca' } as const;
const SENDING = { cert: 'tls-client-cert', key: 'tls-client-key', ca: 'tls-ca' } as const;

/** A program's certificates; nothing where no flag names a file. */
export class TlsFiles implements Held {
  readonly name = 'certificates';
  readonly #paths: Paths;
  #now: Contents;
  #use: ((contents: Contents) => Promise<void>) | undefined;

  constructor(flags: Values<typeof tlsFlags>) {
    const { tlsCert, tlsKey, tlsClientCa, tlsCa, tlsClientCert, tlsClientKey } = flags;
    const given = {
      'tls-cert': tlsCert,
      'tls-key': tlsKey,
      'tls-client-ca': tlsClientCa,
      'tls-ca': tlsCa,
      'tls-client-cert': tlsClientCert,
      'tls-client-key': tlsClientKey,
    };
    this.#paths = Object.fromEntries(Object.entries(given).filter(([, path]) => path !== undefined));
    this.#now = readAll(this.#paths);
  }

  get server(): ServerTls | undefined {
    return this.#now.server;
  }

  get sending(): TlsOptions | undefined {
    return this.#now.sending;
  }

  get files(): string[] {
    return Object.values(this.#paths);
  }

  get warnings(): { code: string; message: string }[] {
    return (['tls-key', 'tls-client-key'] as const).flatMap((flag) => {
      const path = this.#paths[flag];
      return path === undefined ? [] : readableByOthers(`-${flag}`, path);
    });
  }

  /** Called with what the files hold whenever that has changed. */
  onChange(use: (contents: Contents) => Promise<void>): void {
    this.#use = use;
  }

  reread(): (() => Promise<void>) | undefined {
    const next = readAll(this.#paths);
    if (JSON.stringify(next) === JSON.stringify(this.#now)) return undefined;
    return async () => {
      await this.#use?.(next);
      this.#now = next;
    };
  }

  /** The certificates that are shown to others, and how long they count. */
  ends(now: number): CertificateEnd[] {
    const shown = [
      ['tls-cert', this.#now.server?.cert],
      ['tls-client-cert', this.#now.sending?.cert],
    ] as const;
    return shown.flatMap(([flag, cert]) => (cert === undefined ? [] : [endOf(flag, cert, now)]));
  }
}

/** How long a certificate counts, as `/health` and the log say it. */
export interface CertificateEnd {
  flag: string;
  expires_at: string;
  state: 'valid' | 'ends-soon' | 'ended' | 'not-yet-valid';
  message: string | undefined;
}

const DAY_MS = 86_400_000;
const SOON_DAYS = 14;
/** A certificate for six days is not near its end all its life. */
const SOON_PART = 0.25;

function endOf(flag: Flag, cert: string, now: number): CertificateEnd {
  const { from, to } = validityOf(cert);
  const left = to - now;
  const date = new Date(to).toISOString();
  const said = (state: CertificateEnd['state'], message?: string): CertificateEnd => ({
    flag,
    expires_at: date,
    state,
    message: message && `the certificate of -${flag} ${message}`,
  });
  if (left <= 0) return said('ended', `ended on ${date}: nobody takes it any more; put a new one there`);
  if (now < from) return said('not-yet-valid', `counts from ${new Date(from).toISOString()} on; is the clock right?`);
  if (left > Math.min(SOON_DAYS * DAY_MS, SOON_PART * (to - from))) return said('valid');
  const days = Math.floor(left / DAY_MS);
  const when = days === 0 ? 'within a day' : `in ${days} day${days === 1 ? '' : 's'}`;
  return said('ends-soon', `ends ${when}, on ${date}: put a new one there`);
}

/** The option of attach and createHub. */
export function sendingBy({ sending }: TlsFiles): { tls?: TlsOptions } {
  return sending ? { tls: sending } : {};
}

/** Says in the log, at the start and once a day, which certificates do not count, or not for long. */
export function watchEnds(tls: TlsFiles, log: Log, clock: Clock): { stop(): void } {
  const stopped = new AbortController();
  const watch = async (): Promise<void> => {
    while (!stopped.signal.aborted) {
      for (const { message, state } of tls.ends(clock.now())) {
        const level = state === 'ends-soon' ? 'warn' : 'error';
        if (message) log(level, 'warning', { code: `certificate-${state}`, message });
      }
      await clock.sleep(DAY_MS, stopped.signal);
    }
  };
  if (tls.files.length > 0) void watch();
  return { stop: () => stopped.abort() };
}

/** Adds what the program knows beside its node or hub. */
export type AlsoInHealth = <H extends { ok: boolean }>(health: H) => H;

/** What is said of certificates wherever somebody asks how this is: one that has ended is a problem, one that is about to, a warning. */
export function certificatesInHealth(tls: TlsFiles, clock: Clock): AlsoInHealth {
  return (health) => {
    const ends = tls.ends(clock.now());
    if (ends.length === 0) return health;
    const said = (soon: boolean): string[] =>
      ends.flatMap(({ state, message }) => (message && (state === 'ends-soon') === soon ? [message] : []));
    const problems = [...((health as { problems?: string[] }).problems ?? []), ...said(false)];
    const certificates = ends.map(({ flag, expires_at, state }) => ({ flag, expires_at, state }));
    const more = { problems, certificates, warnings: said(true) };
    return { ...health, ...more, ok: health.ok && said(false).length === 0 };
  };
}

function readAll(paths: Paths): Contents {
  const server = readSide(paths, SERVER);
  if (server && (server.cert === undefined || server.key === undefined)) {
    throw new UsageError('-tls-client-ca is for a server with -tls-cert and -tls-key: give these as well');
  }
  return { server: server as ServerTls | undefined, sending: readSide(paths, SENDING) };
}

function readSide(paths: Paths, flags: Record<keyof TlsOptions, Flag>): TlsOptions | undefined {
  const tls: TlsOptions = {};
  for (const part of ['ca', 'cert', 'key'] as const) {
    const path = paths[flags[part]];
    if (path !== undefined) tls[part] = readText(`-${flags[part]}`, path);
  }
  if (Object.keys(tls).length === 0) return undefined;
  const found = tlsProblem(tls);
  if (!found) return tls;
  const flag = flags[found.part];
  throw new UsageError(`${[`-${flag}`, paths[flag]].filter(Boolean).join(' ')}: ${found.problem}; ${found.hint}`);
}
