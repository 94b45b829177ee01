/** What the processes around every system have in common: the same rows, the same pace, the same digest. */
import { createHash } from 'node:crypto';
import { sharedClock } from '../lib/clock.mjs';
import { obey } from '../lib/lines.mjs';
import { makeRow } from '../lib/rows.mjs';

/** Between two looks at a system that does not tell by itself that something has arrived: at a stream, at a single row. */
const STREAM_LOOK_MS = 5;
const ROW_LOOK_MS = 1;

/**
 * `write(rows)` commits rows in one transaction. `settled()`, where there is one, resolves when the other side has
 * everything. `present(id)` looks whether a row is there. `rows()` are all rows as [id, name, value], in any order.
 */
export function serveClient({ connect, write, settled, present, rows, watch, close }) {
  let chunks = [];
  let arrivals;
  return obey({
    connect,
    prepare({ count, perTransaction, from = 0 }) {
      chunks = [];
      const now = Date.now();
      for (let at = 0; at < count; at += perTransaction) {
        const length = Math.min(perTransaction, count - at);
        chunks.push(Array.from({ length }, (_, i) => makeRow(from + at + i, { now })));
      }
    },

    /** As fast as it can, with a turn of the event loop after every transaction. */
    async writeAll() {
      const began = sharedClock();
      for (const chunk of chunks) {
        await write(chunk);
        await new Promise((resolve) => setImmediate(resolve));
      }
      await settled?.();
      return began;
    },

    /** One row at a time, 100 a second on average. */
    async trickle() {
      const times = [];
      for (const [i, chunk] of chunks.entries()) {
        await new Promise((resolve) => setTimeout(resolve, 5 + ((i * 7) % 11)));
        times.push([chunk[0][0], sharedClock()]);
        await write(chunk);
      }
      await settled?.();
      return times;
    },

    /** The ids that are prepared here, in the order in which they will come; resolves when the last is there. */
    async awaitAll() {
      for (const chunk of chunks) await seen(chunk.at(-1)[0], STREAM_LOOK_MS);
      return sharedClock();
    },

    /** When each of them was first seen; a system that tells by itself is not asked. */
    async awaitEach() {
      arrivals = [];
      const wanted = chunks.map((chunk) => chunk[0][0]);
      if (watch) {
        await watch(wanted, (id) => arrivals.push([id, sharedClock()]));
        return arrivals;
      }
      for (const id of wanted) {
        await seen(id, ROW_LOOK_MS);
        arrivals.push([id, sharedClock()]);
      }
      return arrivals;
    },

    async digest() {
      const all = (await rows()).map((row) => JSON.stringify(row.map(String))).sort();
      return { rows: all.length, digest: createHash('sha256').update(all.join('\n')).digest('hex') };
    },
    close,
  });

  async function seen(id, pauseMs) {
    const deadline = Date.now() + 240_000;
    while (!(await present(id))) {
      if (Date.now() > deadline) throw new Error(`row ${id} did not arrive`);
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }
}
