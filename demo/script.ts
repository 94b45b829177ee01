/** `--once`: the same cluster without a terminal. Writes, a kill -9, a cut link, and the proof that nothing was lost. */
import { systemClock } from '../src/clock.ts';
import { ask } from './client.ts';
import type { Comparison } from './compare.ts';
import type { Mesh } from './mesh.ts';
import type { ClusterNode } from './nodes.ts';

/** A safety net, also for a machine that has much else to do; it takes a second or two. */
const SETTLE_MS = 180_000;
const FIRST_ROWS = 100;
const ROWS_AT_A_TIME = 10;
/** Acknowledged requests of each writer between two disturbances. */
const REQUESTS = 10;

/** True when all three ended up equal and hold every row that was acknowledged. */
export async function once(mesh: Mesh, say: (text: string) => void): Promise<boolean> {
  const [a, b, c] = mesh.nodes as [ClusterNode, ClusterNode, ClusterNode];
  for (const node of mesh.nodes)
    say(`started ${node.id}: pid ${node.pid}, http://127.0.0.1:${node.port}, ${node.file}`);

  const first = await Promise.all(mesh.nodes.map((node) => mesh.write(node, FIRST_ROWS)));
  const acknowledged = new Set(first.flat());
  say(`wrote ${FIRST_ROWS} rows on each of a, b and c`);
  const spread = await mesh.settle(SETTLE_MS);
  if (!spread.equal) return failed(spread, say);
  say(`all three are equal: ${acknowledged.size} rows each, content ${spread.fingerprint}`);

  const writers = mesh.nodes.map((node) => new Writer(mesh, node, acknowledged));
  say('writing on all three without pause');
  await Promise.all(writers.map((writer) => writer.more(REQUESTS)));
  mesh.link('a', 'c')?.cut();
  say('cut the link between a and c');
  await Promise.all(writers.map((writer) => writer.more(REQUESTS)));
  const { pid } = b;
  await b.kill();
  say(`kill -9 ${pid}: b died in the middle of its writes; a and c are now alone`);
  const [onA, , onC] = writers as [Writer, Writer, Writer];
  await Promise.all([onA.more(REQUESTS), onC.more(REQUESTS)]);

  const edited = first[1]?.[0] as string;
  const deleted = first[1]?.[1] as string;
  await must(ask('PUT', a.port, `/api/items/${edited}`, { name: 'edited on a' }), 200);
  await must(ask('PUT', c.port, `/api/items/${edited}`, { name: 'edited on c' }), 200);
  await must(ask('DELETE', a.port, `/api/items/${deleted}`), 200);
  acknowledged.delete(deleted);
  say('edited the same row on a and on c, and deleted another on a');
  await Promise.all([onA.stop(), onC.stop()]);
  if (!(await alone(mesh))) {
    say('FAILED: a and c do not notice that they are cut off');
    return false;
  }
  for (const { id } of mesh.running) say(`${id} holds ${mesh.health.get(id)?.pending_changes} changes for the others`);

  await b.start();
  say(`brought b back: pid ${b.pid}, the same file`);
  mesh.link('a', 'c')?.heal();
  say('healed the link between a and c');
  const healedAt = systemClock.now();
  const comparison = await mesh.settle(SETTLE_MS);
  if (!comparison.equal) return failed(comparison, say);
  say(`all three are equal again after ${systemClock.now() - healedAt} ms`);
  return complete(comparison, acknowledged, { edited, deleted }, say);
}

/** Waits until every running node has given up on both others for now: otherwise nothing was cut, and nothing is proved. */
async function alone(mesh: Mesh): Promise<boolean> {
  const end = systemClock.now() + SETTLE_MS;
  while (systemClock.now() < end) {
    await mesh.look();
    const states = mesh.running.flatMap(({ id }) => mesh.health.get(id)?.peer_states ?? []);
    if (states.length > 0 && states.every(({ state }) => state === 'down')) return true;
    await systemClock.sleep(20);
  }
  return false;
}

/** Equal is not enough: three empty tables are equal. */
function complete(
  { rows, fingerprint }: Comparison,
  acknowledged: Set<string>,
  { edited, deleted }: { edited: string; deleted: string },
  say: (text: string) => void,
): boolean {
  const content = rows.get('a') ?? new Map<string, string>();
  const lost = [...acknowledged].filter((id) => !content.has(id));
  if (lost.length > 0)
    say(`FAILED: ${lost.length} acknowledged rows are missing, such as ${lost.slice(0, 3).join(', ')}`);
  if (content.has(deleted)) say(`FAILED: the deleted row ${deleted} is back`);
  const winner = /edited on [ac]/.exec(content.get(edited) ?? '')?.[0];
  if (!winner) say(`FAILED: the edit of row ${edited} is lost`);
  if (lost.length > 0 || content.has(deleted) || !winner) return false;
  say(`every one of the ${acknowledged.size} acknowledged rows is there; the deleted one is gone everywhere;`);
  say(`of the two edits of one row, the last won everywhere: "${winner}"`);
  say(`rows: ${[...rows].map(([id, { size }]) => `${id} ${size}`).join(', ')}; content ${fingerprint} on all three`);
  return true;
}

function failed({ rows, differences }: Comparison, say: (text: string) => void): false {
  say(`FAILED: the databases differ (rows: ${[...rows].map(([id, { size }]) => `${id} ${size}`).join(', ')})`);
  for (const difference of differences) say(`  ${difference}`);
  return false;
}

/** Writes on one node until it is stopped or the node dies, and remembers what was acknowledged. */
class Writer {
  #requests = 0;
  #stopped = false;
  readonly #running: Promise<void>;

  constructor(mesh: Mesh, node: ClusterNode, acknowledged: Set<string>) {
    this.#running = this.#run(mesh, node, acknowledged);
  }

  /** Resolves after that many further requests, or when the node has died. */
  async more(requests: number): Promise<void> {
    const goal = this.#requests + requests;
    while (this.#requests < goal && !this.#stopped) await systemClock.sleep(2);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
  }

  async #run(mesh: Mesh, node: ClusterNode, acknowledged: Set<string>): Promise<void> {
    while (!this.#stopped) {
      try {
        for (const id of await mesh.write(node, ROWS_AT_A_TIME)) acknowledged.add(id);
        this.#requests += 1;
      } catch (error) {
        this.#stopped = true;
        // A request that was cut off was never acknowledged: it may be there or not, and both are right.
        if (node.state !== 'killed') throw error;
      }
    }
  }
}

async function must(answer: ReturnType<typeof ask>, status: number): Promise<void> {
  const { status: got, json } = await answer;
  if (got !== status) throw new Error(`expected ${status}, got ${got}: ${JSON.stringify(json)}`);
}
