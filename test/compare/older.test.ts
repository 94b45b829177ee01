/** Where ranges follow each other their bounds are told once, to those who say that they read it, and twice to all others. */
import { expect, test } from 'vitest';
import { runsOf } from '../../src/compare/remote.ts';
import type { TestDatabase } from '../support/lane.ts';
import { ITEMS } from '../support/nodes.ts';
import { type Pair, pair, silently, THERE } from './pairs.ts';

const T = 1_600_000_000_000;
const ROWS = 3_500;
const DIFFERING = ['row-00100', 'row-00101', 'row-02900'];

type Question = Record<string, unknown>;

/** `older` is a build that has never heard of runs. */
async function compared(older: boolean): Promise<{ the: Pair; asked: Question[] }> {
  const the = await pair({ here: ITEMS });
  the.link.up = true;
  silently([the.here, the.there], () => {
    for (const db of [the.here, the.there]) fill(db);
    the.there.exec(`UPDATE items SET name = 'old' WHERE id IN (${DIFFERING.map((id) => `'${id}'`).join()})`);
  });
  const asked: Question[] = [];
  const answer = the.other.answer.bind(the.other);
  the.other.answer = async (path, body, options) => {
    const { runs, ...question } = JSON.parse(typeof body === 'string' ? body : new TextDecoder().decode(body));
    asked.push({ ...question, ...(runs && { runs }) });
    const answered = await answer(path, older ? JSON.stringify(question) : body, options);
    if (!older) return answered;
    const { runs: _, ...said } = JSON.parse(answered.body);
    return { ...answered, body: JSON.stringify(said) };
  };
  return { the, asked };
}

function fill(db: TestDatabase): void {
  db.exec(
    `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS}) ` +
      `INSERT INTO items SELECT printf('row-%05d', i), 'x', i, 1, ${T} FROM n`,
  );
}

test.each([
  ['an earlier build is told both bounds of every range', true],
  ['one that reads runs is told each bound once', false],
])('%s, and what differs is found and repaired', async (_, older) => {
  const { the, asked } = await compared(older);
  const [found] = await the.manager.verify(THERE, { repair: true });
  expect(found).toMatchObject({ equal: true, differences: DIFFERING.length, repaired: DIFFERING.length });
  expect(found?.tables[0]?.list.map(({ id }) => id)).toEqual(DIFFERING);
  const ranged = asked.filter(({ want, ids }) => want !== 'tables' && ids === undefined);
  const has = (key: string): boolean[] => [...new Set(ranged.map((question) => key in question))];
  expect([has('ranges'), has('runs')]).toEqual(older ? [[true], [false]] : [[false], [true]]);
  // All of a table is one run, in which no id stands twice.
  const [whole = {}] = asked.filter(({ want }) => want === 'hash');
  const { ranges = [], runs = [[]] } = whole as { ranges?: unknown[]; runs?: unknown[][] };
  expect([ranges.length, ...runs.map((run) => new Set(run).size)]).toEqual(older ? [4, 0] : [0, 4]);
});

test('ranges that are apart are runs of their own, and the beginning is never the end of another', () => {
  const range = (after: string | null, upTo: string | null) => ({ after, upTo });
  expect(runsOf([range(null, 'a'), range('a', 'b'), range('c', 'd'), range('d', null)])).toEqual([
    [null, 'a', 'b'],
    ['c', 'd', null],
  ]);
  expect(runsOf([range(null, null)])).toEqual([[null, null]]);
  expect(runsOf([])).toEqual([]);
});
