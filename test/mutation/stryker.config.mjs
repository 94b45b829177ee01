/** How Stryker runs; what it mutates, and by which tests, is in run.mjs. */
export default {
  plugins: ['@stryker-mutator/vitest-runner'],
  testRunner: 'vitest',
  vitest: { configFile: 'test/mutation/vitest.config.ts', related: false },
  coverageAnalysis: 'perTest',
  // Stryker would rewrite the project's with an API that TypeScript 7 has no more; here it needs no rewriting.
  tsconfigFile: 'test/mutation/tsconfig.none.json',
  ignorePatterns: ['dist', 'bench', 'docs', 'examples'],
  // Where git and the linter do not look.
  tempDirName: '.scratch-mutation',
  jsonReporter: { fileName: '.scratch-mutation.json' },
  reporters: ['json', 'progress-append-only'],
  concurrency: Number(process.env.ROWCAST_MUTATION_CONCURRENCY ?? 1),
  // A mutant that loops for ever is caught; a busy machine is not taken for one.
  timeoutMS: 60_000,
  allowConsoleColors: false,
};
