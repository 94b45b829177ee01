/** What a question costs where there are very many dead letters: no statement of its answer reads all of them. */
import { expect, test } from 'vitest';
import { attached, database, rowsOf } from '../support/nodes.ts';

test('the letters of the rows in question are found by the row', async () => {
  const db = await database();
  const asked = new Set<string>();
  const prepare = db.prepare.bind(db);
  db.prepare = ((sql: string) => {
    asked.add(sql);
    return prepare(sql);
  }) as typeof db.prepare;
  const manager = attached(db);
  const question = { want: 'rows', table: 'items', columns: null, ids: ['a', 'b'] };
  expect((await manager.answer('/sync/compare', JSON.stringify(question))).status).toBe(200);
  const ofLetters = [...asked].filter((sql) => /json_each\(\?\)/.test(sql) && /_dead_letter AS d/.test(sql));
  expect(ofLetters).toHaveLength(2);
  for (const sql of ofLetters) {
    const bound = [...sql.matchAll(/\?/g)].map(() => '[]');
    const plan = rowsOf(db, `EXPLAIN QUERY PLAN ${sql}`, ...bound).map(({ detail }) => String(detail));
    expect(plan.find((line) => /\bd\b/.test(line))).toMatch(/^SEARCH d USING .*_dead_letter_row/);
    expect(plan.find((line) => /\bi\b/.test(line))).toMatch(/^SEARCH i USING INTEGER PRIMARY KEY/);
  }
});
