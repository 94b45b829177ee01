/** Three nodes whose every connection goes through a bad network: in the end they are the same, and what the model says. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import { attach, type Manager } from '../../src/index.ts';
import type { TestDatabase } from '../support/lane.ts';
import { Model, Random, type WireChange, type WireRow } from '../support/model.ts';
import { cleanUp, database, exactRows, rowsOf, serve, until } from '../support/nodes.ts';
import { SEED } from '../support/seed.ts';
import { FAULTS, type Fault, TcpProxy } from '../support/tcp-proxy.ts';

const PROXY_SEED = Number(process.env.ROWCAST_PROXY_SEED ?? SEED);
const NAMES = ['a', 'b', 'c'] as const;
/** Transactions on each node while the network is bad. */
const WRITES = Number(process.env.ROWCAST_PROXY_WRITES ?? 250);

interface Node {
  name: string;
  db: TestDatabase;
  manager: Manager;
  /** The last change that the model knows of. */
  known: number;
}

interface Cluster {
  nodes: Node[];
  proxies: TcpProxy[];
  model: Model;
}

/** A mesh in which each of the six ways is a proxy of its own. */
async function cluster(seed: number, faults: readonly Fault[]): Promise<Cluster> {
  const random = new Random(seed);
  const proxies: TcpProxy[] = [];
  const nodes: Node[] = [];
  const managers = new Map<string, Manager>();
  const ports = new Map<string, number>();
  // The servers come first: a proxy needs a port, and a manager the proxies.
  for (const name of NAMES) {
    const url = await serve((request, response) => {
      const manager = managers.get(name);
      if (manager) createListener(manager)(request, response);
      else response.destroy();
    });
    ports.set(name, Number(new URL(url).port));
  }
  for (const name of NAMES) {
    const peers: string[] = [];
    for (const peer of NAMES.filter((other) => other !== name)) {
      const proxy = new TcpProxy(ports.get(peer) as number, random.below(2 ** 31), faults);
      proxies.push(proxy);
      peers.push(await proxy.listen());
      cleanUp(() => proxy.close());
    }
    const db = await database();
    const manager = attach(db, { id: name, peers, batchMs: 5, batchSize: 20, requestTimeoutMs: 250 }, ['items']);
    cleanUp(() => manager.stop());
    managers.set(name, manager);
    nodes.push({ name, db, manager, known: 0 });
  }
  return { nodes, proxies, model: new Model() };
}

/** A transaction of a few writes, on rows of its own and on rows that all nodes write. */
function write({ name, db }: Node, random: Random, n: number): void {
  const own = `${name}-${random.below(60)}`;
  const shared = `shared-${random.below(12)}`;
  const now = Date.now() + random.below(3) - 1;
  const upsert =
    'ON CONFLICT (id) DO UPDATE SET name = excluded.name, value = excluded.value, updated_at = excluded.updated_at';
  db.exec('BEGIN');
  db.exec(`INSERT INTO items VALUES ('${own}', '${'é'.repeat(random.below(60))}', ${n}, 1, ${now}) ${upsert}`);
  if (random.chance(0.5)) db.exec(`INSERT INTO items VALUES ('${shared}', '${name}', ${n}, 1, ${now}) ${upsert}`);
  if (random.chance(0.3)) db.exec(`UPDATE items SET value = value + 1 WHERE id = '${shared}'`);
  if (random.chance(0.2)) db.exec(`DELETE FROM items WHERE id = '${random.chance(0.5) ? own : shared}'`);
  db.exec(random.chance(0.05) ? 'ROLLBACK' : 'COMMIT');
}

/** What the triggers wrote down, before anybody may have acknowledged it. */
function learn(node: Node, model: Model): void {
  const sql = 'SELECT change_id, op, row_id, row_data FROM _changes WHERE change_id > ? ORDER BY change_id';
  for (const { change_id, op, row_id, row_data } of rowsOf(node.db, sql, node.known)) {
    const change = { op, table: 'items', row: JSON.parse(row_data as string), old_id: op === 'DELETE' ? row_id : null };
    model.merge(change as WireChange);
    node.known = Number(change_id);
  }
}

/** At least so many transactions on each node, and until the network has shown everything it can do. */
async function writeEverywhere(
  { nodes, proxies, model }: Cluster,
  faults: readonly Fault[],
  writes: number,
): Promise<void> {
  const random = new Random(PROXY_SEED);
  const met = (fault: Fault): boolean => proxies.some(({ dealt }) => dealt.has(fault));
  for (let n = 0; n < writes || !faults.every(met); n++) {
    for (const node of nodes) {
      write(node, random, n);
      learn(node, model);
    }
    await sleep(random.below(20));
  }
}

async function drained({ nodes }: Cluster): Promise<void> {
  await until('everything is delivered', () => nodes.every(({ manager }) => manager.health().pending_changes === 0));
}

function expectTheSame({ nodes, model }: Cluster): void {
  for (const { db, manager } of nodes) {
    expect(manager.health()).toMatchObject({ ok: true, pending_changes: 0, dead_letter: 0 });
    expect(exactRows(db, 'items')).toEqual(exactRows((nodes[0] as Node).db, 'items'));
    expect(rowsOf(db, 'SELECT * FROM items ORDER BY id') as WireRow[]).toEqual(model.rows());
    expect(rowsOf(db, 'PRAGMA integrity_check')).toEqual([{ integrity_check: 'ok' }]);
  }
}

test(`delays, trickles, cuts, resets and silence between three nodes, ROWCAST_PROXY_SEED=${PROXY_SEED}`, async () => {
  const all = await cluster(PROXY_SEED, FAULTS);
  await writeEverywhere(all, FAULTS, WRITES);
  for (const proxy of all.proxies) proxy.heal();
  await drained(all);
  expectTheSame(all);
});

test(`bytes in the wrong order, which TCP excludes, ROWCAST_PROXY_SEED=${PROXY_SEED}: nothing is lost by it`, async () => {
  // The head of the request or of the answer is damaged each time, so that nobody can take it for what it is not.
  const faults = ['none', 'swap'] as const;
  const all = await cluster(PROXY_SEED, faults);
  await writeEverywhere(all, faults, WRITES / 5);
  for (const proxy of all.proxies) proxy.heal();
  await drained(all);
  // An HTTP server answers a damaged request with 400, which is a refusal: what was refused five times waits as a letter.
  for (const { manager } of all.nodes) {
    for (const { id } of manager.deadLetters.list({ limit: 10_000 })) manager.deadLetters.retry(id);
  }
  await drained(all);
  expectTheSame(all);
});
