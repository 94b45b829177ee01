/**
 * Reads what strace wrote of one process: what it did to the files of one folder and said over its sockets, in order.
 *
 * A write counts from the moment it begins and a sync from the moment it has ended, so where calls of several threads
 * overlap, the reading is the one that promises less.
 */
import { Buffer } from 'node:buffer';
import { basename, dirname } from 'node:path';

export type DiskEvent =
  | { kind: 'create' | 'remove' | 'sync'; file: string }
  | { kind: 'write'; file: string; at: number; data: Buffer }
  | { kind: 'truncate'; file: string; size: number }
  | { kind: 'sync-folder' };

export type TraceEvent = DiskEvent | { kind: 'sent' | 'received'; socket: string; data: Buffer };

/** Hexadecimal strings of any length, so that nothing has to be unescaped; `?` where a call exists on some machines only. */
export function straceCommand(output: string): string[] {
  const files = '?open,openat,?unlink,unlinkat,?rename,?renameat,?renameat2,?truncate,ftruncate,fallocate';
  const writes = 'write,writev,pwrite64,pwritev,?pwritev2,fsync,fdatasync,sync_file_range,sendto,sendmsg';
  const reads = 'read,readv,recvfrom';
  const calls = `trace=${files},${writes},${reads}`;
  return ['strace', '-f', '--seccomp-bpf', '-y', '-xx', '-s', '100000000', '-e', calls, '-o', output];
}

export function readTrace(trace: string, folder: string): TraceEvent[] {
  const events: TraceEvent[] = [];
  const unfinished = new Map<string, string>();
  for (const line of trace.split('\n')) {
    const [, pid, rest] = /^(\d+)\s+(.*)$/s.exec(line) ?? [];
    if (pid === undefined || rest === undefined) continue;
    const resumed = /^<\.\.\. \w+ resumed>(.*)$/s.exec(rest);
    const began = unfinished.get(pid);
    if (resumed && began !== undefined) {
      unfinished.delete(pid);
      events.push(...understand(began + resumed[1], folder).filter((event) => !countsFromItsBegin(event)));
    } else if (rest.endsWith('<unfinished ...>')) {
      const call = rest.slice(0, -'<unfinished ...>'.length).trimEnd();
      unfinished.set(pid, call);
      // The result is not known yet; what cannot be undone is taken as done.
      events.push(...understand(`${call}) = ?`, folder).filter(countsFromItsBegin));
    } else {
      events.push(...understand(rest, folder));
    }
  }
  return events;
}

function countsFromItsBegin({ kind }: TraceEvent): boolean {
  return kind !== 'sync' && kind !== 'sync-folder' && kind !== 'received';
}

function understand(call: string, folder: string): TraceEvent[] {
  const [, name, args, result] = /^(\w+)\((.*)\)\s+= (\?|-?\w+)/s.exec(call) ?? [];
  if (name === undefined || args === undefined || result === undefined || result.startsWith('-')) return [];
  const length = result === '?' ? Number.POSITIVE_INFINITY : Number(result);
  const target = /^\w+<([^>]*)>/.exec(args);
  const path = target ? bytesOf(target[1] as string).toString() : '';
  const socket = /^(socket|TCP|TCPv6):/.test(path);
  const file = dirname(path) === folder ? known(basename(path)) : undefined;
  switch (name) {
    case 'open':
    case 'openat': {
      const named = strings(args)[0]?.toString() ?? '';
      const opened = dirname(named) === folder ? known(basename(named)) : undefined;
      if (opened === undefined || !args.includes('O_CREAT')) return [];
      if (args.includes('O_TRUNC')) throw new Error(`a database file was opened with O_TRUNC: ${named}`);
      return [{ kind: 'create', file: opened }];
    }
    case 'unlink':
    case 'unlinkat': {
      const named = strings(args)[0]?.toString() ?? '';
      const removed = dirname(named) === folder ? known(basename(named)) : undefined;
      return removed === undefined ? [] : [{ kind: 'remove', file: removed }];
    }
    case 'fsync':
    case 'fdatasync':
      if (path === folder) return [{ kind: 'sync-folder' }];
      return file === undefined ? [] : [{ kind: 'sync', file }];
    case 'ftruncate':
      return file === undefined ? [] : [{ kind: 'truncate', file, size: Number(args.split(', ')[1]) }];
    case 'pwrite64': {
      if (file === undefined) return [];
      const at = Number(/, (\d+)$/.exec(args)?.[1]);
      return [{ kind: 'write', file, at, data: (strings(args)[0] as Buffer).subarray(0, length) }];
    }
    case 'read':
    case 'readv':
    case 'recvfrom':
      if (!socket) return [];
      return [{ kind: 'received', socket: path, data: Buffer.concat(strings(args)).subarray(0, length) }];
    case 'write':
    case 'writev':
    case 'sendto':
    case 'sendmsg':
      if (socket) return [{ kind: 'sent', socket: path, data: Buffer.concat(strings(args)).subarray(0, length) }];
  }
  // Whatever else reaches a database file would be missing in the reconstruction.
  if (file !== undefined) throw new Error(`the trace holds a call that is not understood: ${name} on ${file}`);
  return [];
}

/** The shared memory of a WAL is rebuilt by the first connection: what it held at the cut is of no interest. */
function known(name: string): string | undefined {
  return /\.db(-wal|-journal)?$/.test(name) ? name : undefined;
}

function strings(args: string): Buffer[] {
  return [...args.matchAll(/"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?/g)].map(([, hex, more]) => {
    if (more) throw new Error('the trace holds a string that was cut short');
    return bytesOf(hex as string);
  });
}

function bytesOf(hex: string): Buffer {
  return Buffer.from(hex.replaceAll('\\x', ''), 'hex');
}

/** Something that was said over a socket: the events with its first and with its last byte. */
export interface Said {
  match: RegExpExecArray;
  first: number;
  last: number;
}

/** What was sent or received and fits `pattern` (global), whichever way it was cut into calls. */
export function said(events: TraceEvent[], kind: 'sent' | 'received', pattern: RegExp): Said[] {
  const streams = new Map<string, { text: string; pieces: { end: number; event: number }[] }>();
  for (const [event, one] of events.entries()) {
    if (one.kind !== kind) continue;
    const stream = streams.get(one.socket) ?? { text: '', pieces: [] };
    streams.set(one.socket, stream);
    stream.text += one.data.toString('latin1');
    stream.pieces.push({ end: stream.text.length, event });
  }
  const found = [...streams.values()].flatMap(({ text, pieces }) => {
    const eventOf = (at: number): number => pieces.find(({ end }) => at < end)?.event as number;
    return [...text.matchAll(pattern)].map((match) => ({
      match,
      first: eventOf(match.index),
      last: eventOf(match.index + match[0].length - 1),
    }));
  });
  return found.sort((a, b) => a.last - b.last);
}
