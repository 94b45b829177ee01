import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** By how long they take. Vitest begins with the largest files, and some of these are small: they would end alone. */
const LONGEST = [
  ...['hub-postgres/group', 'migrate/power-cut', 'send/backlog', 'cli/attacks', 'fuzz/fuzz', 'hub-postgres/programs'],
  ...['cli/operate', 'crash/power-cut', 'migrate/order', 'compare/large', 'identity/processes', 'console/console'],
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const named = LONGEST.map((name) => sorted.find(({ moduleId }) => moduleId.endsWith(`/test/${name}.deep.test.ts`)));
    const first = named.filter((file) => file !== undefined);
    return [...first, ...sorted.filter((file) => !first.includes(file))];
  }
}

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // Nothing is timed: this ends what hangs, on a machine that is ten times slower and has much else to do as well.
    testTimeout: 600_000,
    hookTimeout: 600_000,
    // A few tests in a hundred take a quarter of the time of all: see `leavesLong` of test/run.mjs.
    tags: [{ name: 'long', description: 'Takes a quarter of a second of a core, or more.' }],
    // Every test file has its own databases and ports.
    maxWorkers: availableParallelism(),
    pool: 'forks',
    // One process after the other for each of a hundred files would take longer to begin than most of them take. No file
    // leaves anything behind: see test/support/clean-up.ts.
    isolate: false,
    // What a file is compiled to depends on its text alone, and a run of every lane compiles each of them nine times over.
    experimental: { fsModuleCache: true },
    sequence: { sequencer: LongestFirst },
    setupFiles: ['test/support/after-each.ts', 'test/support/deal.ts', 'test/support/seed.ts'],
    coverage: {
      provider: 'v8',
      include: ['src/**/*.ts'],
      // Programs run in processes of their own, where nothing is counted.
      exclude: ['src/cli/**'],
      reporter: ['text'],
      // A figure of what has run, whether or not it was right.
      reportOnFailure: true,
    },
  },
});
