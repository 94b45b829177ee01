/** How a program ends, whatever is done to the clock meanwhile. */
import { afterEach, expect, test, vi } from 'vitest';
import { guarded, report, shutDown, stopSignal } from '../../src/cli/program.ts';
import { RowcastError } from '../../src/errors.ts';

afterEach(() => vi.restoreAllMocks());

const HOUR_MS = 3_600_000;

/** The clock says this from now on. */
function setClock(now: number): void {
  vi.spyOn(Date, 'now').mockReturnValue(now);
}

test('a stop ends in its time, although the clock is set back by an hour in the middle of it', async () => {
  setClock(10 * HOUR_MS);
  const forever = new Promise<never>(() => {});
  const server = {
    stop: () => {
      setClock(9 * HOUR_MS);
      return forever;
    },
    cut: () => {},
  };
  const manager = { flush: () => forever, health: async () => ({ pending_changes: 7 }), stop: async () => {} };
  const ended = await shutDown(server as never, manager as never, 20);
  expect(ended).toEqual({ requests: 'cut off', shipped: false, pending: 7 });
});

test('a second signal ends the program, although the clock was set back by an hour since the first', async () => {
  // Whatever a file before this one has left in this process would end it, too: a PostgreSQL server does.
  const others = SIGNALS.map((signal) => ({ signal, listeners: process.listeners(signal) }));
  for (const { signal } of others) process.removeAllListeners(signal);
  const exit = vi.spyOn(process, 'exit').mockReturnValue(undefined as never);
  const stopped = stopSignal(
    () => {},
    () => {},
  );
  try {
    setClock(10 * HOUR_MS);
    process.emit('SIGTERM');
    await stopped;
    // Ctrl-C under npm comes twice.
    process.emit('SIGTERM');
    expect(exit).not.toHaveBeenCalled();
    setClock(9 * HOUR_MS);
    process.emit('SIGTERM');
    expect(exit).toHaveBeenCalledWith(143);
  } finally {
    for (const { signal, listeners } of others) {
      process.removeAllListeners(signal);
      for (const one of listeners) process.on(signal, one);
    }
  }
});

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

test('a full disk is told in words, with what to do; a bug with its stack', () => {
  const said: string[] = [];
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => said.push(String(text)) > 0);
  const full = Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });
  expect(report('rowcast serve', full)).toBe(1);
  expect(said).toEqual([expect.stringMatching(/^rowcast serve: the database failed: .* is full; make room .*\n$/)]);
  expect(said.join()).not.toMatch(/ at /);
  report('rowcast serve', new Error('unforeseen'));
  expect(said[1]).toMatch(/unforeseen\n +at /);
});

test('a request that a full disk has failed is refused for now, and says that nothing was written', async () => {
  const logged: unknown[] = [];
  const failing = async (error: Error): Promise<[number, unknown]> => {
    const answer = guarded(
      async () => {
        throw error;
      },
      (_level, _event, fields) => logged.push(fields),
    );
    const { status, body } = await answer({} as never);
    return [status, JSON.parse(String(body))];
  };
  const full = Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });
  const error = 'the database failed, and nothing was written: database or disk is full';
  expect(await failing(full)).toEqual([503, { error }]);
  expect((await failing(new Error('unforeseen')))[0]).toBe(500);
  expect(logged).toEqual([
    { code: 'REQUEST_FAILED', message: 'database or disk is full' },
    { code: 'REQUEST_FAILED', message: 'unforeseen' },
  ]);
});

test('what strangers have named does nothing to a terminal where an error says it', () => {
  const said: string[] = [];
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => said.push(String(text)) > 0);
  report('rowcast forget', new RowcastError('NO_SUCH_NODE', 'no node \u009b2J\u202e is known'));
  expect(said).toEqual(['rowcast forget: no node \\u009b2J\\u202e is known\n']);
});

test('a folder that is gone is told in words', () => {
  const said: string[] = [];
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => said.push(String(text)) > 0);
  const gone = Object.assign(new Error('ENOENT: no such file or directory, uv_cwd'), { syscall: 'uv_cwd' });
  expect(report('rowcast status', gone)).toBe(1);
  expect(said).toEqual(['rowcast status: the folder that this was started in is gone: cd to another\n']);
});
