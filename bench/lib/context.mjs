/** What a figure works with: a build to measure, a runtime, how much work, and nodes that are checked when they are done. */
import { copyFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { freePort, makeFolder, removeFolder, Worker } from './processes.mjs';

/**
 * How much of each is done. `quick` is for a look that takes a minute, not for figures to be quoted; `compare` is for two
 * builds beside each other, where the same work is done nine times over.
 */
export const SCALES = {
  full: {
    rows: 100_000,
    single: 20_000,
    backlogs: [100_000, 1_000_000],
    million: 1_000_000,
    trickle: 500,
    received: 100_000,
    growth: 20_000,
    link: 20_000,
    compared: [100_000, 1_000_000],
    introduced: 2_000,
    large: 10_000_000,
  },
  quick: {
    rows: 20_000,
    single: 2_000,
    backlogs: [20_000, 50_000],
    million: 50_000,
    trickle: 60,
    received: 10_000,
    growth: 2_000,
    link: 4_000,
    compared: [20_000],
    introduced: 500,
    large: 100_000,
  },
  compare: {
    rows: 40_000,
    single: 4_000,
    backlogs: [40_000],
    million: 100_000,
    trickle: 100,
    received: 40_000,
    growth: 4_000,
    link: 4_000,
    compared: [50_000],
    introduced: 500,
    large: 100_000,
  },
};

export class Context {
  #folder = makeFolder();
  #serial = 0;
  #backlogs = new Map();
  #workers = new Set();

  /** `dist` is the URL of the build that is measured. */
  constructor({ dist, runtime, scale }) {
    this.dist = dist;
    this.runtime = runtime;
    this.scale = scale;
    this.versions = undefined;
  }

  path(name = `${++this.#serial}.db`) {
    return join(this.#folder, name);
  }

  /** A process with a database open; nothing is captured yet. */
  async process({ path = this.path(), columns = 5, check } = {}) {
    const worker = new Worker(this.runtime, this.dist);
    this.#workers.add(worker);
    this.versions = await worker.ask('open', { path, columns, check });
    return Object.assign(worker, { path });
  }

  /** A receiver: attached, without peers of its own, listening. */
  async receiver({ port, timed, silent, plain, columns, path, check, expectLetters, options } = {}) {
    const worker = await this.process({ columns, path, check });
    await worker.ask('attach', { id: `b${++this.#serial}`, expectLetters, options });
    const { port: taken } = await worker.ask('listen', { port, timed, silent, plain });
    return Object.assign(worker, { url: `http://127.0.0.1:${taken}` });
  }

  /** A sender whose loops run. */
  async sender({ peers, options, columns }) {
    const worker = await this.process({ columns });
    await worker.ask('attach', { id: 'a', peers, options });
    return worker;
  }

  /** A database whose writes are captured for a peer, with no loop running: what an application's write costs. */
  async captured(shape) {
    const worker = await this.process(shape);
    await worker.ask('attach', { id: 'a', peers: ['http://127.0.0.1:9'], asleep: true });
    return worker;
  }

  /**
   * A copy of a database with `rows` rows that a peer at `port` has not been sent. It is written once and copied for every
   * repetition; the peer is known before the rows are, so that the changes are drained and no snapshot is taken.
   */
  async backlog(rows, shape = {}) {
    const key = JSON.stringify([rows, shape]);
    let made = this.#backlogs.get(key);
    if (!made) {
      const port = await freePort();
      const writer = await this.process({ columns: shape.columns });
      await writer.ask('attach', { id: 'a', peers: [`http://127.0.0.1:${port}`], asleep: true });
      const written = await writeByTenths(writer, rows, shape);
      await this.finish(writer);
      made = { port, file: writer.path, written: { tenths: written, bytes: statSync(writer.path).size } };
      this.#backlogs.set(key, made);
    }
    const path = this.path();
    copyFileSync(made.file, path);
    return { path, port: made.port, written: made.written };
  }

  /** Every node holds the same rows, all of them, with nothing left to send and nothing set aside; otherwise it throws. */
  async verify(rows, ...workers) {
    const states = await Promise.all(workers.map((worker) => worker.ask('state')));
    for (const state of states) {
      if (state.rows !== rows) throw new Error(`wrong result: ${state.rows} rows instead of ${rows}`);
      if (state.digest !== states[0].digest) throw new Error('wrong result: the nodes hold different rows');
      if (state.pending !== 0) throw new Error(`wrong result: ${state.pending} changes are still pending`);
      if (state.deadLetters !== 0) throw new Error(`wrong result: ${state.deadLetters} dead letters`);
      if (state.troubles.length > 0) throw new Error(`wrong result: ${state.troubles[0]}`);
    }
    return states[0];
  }

  /** Ends processes; their databases stay until `forget`. */
  async finish(...workers) {
    await Promise.all(workers.map((worker) => worker.end()));
    for (const worker of workers) this.#workers.delete(worker);
  }

  /** Ends processes and removes their databases. */
  async discard(...workers) {
    await this.finish(...workers);
    for (const { path } of workers) for (const end of ['', '-wal', '-shm']) rmSync(path + end, { force: true });
  }

  /** Whatever a figure that failed has left behind. */
  abandon() {
    for (const worker of this.#workers) worker.kill();
    this.#workers.clear();
  }

  close() {
    this.abandon();
    removeFolder(this.#folder);
  }
}

/** Writes rows in transactions of 1,000; what each tenth of them took. */
export async function writeByTenths(worker, rows, shape = {}) {
  const tenths = [];
  for (let i = 0; i < 10; i++) {
    const from = Math.floor((i * rows) / 10);
    const count = Math.floor(((i + 1) * rows) / 10) - from;
    if (count > 0) tenths.push(await worker.ask('write', { rows: count, from, perTransaction: 1_000, ...shape }));
  }
  return tenths;
}

/** Plain inserts of the same rows into one database, with no Rowcast anywhere: what everything is compared with. */
export async function plainInsert(context, { rows, perTransaction = 1_000, columns, ...shape }) {
  const worker = await context.process({ columns });
  const result = await worker.ask('write', { rows, perTransaction, ...shape });
  await context.verify(rows, worker);
  await context.discard(worker);
  return result;
}
