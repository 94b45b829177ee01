/** What the application itself pays: its own writes, with capture on and without. */
export const capture = {
  name: 'capture',
  title: "The application's write rate with capture on",
  about: ({ rows, single }) =>
    `One process, no loop running. Transactions of 1,000: ${rows.toLocaleString('en')} rows; single-row transactions: ${single.toLocaleString('en')}. The share is plain time / time with capture.`,
  metrics: () =>
    WAYS.flatMap(({ key, label, share }) => [
      ...OPS.map((op) => ({
        key: `${key} ${op}`,
        label: `${label}: ${op}, share of plain`,
        unit: '',
        better: 'higher',
        ...(op === 'insert' && { target: { min: share } }),
      })),
      { key: `${key} cpu share`, label: `${label}: insert, share of plain by CPU time`, unit: '', better: 'higher' },
      ...OPS.map((op) => ({
        key: `${key} ${op} cpu`,
        label: `${label}: ${op}, CPU us a row`,
        unit: 'us',
        guard: key === 'many' || op === 'insert',
      })),
    ]),
  async repetition(context) {
    const result = {};
    for (const { key, perTransaction, rows: size } of WAYS) {
      const rows = context.scale[size];
      const plain = await writes(context, 'process', { rows, perTransaction });
      const captured = await writes(context, 'captured', { rows, perTransaction });
      result[`${key} cpu share`] = plain.insert.cpu / captured.insert.cpu;
      for (const op of OPS) {
        result[`${key} ${op}`] = plain[op].seconds / captured[op].seconds;
        result[`${key} ${op} cpu`] = (captured[op].cpu * 1e6) / rows;
      }
    }
    return result;
  },
};

const OPS = ['insert', 'update', 'update without updated_at', 'delete'];

const WAYS = [
  { key: 'many', label: 'transactions of 1,000', perTransaction: 1_000, rows: 'rows', share: 0.36 },
  { key: 'one', label: 'single-row transactions', perTransaction: 1, rows: 'single', share: 0.58 },
];

/** All four after each other in one database: what is inserted is updated twice and then deleted. */
async function writes(context, kind, { rows, perTransaction }) {
  const worker = await context[kind]();
  const result = {};
  for (const op of OPS) {
    result[op] = await worker.ask('write', { op, rows, perTransaction });
    const state = await worker.ask('state');
    const expected = op === 'delete' ? 0 : rows;
    if (state.rows !== expected) throw new Error(`wrong result: ${state.rows} rows after ${op} instead of ${expected}`);
    const pending = kind === 'captured' ? rows * (OPS.indexOf(op) + 1) : 0;
    if (state.pending !== pending)
      throw new Error(`wrong result: ${state.pending} changes after ${op} instead of ${pending}`);
  }
  await context.discard(worker);
  return result;
}
