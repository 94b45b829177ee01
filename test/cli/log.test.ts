/** The log of a program: few lines, and none of what a peer has quoted. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createLog, logConflicts, logEvents } from '../../src/cli/log.ts';
import { runningHelp } from '../../src/cli/program.ts';
import { RecentLines } from '../../src/cli/recent-lines.ts';
import { Emitter, type RowcastEvents } from '../../src/events.ts';
import { judge } from '../../src/send/verdict.ts';
import { root } from '../support/build.ts';

const cli = join(root, 'src/cli');
const written = readdirSync(cli, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => readFileSync(join(cli, name), 'utf8'))
  .flatMap((text) => [...text.matchAll(/\b(?:log|sparing)\([^,;]+,\s*'([a-z-]+)'/g)].map(([, event]) => event));

test('the page and the help list every event that a program can write, and no other', () => {
  const page = readFileSync(join(root, 'docs/server.md'), 'utf8');
  const [, listed = ''] = /written when a state changes: ([^.]+)\./.exec(page) ?? [];
  const [, helped = ''] = /written when a state changes:\n([^.]+)\./.exec(runningHelp('node')) ?? [];
  const events = [...new Set(written)].sort();
  expect(events).toContain('verify-done');
  expect([...listed.matchAll(/`([a-z-]+)`/g)].map(([, event]) => event).sort()).toEqual(events);
  expect(helped.split(/,\s/).sort()).toEqual(events);
});

function logged(tell: (events: Emitter) => void): Promise<Record<string, unknown>[]> {
  const lines: Record<string, unknown>[] = [];
  const events = new Emitter();
  const clock = { now: () => 0, sleep: async () => {} };
  logEvents(
    events,
    createLog('n', clock, (line) => lines.push(JSON.parse(line))),
    clock,
  );
  tell(events);
  return Promise.resolve().then(() => lines);
}

test('a column that is not here is told once, however many rows and batches bring it', async () => {
  const letter = (column: string): RowcastEvents['dead-letter'] => ({
    direction: 'in',
    peer: 'b',
    code: 'unknown-column',
    reason: `table "items" has no column "${column}" here; the others were applied`,
    rows: [1, 2, 3].map((id) => ({ op: 'INSERT', table: 'items', id: String(id) })),
  });
  const lines = await logged((events) => {
    for (let i = 0; i < 5; i++) for (const column of ['node_id', 'colour']) events.emit('dead-letter', letter(column));
  });
  expect(lines).toMatchObject([
    {
      event: 'dead-letter',
      code: 'unknown-column',
      table: 'items',
      changes: 3,
      reason: expect.stringContaining('node_id'),
    },
    {
      event: 'dead-letter',
      code: 'unknown-column',
      table: 'items',
      changes: 3,
      reason: expect.stringContaining('colour'),
    },
  ]);
});

test.each([
  [{ status: 503, body: 'secret' }, 'HTTP 503'],
  [{ status: 200, body: '<html>secret</html>' }, 'HTTP 200 without an acknowledgement'],
  [{ status: 200, body: '{"secret":1}' }, 'HTTP 200 without an acknowledgement'],
  [{ status: 502, body: '' }, 'HTTP 502'],
])('of the answer %j the log has %s', async (answer, said) => {
  const verdict = judge(answer, 5);
  const reason = 'reason' in verdict ? verdict.reason : '';
  const [line] = await logged((events) => events.emit('peer-down', { peer: 'http://b', reason }));
  expect(line).toMatchObject({ event: 'peer-down', reason: said });
});

test('a line of text has the same, and nothing in it can begin another line', () => {
  const lines: string[] = [];
  const logging = { level: 'warn', format: 'text' } as const;
  const log = createLog('n', { now: () => 0, sleep: async () => {} }, (line) => lines.push(line), logging);
  log('info', 'started', { port: 1 });
  log('warn', 'peer-down', { peer: 'http://b:1', reason: 'two\nlines', changes: 3, tables: ['a b'], none: undefined });
  expect(lines).toEqual([
    '1970-01-01T00:00:00.000Z warn  peer-down node=n peer=http://b:1 reason="two\\nlines" changes=3 tables=["a b"]\n',
  ]);
});

test('the same warning is told once a minute, also by a clock that was set back by an hour', () => {
  const lines: Record<string, unknown>[] = [];
  const events = new Emitter();
  let now = 10_000_000;
  const clock = { now: () => now, sleep: async () => {} };
  const log = createLog('n', clock, (line) => lines.push(JSON.parse(line)));
  logEvents(events, log, clock);
  const warn = (): void => void events.emit('warning', { code: 'clock', message: 'it is wrong' });
  warn();
  warn();
  now -= 3_600_000;
  warn();
  warn();
  expect(lines.map(({ repeated }) => repeated)).toEqual([undefined, 1]);
});

test('conflicts are told once a minute, with how many there were', async () => {
  const lines: Record<string, unknown>[] = [];
  const events = new Emitter();
  let now = 0;
  const clock = { now: () => now, sleep: async () => {} };
  const log = createLog('n', clock, (line) => lines.push(JSON.parse(line)));
  logConflicts(events, log, clock);
  const one = { conflictId: 1, table: 'items', id: 'secret', lostVersion: 1, wonVersion: 2, from: 'b' };
  for (const at of [0, 30_000, 60_000]) {
    now = at;
    for (let i = 0; i < 3; i++) events.emit('conflict', one);
    await Promise.resolve();
  }
  expect(lines).toMatchObject([
    { event: 'conflict', conflicts: 3, tables: ['items'] },
    { event: 'conflict', conflicts: 6 },
  ]);
  expect(JSON.stringify(lines)).not.toContain('secret');
});

test('the last lines are kept with their numbers, whatever the format, and no more than 200 of them', () => {
  const recent = new RecentLines(7);
  const logging = { level: 'warn', format: 'text' } as const;
  const log = createLog('n', { now: () => 0, sleep: async () => {} }, () => {}, logging, recent);
  expect(recent.after(0)).toEqual({ began: 7, last: 0, lines: [] });
  log('info', 'not written, and not kept');
  for (let i = 1; i <= 250; i++) log('warn', 'peer-down', { i });
  const { last, lines } = recent.after(0);
  expect([last, lines.length, lines[0]?.n, lines.at(-1)?.n]).toEqual([250, 200, 51, 250]);
  const [line] = recent.after(249).lines;
  expect(line).toEqual({
    n: 250,
    time: '1970-01-01T00:00:00.000Z',
    level: 'warn',
    event: 'peer-down',
    fields: { i: 250 },
  });
  expect(recent.after(250).lines).toEqual([]);
});

test('a line of text does nothing to a terminal', () => {
  const lines: string[] = [];
  const log = createLog('n', { now: () => 0, sleep: async () => {} }, (line) => lines.push(line), {
    level: 'info',
    format: 'text',
  });
  log('info', 'peer-replaced', { id: 'a\u009b2J\u202eb' });
  expect(lines.join()).toContain(' id="a\\u009b2J\\u202eb"\n');
});
