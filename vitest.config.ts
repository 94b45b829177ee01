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
