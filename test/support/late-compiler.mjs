/**
 * Engines compile what runs often once more, and better, beside the program. Of tests and schedules hardly anything runs often
 * enough to be worth it: they take a tenth (tests) to a quarter (schedules on Node) less of the processor where that is left
 * for later, and where there are two cores nothing else can be done on the other one meanwhile.
 */
export const LATE_COMPILER = {
  /** V8's. NODE_OPTIONS does not take it. */
  flags: ['--interrupt-budget=1000000'],
  /** JavaScriptCore's, for Bun. */
  env: { BUN_JSC_useFTLJIT: '0' },
};
