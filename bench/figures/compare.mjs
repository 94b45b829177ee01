/** What it costs both sides to find nothing, one row and a thousand, and a seed beside a snapshot. */

const DIFFERING = [0, 1, 1_000];
const count = (n) => n.toLocaleString('en');

export const compare = {
  name: 'compare',
  title: 'Comparing two nodes',
  long: true,
  about: () =>
    'Both have the same rows of five columns, ids that grow with time and, where it says so, random ones; on the other side some are older, spread over all. CPU time of each side by itself. A block is the CPU time between two beats of a timer of one millisecond, or the time in which the event loop had a core where that is less; 99 % are those of the beats in which anything was done. A seed and a snapshot both give the peer everything that it may lack: here it has all of it, or lacks the newest version of 1,000 rows.',
  metrics: ({ compared }) => compared.flatMap((rows) => metricsOf(rows)),
  async repetition(context) {
    const result = {};
    for (const rows of context.scale.compared) Object.assign(result, await figuresOf(context, rows));
    return result;
  },
};

function metricsOf(rows) {
  const of = `${count(rows)} rows`;
  return [
    ...DIFFERING.flatMap((k) => [
      {
        key: `${rows} ${k} here`,
        label: `${of}, ${count(k)} differ: CPU us a row, who asks`,
        unit: 'us',
        ...(k === 0 && { guard: true, target: { max: 1.25 } }),
      },
      { key: `${rows} ${k} there`, label: `${of}, ${count(k)} differ: CPU us a row, who answers`, unit: 'us' },
      { key: `${rows} ${k} bytes`, label: `${of}, ${count(k)} differ: bytes both ways`, unit: '', digits: 0 },
      {
        key: `${rows} ${k} block`,
        label: `${of}, ${count(k)} differ: longest block of either`,
        unit: 'ms',
        target: { max: 5 },
      },
      { key: `${rows} ${k} block99`, label: `${of}, ${count(k)} differ: 99 % of blocks of either`, unit: 'ms' },
    ]),
    { key: `${rows} random here`, label: `${of}, random ids, none differs: CPU us a row, who asks`, unit: 'us' },
    { key: `${rows} seed`, label: `${of}, seed of a peer that has all: CPU us a row, both`, unit: 'us' },
    { key: `${rows} seed 1000`, label: `${of}, seed, 1,000 differ: CPU us a row, both`, unit: 'us' },
    { key: `${rows} snapshot`, label: `${of}, snapshot: CPU us a row, both`, unit: 'us' },
    {
      key: `${rows} seed ratio`,
      label: `${of}, seed, 1,000 differ: times a snapshot`,
      unit: 'x',
      target: { max: 1 },
    },
  ];
}

async function figuresOf(context, rows) {
  const result = {};
  const both = await pairOf(context, rows, 'v7');
  for (const k of DIFFERING) {
    await makeOlder(both, rows, k);
    const { here, there } = await measured(both, 'compare', rows);
    if (here.error || here.differences !== k) throw new Error(`wrong result: ${JSON.stringify(here)}`);
    result[`${rows} ${k} here`] = here.us;
    result[`${rows} ${k} there`] = there.us;
    result[`${rows} ${k} bytes`] = here.bytes;
    result[`${rows} ${k} block`] = Math.max(here.cpuBlock, there.cpuBlock);
    result[`${rows} ${k} block99`] = Math.max(here.cpuBlock99, there.cpuBlock99);
    const mended = await both.here.ask('compare', { url: both.url, repair: true });
    if (mended.error || mended.repaired !== k) throw new Error(`wrong result: ${JSON.stringify(mended)}`);
  }
  const sum = ({ here, there }) => here.us + there.us;
  result[`${rows} seed`] = sum(await measured(both, 'seed', rows));
  await makeOlder(both, rows, 1_000);
  result[`${rows} seed 1000`] = sum(await measured(both, 'seed', rows));
  await context.verify(rows + 1, both.here, both.there);
  await context.discard(both.here, both.there);
  const plain = await pairOf(context, rows, 'v7', true);
  result[`${rows} snapshot`] = sum(await measured(plain, 'seed', rows));
  await context.discard(plain.here, plain.there);
  const random = await pairOf(context, rows, 'v4');
  result[`${rows} random here`] = (await measured(random, 'compare', rows)).here.us;
  await context.discard(random.here, random.there);
  return { ...result, [`${rows} seed ratio`]: result[`${rows} seed 1000`] / result[`${rows} snapshot`] };
}

/** Two that have exchanged a row, so that each knows what the other is, and then both have the same. */
export async function pairOf(context, rows, ids, plain = false) {
  const there = await context.receiver({ plain });
  const here = await context.sender({ peers: [there.url], options: { verify: false } });
  await here.ask('writeAndShip', { rows: 1, perTransaction: 1, peers: 1 });
  for (const worker of [here, there]) {
    await worker.ask('fill', { rows, ids });
    // The first time in a process it takes longer, whoever asks, and the two of them do: that is another figure.
    await worker.ask('health', { calls: 1, pauseMs: 0 });
  }
  return { here, there, url: there.url };
}

async function makeOlder({ there }, rows, k) {
  const which = k === 0 ? 'false' : k === 1 ? 'value = 77' : `value % ${Math.floor(rows / k)} = 0`;
  await there.ask('unseen', {
    sql: `UPDATE items SET name = 'old', updated_at = updated_at - 1 WHERE created_at = 1 AND ${which}`,
  });
}

export async function measured({ here, there, url }, command, rows) {
  await there.ask('beat');
  const before = await there.ask('cpu');
  const own = await here.ask(command, { url });
  const cpu = (await there.ask('cpu')) - before;
  await there.ask('blocks');
  const us = (seconds) => (seconds * 1e6) / rows;
  return { here: { ...own, us: us(own.cpu) }, there: { us: us(cpu), ...(await there.ask('cpuBlock')) } };
}
