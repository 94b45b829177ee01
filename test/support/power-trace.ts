/** Reads what strace wrote: the system calls of a process in the order in which they began, and where each one ended. */
export interface Call {
  name: string;
  /** The arguments and the result as strace prints them. */
  text: string;
  /** Lines of the trace at which the call began and ended: a call that spans others has a begin and an end. */
  begin: number;
  end: number;
}

export function parseTrace(trace: string): Call[] {
  const calls: Call[] = [];
  const unfinished = new Map<string, Call>();
  for (const [number, line] of trace.split('\n').entries()) {
    const [, pid, rest] = /^(\d+)\s+(.*)$/.exec(line) ?? [];
    if (pid === undefined || rest === undefined) continue;
    const resumed = /^<\.\.\. (\w+) resumed>(.*)$/.exec(rest);
    if (resumed) {
      const call = unfinished.get(pid);
      unfinished.delete(pid);
      if (call) Object.assign(call, { end: number, text: call.text + resumed[2] });
      continue;
    }
    const started = /^(\w+)\((.*)$/.exec(rest);
    if (!started) continue;
    const call = { name: started[1] as string, text: started[2] as string, begin: number, end: number };
    calls.push(call);
    if (rest.includes('<unfinished ...>')) {
      call.end = Number.POSITIVE_INFINITY;
      unfinished.set(pid, call);
    }
  }
  return calls;
}

const isSync = ({ name }: Call): boolean => name === 'fsync' || name === 'fdatasync';
const isWrite = ({ name }: Call): boolean => /^(write|writev|pwrite64|pwritev|send|sendto|sendmsg)$/.test(name);
const isWal = ({ text }: Call): boolean => /^\d+<[^>]*-wal>/.test(text);

/** Everything the process had written to its WAL when `call` began was synced before it began. */
export function walIsSyncedBefore(calls: Call[], call: Call): boolean {
  const lastWrite = calls.filter((c) => isWrite(c) && isWal(c) && c.begin < call.begin).at(-1);
  if (!lastWrite) throw new Error('the trace holds no write to a WAL');
  return calls.some((c) => isSync(c) && isWal(c) && c.begin > lastWrite.begin && c.end < call.begin);
}

/** The writes to sockets that hold `text`, as strace prints it. */
export function sentWith(calls: Call[], text: string): Call[] {
  return calls.filter(
    (call) => isWrite(call) && !isWal(call) && !/^\d+<\//.test(call.text) && call.text.includes(text),
  );
}

/** Writes to the WAL between two calls. */
export function walWritesBetween(calls: Call[], after: Call, before: Call): number {
  return calls.filter((c) => isWrite(c) && isWal(c) && c.begin > after.begin && c.begin < before.begin).length;
}
