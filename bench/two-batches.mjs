/**
 * What a second batch under way is worth: `npm run build && node bench/two-batches.mjs`.
 *
 * It is the time between an answer and the next request that it saves, not work, and on a machine that does other things as
 * well that time cannot be measured. So the loop of the library runs here in virtual time, against a peer and a link that
 * take exactly as long as they are told: the result is the same whenever and wherever this is run. The peer either says that
 * it takes batches in any order or does not, which is all the difference.
 */
import { existsSync } from 'node:fs';
import { VirtualClock } from './lib/virtual-clock.mjs';

const dist = new URL('../dist/src/', import.meta.url);
if (!existsSync(dist)) throw new Error('dist/ is missing: npm run build');
const { Shipper } = await import(new URL('send/shipper.js', dist));
const { Emitter } = await import(new URL('events.js', dist));

const BATCHES = 100;
const CHANGES = 1_000;
const BODY = Buffer.alloc(190_000, 'x');

/** Milliseconds for a batch of 1,000 rows, as docs/measurements.md has them. */
const APPLY_MS = 7;
const READ_MS = 2;
/** A request on loopback, both sides, beside what is applied. */
const REQUEST_MS = 0.5;

const LINKS = [
  ['one machine', 0],
  ['a local network, 0.5 ms', 0.25],
  ['2 ms', 1],
  ['10 ms', 5],
  ['20 ms', 10],
  ['35 ms', 17.5],
  ['80 ms', 40],
];

console.log(
  `${BATCHES} batches of ${CHANGES} rows; the peer applies one in ${APPLY_MS} ms, the sender reads one in ${READ_MS}\n`,
);
console.log('there and back             one at a time      two under way     ratio');
for (const [name, oneWayMs] of LINKS) {
  const one = await drain(oneWayMs, false);
  const two = await drain(oneWayMs, true);
  const cells = [name.padEnd(24), `${one.toFixed(0)} ms`.padStart(14), `${two.toFixed(0)} ms`.padStart(17)];
  console.log(`${cells.join(' ')}     ${(two / one).toFixed(2)}`);
}

/** Virtual milliseconds from the first look until the last batch is acknowledged and noted. */
async function drain(oneWayMs, anyOrder) {
  const clock = new VirtualClock();
  const events = new Emitter();
  const failed = new Promise((_, reject) => events.on('error', reject));
  let read = 0;
  let acked = 0;
  const outbox = {
    async next(_, previous) {
      const n = (previous?.batchId ?? acked) + 1;
      if (n > BATCHES) return undefined;
      read += 1;
      await clock.sleep(READ_MS);
      return { batchId: n, body: BODY, count: CHANGES, end: n };
    },
    ack: ({ batchId }) => {
      acked = Math.max(acked, batchId);
    },
    setAside: () => [],
    single: (shipment) => shipment,
  };
  let isFree = 0;
  let arrived = 0;
  /** One batch after the other, in the order in which they come. */
  const fetch = async () => {
    arrived += 1;
    const batch = arrived;
    await clock.sleep(oneWayMs + REQUEST_MS / 2);
    isFree = Math.max(isFree, clock.now()) + APPLY_MS;
    await clock.sleep(isFree - clock.now() + oneWayMs + REQUEST_MS / 2);
    const headers = { 'x-any-order': anyOrder ? '1' : null, 'x-apply-ms': String(APPLY_MS) };
    const text = async () => JSON.stringify({ applied: CHANGES, ack: batch });
    return { status: 200, headers: { get: (header) => headers[header] ?? null }, text };
  };
  const shipper = new Shipper({
    ...{ nodeId: 'a', peer: 'http://peer.test', outbox, fetch, get: undefined, clock, events },
    ...{ untilSent: async () => {}, random: () => 0 },
    pace: { batchMs: 50, batchSize: CHANGES, maxBatchBytes: 2 ** 22, requestTimeoutMs: 10_000 },
  });
  shipper.start();
  const began = clock.now();
  const done = await Promise.race([clock.runUntil(shipper.flush()), failed]);
  if (!done || arrived !== BATCHES || read !== BATCHES)
    throw new Error(`wrong result: ${arrived} batches, ${read} read`);
  const ms = clock.now() - began;
  await clock.runUntil(shipper.stop());
  return ms;
}
