import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 120_000,
    hookTimeout: 60_000,
    // Two cores; every test file has its own databases and ports.
    maxWorkers: 2,
    pool: 'forks',
    reporters: process.env.CI ? ['default'] : ['default'],
  },
});
