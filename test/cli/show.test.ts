/** What the commands print for a person. */
import { expect, test } from 'vitest';
import { aligned, harmless, type ShownStatus, statusText } from '../../src/cli/show.ts';

const seeding = (pending: number, rows: number): string => shown({ pending, snapshot: true }, rows);

const shown = (peer: Record<string, unknown>, rows = 0, more: Record<string, unknown> = {}): string =>
  statusText(
    {
      node_id: 'a',
      inc: '5f0c1e9a77b2d310',
      ok: true,
      problems: [],
      dead_letter: 0,
      letters: [],
      item_count: rows,
      build: { version: '1', runtime: 'node', sqlite: '3' },
      file: { bytes: 1_000, wal_bytes: 0 },
      tables: [{ name: 'items', rows, tombstones: 0 }],
      peer_states: [
        { url: 'http://b', state: 'up', lag_ms: 0, snapshot: false, paused: false, last_error: null, ...peer },
      ],
      ...more,
    } as unknown as ShownStatus,
    0,
  );

test.each([
  [1_000, 1_000, 'up, being given everything, 0 % done'],
  [251, 1_000, 'up, being given everything, 74 % done'],
  [1, 1_000, 'up, being given everything, 99 % done'],
  [1_200, 1_000, 'up, being given everything, 0 % done'],
  [0, 0, 'up, being given everything  '],
])('a peer that lacks %i of %i rows', (pending, rows, words) => {
  expect(seeding(pending, rows)).toContain(words);
});

test('a number that is still being counted is said to be one, and nothing is reckoned with it', () => {
  const table = { name: 'items', rows: 50_001, tombstones: 7, at_least: ['rows'] };
  const text = shown({ pending: 10_000, snapshot: true }, 50_001, {
    tables: [table],
    dead_letter: 50_001,
    letters: [{ direction: 'in', code: 'unique', count: 1_001, at_least: ['count'] }],
    conflicts: 1_001,
    at_least: ['item_count', 'dead_letter', 'conflicts'],
  });
  expect(text).toContain('items: at least 50,001 rows, 7 tombstones;');
  expect(text).toContain('dead letters: at least 50,001 (at least 1,001 unique in)');
  expect(text).toContain('edits that were lost: at least 1,001 (');
  expect(text).toContain('up, being given everything  ');
  const hub = shown({ pending: 0 }, 5_001, { tables: undefined, at_least: ['item_count'] });
  expect(hub).toContain('  at least 5,001 rows; file');
});

const TIMEOUT = 'no answer within 30000 ms';

test.each([
  [{ pending: 0 }, /b {2}up {2}pending 0 +not compared yet$/m],
  [{ pending: 1, lag_ms: 2_000 }, /b {2}up {2}pending 1 {2}for 2 s {2}not compared yet$/m],
  [{ pending: 1, lag_ms: 9_000 }, /b {2}behind {2}pending 1 {2}for 9 s {2}not compared yet$/m],
  [{ pending: 1, lag_ms: 9_000, last_error: TIMEOUT }, /b {2}retrying {2}pending 1 .* no answer within 30000 ms$/m],
  [{ pending: 0, state: 'down', last_error: TIMEOUT }, /b {2}down {2}pending 0 .* no answer within 30000 ms$/m],
  [{ pending: 0, verified: { at: -5_000, tables: {}, pending: 0 } }, /compared 5 s ago: equal$/m],
  [{ pending: 0, verified: { at: -5_000, tables: {}, pending: 3 } }, /compared 5 s ago: 3 rows on their way$/m],
  [{ pending: 0, verified: { at: 0, tables: { items: 2 }, pending: 3 } }, /compared 0 s ago: 2 rows differed$/m],
  [{ pending: 1, paused: true, last_error: TIMEOUT }, /b {2}paused {2}pending 1 +not compared yet$/m],
])('a peer is shown as it is, with the reason: %j', (peer, line) => {
  expect(shown(peer)).toMatch(line);
});

test('what strangers have written does nothing to a terminal, and JSON stays JSON', () => {
  const text = 'a\u001b[2Jb\u0007\r\u009b31m\u202etxt\u2028\n\tc Zo\u00eb';
  expect(harmless(text)).toBe('a\\u001b[2Jb\\u0007\\u000d\\u009b31m\\u202etxt\\u2028\n\tc Zo\u00eb');
  expect(JSON.parse(harmless(JSON.stringify({ text })))).toEqual({ text });
});

test('what a stranger has named stays in its line and in its column', () => {
  const name = 'a\nnode b: ok\t\u009b2J\u202e';
  expect(aligned([[name, 'last']])).toEqual(['a\\nnode b: ok\\t\\u009b2J\\u202e  last']);
  expect(shown({ pending: 0 }, 0, { problems: [name] })).toContain('\n  problem: a\\nnode b: ok\\t\\u009b2J\\u202e\n');
});
