/** A hundred thousand rows over a real socket: how many rounds and bytes it takes to find nothing, one, a thousand. */
import { expect, test } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import { attach } from '../../src/index.ts';
import { cleanUp, database, exactRows, ITEMS, serve } from '../support/nodes.ts';
import { silently } from './pairs.ts';

const ROWS = 100_000;

test('k differences among 100,000 rows: 0, 1, 1,000 spread, 1,000 in a row', async () => {
  const [here, there] = [await database(ITEMS), await database(ITEMS)];
  const other = attach(there, { maxAheadMs: 0, id: 'there', peers: [] }, ['items']);
  cleanUp(() => other.stop());
  const url = await serve(createListener(other));
  // However slow the machine is, no answer is too late.
  const patient = { requestTimeoutMs: 250_000, verify: false as const };
  const manager = attach(here, { maxAheadMs: 0, id: 'here', peers: [url], ...patient }, ['items']);
  cleanUp(() => manager.stop());
  silently([here, there], () => {
    for (const db of [here, there]) {
      db.exec(
        `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS - 1}) ` +
          "INSERT INTO items SELECT printf('%08x-row', i * 40503 % 4294967296), 'name ' || i, i, 1, 1600000000000 + i FROM n",
      );
    }
  });
  const cases: [number, string, number, number][] = [
    // How many, which, at most so many requests, at most so many bytes.
    [0, 'false', 6, 15_000],
    [1, 'value = 777', 12, 25_000],
    [1_000, 'value % 100 = 5', 120, 8_000_000],
    [1_000, 'id IN (SELECT id FROM items ORDER BY id LIMIT 1000 OFFSET 50000)', 20, 250_000],
  ];
  for (const [k, which, requests, bytes] of cases) {
    silently([there], () => there.exec(`UPDATE items SET name = 'old', updated_at = updated_at - 1 WHERE ${which}`));
    const [found] = await manager.verify(url, { limit: 1 });
    expect(found?.error, which).toBeUndefined();
    expect(found, which).toMatchObject({ differences: k, equal: k === 0 });
    expect(found?.requests, which).toBeLessThanOrEqual(requests);
    expect(found?.bytes, which).toBeLessThanOrEqual(bytes);
    const [mended] = await manager.verify(url, { repair: true });
    expect(mended, which).toMatchObject({ differences: k, repaired: k, equal: true });
    expect(exactRows(there, 'items'), which).toEqual(exactRows(here, 'items'));
  }
});
