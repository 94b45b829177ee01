/**
 * The log of a running program: one JSON object per line on standard output, or one line of text, written when a state
 * changes and not per request or tick. It names tables, peers and counts; values and ids of rows are never written.
 */

import { type Clock, passedSince } from '../clock.ts';
import type { Emitter, EventName, Listener, NodeOnlyEvent, RowcastEvents } from '../events.ts';
import { withoutAnswer } from '../send/verdict.ts';
import type { RecentLines } from './recent-lines.ts';
import { harmless } from './show.ts';

export const LEVELS = ['info', 'warn', 'error'] as const;
export const FORMATS = ['json', 'text'] as const;
export type Level = (typeof LEVELS)[number];

/** May be changed while the program runs. */
export interface Logging {
  /** The least that is written. */
  level: Level;
  format: (typeof FORMATS)[number];
}

export type Log = (level: Level, event: string, fields?: Record<string, unknown>) => void;

/** A failure that goes on (a full disk) comes with every tick; it is written once in this time, with a count. */
const REPEAT_MS = 60_000;
const REMEMBERED_MAX = 100;
/** Lines about the letters of one batch, and characters of a stranger's name. */
const LINES_MAX = 10;
const NAME_MAX = 200;

export function createLog(
  node: string,
  clock: Clock,
  write: (line: string) => void,
  logging: Logging = { level: 'info', format: 'json' },
  recent?: RecentLines,
): Log {
  return (level, event, fields = {}) => {
    if (LEVELS.indexOf(level) < LEVELS.indexOf(logging.level)) return;
    const time = new Date(clock.now()).toISOString();
    const line =
      logging.format === 'json'
        ? JSON.stringify({ time, level, event, node, ...fields })
        : `${time} ${level.padEnd(5)} ${event}${asText({ node, ...fields })}`;
    write(`${line}\n`);
    recent?.add({ time, level, event, fields });
  };
}

/** ` key=value` for each; quoted, as JSON is, where it is more than a word. Nothing that was received breaks the line. */
function asText(fields: Record<string, unknown>): string {
  return Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => {
      const word = typeof value === 'string' && /^[\w./:@+-]+$/.test(value);
      return ` ${key}=${word ? value : harmless(JSON.stringify(value))}`;
    })
    .join('');
}

/** A node's manager, or a hub: whatever says what happens to it. */
export interface Subscribable {
  on<E extends Exclude<EventName, NodeOnlyEvent>>(event: E, listener: Listener<E>): () => void;
}

/** Writes the manager's events to the log. */
export function logEvents(manager: Subscribable, log: Log, clock: Clock): void {
  const sparing = sparingly(log, clock);
  manager.on('peer-up', ({ peer }) => log('info', 'peer-up', { peer }));
  manager.on('peer-down', ({ peer, reason }) => log('warn', 'peer-down', { peer, reason: withoutAnswer(reason) }));
  manager.on('restored', () => log('warn', 'restored'));
  manager.on('peer-replaced', ({ peer, id }) => log('warn', 'peer-replaced', { peer, id }));
  manager.on('peer-restored', ({ id, peers }) => log('warn', 'peer-restored', { id, peers }));
  const countReceived = countLetters(log);
  manager.on('dead-letter', (letter) => {
    if (letter.direction === 'in') return countReceived(letter);
    const { direction, peer, code, reason, rows } = letter;
    const tables = [...new Set(rows.map((row) => row.table))];
    log('error', 'dead-letter', {
      direction,
      peer,
      code,
      reason: withoutAnswer(reason),
      tables,
      changes: rows.length,
    });
  });
  manager.on('verify-done', ({ equal, ...found }) =>
    log(equal ? 'info' : 'warn', 'verify-done', {
      equal,
      ...found,
      ...(found.error && { error: withoutAnswer(found.error) }),
    }),
  );
  manager.on('warning', ({ code, message }) => sparing('warn', 'warning', { code, message }));
  manager.on('error', ({ code, message }) => sparing('error', 'error', { code, message }));
}

/** The same line at most once a minute, with the number of those held back since. */
export function sparingly(log: Log, clock: Clock): Log {
  const seen = new Map<string, { at: number; held: number }>();
  return (level, event, fields = {}) => {
    const key = JSON.stringify([event, fields]);
    const now = clock.now();
    const last = seen.get(key);
    if (last && passedSince(clock, last.at) < REPEAT_MS) {
      last.held += 1;
      return;
    }
    if (!last && seen.size >= REMEMBERED_MAX) seen.delete(seen.keys().next().value as string);
    seen.set(key, { at: now, held: 0 });
    log(level, event, last && last.held > 0 ? { ...fields, repeated: last.held } : fields);
  };
}

/** A batch may bring thousands of letters at once: one line per sender, cause and table says it. */
function countLetters(log: Log): (event: RowcastEvents['dead-letter']) => void {
  const counts = new Map<
    string,
    { direction: 'in'; peer: string | undefined; code: string; table: string; changes: number }
  >();
  const columns = new Set<string>();
  return ({ direction, peer, code, reason, rows }) => {
    const table = (rows[0]?.table ?? '').slice(0, NAME_MAX);
    if (code === 'unknown-column') {
      // Every row of that sender brings it again, until the schema has caught up: it is said once.
      if (columns.has(reason)) return;
      if (columns.size >= REMEMBERED_MAX) columns.clear();
      columns.add(reason);
      log('error', 'dead-letter', { direction, peer, code, table, reason: reason.slice(0, 200), changes: rows.length });
      return;
    }
    if (counts.size === 0) {
      queueMicrotask(() => {
        const told = [...counts.values()];
        for (const count of told.slice(0, LINES_MAX)) log('error', 'dead-letter', count);
        if (told.length > LINES_MAX) {
          const changes = told.slice(LINES_MAX).reduce((sum, count) => sum + count.changes, 0);
          log('error', 'dead-letter', { direction: 'in', code: 'others', changes });
        }
        counts.clear();
      });
    }
    const key = JSON.stringify([peer, code, table]);
    const count = counts.get(key) ?? { direction: 'in' as const, peer, code, table, changes: 0 };
    count.changes += rows.length;
    counts.set(key, count);
  };
}

/** Hot rows may lose edits by the thousand: one line a minute, with how many since the last, and of which tables. */
export function logConflicts(manager: Pick<Emitter, 'on'>, log: Log, clock: Clock): void {
  const tables = new Set<string>();
  let [held, saidAt, waiting] = [0, Number.NEGATIVE_INFINITY, false];
  const say = (): void => {
    waiting = false;
    if (passedSince(clock, saidAt) < REPEAT_MS) return;
    saidAt = clock.now();
    log('warn', 'conflict', { conflicts: held, tables: [...tables] });
    held = 0;
    tables.clear();
  };
  manager.on('conflict', ({ table }) => {
    held += 1;
    tables.add(table);
    // The others of the same batch are counted with it.
    if (!waiting) queueMicrotask(say);
    waiting = true;
  });
}
