import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 120_000,
    hookTimeout: 60_000,
    // Every test file has its own databases and ports.
    maxWorkers: availableParallelism(),
    pool: 'forks',
    // One process after the other for each of a hundred files would take longer to begin than most of them take. No file
    // leaves anything behind: see test/support/clean-up.ts.
    isolate: false,
    setupFiles: ['test/support/after-each.ts'],
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
