/** What a batch costs that does not fit the table: every batch of a rolling migration, and one with a row that is refused. */

const BATCH = 1_000;

/** `columns` of the table and those that are `sent`. */
const KINDS = [
  { key: 'fast', label: 'the columns of the table', columns: 5, sent: 5 },
  { key: 'missing', label: 'one column of the table missing', columns: 6, sent: 5, target: 3 },
  { key: 'unknown', label: 'one column that the table does not have', columns: 5, sent: 6, target: 3 },
  {
    key: 'bad',
    label: 'one row in 1,000 that a CHECK refuses',
    columns: 5,
    sent: 5,
    check: 'value <> -1',
    bad: -1,
    target: 3,
  },
];

export const careful = {
  name: 'careful',
  title: "The receiver's cost where a batch does not fit",
  about: ({ received }) =>
    `${received.toLocaleString('en')} new rows in batches of 1,000 handed to receive(), durable commit included, CPU time. Each is compared with rows that fit in the same repetition. Of an unknown column every row leaves a dead letter.`,
  metrics: () => [
    ...KINDS.slice(1).map(({ key, label, target }) => ({
      key: `${key} ratio`,
      label: `${label}: times rows that fit`,
      unit: 'x',
      ...(target && { target: { max: target } }),
    })),
    ...KINDS.map(({ key, label }) => ({ key, label: `${label}, CPU us a change`, unit: 'us', guard: true })),
  ],
  async repetition(context) {
    const rows = context.scale.received;
    const result = {};
    for (const kind of KINDS) result[kind.key] = await received(context, rows, kind);
    for (const { key } of KINDS.slice(1)) result[`${key} ratio`] = result[key] / result.fast;
    return result;
  },
};

async function received(context, rows, { key, columns, sent, check, bad }) {
  const worker = await context.receiver({ columns, check, expectLetters: true });
  const work = { kind: 'insert', rows, batch: BATCH, columns: sent, bad, expectLetters: true };
  const { applied, rejected, cpu } = await worker.ask('receive', work);
  const letters = { unknown: rows, bad: rows / BATCH }[key] ?? 0;
  const state = await worker.ask('state');
  const found = [applied, rejected, state.rows, state.deadLetters, state.pending, state.troubles.length];
  const expected = [rows - letters, letters, key === 'bad' ? rows - letters : rows, letters, 0, 0];
  if (found.join() !== expected.join()) throw new Error(`wrong result: ${key}: ${found} instead of ${expected}`);
  await context.discard(worker);
  return (cpu * 1e6) / rows;
}
