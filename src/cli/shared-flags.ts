/** The flags that both programs have. The numbers of the library come from its own table of settings. */

import { EVERY_RULE, KEEP_RULE, keepMs, parseEvery } from '../clock.ts';
import { BACKLOG_SETTINGS, type BacklogLimits, type Config, ID_RULE, SETTINGS, TOMBSTONES, VERIFY } from '../config.ts';
import { messageOf } from '../errors.ts';
import { CONFLICTS } from '../journal/options.ts';
import { normalisePeer } from '../wire/peer-url.ts';
import { isNodeId } from '../wire/protocol.ts';
import { choice, file, integer, limit, text, UsageError } from './flags.ts';
import { parseListen } from './listen.ts';
import { FORMATS, LEVELS } from './log.ts';
import { BINDINGS } from './open.ts';

const AUTO = 'auto';

export function idFlag(help: string) {
  return { ...text('name', help), parse: parseId };
}

export function listenFlag(port: number) {
  return {
    ...text('host:port', `Where to listen. :${port} is every interface, port 0 is any free one.`),
    parse: parseListen,
    default: `127.0.0.1:${port}`,
  };
}

/** Base URLs of nodes; the flag may be repeated. */
export function peersFlag(help: string) {
  return { ...text('url', help), parse: parsePeer, repeatable: true as const };
}

const BINDING_HELP =
  'The SQLite binding. auto: bun:sqlite on Bun; on Node better-sqlite3 if it loads, else node:sqlite.';

export const bindingFlag = {
  ...choice([AUTO, ...BINDINGS], BINDING_HELP),
  /** Undefined: the best that is present. */
  parse: (value: string) => {
    const chosen = choice([AUTO, ...BINDINGS], '').parse(value);
    return chosen === AUTO ? undefined : chosen;
  },
};

/** How long deletions are remembered. */
export const keepFlag = {
  ...text('time', TOMBSTONES.keep.help),
  default: TOMBSTONES.keep.default,
  parse: (value: string): string => {
    if (keepMs(value) === null) throw new UsageError(KEEP_RULE);
    return value;
  },
};

/** The settings of attach and createHub as flags. `more` is said after the sentence that a setting has of its own. */
export function settingFlags(more: { batchMs: string; requestTimeoutMs?: string }) {
  const { batchMs, batchSize, maxBatchBytes, maxBodyBytes, requestTimeoutMs, maxAheadMs } = SETTINGS;
  return {
    batchMs: integer(`${batchMs.help} ${more.batchMs}`, batchMs),
    batchSize: integer(batchSize.help, batchSize),
    maxBatchBytes: integer(maxBatchBytes.help, maxBatchBytes),
    maxBodyBytes: integer(maxBodyBytes.help, maxBodyBytes),
    requestTimeoutMs: integer(more.requestTimeoutMs ?? requestTimeoutMs.help, requestTimeoutMs),
    maxAheadMs: integer(maxAheadMs.help, maxAheadMs),
    verifyEvery: { ...text('time', VERIFY.every.help), parse: parseVerifyEvery, default: VERIFY.every.default },
    verifyRepair: {
      ...choice(['true', 'false'], VERIFY.repair.help),
      parse: (value: string): boolean => choice(['true', 'false'], '').parse(value) === 'true',
    },
  };
}

const OFF = 'off';

function parseVerifyEvery(value: string): string {
  if (value === OFF || parseEvery(value) !== undefined) return value;
  throw new UsageError(`${EVERY_RULE.replace(', or milliseconds', '')}, or ${OFF}, not ${JSON.stringify(value)}`);
}

/** The two flags as the option of attach and createHub. */
export function verifyOption(flags: { verifyEvery: string; verifyRepair: boolean }): NonNullable<Config['verify']> {
  return flags.verifyEvery === OFF ? false : { every: flags.verifyEvery, repair: flags.verifyRepair };
}

/** Of these, and of the peers, the program takes another value while it runs. */
export const RELOADABLE = [
  'batchMs',
  'batchSize',
  'maxBatchBytes',
  'requestTimeoutMs',
  'keysMode',
  'peerId',
  'logLevel',
  'logFormat',
] as const;

/** The bound on the backlog as flags; a hub has none. */
export const backlogFlags = {
  maxBacklogChanges: limit(BACKLOG_SETTINGS.changes.help, BACKLOG_SETTINGS.changes),
  maxBacklogBytes: limit(BACKLOG_SETTINGS.bytes.help, BACKLOG_SETTINGS.bytes),
  maxBacklogAgeMs: limit(BACKLOG_SETTINGS.ageMs.help, BACKLOG_SETTINGS.ageMs),
};

export function backlogOf(flags: Record<keyof typeof backlogFlags, number | string>): BacklogLimits {
  const { maxBacklogChanges: changes, maxBacklogBytes: bytes, maxBacklogAgeMs: ageMs } = flags;
  return { changes, bytes, ageMs } as BacklogLimits;
}

/** The conflict journal as flags; a hub has none. */
export const conflictFlags = {
  conflicts: choice(['on', OFF], 'Whether edits that lost against one which had not seen them are kept.'),
  conflictsKeep: integer(CONFLICTS.keep.help, CONFLICTS.keep),
  conflictsBytes: integer(CONFLICTS.bytes.help, CONFLICTS.bytes),
  conflictsAge: {
    ...text('time', CONFLICTS.age.help),
    default: CONFLICTS.age.default,
    parse: (value: string): string => {
      if (parseEvery(value) !== undefined) return value;
      throw new UsageError(`${EVERY_RULE.replace(', or milliseconds', '')}, not ${JSON.stringify(value)}`);
    },
  },
};

export function conflictsOf(flags: {
  conflicts: string;
  conflictsKeep: number;
  conflictsBytes: number;
  conflictsAge: string;
}): NonNullable<Config['conflicts']> {
  if (flags.conflicts === OFF) return false;
  return { keep: flags.conflictsKeep, bytes: flags.conflictsBytes, age: flags.conflictsAge };
}

export const configFlag = file(
  'A JSON object whose keys are these flags, without the dash: {"peer": ["http://10.0.0.2:9001"], "batch-ms": 50}.',
);

export function peersFileFlag(what: string) {
  return file(`A file with a URL a line, besides those of -${what}. # begins a comment.`);
}

/** What concerns a program and not the library. */
export const processFlags = {
  logLevel: choice([...LEVELS], 'The least that is written to the log.'),
  logFormat: choice([...FORMATS], 'How a line of the log is written.'),
  metrics: choice(['on', 'off'], 'Whether GET /metrics is served, in the text format of Prometheus.'),
  clientTimeoutMs: integer('How long a client may take to send its request.', {
    default: 60_000,
    min: 100,
    max: 3_600_000,
  }),
  maxConnections: integer('Most connections at a time.', {
    default: 1_000,
    min: 1,
    max: 1_000_000,
  }),
  maxConnectionsPerAddress: integer('Most of them from one address. 0: no limit, for a node behind a proxy.', {
    default: 100,
    min: 0,
    max: 1_000_000,
  }),
  host: text('name', 'On a loopback address: another name by which clients may ask for it, besides localhost.', {
    repeatable: true,
  }),
  busyMs: integer(
    "How long a start waits for another process's lock on the database; once running, it waits 5000 or more.",
    { default: 5_000, min: 0, max: 600_000 },
  ),
  stopMs: integer('How long a stop may take: half for running requests, the rest for shipping.', {
    default: 5_000,
    min: 0,
    max: 3_600_000,
  }),
};

function parseId(value: string): string {
  if (isNodeId(value)) return value;
  throw new UsageError(ID_RULE);
}

function parsePeer(value: string): string {
  try {
    return normalisePeer(value);
  } catch (error) {
    throw new UsageError(messageOf(error).replace(/^peer /, ''));
  }
}
