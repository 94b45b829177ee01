/** The options of attach and createHub, checked one by one: a misspelt or ill-typed option is an error that names it. */
import type { Clock } from './clock.ts';
import { RowcastError, suggest } from './errors.ts';
import type { Fetch, Get } from './send/transport.ts';
import { BATCH_CHANGES_MAX, SYNC_PATH } from './wire/protocol.ts';

export interface Config {
  /** This node's id, sent with every batch. */
  id: string;
  /** Base URLs of the peers; `/sync` is appended. */
  peers: string[];
  /** How often to look for changes, in milliseconds. Default 50. */
  batchMs?: number;
  /** Most changes per batch; at most 10,000. Default 1,000. */
  batchSize?: number;
  /** Most bytes per batch sent; a single larger change still goes, alone. Default 4 MiB. */
  maxBatchBytes?: number;
  /** Most bytes of a body received. Default 64 MiB. */
  maxBodyBytes?: number;
  /** How long a peer may take to answer, in milliseconds. Default 30,000. */
  requestTimeoutMs?: number;
  /**
   * Compare with every peer by itself, so often, and put right what differs. Default every 24 hours, with repair; false:
   * only where something has been found out, or on demand.
   */
  verify?: { every?: string | number; repair?: boolean } | false;
  /** Seams for tests and simulations: time, network and chance come from outside. */
  clock?: Clock;
  fetch?: Fetch;
  /** How a quiet peer is asked for its `/health`. With a `fetch` and without this, it is not asked. */
  get?: Get;
  random?: () => number;
}

type Seam = 'clock' | 'fetch' | 'get' | 'random';
export type CheckedConfig = Required<Omit<Config, Seam | 'verify'>> & Pick<Config, Seam> & { verify: CheckedVerify };

export interface CheckedVerify {
  /** 0: never by itself. */
  everyMs: number;
  repair: boolean;
}

export interface Setting {
  default: number;
  min: number;
  max: number;
  /** One sentence, for the help of the programs. */
  help: string;
}

const HOUR_MS = 3_600_000;
const MIB = 1024 * 1024;

/** Every setting that is a number, declared once: the options of attach and createHub and the flags of both programs. */
export const SETTINGS = {
  batchMs: { default: 50, min: 1, max: HOUR_MS, help: 'How often to look for changes, in milliseconds.' },
  // Measured: a thousand five-column rows keep the receiver's transaction, and with it its event loop, under 10 ms; two
  // thousand drain a backlog 5 % faster and block twice as long.
  batchSize: { default: 1_000, min: 1, max: BATCH_CHANGES_MAX, help: 'Most changes in one batch.' },
  maxBatchBytes: {
    default: 4 * MIB,
    min: 1_024,
    max: 512 * MIB,
    help: 'Most bytes in one batch sent; a single larger change still goes, alone.',
  },
  maxBodyBytes: { default: 64 * MIB, min: 1_024, max: 512 * MIB, help: 'Largest body that /sync reads.' },
  requestTimeoutMs: { default: 30_000, min: 1, max: HOUR_MS, help: 'How long a peer may take to answer.' },
} as const satisfies Record<string, Setting>;

const DAY_MS = 24 * HOUR_MS;

/** How a node and a hub compare by themselves; likewise for both programs. */
export const VERIFY = {
  every: {
    default: '24h',
    help: 'How often to compare with every peer and put right what differs, such as 90m, 24h or 7d; off: never.',
  },
  repair: { default: true, help: 'Whether that puts right what differs, or only tells.' },
} as const;

type SettingName = keyof typeof SETTINGS;
const SETTING_NAMES = Object.keys(SETTINGS) as SettingName[];

/** Those to whom is sent: a node calls them its peers, a hub its edges. */
const PEERS = { node: 'peers', hub: 'edges' } as const;
const SEAMS = ['fetch', 'get', 'random'] as const;

/** The options of a node, or of a hub, whose `edges` come back as `peers`. */
export function checkConfig(config: object, kind: keyof typeof PEERS = 'node'): CheckedConfig {
  const peersName = PEERS[kind];
  if (typeof config !== 'object' || config === null) throw wrong(`config must be an object {id, ${peersName}, ...}`);
  const given = config as Record<string, unknown>;
  const known = ['id', peersName, ...SETTING_NAMES, 'verify', 'clock', ...SEAMS];
  for (const key of Object.keys(given)) {
    if (!known.includes(key))
      throw wrong(`unknown option "${key}"${suggest(key, known)}`, `the options are ${known.join(', ')}`);
  }
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
  return {
    id,
    peers: [...new Set(peers.map(normalisePeer))],
    ...(numbers as Record<SettingName, number>),
    verify: checkVerify(given.verify),
    ...(clock && { clock }),
    ...(fetch && { fetch }),
    ...(get && { get }),
    ...(random && { random }),
  };
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
  if (everyMs === undefined) throw wrong(`option "verify.every" ${EVERY_RULE}, not ${JSON.stringify(every)}`);
  return { everyMs, repair };
}

export const EVERY_RULE = 'must be a time from 1s to 365d, such as 90m, 24h or 7d, or milliseconds';
const UNITS = { ms: 1, s: 1_000, m: 60_000, h: HOUR_MS, d: DAY_MS };

/** `24h` in milliseconds; undefined where it is no such time. */
export function parseEvery(every: unknown): number | undefined {
  const [, digits, unit] = typeof every === 'string' ? (/^(\d{1,9})(ms|s|m|h|d)$/.exec(every) ?? []) : [];
  const ms = typeof every === 'number' ? every : Number(digits) * UNITS[unit as keyof typeof UNITS];
  return Number.isInteger(ms) && ms >= 1_000 && ms <= 365 * DAY_MS ? ms : undefined;
}

/** An id travels as an HTTP header. */
export const ID_RULE = 'must be at most 200 printable ASCII characters without spaces';

export function isId(text: string): boolean {
  return /^[\x21-\x7e]{1,200}$/.test(text);
}

function checkId(id: unknown): string {
  if (typeof id !== 'string' || id.trim() === '') throw wrong('option "id" must be a non-empty string');
  if (!isId(id)) throw wrong(`option "id" ${ID_RULE}`);
  return id;
}

export function checkTables(tables: string[]): string[] {
  if (!Array.isArray(tables) || tables.length === 0) throw wrong('tables must be a non-empty array of table names');
  for (const table of tables) {
    if (typeof table !== 'string' || table === '') throw wrong(`tables must be names, not ${JSON.stringify(table)}`);
  }
  return [...new Set(tables)];
}

/** `http://Host:80/path/` and `http://host/path` are one peer, with one watermark. */
export function normalisePeer(peer: string): string {
  const refuse = (problem: string, hint = 'a peer is a base URL such as http://10.0.0.2:9001'): RowcastError =>
    new RowcastError('INVALID_PEER', `peer ${JSON.stringify(peer)} ${problem}`, { hint });
  if (typeof peer !== 'string') throw refuse('is not a string');
  let url: URL;
  try {
    url = new URL(peer);
  } catch {
    throw refuse('is not a URL');
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw refuse(`uses ${url.protocol} instead of http: or https:`);
  if (url.username !== '' || url.password !== '') throw refuse('carries credentials');
  if (url.search !== '' || url.hash !== '') throw refuse('has a query or a fragment');
  const base = url.origin + url.pathname.replace(/\/+$/, '');
  if (base.endsWith(SYNC_PATH)) {
    throw refuse(`ends in ${SYNC_PATH}, which is appended`, `give the base URL: ${base.slice(0, -SYNC_PATH.length)}`);
  }
  return base;
}

function checkNumber(name: SettingName, value: unknown): number {
  const { default: otherwise, min, max } = SETTINGS[name];
  if (value === undefined) return otherwise;
  if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
    throw wrong(`option "${name}" must be an integer from ${min} to ${max}, not ${String(value)}`);
  }
  return value;
}

function wrong(message: string, hint?: string): RowcastError {
  return new RowcastError('INVALID_OPTION', message, hint === undefined ? {} : { hint });
}
