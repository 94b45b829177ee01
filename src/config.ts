/** The options of attach and createHub, checked one by one: a misspelt or ill-typed option is an error that names it. */
import { type AuthOptions, type CheckedAuth, checkAuth } from './auth/keys.ts';
import { type Clock, EVERY_RULE, FOREVER, KEEP_RULE, keepMs, parseEvery } from './clock.ts';
import { named, RowcastError, suggest } from './errors.ts';
import { type CheckedFeed, checkFeed, type FeedOption } from './feed/options.ts';
import type { JournalLimits } from './journal/journal.ts';
import { type ConflictOptions, checkConflicts } from './journal/options.ts';
import { SELF } from './journal/self.ts';
import type { BatchSize } from './send/batch-size.ts';
import { checkTls, type TlsOptions } from './send/tls.ts';
import type { Fetch, Get } from './send/transport.ts';
import { normalisePeer } from './wire/peer-url.ts';
import { BATCH_CHANGES_MAX, isNodeId, TABLE_NAME_BYTES_MAX } from './wire/protocol.ts';

export interface Config {
  /** This node's id, sent with every batch. */
  id: string;
  /** Base URLs of the peers; `/sync` is appended. */
  peers: string[];
  /** How often to look for changes, in milliseconds. Default 50. */
  batchMs?: number;
  /**
   * Most changes per batch; at most 10,000. Default `auto`: 1,500, and up to 4,000 to a peer that says it is not kept by
   * them for long, as a node does that applies them in parts.
   */
  batchSize?: BatchSize;
  /** Most bytes per batch sent; a single larger change still goes, alone. Default 4 MiB. */
  maxBatchBytes?: number;
  /** Most bytes of a body received. Default 64 MiB. */
  maxBodyBytes?: number;
  /** How long a peer may take to answer, in milliseconds. Default 30,000. */
  requestTimeoutMs?: number;
  /**
   * How far the time of a received change may be ahead of this node's clock, in milliseconds; one that is further ahead
   * waits until it is not. At least a minute; 0 turns this off. Default 24 hours.
   */
  maxAheadMs?: number;
  /**
   * Compare with every peer by itself, so often, and put right what differs. Default every 24 hours, with repair; false:
   * only where something has been found out, or on demand.
   */
  verify?: { every?: string | number; repair?: boolean } | false;
  /** How much is kept for a peer that is away; one that is further behind is given the whole state when it is back. */
  maxBacklog?: MaxBacklog;
  /** The certificates for peers with `https:` URLs. Without it they are verified as Node or Bun does by itself. */
  tls?: TlsOptions;
  /** Keys: what is sent is signed, and only what is signed is believed. Without them whoever can be reached is. */
  auth?: AuthOptions;
  /** How long a deletion is remembered after every node has it, such as `90d` or `36h`. Default `forever`. */
  tombstones?: { keep: string };
  /**
   * The conflict journal: how many lost versions it keeps, how many bytes of them, and for how long. Default 10,000, 64 MiB
   * and 30 days; false: none is noted.
   */
  conflicts?: ConflictOptions | false;
  /** Keeps so many changes of rows for `feed` and its readers. Default: as the database has it. */
  feed?: FeedOption;
  /** Seams for tests and simulations: time, network and chance come from outside. */
  clock?: Clock;
  fetch?: Fetch;
  /** How a quiet peer is asked for its `/health`. With a `fetch` and without this, it is not asked. */
  get?: Get;
  random?: () => number;
}

/** Any of them is enough; what is left out has its default. `unlimited` alone: everything is kept for ever. */
export type MaxBacklog = 'unlimited' | Partial<BacklogLimits>;

export interface BacklogLimits {
  /** Changes. Default `auto`: as many as there are rows and tombstones, and at least 100,000. */
  changes: number | 'auto' | 'unlimited';
  /** Bytes of these changes, estimated from a sample. Default 1 GiB. */
  bytes: number | 'unlimited';
  /** For how long the oldest has been waiting, in milliseconds. Default `unlimited`. */
  ageMs: number | 'unlimited';
}

/** The options that can be changed while a node or a hub runs, by `configure`. A hub has neither `maxBacklog` nor `conflicts`. */
export type Settings = Pick<Config, Paced | 'maxBacklog' | 'conflicts' | 'tls' | 'auth'>;

type Paced = 'batchMs' | 'batchSize' | 'maxBatchBytes' | 'requestTimeoutMs';
type Seam = 'clock' | 'fetch' | 'get' | 'random';
type Parsed = 'maxBacklog' | 'verify' | 'tombstones' | 'conflicts' | 'feed' | 'auth';
export type CheckedConfig = Required<Omit<Config, Seam | Parsed | 'tls'>> &
  Pick<Config, Seam | 'tls'> & {
    maxBacklog: BacklogLimits;
    /** Undefined: off. */
    conflicts: JournalLimits | undefined;
    verify: CheckedVerify;
    /** In milliseconds; undefined for ever. */
    keepTombstonesMs: number | undefined;
    feed: CheckedFeed;
    auth?: CheckedAuth;
  };

export interface CheckedVerify {
  /** 0: never by itself. */
  everyMs: number;
  repair: boolean;
}

/** What the loops and the bound on the backlog go by; the same object for as long as the node runs. */
export type CheckedSettings = Pick<CheckedConfig, Paced | 'maxBacklog' | 'conflicts'>;

export interface Setting {
  default: number | 'auto';
  min: number;
  max: number;
  /** 0 is allowed as well, and turns it off. */
  orZero?: boolean;
  /** One sentence, for the help of the programs. */
  help: string;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const MIB = 1024 * 1024;

/** Every setting that is a number, declared once: the options of attach and createHub and the flags of both programs. */
export const SETTINGS = {
  batchMs: { default: 50, min: 1, max: HOUR_MS, help: 'How often to look for changes, in milliseconds.' },
  batchSize: {
    default: 'auto',
    min: 1,
    max: BATCH_CHANGES_MAX,
    help: 'Most changes in one batch. auto: 1500, and up to 4000 to a node that applies them in parts.',
  },
  maxBatchBytes: {
    default: 4 * MIB,
    min: 1_024,
    max: 512 * MIB,
    help: 'Most bytes in one batch sent; a single larger change still goes, alone.',
  },
  maxBodyBytes: { default: 64 * MIB, min: 1_024, max: 512 * MIB, help: 'Largest body that /sync reads.' },
  requestTimeoutMs: { default: 30_000, min: 1, max: HOUR_MS, help: 'How long a peer may take to answer.' },
  // A wrong time zone passes, a wrong unit or year does not. Clocks that are right differ by less than the minimum.
  maxAheadMs: {
    default: DAY_MS,
    min: 60_000,
    max: 365 * DAY_MS,
    orZero: true,
    help: 'How far ahead of the clock here the time of a received change may be; others wait. 0: however far.',
  },
} as const satisfies Record<string, Setting>;

/** How a node and a hub compare by themselves; likewise for both programs. */
export const VERIFY = {
  every: {
    default: '24h',
    help: 'How often to compare with every peer and put right what differs, such as 90m, 24h or 7d; off: never.',
  },
  repair: { default: true, help: 'Whether that puts right what differs, or only tells.' },
} as const;

/** How long a node remembers deletions. */
export const TOMBSTONES = {
  keep: {
    default: FOREVER,
    help: 'How long a deletion is remembered after every node has it, such as 36h or 90d; forever: always.',
  },
} as const;

type SettingName = keyof typeof SETTINGS;
const SETTING_NAMES = Object.keys(SETTINGS) as SettingName[];

/** The bound on the backlog likewise. Only a node has one: a hub keeps rows, and not what was done to them. */
export const BACKLOG_SETTINGS = {
  changes: {
    default: 'auto',
    words: ['auto', 'unlimited'],
    help: 'Most changes kept for a peer that is away. auto: as many as there are rows, and at least 100000.',
  },
  bytes: { default: 1024 * MIB, words: ['unlimited'], help: 'Most bytes of changes kept for a peer that is away.' },
  ageMs: {
    default: 'unlimited',
    words: ['unlimited'],
    help: 'How long changes are kept for a peer that is away, in milliseconds.',
  },
} as const satisfies { [K in keyof BacklogLimits]: { default: BacklogLimits[K]; words: string[]; help: string } };

type BacklogSetting = keyof BacklogLimits;
const BACKLOG_NAMES = Object.keys(BACKLOG_SETTINGS) as BacklogSetting[];

/** Those that `configure` takes. */
const RUNTIME: Record<keyof typeof PEERS, (keyof Settings)[]> = {
  node: ['batchMs', 'batchSize', 'maxBatchBytes', 'requestTimeoutMs', 'maxBacklog', 'conflicts', 'tls', 'auth'],
  hub: ['batchMs', 'batchSize', 'maxBatchBytes', 'requestTimeoutMs', 'tls', 'auth'],
};

/** Those to whom is sent: a node calls them its peers, a hub its edges. */
const PEERS = { node: 'peers', hub: 'edges' } as const;
/** A hub keeps every deletion, and nothing for the sake of an edge; conflicts are noted where rows are written. */
const ONLY = { node: ['maxBacklog', 'tombstones', 'conflicts', 'feed'], hub: [] } as const;
const SEAMS = ['fetch', 'get', 'random'] as const;

/** The options of a node, or of a hub, whose `edges` come back as `peers`. */
export function checkConfig(config: object, kind: keyof typeof PEERS = 'node'): CheckedConfig {
  const peersName = PEERS[kind];
  if (typeof config !== 'object' || config === null) throw wrong(`config must be an object {id, ${peersName}, ...}`);
  const given = config as Record<string, unknown>;
  refuseUnknown(given, ['id', peersName, ...SETTING_NAMES, ...ONLY[kind], 'verify', 'tls', 'auth', 'clock', ...SEAMS]);
  const id = checkId(given.id);
  const peers = given[peersName];
  if (!Array.isArray(peers)) throw wrong(`option "${peersName}" must be an array of URLs`);
  const numbers = Object.fromEntries(SETTING_NAMES.map((name) => [name, checkNumber(name, given[name])]));
  const { clock, fetch, get, random } = given as Partial<Config>;
  if (clock !== undefined && (typeof clock?.now !== 'function' || typeof clock?.sleep !== 'function')) {
    throw wrong('option "clock" must have now() and sleep()');
  }
  for (const name of SEAMS) {
    if (given[name] !== undefined && typeof given[name] !== 'function')
      throw wrong(`option "${name}" must be a function`);
  }
  const auth = given.auth === undefined ? undefined : checkAuth(given.auth, normalisePeer);
  if (auth && fetch && !get) {
    throw wrong(
      'option "get" is needed beside "fetch" where there are keys: a peer is first asked to show that it has one',
    );
  }
  return {
    id,
    peers: [...new Set(peers.map(normalisePeer))],
    ...(numbers as Pick<CheckedConfig, SettingName>),
    maxBacklog: checkBacklog(given.maxBacklog),
    verify: checkVerify(given.verify),
    keepTombstonesMs: checkTombstones(given.tombstones),
    conflicts: checkConflicts(given.conflicts),
    feed: checkFeed(given.feed),
    ...(given.tls !== undefined && { tls: checkTls(given.tls) }),
    ...(auth && { auth }),
    ...(clock && { clock }),
    ...(fetch && { fetch }),
    ...(get && { get }),
    ...(random && { random }),
  };
}

export interface CheckedChange {
  settings: Partial<CheckedSettings>;
  tls: TlsOptions | undefined;
  auth: CheckedAuth | undefined;
}

/** What `configure` is given: these settings, and the others stay as they are. */
export function checkSettings(settings: Settings, kind: keyof typeof PEERS = 'node'): CheckedChange {
  if (typeof settings !== 'object' || settings === null) throw wrong('settings must be an object {batchMs, ...}');
  const known = RUNTIME[kind];
  refuseUnknown(settings as Record<string, unknown>, known, 'the others are read once: start again to change them');
  const { tls, auth } = settings;
  const isGiven = (name: string): boolean => settings[name as keyof Settings] !== undefined;
  const given = known.filter((name) => name !== 'auth' && name !== 'tls' && isGiven(name)) as (keyof CheckedSettings)[];
  const checked = given.map((name) => {
    if (name === 'maxBacklog') return [name, checkBacklog(settings.maxBacklog)];
    return [name, name === 'conflicts' ? checkConflicts(settings.conflicts) : checkNumber(name, settings[name])];
  });
  return {
    settings: Object.fromEntries(checked),
    tls: tls === undefined ? undefined : checkTls(tls),
    auth: auth === undefined ? undefined : checkAuth(auth, normalisePeer),
  };
}

/**
 * Keys are replaced while requests are under way, and so are certificates; whether there are keys is said at the start.
 * Returns what else was changed.
 */
export function replaceTrust(
  { auth, tls, settings }: CheckedChange,
  keyring: { replace(auth: CheckedAuth): void } | undefined,
  transport: { secure(tls: TlsOptions): void },
): Partial<CheckedSettings> {
  if (auth && !keyring) throw wrong('option "auth" can only be replaced, and there was none: start again with it');
  if (tls) transport.secure(tls);
  if (auth) keyring?.replace(auth);
  return settings;
}

function refuseUnknown(given: Record<string, unknown>, known: string[], hint = ''): void {
  for (const key of Object.keys(given)) {
    if (known.includes(key)) continue;
    const listed = `the options are ${known.join(', ')}`;
    throw wrong(`unknown option "${key}"${suggest(key, known)}`, hint === '' ? listed : `${listed}; ${hint}`);
  }
}

const UNLIMITED: BacklogLimits = { changes: 'unlimited', bytes: 'unlimited', ageMs: 'unlimited' };

function checkBacklog(given: unknown = {}): BacklogLimits {
  if (given === 'unlimited') return UNLIMITED;
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw wrong(`option "maxBacklog" must be "unlimited" or an object {${BACKLOG_NAMES.join(', ')}}`);
  }
  const limits = given as Record<string, unknown>;
  const stranger = Object.keys(limits).find((key) => !(BACKLOG_NAMES as string[]).includes(key));
  if (stranger !== undefined) {
    const hint = `it has ${BACKLOG_NAMES.join(', ')}`;
    throw wrong(`unknown option "maxBacklog.${stranger}"${suggest(stranger, BACKLOG_NAMES)}`, hint);
  }
  const checked = BACKLOG_NAMES.map((name) => [name, checkLimit(name, limits[name])]);
  return Object.fromEntries(checked) as unknown as BacklogLimits;
}

/** A limit of the backlog is a whole number from 1, or one of its words. */
function checkLimit(name: BacklogSetting, value: unknown): unknown {
  const { default: otherwise, words } = BACKLOG_SETTINGS[name];
  if (value === undefined) return otherwise;
  if ((words as readonly unknown[]).includes(value)) return value;
  if (Number.isSafeInteger(value) && (value as number) >= 1) return value;
  const allowed = words.map((word) => `"${word}"`).join(' or ');
  throw wrong(`option "maxBacklog.${name}" must be an integer from 1, or ${allowed}, not ${named(value)}`);
}

function checkVerify(given: unknown): CheckedVerify {
  if (given === false) return { everyMs: 0, repair: VERIFY.repair.default };
  if (given !== undefined && (typeof given !== 'object' || given === null)) {
    throw wrong('option "verify" must be an object {every, repair}, or false');
  }
  const known = Object.keys(VERIFY);
  for (const key of Object.keys(given ?? {})) {
    if (!known.includes(key)) throw wrong(`option "verify" has no "${key}"${suggest(key, known)}`);
  }
  const { every = VERIFY.every.default, repair = VERIFY.repair.default } = (given ?? {}) as Record<string, unknown>;
  if (typeof repair !== 'boolean') throw wrong('option "verify.repair" must be true or false');
  const everyMs = parseEvery(every);
  if (everyMs === undefined) throw wrong(`option "verify.every" ${EVERY_RULE}, not ${named(every)}`);
  return { everyMs, repair };
}

function checkTombstones(given: unknown): number | undefined {
  if (given === undefined) return undefined;
  const shape = 'option "tombstones" must be an object {keep}';
  if (typeof given !== 'object' || given === null) throw wrong(shape);
  const [other] = Object.keys(given).filter((key) => key !== 'keep');
  if (other !== undefined) throw wrong(`${shape}, and has no "${other}"`);
  const { keep } = given as { keep?: unknown };
  const ms = typeof keep === 'string' ? keepMs(keep) : null;
  if (ms === null) throw wrong(`option "tombstones.keep" ${KEEP_RULE}, not ${named(keep)}`);
  return ms;
}

/** An id travels as an HTTP header. */
export const ID_RULE = 'must be at most 200 printable ASCII characters without spaces';

function checkId(id: unknown): string {
  if (typeof id !== 'string' || id.trim() === '') throw wrong('option "id" must be a non-empty string');
  if (!isNodeId(id)) throw wrong(`option "id" ${ID_RULE}`);
  if (id === SELF) throw wrong(`option "id" must not be "${SELF}": why() and the conflicts say so of the node itself`);
  return id;
}

export function checkTables(tables: string[]): string[] {
  if (!Array.isArray(tables) || tables.length === 0) throw wrong('tables must be a non-empty array of table names');
  for (const table of tables) {
    if (typeof table !== 'string' || table === '') throw wrong(`tables must be names, not ${named(table)}`);
    // A peer that does not know the table would not even keep its changes.
    if (Buffer.byteLength(table) > TABLE_NAME_BYTES_MAX) {
      throw wrong(`names of tables may have ${TABLE_NAME_BYTES_MAX} bytes; ${shortened(table)} has more`);
    }
  }
  return [...new Set(tables)];
}

/** A peer as it is given to `add`: its URL, or an object that has it. */
export interface PeerOptions {
  url: string;
}

/** The URL of a peer, checked and spelt as everywhere. */
export function checkPeer(peer: string | PeerOptions): string {
  if (typeof peer !== 'object' || peer === null) return normalisePeer(peer);
  refuseUnknown({ ...peer }, ['url']);
  return normalisePeer(peer.url);
}

/** Somebody to whom is not sent was named as if it were. */
export function refuseStranger(url: string, known: string[], what: 'peer' | 'edge'): never {
  const hint = known.length === 0 ? `there is no ${what}` : `the ${what}s are ${known.join(', ')}`;
  throw new RowcastError('INVALID_PEER', `${url} is not among the ${what}s${suggest(url, known)}`, { hint });
}

function checkNumber(name: SettingName, value: unknown): number | 'auto' {
  const { default: otherwise, min, max, orZero = false }: Setting = SETTINGS[name];
  if (value === undefined || value === otherwise) return otherwise;
  if (orZero && value === 0) return 0;
  if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
    const word = orZero ? '0, or ' : otherwise === 'auto' ? '"auto", or ' : '';
    throw wrong(`option "${name}" must be ${word}an integer from ${min} to ${max}, not ${named(value)}`);
  }
  return value;
}

function shortened(name: string): string {
  return JSON.stringify(`${name.slice(0, 40)}...`);
}

function wrong(message: string, hint?: string): RowcastError {
  return new RowcastError('INVALID_OPTION', message, hint === undefined ? {} : { hint });
}
