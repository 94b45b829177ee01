/** A reporter that keeps one small file up to date: how far the run is, and what came of it. test/run.mjs reads it. */
import { renameSync, writeFileSync } from 'node:fs';

/** What test/support/deal.ts says of a test that it skips. */
const DEALT_AWAY = 'another runtime has it';
/** What a filter of vitest leaves out has no note: see `leavesLong` of test/run.mjs. */
const isLongLeft = (test) => test.tags.includes('long') && test.result().state === 'skipped' && !test.result().note;

export default class Progress {
  #file = process.env.ROWCAST_PROGRESS;
  #state = { files: 0, of: 0, passed: 0, failed: 0, dealt: 0, long: 0, failures: [], running: [], slowest: [] };

  onTestRunStart(specifications) {
    this.#state.of = specifications.length;
    this.#write();
  }

  onTestModuleStart(module) {
    this.#state.running.push(nameOf(module));
    this.#write();
  }

  onTestModuleEnd(module) {
    const state = this.#state;
    const name = nameOf(module);
    state.files += 1;
    state.running = state.running.filter((other) => other !== name);
    for (const test of module.children.allTests()) {
      const outcome = test.result().state;
      if (outcome === 'passed') state.passed += 1;
      if (test.result().note === DEALT_AWAY) state.dealt += 1;
      if (isLongLeft(test)) state.long += 1;
      if (outcome !== 'failed') continue;
      state.failed += 1;
      state.failures.push(`${name} > ${test.fullName}`);
    }
    state.slowest.push([name, Math.round(module.diagnostic().duration)]);
    state.slowest = state.slowest.sort((a, b) => b[1] - a[1]).slice(0, 5);
    this.#write();
  }

  #write() {
    if (!this.#file) return;
    // Never half a file, whenever it is read.
    writeFileSync(`${this.#file}.new`, JSON.stringify(this.#state));
    renameSync(`${this.#file}.new`, this.#file);
  }
}

function nameOf(module) {
  return module.moduleId.replace(/.*\/test\//, '').replace(/\.test\.ts$/, '');
}
