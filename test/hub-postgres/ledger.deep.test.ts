/** What a group says of its rows to those who compare: to the byte what a hub on SQLite says. */
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import type { Portion } from '../../src/compare/ledger.ts';
import { SqliteHubStore } from '../../src/hub/sqlite-store.ts';
import type { HubStore } from '../../src/hub/store.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { openGroupStore } from '../support/group-store.ts';
import { Random } from '../support/model.ts';
import { database } from '../support/nodes.ts';
import { hasPostgres, newDatabase, postgresServer } from '../support/postgres.ts';

const T = 4_000_000_000_000;
const COLUMNS = [null, { id: 'TEXT', name: 'TEXT', n: 'INTEGER', updated_at: 'INTEGER' }] as const;
const PORTIONS: Portion[] = [
  { rows: 1_000, bytes: 256 * 1024 },
  { rows: 7, bytes: 256 * 1024 },
  { rows: 1_000, bytes: 3_000 },
  { rows: 5, bytes: 1 },
];
/** What begins like a prefix of the wire, what is no UTF-8, what PostgreSQL cannot store as it is, what sorts oddly. */
const ODD_IDS = [
  ...['', '$bytes:FF', '$bytes:61FF', '$bytes:00FF', '$bytes:2462797465733AFF', '$blob:00', '$text:$blob:x', '\u0000'],
  ...[
    '\u0001',
    '\u0001\u0001',
    'a\u0000',
    'a\u0001b',
    '\uFFFD',
    '\uE000',
    '\u{1F600}',
    'é',
    "'",
    '"',
    '\\',
    '%',
    'Z',
    'z',
  ],
];

describe.skipIf(!hasPostgres)('a ledger on PostgreSQL', () => {
  const server = postgresServer();

  test('spells, lists, finds and hands out what one on SQLite does', async () => {
    const random = new Random(7);
    const sqlite = new SqliteHubStore(new Connection(await database('SELECT 1')), {
      ...{ clock: systemClock, maxBodyBytes: 1_000_000, maxAheadMs: 0, id: 'hub', random: Math.random },
    });
    await sqlite.open();
    const group = await openGroupStore(await newDatabase(server()), { maxBodyBytes: 1_000_000 });
    const ids = [...ODD_IDS, ...Array.from({ length: 60 }, (_, i) => `row ${i}`)];
    const both = (act: (store: HubStore) => Promise<unknown>): Promise<unknown[]> =>
      Promise.all([act(sqlite), act(group)]);
    for (let batch = 1; batch <= 6; batch++) {
      const changes = Array.from({ length: 40 }, () => {
        const id = random.pick(ids);
        const isDeleted = random.chance(0.2);
        const row = {
          id,
          name: random.pick(['x', null, 'é\u0000', 'y'.repeat(1_500)]),
          n: random.pick([1, 1.5, '1', 2 ** 60]),
        };
        const table = random.pick(['items', 'ITEMS', 'Other']);
        const op = isDeleted ? 'DELETE' : 'UPDATE';
        return { op, table, row: { ...row, updated_at: T + random.below(5) }, old_id: isDeleted ? id : null };
      });
      const body = JSON.stringify({ batch_id: batch, changes });
      const sender = { from: random.pick(['a', 'b']), plain: false };
      const [one, two] = await both((store) => store.receive(body, sender));
      expect(two).toEqual(one);
    }
    const [outline, outlined] = await both(async (store) => store.ledger.outline());
    expect(outlined).toEqual(outline);
    const bounds = [null, ...ODD_IDS, 'row 3', 'row 30'];
    let compared = 0;
    for (const table of ['items', 'other']) {
      for (const columns of COLUMNS) {
        for (const portion of PORTIONS) {
          for (let i = 0; i < 12; i++) {
            const range = { after: random.pick(bounds), upTo: random.pick(bounds) };
            const floor = random.chance(0.3) ? T + 2 : undefined;
            const some = ids.filter(() => random.chance(0.3)).sort();
            const [one, two] = await both(async ({ ledger }) => [
              await ledger.spell(table, columns, range, portion, floor),
              await ledger.list(table, columns, range, portion),
              await ledger.entries(table, columns, some, portion),
              await ledger.changes(table, some, 5, portion),
            ]);
            expect(two, JSON.stringify([table, columns, portion, range, floor])).toEqual(one);
            compared += ((one as { rows: number }[])[0] as { rows: number }).rows;
          }
        }
      }
    }
    expect(compared).toBeGreaterThan(500);
  });
});
