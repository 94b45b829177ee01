/**
 * An application's own SQL, with Rowcast and without it: whatever schema and statements a seed gives, each statement does
 * the same, and a peer ends equal. `ROWCAST_SQL_SEED=17 npx vitest run test/fuzz/sql` replays one case; ROWCAST_SQL_CASES
 * says how many there are, ROWCAST_SQL_FROM the first seed, ROWCAST_SQL_WITHOUT=audit,fts leaves features out.
 */
import { expect, test } from 'vitest';
import { lane } from '../support/lane.ts';
import { caseOf, FEATURES, SHIP, schemaOf } from './sql-cases.ts';
import { complaintOf, type Shrunk, shrink, violationOf } from './sql-run.ts';

const cases = Number(process.env.ROWCAST_SQL_CASES ?? 150);
/** Each binding has cases of its own. */
const FIRST = { 'better-sqlite3': 1, 'bun-sqlite': 151, 'node-sqlite': 301 };
const from = Number(process.env.ROWCAST_SQL_FROM ?? FIRST[lane]);
const without = (process.env.ROWCAST_SQL_WITHOUT ?? '').split(',');
const only = process.env.ROWCAST_SQL_SEED;
const seeds = only === undefined ? Array.from({ length: cases }, (_, i) => from + i) : [Number(only)];
/** Failures that are made small, and how many of those that differ in kind are shown. */
const SHRUNK = 40;
const SHOWN = 12;

test('the cases have every feature and every kind of statement', () => {
  const all = Array.from({ length: 300 }, (_, i) => caseOf(i + 1));
  for (const feature of FEATURES)
    expect(all.filter(({ features }) => features.includes(feature)).length).toBeGreaterThan(20);
  const kinds = new Set(all.flatMap(({ statements }) => statements.map((text) => text.split(' ')[0])));
  expect([...kinds]).toEqual(expect.arrayContaining(['INSERT', 'REPLACE', 'UPDATE', 'DELETE', 'ALTER', 'RELEASE']));
  expect(all.some(({ statements }) => statements.includes(SHIP))).toBe(true);
});

test(`${seeds.length} schemas with random statements: nobody but a peer can tell that Rowcast is there`, async () => {
  const failed: number[] = [];
  const kinds = new Map<string, Shrunk>();
  for (const seed of seeds) {
    const drawn = caseOf(seed);
    const one = { ...drawn, features: drawn.features.filter((feature) => !without.includes(feature)) };
    const violation = await violationOf(one);
    if (!violation) continue;
    failed.push(seed);
    if (failed.length > SHRUNK) continue;
    const small = await shrink(one, violation);
    const kind = kindOf(small);
    const known = kinds.get(kind);
    if (!known || known.case.statements.length > small.case.statements.length) kinds.set(kind, small);
  }
  const shown = [...kinds.values()].slice(0, SHOWN).map(explain);
  const summary = `${failed.length} of ${seeds.length} cases failed, ${kinds.size} kinds\n${shown.join('\n')}`;
  expect(failed, summary).toEqual([]);
}, 1_200_000);

/** Failures of one kind have the same features and the same complaint about other values. */
function kindOf({ case: { features }, violation }: Shrunk): string {
  return `${features} ${complaintOf(violation)}`;
}

function explain({ case: one, violation }: Shrunk): string {
  const indented = (lines: string[]): string[] => lines.map((line) => `    ${line}`);
  return [
    `seed ${one.seed}: ${violation}`,
    `  with ${one.features.join(', ') || 'no feature'}:`,
    ...indented(schemaOf(one, true).split('\n')),
    ...indented(one.statements.map((line, i) => `${i + 1}. ${line}`)),
    `  replay: ROWCAST_SQL_SEED=${one.seed} npx vitest run test/fuzz/sql`,
  ].join('\n');
}
