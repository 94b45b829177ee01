/**
 * Every kind of body that leaves a node or a hub, byte for byte as golden-bodies.txt has them. Peers of other versions
 * read these bytes, and a receiver's fast path knows their order: a difference here is a change of the protocol.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { createHub } from '../../src/hub/hub.ts';
import { attach, type Config, type Fetch } from '../../src/index.ts';
import { cleanUp, database, ITEMS, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const GOLDEN = new URL('./golden-bodies.txt', import.meta.url);
const ODD = 'CREATE TABLE "it""s öd" (ID TEXT PRIMARY KEY, v ANY, "t x" TEXT, r REAL, Updated_At INTEGER)';

/** Answers like a peer that takes everything but the rows named "refused", and keeps the bodies. */
function recorder(): { fetch: Fetch; bodies: [string, string][] } {
  const bodies: [string, string][] = [];
  const fetch: Fetch = async (url, init) => {
    const body = Buffer.from(init.body).toString();
    bodies.push([new URL(url).hostname, body]);
    const { batch_id, changes } = JSON.parse(body) as {
      batch_id: number;
      changes: { row: { name?: string } | null }[];
    };
    const refused = changes.some(({ row }) => row?.name === 'refused');
    return refused
      ? { status: 422, text: async () => '{"error":"no"}' }
      : { status: 200, text: async () => JSON.stringify({ applied: changes.length, ack: batch_id }) };
  };
  return { fetch, bodies };
}

/** What a node sends to `peers`: of what `before` wrote, a snapshot; of what `after` writes, changes. */
async function sentBy(
  options: Partial<Config> & { peers: string[] },
  script: { before?: string; after?: string },
): Promise<string[]> {
  const db = await database(`${ITEMS}; ${ODD}`);
  const tables = ['items', 'it"s öd'];
  const { fetch, bodies } = recorder();
  const clock = new VirtualClock((ms) => ms <= 800);
  if (script.before) {
    const alone = attach(db, { maxAheadMs: 0, id: 'a', peers: [], clock }, tables);
    db.exec(script.before);
    await alone.stop();
  }
  const manager = attach(db, { maxAheadMs: 0, id: 'a', clock, fetch, ...options }, tables);
  cleanUp(() => manager.stop());
  if (script.after) db.exec(script.after);
  await manager.flush();
  const letters = manager.deadLetters.list().map(({ id, rowId, row }) => `letter ${id} ${rowId} ${row}`);
  return [...bodies.map(([host, body]) => `${host} ${body}`), ...letters];
}

async function relayed(): Promise<string[]> {
  const { fetch, bodies } = recorder();
  const clock = new VirtualClock((ms) => ms <= 800);
  const get = async (url: string) => ({
    status: 200,
    text: async () => JSON.stringify({ node_id: new URL(url).hostname }),
  });
  const db = await database('SELECT 1');
  const edges = ['http://a', 'http://b', 'http://c'];
  const hub = await createHub(db, { maxAheadMs: 0, id: 'hub', edges, clock, fetch, get });
  cleanUp(() => hub.stop());
  const change = (op: string, id: string, row: string): string =>
    `{"op":"${op}","table":"items","row":${row},"old_id":${op === 'DELETE' ? JSON.stringify(id) : null}}`;
  const batch = (...changes: string[]): string => `{"batch_id":1,"changes":[${changes.join()}]}`;
  await hub.receive(
    batch(
      change('INSERT', 'one', '{"id":"one","name":"ünï \\"€\\"","updated_at":5}'),
      change('UPDATE', 'two', '{"id":"two","value":1.50,"updated_at":6}'),
    ),
    { from: 'a' },
  );
  await hub.receive(batch(change('DELETE', 'th"ree', '{"id":"th\\"ree","updated_at":7}')), { from: 'b' });
  await hub.receive(batch(change('INSERT', 'four', '{"id":"four","blob":"$blob:00FF","updated_at":8}')), { from: 'a' });
  await until('all edges are known and served', async () => {
    await hub.flush();
    return bodies.length >= edges.length;
  });
  return bodies.map(([host, body]) => `${host} ${body}`).sort();
}

const items = (n: number, name = 'n'): string =>
  Array.from({ length: n }, (_, i) => `INSERT INTO items VALUES ('row-${i}', '${name}', ${i}, 10, 1000);`).join('');
const MIXED = `
  INSERT INTO items VALUES ('a', 'one "1" \\ ünï', 9007199254740993, NULL, 1000), ('b', '$blob:1', -1, 2, 1000);
  INSERT INTO "it""s öd" VALUES ('$text:x', x'00ff', '$int:7', 9e999, 1000), ('q"', 1.5, 'line
feed', -0.25, 1000), (CAST(x'c3bc' AS BLOB), '2', NULL, NULL, 1000), (NULL, 'no id', NULL, NULL, 1000);
  UPDATE items SET name = 'two', updated_at = 2000 WHERE id = 'a';
  UPDATE "it""s öd" SET v = 9223372036854775807, updated_at = 2000 WHERE id = 'q"';
  DELETE FROM items WHERE id = 'b'; DELETE FROM "it""s öd" WHERE id = '$text:x';`;

test('bodies are the bytes that they have always been', async () => {
  const one = ['http://p'];
  const scenes: Record<string, Promise<string[]>> = {
    'alike changes': sentBy({ peers: one }, { after: items(5) }),
    'mixed changes': sentBy({ peers: one }, { after: MIXED }),
    'changes in small batches': sentBy({ peers: one, batchSize: 3 }, { after: MIXED + items(4) }),
    'changes within a limit of bytes': sentBy(
      { peers: one, maxBatchBytes: 1_024 },
      { after: items(12) + items(3, 'x'.repeat(900)).replaceAll('row-', 'long-') + MIXED },
    ),
    'a snapshot': sentBy({ peers: one }, { before: MIXED + items(3) }),
    'a snapshot in small pages, and changes': sentBy(
      { peers: one, batchSize: 2 },
      { before: MIXED + items(3), after: "DELETE FROM items WHERE id = 'row-1'" },
    ),
    'a snapshot within a limit of bytes': sentBy(
      { peers: one, maxBatchBytes: 1_024 },
      { before: MIXED + items(12) + items(3, 'x'.repeat(900)).replaceAll('row-', 'long-') },
    ),
    'the search for a refused change': sentBy(
      { peers: one },
      { after: items(10) + items(1, 'refused').replaceAll('row-', 'x-') },
    ),
    'a hub': relayed(),
  };
  const lines: string[] = [];
  for (const [name, scene] of Object.entries(scenes)) lines.push(`# ${name}`, ...(await scene), '');
  const text = lines.join('\n');
  if (process.env.ROWCAST_GOLDEN === 'write') writeFileSync(GOLDEN, text);
  expect(text).toBe(readFileSync(GOLDEN, 'utf8'));
});
