/** What a batch costs the receiver, by what is in it. */
const KINDS = [
  { key: 'insert', label: 'new rows' },
  { key: 'duplicate', label: 'the same batch again' },
  { key: 'stale', label: 'older versions of the rows' },
  { key: 'update', label: 'newer versions of the rows' },
  { key: 'delete', label: 'deletions of the rows' },
];

export const receive = {
  name: 'receive',
  title: "The receiver's cost by kind of batch",
  about: ({ received }) =>
    `${received.toLocaleString('en')} changes in batches of 1,000 handed to receive(), durable commit included, CPU time. Each is compared with new five-column rows in the same repetition.`,
  metrics: () => [
    { key: 'insert', label: 'new rows, CPU us a change', unit: 'us', guard: true },
    ...KINDS.slice(1).map(({ key, label }) => ({
      key: `${key} ratio`,
      label: `${label}: times new rows`,
      unit: 'x',
      target: { max: 2.5 },
    })),
    { key: 'wide ratio', label: 'new rows of 20 columns: times new rows', unit: 'x', target: { max: 2.5 } },
    // No target: the plain insert below shows that random ids are what costs.
    { key: 'random ratio', label: 'new rows with random ids (v4): times new rows', unit: 'x' },
    // What another implementation may send: right, but not in the order of the table.
    { key: 'foreign ratio', label: 'new rows, columns in another order: times new rows', unit: 'x' },
    { key: 'random plain', label: 'plain inserts with random ids: times plain inserts', unit: 'x' },
    ...KINDS.slice(1).map(({ key, label }) => ({ key, label: `${label}, CPU us a change`, unit: 'us', guard: true })),
    { key: 'wide', label: 'new rows of 20 columns, CPU us a change', unit: 'us', guard: true },
    { key: 'foreign', label: 'new rows, columns in another order, CPU us a change', unit: 'us', guard: true },
    { key: 'random', label: 'new rows with random ids, CPU us a change', unit: 'us' },
  ],
  async repetition(context) {
    const rows = context.scale.received;
    const result = await allKinds(context, rows);
    result.wide = await inserts(context, rows, { columns: 20 });
    result.random = await inserts(context, rows, { ids: 'v4' });
    result.foreign = await inserts(context, rows, { foreign: true });
    const plain = await plainCpu(context, rows, 'v7');
    const plainRandom = await plainCpu(context, rows, 'v4');
    for (const key of [...KINDS.slice(1).map((kind) => kind.key), 'wide', 'random', 'foreign']) {
      result[`${key} ratio`] = result[key] / result.insert;
    }
    return { ...result, 'random plain': plainRandom / plain };
  },
};

/** One after the other on the same rows; after each, the database is what it has to be. */
async function allKinds(context, rows) {
  const worker = await context.receiver();
  const result = {};
  let inserted;
  for (const { key } of KINDS) {
    const { applied, cpu } = await worker.ask('receive', { kind: key, rows, batch: 1_000 });
    result[key] = (cpu * 1e6) / rows;
    const expected = key === 'stale' ? 0 : rows;
    if (applied !== expected) throw new Error(`wrong result: ${key} applied ${applied} instead of ${expected}`);
    const state = await context.verify(key === 'delete' ? 0 : rows, worker);
    if (key === 'insert') inserted = state.digest;
    if ((key === 'duplicate' || key === 'stale') !== (state.digest === inserted) && key !== 'insert')
      throw new Error(`wrong result: what the table holds after ${key}`);
    if (key === 'delete' && state.tombstones !== rows) throw new Error(`wrong result: ${state.tombstones} tombstones`);
  }
  await context.discard(worker);
  return result;
}

async function inserts(context, rows, { columns, ...shape }) {
  const worker = await context.receiver({ columns });
  const { applied, cpu } = await worker.ask('receive', { kind: 'insert', rows, batch: 1_000, ...shape });
  if (applied !== rows) throw new Error(`wrong result: ${applied} applied instead of ${rows}`);
  await context.verify(rows, worker);
  await context.discard(worker);
  return (cpu * 1e6) / rows;
}

async function plainCpu(context, rows, ids) {
  const worker = await context.process();
  const { cpu } = await worker.ask('write', { rows, perTransaction: 1_000, ids });
  await context.verify(rows, worker);
  await context.discard(worker);
  return cpu;
}
