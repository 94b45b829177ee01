/**
 * Loaded by vitest before each test file. Of the files that are dealt (`DEALT` of test/lanes/lanes.mjs) a run with
 * ROWCAST_HAND takes every other test; the rest is skipped, and counted as that, because another runtime has it. With
 * ROWCAST_LONG it takes all of the long ones: no runtime has had them, where there are few cores.
 */
import { beforeEach, type RunnerTask, type RunnerTestSuite } from 'vitest';
import { isTaken } from './draws.ts';

const hand = process.env.ROWCAST_HAND;
const takesLong = process.env.ROWCAST_LONG !== undefined;

if (hand !== undefined) {
  // @ts-expect-error: plain JavaScript, for a runner that starts before anything is built
  const { DEALT } = await import('../lanes/lanes.mjs');
  beforeEach(({ task, skip }) => {
    const isDealt = (DEALT as string[]).includes(task.file.name.replace(/^test\//, ''));
    if (!isDealt || (takesLong && task.tags?.includes('long'))) return;
    if (!isTaken(testsOf(task.file).indexOf(task), hand)) skip('another runtime has it');
  });
}

function testsOf(suite: RunnerTestSuite): RunnerTask[] {
  return suite.tasks.flatMap((task) => (task.type === 'suite' ? testsOf(task) : [task]));
}
