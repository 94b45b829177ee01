/**
 * `GET /_rowcast/changes`: what has changed, as JSON or as Server-Sent Events, from any position on. The feed itself is the
 * buffer: a reader is given a page at a time, when it has taken the one before, so one that is slow costs nobody memory.
 */
import { alarm, type Clock, systemClock } from '../clock.ts';
import { messageOf, RowcastError } from '../errors.ts';
import type { Feed, FeedEntry, FeedPage, FeedReadOptions } from '../feed/page.ts';
import type { Incoming, Outgoing, Outlet } from './bridge.ts';

export const CHANGES_PATH = '/_rowcast/changes';

/** A node's manager, as far as the feed needs it. */
export interface Fed {
  readonly feed: Feed | undefined;
}

export interface ChangesOptions {
  /** Most readers at a time that wait for changes. Default 100. */
  readers?: number;
  /** A prefix before `/_rowcast/changes`. */
  prefix?: string;
  /** Readers are let go of when it aborts: before a server is closed that waits for its requests to end. */
  signal?: AbortSignal;
  clock?: Clock;
  /** How often a reader to which there is nothing to say is told so. Default 15,000. */
  keepAliveMs?: number;
}

const READERS = 100;
/** Proxies hang up on who says nothing. */
const KEEP_ALIVE_MS = 15_000;
const LONGPOLL_MS = 25_000;
/** A reader that takes nothing for so long is gone, whatever its connection says. */
const STUCK_MS = 30_000;
/** So soon the application's own transaction is looked at again. */
const BUSY_MS = 20;
const BUSY_TRIES = 100;

interface Asked extends FeedReadOptions {
  since: string | undefined;
  kind: 'normal' | 'longpoll' | 'eventsource';
}

/** Answers the route; undefined where the path is not that. */
export function answerChanges(
  fed: Fed,
  options: ChangesOptions = {},
): (incoming: Incoming) => Promise<Outgoing | undefined> {
  const path = `${(options.prefix ?? '').replace(/\/+$/, '')}${CHANGES_PATH}`;
  const { clock = systemClock, readers = READERS, keepAliveMs = KEEP_ALIVE_MS, signal } = options;
  let waiting = 0;
  const counted = async <T>(fn: () => Promise<T>): Promise<T> => {
    waiting += 1;
    try {
      return await fn();
    } finally {
      waiting -= 1;
    }
  };
  return async (incoming) => {
    if (incoming.path !== path) return undefined;
    if (incoming.method !== 'GET' && incoming.method !== 'HEAD') return notAllowed();
    const { feed } = fed;
    if (!feed) return json(404, { error: 'this node has no feed: start it with the option "feed"' });
    try {
      const asked = read(incoming);
      // What is wrong is said at once, and not in a stream.
      const first = await page(feed, asked, clock);
      if (asked.kind === 'normal' || incoming.method === 'HEAD') return json(200, shown(first));
      if (waiting >= readers) return overcrowded();
      if (asked.kind === 'longpoll' && !isEmpty(first)) return json(200, shown(first));
      if (asked.kind === 'longpoll') {
        const over = firstOf(feed.stopped, signal);
        return await counted(() => longpoll(feed, asked, first, { clock, over })).finally(over.release);
      }
      const stream = async (outlet: Outlet): Promise<void> => {
        // Others may have come since.
        if (waiting >= readers) return;
        const over = firstOf(feed.stopped, outlet.gone, signal);
        await counted(() => events(feed, asked, first, { clock, over, keepAliveMs, outlet })).finally(over.release);
      };
      return { status: 200, headers: EVENT_HEADERS, body: '', stream };
    } catch (error) {
      return failed(error);
    }
  };
}

/** `no-transform`: what compresses on the way would keep events back until it has enough of them. */
const EVENT_HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-store, no-transform',
  'x-accel-buffering': 'no',
};

interface Wait {
  clock: Clock;
  /** The reader is gone, or nothing will come any more. */
  over: Over;
}

interface Pace extends Wait {
  keepAliveMs: number;
  outlet: Outlet;
}

interface Over {
  signal: AbortSignal;
  release(): void;
}

/** Aborts with the first of them. `release`: they outlive it, and are not to remember it. */
function firstOf(...signals: (AbortSignal | undefined)[]): Over {
  const first = new AbortController();
  const end = (): void => first.abort();
  for (const signal of signals) {
    if (signal?.aborted) end();
    signal?.addEventListener('abort', end, { once: true });
  }
  return {
    signal: first.signal,
    release: () => {
      for (const signal of signals) signal?.removeEventListener('abort', end);
    },
  };
}

/** Until the reader is gone, or the node is stopped. */
async function events(feed: Feed, asked: Asked, first: FeedPage, pace: Pace): Promise<void> {
  const { clock, over, keepAliveMs, outlet } = pace;
  const write = (text: string): Promise<void> => unlessStuck(outlet, clock, outlet.write(text));
  const isOver = (): boolean => over.signal.aborted;
  // A browser that loses the connection waits for so long before it comes back.
  await write('retry: 1000\n\n');
  let last = first;
  for (let next: FeedPage | undefined = first; !isOver(); next = undefined) {
    const found: FeedPage = next ?? (await page(feed, { ...asked, since: last.position }, clock));
    await write(eventsOf(found));
    last = found;
    if (found.more) continue;
    while (!isOver() && !(await changed(feed, last.position, pace, keepAliveMs))) {
      if (!isOver()) await write(':\n\n');
    }
  }
}

/** The position goes along with what there is nothing of for this reader: an event without data is not told. */
function eventsOf({ reset, entries, position }: FeedPage): string {
  if (reset) return `id: ${position}\nevent: reset\ndata: {}\n\n`;
  const texts = entries.map((entry) => `id: ${entry.position}\nevent: change\ndata: ${shownEntry(entry)}\n\n`);
  return entries.at(-1)?.position === position ? texts.join('') : `${texts.join('')}id: ${position}\n\n`;
}

async function longpoll(feed: Feed, asked: Asked, first: FeedPage, wait: Wait): Promise<Outgoing> {
  const { clock, over } = wait;
  let found = first;
  // Rung, not read from a clock, which may be set back by an hour meanwhile.
  const ended = new AbortController();
  const off = alarm(clock, LONGPOLL_MS, () => ended.abort());
  const waiting = { clock, over: firstOf(over.signal, ended.signal) };
  try {
    while (isEmpty(found) && !waiting.over.signal.aborted) {
      await changed(feed, found.position, waiting, LONGPOLL_MS);
      if (over.signal.aborted) break;
      found = await page(feed, { ...asked, since: found.position }, clock);
    }
  } finally {
    off();
    waiting.over.release();
  }
  return json(200, shown(found));
}

function isEmpty({ reset, entries, more }: FeedPage): boolean {
  return !reset && entries.length === 0 && !more;
}

/** False where nothing has changed within that time. */
async function changed(feed: Feed, position: string, { clock, over }: Wait, ms: number): Promise<boolean> {
  const woken = new AbortController();
  const end = (): void => woken.abort();
  if (over.signal.aborted) return false;
  over.signal.addEventListener('abort', end, { once: true });
  let found = false;
  const change = feed.changed(position, woken.signal).then(() => {
    found = !woken.signal.aborted;
    end();
  });
  await clock.sleep(ms, woken.signal);
  end();
  over.signal.removeEventListener('abort', end);
  await change;
  return found;
}

/** While the application has a transaction open on the connection, it is waited for. */
async function page(feed: Feed, { since, kind, ...options }: Asked, clock: Clock): Promise<FeedPage> {
  for (let tries = 1; ; tries++) {
    try {
      if (since === 'now') return { reset: false, entries: [], position: feed.position(), more: false };
      return feed.read(since, options);
    } catch (error) {
      const isOpen = error instanceof RowcastError && error.code === 'IN_TRANSACTION';
      if (!isOpen || (kind !== 'eventsource' && tries >= BUSY_TRIES)) throw error;
    }
    await clock.sleep(BUSY_MS);
  }
}

async function unlessStuck(outlet: Outlet, clock: Clock, writing: Promise<void>): Promise<void> {
  const taken = new AbortController();
  const stuck = clock.sleep(STUCK_MS, taken.signal).then(() => {
    if (!taken.signal.aborted && !outlet.gone.aborted) throw new Error('the reader takes nothing');
  });
  try {
    await Promise.race([writing, stuck]);
  } finally {
    taken.abort();
  }
}

function read(incoming: Incoming): Asked {
  const query = new URLSearchParams(incoming.query ?? '');
  const known = ['since', 'tables', 'include', 'feed'];
  for (const key of query.keys()) if (!known.includes(key)) throw wrong(`there is no ${key}: use ${known.join(', ')}`);
  const accepts = incoming.header('accept')?.includes('text/event-stream') ?? false;
  const kind = query.get('feed') ?? (accepts ? 'eventsource' : 'normal');
  if (kind !== 'normal' && kind !== 'longpoll' && kind !== 'eventsource') {
    throw wrong('feed must be normal, longpoll or eventsource');
  }
  const include = query.get('include') ?? undefined;
  if (include !== undefined && include !== 'row') throw wrong('include can be: row');
  const since = (incoming.header('last-event-id') || query.get('since')) ?? undefined;
  if (since !== undefined && since !== 'now' && since !== '0' && !/^[0-9a-f]*:\d+:[0-9a-f]*$/.test(since)) {
    throw wrong('since must be a position that the feed has given, or now, or 0 for none');
  }
  const tables = query.get('tables')?.split(',');
  return { since: since === '0' ? undefined : since, kind, row: include === 'row', ...(tables && { tables }) };
}

function shown({ reset, entries, position, more }: FeedPage): unknown {
  return { reset, changes: entries, position, more };
}

function shownEntry({ position: _, ...entry }: FeedEntry): string {
  return JSON.stringify(entry);
}

function wrong(message: string): RowcastError {
  return new RowcastError('INVALID_OPTION', message);
}

function failed(error: unknown): Outgoing {
  if (error instanceof RowcastError && error.code === 'INVALID_OPTION') return json(400, { error: error.message });
  return json(503, { error: messageOf(error) });
}

function overcrowded(): Outgoing {
  const { headers, ...rest } = json(503, { error: 'too many readers of the feed at a time: try again' });
  return { ...rest, headers: { ...headers, 'retry-after': '5' } };
}

function notAllowed(): Outgoing {
  const { headers, ...rest } = json(405, { error: 'use GET, HEAD' });
  return { ...rest, headers: { ...headers, allow: 'GET, HEAD' } };
}

function json(status: number, body: unknown): Outgoing {
  const headers = { 'content-type': 'application/json', 'cache-control': 'no-store' };
  return { status, headers, body: JSON.stringify(body) };
}
