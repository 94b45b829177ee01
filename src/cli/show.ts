/** How the commands show what they have found: few lines, aligned, with numbers that a tired person can read. */
import type { Observed } from '../observe/metrics.ts';

/** What `status` has of a node, and of a hub. */
export interface ShownStatus extends Omit<Observed, 'peer_states'> {
  problems: string[];
  /** The file alone was looked at: nobody can say whether all is well. */
  offline?: true;
  dead_letter: number;
  peer_states: (Observed['peer_states'][number] & {
    verified: { pending: number } | null;
    last_error: string | null;
    stale?: boolean;
  })[];
}

export function statusText(status: ShownStatus, now: number): string {
  const { version, runtime, sqlite } = status.build;
  const role = status.tables ? 'node' : 'hub';
  const lines = [
    `${role} ${status.node_id}: ${status.offline ? 'as its file says' : status.ok ? 'ok' : 'NOT OK'}   (rowcast ${version}, ${runtime}, SQLite ${sqlite})`,
    ...status.problems.map((problem) => `  problem: ${inOneLine(problem)}`),
    `  ${rowsText(status)}; file ${bytes(status.file.bytes)}, log ${bytes(status.file.wal_bytes)}; database ${status.inc}`,
    `  dead letters: ${lettersText(status)}`,
    ...(status.conflicts
      ? [`  edits that were lost: ${counted(status, 'conflicts', status.conflicts)} (rowcast conflicts)`]
      : []),
    ...(status.peer_states.length === 0 ? [`  no ${role === 'node' ? 'peers' : 'edges'}`] : []),
  ];
  const peers = status.peer_states.map((peer) => [
    `  ${peer.url}`,
    peerWord(peer, status),
    `pending ${count(peer.pending)}`,
    peer.lag_ms > 0 ? `for ${duration(peer.lag_ms)}` : '',
    peer.verified ? `compared ${duration(now - peer.verified.at)} ago${difference(peer.verified)}` : 'not compared yet',
    isTroubled(peer) ? (peer.last_error ?? '') : '',
  ]);
  return `${[...lines, ...aligned(peers)].join('\n')}\n`;
}

function rowsText(status: ShownStatus): string {
  if (!status.tables) return `${counted(status, 'item_count', status.item_count)} rows`;
  const one = (t: NonNullable<ShownStatus['tables']>[number]): string =>
    `${t.name}: ${counted(t, 'rows', t.rows)} rows, ${counted(t, 'tombstones', t.tombstones)} tombstones`;
  return status.tables.map(one).join('; ');
}

function lettersText(status: ShownStatus): string {
  if (status.dead_letter === 0) return 'none';
  const letters = status.letters.map((one) => `${counted(one, 'count', one.count)} ${one.code} ${one.direction}`);
  return `${counted(status, 'dead_letter', status.dead_letter)} (${letters.join(', ')})`;
}

/** A number that may not have been counted to the end yet. */
function counted({ at_least = [] }: { at_least?: string[] }, name: string, value: number): string {
  return at_least.includes(name) ? `at least ${count(value)}` : count(value);
}

function peerWord(peer: ShownStatus['peer_states'][number], { tables = [] }: ShownStatus): string {
  if (peer.paused) return 'paused';
  if (peer.stale) return 'stale';
  if (!peer.snapshot) return conditionOf(peer);
  const all = tables.reduce((sum, table) => sum + table.rows + table.tombstones, 0);
  const isCounted = tables.every(({ at_least }) => at_least === undefined);
  const done = all === 0 || !isCounted ? '' : `, ${Math.floor(100 * Math.max(0, 1 - peer.pending / all))} % done`;
  return `${peer.state}, being given everything${done}`;
}

const BEHIND_MS = 5_000;

/** One word, as the console has it: a peer may still be up and take nothing any more. */
function conditionOf(peer: ShownStatus['peer_states'][number]): string {
  if (peer.state !== 'up') return peer.state;
  if (isTroubled(peer)) return 'retrying';
  return peer.pending > 0 && peer.lag_ms > BEHIND_MS ? 'behind' : 'up';
}

function isTroubled({ state, paused, last_error: error, pending }: ShownStatus['peer_states'][number]): boolean {
  return !paused && error !== null && (state === 'down' || pending > 0);
}

/** A terminal sees where it is; what it has seen is gone when it is over. */
export function whileShowing<T>(fn: (at: (phase: string) => void) => T): T {
  const show = (text: string): unknown => process.stderr.isTTY && process.stderr.write(`\r\x1b[K${text}`);
  try {
    return fn((phase) => void show(`${phase} ...`));
  } finally {
    show('');
  }
}

type Compared = Pick<NonNullable<ShownStatus['peer_states'][number]['verified']>, 'tables' | 'error' | 'pending'>;

function difference({ tables, error, pending }: Compared): string {
  if (error !== undefined) return `: ${error}`;
  const rows = Object.values(tables).reduce((sum, n) => sum + n, 0);
  if (rows > 0) return `: ${count(rows)} rows differed`;
  // The other side has been sent them, and keeps them until their time has come; or they are being sent.
  return pending > 0 ? `: ${count(pending)} rows on their way` : ': equal';
}

/**
 * Names, reasons and values come from strangers: what would move the cursor, or turn a line around, is spelt out. The escapes
 * are those of JSON, so that what is JSON stays so.
 */
export function harmless(text: string): string {
  return text.replace(UNSEEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** The same for what is to stay within its line, or its column. */
export function inOneLine(text: string): string {
  return harmless(text).replace(/[\n\t]/g, (c) => (c === '\n' ? '\\n' : '\\t'));
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it is about
const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Columns as wide as the widest of their cells; the last one as it is. */
export function aligned(given: string[][]): string[] {
  const rows = given.map((row) => row.map(inOneLine));
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}

export function count(n: number): string {
  return n.toLocaleString('en');
}

export function bytes(n: number): string {
  if (n < 1_000) return `${n} B`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  const power = Math.min(units.length, Math.floor(Math.log10(n) / 3));
  return `${(n / 1_000 ** power).toFixed(1)} ${units[power - 1]}`;
}

export function duration(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1_000));
  if (s < 120) return `${s} s`;
  if (s < 7_200) return `${Math.round(s / 60)} min`;
  return s < 172_800 ? `${Math.round(s / 3_600)} h` : `${Math.round(s / 86_400)} days`;
}
