/** The tests that say whether a mutant lives: those of applying and shipping, without the ones that take seconds each. */
import { defineConfig } from 'vitest/config';

/** Each of these does many times what others do once. */
const LONG = [
  'ten thousand',
  '10,000',
  '100,000',
  'seven hundred',
  'four hundred',
  'two hundred hopeless',
  'three nodes that write',
  'any values, in any columns',
  'a megabyte',
  'maxBatchBytes, in the',
  'every subset of a small batch',
  'a write lock of another process',
  'a process that attaches',
  'takes the answer to a batch of which every change',
  'over HTTP',
];

export default defineConfig({
  test: {
    include: (process.env.ROWCAST_MUTATION_TESTS ?? '').split(',').map((name) => `test/${name}.test.ts`),
    testNamePattern: new RegExp(`^(?!.*(?:${LONG.join('|')}))`),
    env: { ROWCAST_FUZZ_INPUTS: '300' },
    testTimeout: 60_000,
    pool: 'threads',
  },
});
