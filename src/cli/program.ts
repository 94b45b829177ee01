/** What every program needs: a log and a port to begin with, an answer whatever happens, an orderly end, and to say what went wrong. */

import { passedSince, systemClock } from '../clock.ts';
import { messageOf, RowcastError } from '../errors.ts';
import type { Answer, BodyRead, Incoming } from '../http/bridge.ts';
import type { FlushResult } from '../index.ts';
import { collectMetrics, type Metrics, type Observable } from '../observe/metrics.ts';
import { TEMPORARY } from '../sqlite/open-file.ts';
import { isCode, type ResultCode, resultCode } from '../sqlite/result-codes.ts';
import { isLoopback, onlyByName } from './door.ts';
import { failure } from './failure.ts';
import { UsageError } from './flags.ts';
import { type ClientLimits, type Listen, listen, type Server, StartError, within } from './listen.ts';
import { createLog, type Log, type Logging, logEvents, type Subscribable, sparingly } from './log.ts';
import { OpenError } from './open.ts';
import { RecentLines } from './recent-lines.ts';
import { readableByOthers } from './secrets.ts';
import { harmless } from './show.ts';
import type { AlsoInHealth, ServerTls } from './tls-files.ts';

/** A node's manager, or a hub. */
interface Shipping {
  flush(): Promise<FlushResult>;
  health(): { pending_changes: number } | Promise<{ pending_changes: number }>;
  stop(): Promise<void>;
}

export const FLAGS_HELP = 'Flags (-id x, --id x and --id=x are the same; a flag wins over its environment variable):';

/** What only a node has: a hub keeps nothing for the sake of an edge, no journal, and every deletion. */
const OF_A_NODE = {
  events: 'peer-stale, tombstones-collected, conflict, ',
  flags: ' -max-backlog-*, -conflicts*',
};

export function runningHelp(who: 'node' | 'hub'): string {
  const { events, flags } = who === 'node' ? OF_A_NODE : { events: '', flags: '' };
  return `Without keys (-keys-file) and -tls-client-ca whoever can reach the port is believed: listen on a private network. With
keys, peers sign what they send and what they acknowledge. The item routes and /health are for -tokens-file.

Standard output is a log of one JSON object per line (-log-format text: a line of text), written when a state changes:
started, ${events}peer-up, peer-down, restored, peer-replaced, peer-restored,
dead-letter, verify-done, warning, error, reloaded, reload-failed, reload-ignored, admin-socket, stopping, stopped.
Why the program could not start is on standard error.

SIGTERM or SIGINT stops in order: no new connections, running requests end, what is pending is shipped, the database is
closed. A second signal ends the program at once. SIGHUP reads -config, the file of URLs and that of keys again, as does
a change of one of them, seen within seconds: URLs, keys, -keys-mode, -peer-id, -batch-*, -max-batch-bytes,
-request-timeout-ms,${flags && `${flags},`} -log-* then take effect. So do certificates and tokens
that have changed. A file that is wrong changes nothing, and the log says why. Without a file SIGHUP is logged and
ignored; where the program runs in a terminal, SIGHUP is the end of that, and stops it.
A service starts the program itself, node_modules/.bin/rowcast: npx does not pass SIGTERM on, and leaves it running.
Exit codes: 0 stopped as asked, 1 it could not run, 2 a wrong command line.
`;
}

/** A program that has a log and a port, and answers 503 until it is told what to answer. */
export interface Begun {
  log: Log;
  logging: Logging;
  recent: RecentLines;
  server: Server;
  answerWith(answer: Answer): void;
}

interface BeginFlags extends ClientLimits {
  id: string;
  listen: Listen;
  host: string[];
  keysFile: string | undefined;
  logLevel: Logging['level'];
  logFormat: Logging['format'];
}

/** What is known of those who may come in. */
interface Trusted {
  hasKeys: boolean;
  tls: ServerTls | undefined;
}

/** The port comes first: a second start of the same command must not touch the database. */
export async function begin(flags: BeginFlags, { hasKeys, tls }: Trusted): Promise<Begun> {
  // The database and what SQLite keeps beside it are nobody else's to read.
  process.umask(0o077);
  // Whoever reads the log may go away; the program does not.
  process.stdout.on('error', () => {});
  const logging: Logging = { level: flags.logLevel, format: flags.logFormat };
  const recent = new RecentLines(systemClock.now());
  const log = createLog(flags.id, systemClock, (line) => process.stdout.write(line), logging, recent);
  let answer: Answer = async () => failure(503, 'starting');
  const current: Answer = (incoming) => answer(incoming);
  const local = isLoopback(flags.listen.host);
  const server = await listen(flags.listen, flags, local ? onlyByName(current, flags.host) : current, log, tls);
  if (!local && !hasKeys && !tls?.ca) log('warn', 'warning', { code: 'open-to-all', message: OPEN_TO_ALL });
  if (flags.keysFile !== undefined) {
    for (const warning of readableByOthers('-keys-file', flags.keysFile)) log('warn', 'warning', warning);
  }
  return {
    log,
    logging,
    recent,
    server,
    answerWith: (given) => {
      answer = guarded(given, sparingly(log, systemClock));
    },
  };
}

const OPEN_TO_ALL =
  'listening on more than loopback: whoever can reach this port can read and write the synced tables; keep it in a ' +
  'private network, or let only those in who have a certificate (-tls-client-ca)';

/** A node's manager or a hub is listened to, for the log and for the figures of /metrics, where these are served. */
export function observe(
  subject: Observable & Subscribable,
  { flags, log, alsoInHealth }: { flags: { metrics: 'on' | 'off' }; log: Log; alsoInHealth: AlsoInHealth },
): Metrics | undefined {
  logEvents(subject, log, systemClock);
  if (flags.metrics === 'off') return undefined;
  return collectMetrics({ status: async () => alsoInHealth(await subject.status()), on: subject.on.bind(subject) });
}

export const READ_METRICS = 'read /metrics';

/** Keys are for peers. What they do not close is said at the start, where others than this machine can reach it. */
export function warnOfOpenRoutes(log: Log, at: Listen, tls: ServerTls | undefined, routes: string[]): void {
  if (routes.length === 0 || isLoopback(at.host) || tls?.ca) return;
  const message =
    'listening on more than loopback: peers need a key, but whoever can reach this port can ' +
    `${routes.join(', and ')}; -tokens-file closes that`;
  log('warn', 'warning', { code: 'open-to-all', message });
}

/** Stops accepting, lets requests end, ships: each for its share of the time and no longer. */
export async function shutDown(server: Server, manager: Shipping, stopMs: number): Promise<Record<string, unknown>> {
  const started = systemClock.now();
  const drained = await within(stopMs / 2, server.stop());
  server.cut();
  const left = Math.max(0, stopMs - passedSince(systemClock, started));
  const flushed = await within(left, manager.flush());
  const pending = await pendingChanges(manager);
  await manager.stop();
  return { requests: drained ? 'finished' : 'cut off', shipped: flushed?.unreachable.length === 0, pending };
}

/** A database that cannot be read any more must not keep the program from stopping. */
async function pendingChanges(manager: Shipping): Promise<number | null> {
  try {
    return (await manager.health()).pending_changes;
  } catch {
    return null;
  }
}

/** An answer function that fails only where the client is gone: what goes wrong here becomes 503 or 500, and a log line. */
export function guarded(answer: Answer, log: Log): Answer {
  return async (incoming) => {
    let gone = false;
    const read: Incoming['read'] = async (max, tap): Promise<BodyRead> => {
      try {
        return await incoming.read(max, tap);
      } catch (error) {
        gone = true;
        throw error;
      }
    };
    try {
      return await answer({ ...incoming, read });
    } catch (error) {
      if (gone) throw error;
      if ((error as { code?: string }).code === 'STOPPED') return failure(503, 'stopping');
      if (isCode(error, 'BUSY', 'LOCKED') || (error as { code?: string }).code === 'DATABASE_BUSY') {
        return failure(503, 'the database is busy: another connection holds the write lock');
      }
      log('error', 'error', { code: 'REQUEST_FAILED', message: messageOf(error) });
      // Whoever asked for a write is told that it was none, and may try again once the machine is mended.
      const code = resultCode(error);
      const remedy = code && REMEDIES[code];
      if (remedy !== undefined)
        return failure(503, `the database failed, and nothing was written: ${messageOf(error)}`);
      return failure(500, 'the request failed; the log of the node says why');
    }
  };
}

/** Ctrl-C under npm or npx comes twice, from the terminal and from npm: signals this close together are one. */
const SAME_SIGNAL_MS = 250;
const EXIT_CODES = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

/**
 * Resolves with the first signal; a later one ends the process. SIGHUP is the end of the terminal that the program runs in,
 * or, without one, somebody's wish to have it read its configuration again.
 */
export function stopSignal(log: Log, reload: () => void): Promise<void> {
  const hasTerminal = isInTerminal();
  return new Promise((resolve) => {
    let since: number | undefined;
    for (const [signal, code] of Object.entries(EXIT_CODES)) {
      process.on(signal, () => {
        if (signal === 'SIGHUP' && !hasTerminal) {
          reload();
          return;
        }
        if (since !== undefined && passedSince(systemClock, since) >= SAME_SIGNAL_MS) process.exit(code);
        if (since !== undefined) return;
        since = systemClock.now();
        log('info', 'stopping', { signal });
        resolve();
      });
    }
  });
}

/**
 * While a program that is being started waits for something, SIGHUP does not end it either: what it asks for is done when the
 * program runs. `over` ends that, and tells whether anybody has asked.
 */
export function hangUpLater(): { over(): boolean } {
  let isAsked = false;
  const hear = (): void => {
    isAsked = true;
  };
  if (!isInTerminal()) process.on('SIGHUP', hear);
  return {
    over: () => {
      process.off('SIGHUP', hear);
      return isAsked;
    },
  };
}

function isInTerminal(): boolean {
  return process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
}

/** Mistakes that a person can mend are told in a line; anything else is a bug, and then the stack is what helps. */
export function report(who: string, error: unknown): number {
  if (error instanceof UsageError) {
    process.stderr.write(harmless(`${who}: ${error.message}\nsee ${who} --help\n`));
    return 2;
  }
  process.stderr.write(harmless(`${who}: ${wordsFor(error)}\n`));
  return 1;
}

/** An answer that nobody gets is none. Whoever has read enough (head) has what was asked for. */
export function endWhenUnread(who: string): void {
  process.stdout.on('error', (error: Error & { code?: string }) => {
    if (error.code === 'EPIPE') process.exit(process.exitCode ?? 0);
    process.exit(report(who, new StartError(`standard output cannot be written: ${error.message}`)));
  });
}

function wordsFor(error: unknown): string {
  if (error instanceof OpenError || error instanceof StartError || error instanceof RowcastError) return error.message;
  if ((error as { syscall?: string }).syscall === 'uv_cwd')
    return 'the folder that this was started in is gone: cd to another';
  const code = resultCode(error);
  const remedy = code && REMEDIES[code];
  if (remedy !== undefined) return `the database failed: ${messageOf(error)}; ${remedy}`;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/** By SQLite's result code: what the machine has done to the database, and not this program. */
const REMEDIES: Partial<Record<ResultCode, string>> = {
  FULL: `make room on its disk (df -h), or ${TEMPORARY}, and start this again: what was not finished was taken back`,
  IOERR: 'look at its disk (df -h, dmesg), then start this again: what was not finished was taken back',
  READONLY: 'it cannot be written any more: look at the rights of the file and its folder, and how the disk is mounted',
  CORRUPT: 'stop what uses it, and put back a backup, or begin it anew: the other nodes fill it',
  NOTADB: 'another file was put in its place',
};
