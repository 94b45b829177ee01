/** The options of attach, checked one by one: a misspelt or ill-typed option is an error that names it. */
import type { Clock } from './clock.ts';
import { RowcastError } from './errors.ts';
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
  /** Seams for tests and simulations: time, network and chance come from outside. */
  clock?: Clock;
  fetch?: Fetch;
  /** How a quiet peer is asked for its `/health`. With a `fetch` and without this, it is not asked. */
  get?: Get;
  random?: () => number;
}

type Seam = 'clock' | 'fetch' | 'get' | 'random';
export type CheckedConfig = Required<Omit<Config, Seam>> & Pick<Config, Seam>;

const NUMBERS = {
  batchMs: { default: 50, min: 1, max: 3_600_000 },
  // Measured: a thousand five-column rows keep the receiver's transaction, and with it its event loop, under 10 ms; two
  // thousand drain a backlog 5 % faster and block twice as long.
  batchSize: { default: 1_000, min: 1, max: BATCH_CHANGES_MAX },
  maxBatchBytes: { default: 4 * 1024 * 1024, min: 1_024, max: 512 * 1024 * 1024 },
  maxBodyBytes: { default: 64 * 1024 * 1024, min: 1_024, max: 512 * 1024 * 1024 },
  requestTimeoutMs: { default: 30_000, min: 1, max: 3_600_000 },
} as const;

const KNOWN = ['id', 'peers', ...Object.keys(NUMBERS), 'clock', 'fetch', 'get', 'random'];

export function checkConfig(config: Config): CheckedConfig {
  if (typeof config !== 'object' || config === null) throw wrong('config must be an object {id, peers, ...}');
  for (const key of Object.keys(config)) {
    if (!KNOWN.includes(key)) throw wrong(`unknown option "${key}"`, `the options are ${KNOWN.join(', ')}`);
  }
  if (typeof config.id !== 'string' || config.id.trim() === '') throw wrong('option "id" must be a non-empty string');
  // It travels as an HTTP header.
  if (!/^[\x21-\x7e]{1,200}$/.test(config.id)) {
    throw wrong('option "id" must be at most 200 printable ASCII characters without spaces');
  }
  if (!Array.isArray(config.peers)) throw wrong('option "peers" must be an array of URLs');
  const numbers = Object.fromEntries(
    Object.entries(NUMBERS).map(([name, range]) => [
      name,
      checkNumber(name, config[name as keyof typeof NUMBERS], range),
    ]),
  ) as Record<keyof typeof NUMBERS, number>;
  const { clock, fetch, get, random } = config;
  if (clock !== undefined && (typeof clock?.now !== 'function' || typeof clock?.sleep !== 'function')) {
    throw wrong('option "clock" must have now() and sleep()');
  }
  for (const [name, seam] of Object.entries({ fetch, get, random })) {
    if (seam !== undefined && typeof seam !== 'function') throw wrong(`option "${name}" must be a function`);
  }
  return {
    id: config.id,
    peers: [...new Set(config.peers.map(normalisePeer))],
    ...numbers,
    ...(clock && { clock }),
    ...(fetch && { fetch }),
    ...(get && { get }),
    ...(random && { random }),
  };
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

function checkNumber(name: string, value: unknown, range: { default: number; min: number; max: number }): number {
  if (value === undefined) return range.default;
  if (typeof value !== 'number' || !Number.isInteger(value) || value < range.min || value > range.max) {
    throw wrong(`option "${name}" must be an integer from ${range.min} to ${range.max}, not ${String(value)}`);
  }
  return value;
}

function wrong(message: string, hint?: string): RowcastError {
  return new RowcastError('INVALID_OPTION', message, hint === undefined ? {} : { hint });
}
