/**
 * Engines compile what runs often once more, and better, beside the program. Of tests and schedules hardly anything runs often
 * enough to be worth it: they take a tenth (tests) to a quarter (schedules on Node) less of the processor where that is left
 * for later, and where there are two cores nothing else can be done on the other one meanwhile.
 */
import { spawnSync } from 'node:child_process';

/** For the environment: JavaScriptCore's, which is Bun's. */
export const LATE_COMPILER = { BUN_JSC_useFTLJIT: '0' };

/** V8's, which NODE_OPTIONS does not take. From Node 22 on it is another compiler's, and nothing is gained by having it wait. */
const FLAG = '--interrupt-budget=1000000';

/** For the command line of that Node. One that it does not know ends it. */
export function lateCompilerFlags(node) {
  return spawnSync(node, [FLAG, '--version']).status === 0 ? [FLAG] : [];
}
