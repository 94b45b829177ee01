/** Small plays on the mesh, each with a key and a word: what happens, and what can be seen of it. */

import { openDatabase } from '../src/cli/open.ts';
import { systemClock } from '../src/clock.ts';
import { ask } from './client.ts';
import type { Mesh } from './mesh.ts';
import type { ClusterNode } from './nodes.ts';

export interface Scene {
  /** Starts it in the live view; none of those that nodes and links have. */
  key: string;
  /** Starts it as a line. */
  word: string;
  /** What it shows, in half a line. */
  summary: string;
  play(mesh: Mesh, nodes: ClusterNode[], say: (text: string) => void): Promise<void>;
}

export const SCENES: Scene[] = [
  { key: 'x', word: 'conflict', summary: 'edit one row on two nodes that cannot reach each other', play: conflict },
  { key: 'u', word: 'unique', summary: 'give one UNIQUE seat to two people on such nodes', play: unique },
];

/** How long a state is left standing, for a person to see it. */
const SHOW_MS = 2_000;
const ARRIVAL_MS = 120_000;

interface Item {
  name: string;
  updated_at: number;
}

/** Two edits of one row, neither knowing of the other; then the link is healed, and one of them is everywhere. */
async function conflict(mesh: Mesh, nodes: ClusterNode[], say: (text: string) => void): Promise<void> {
  const [one, other] = nodes.filter(({ state }) => state === 'running');
  if (!one || !other) return say('a conflict needs two running nodes');
  const link = mesh.link(one.id, other.id);
  // The row has to be on both before they part.
  link?.heal();
  const [id] = await mesh.write(one, 1);
  const path = `/api/items/${id}`;
  const shown = (node: ClusterNode): Promise<Item | undefined> => itemOn(node, path);
  if (!(await eventually(async () => (await shown(other)) !== undefined)))
    return say(`the row does not arrive on ${other.id}: no conflict this time`);
  link?.cut();
  say(`link ${link?.name} is cut; now the same row is edited on both sides of it`);
  const edits = new Map<ClusterNode, Item>();
  for (const node of [one, other]) {
    const { status, json } = await ask('PUT', node.port, path, { name: `edited on ${node.id}` });
    if (status !== 200) {
      link?.heal();
      return say(`the edit on ${node.id} failed with ${status}; link ${link?.name} is healed`);
    }
    edits.set(node, json);
    say(`${node.id} shows "${json.name}" (updated_at ${json.updated_at})`);
  }
  await systemClock.sleep(SHOW_MS);
  link?.heal();
  say(`link ${link?.name} is healed`);
  const agreed = await eventually(async () => {
    const names = await Promise.all([one, other].map(async (node) => (await shown(node))?.name));
    return names[0] !== undefined && names[0] === names[1];
  });
  const final = await shown(one);
  if (!agreed || !final) return say(`${one.id} and ${other.id} do not agree yet: verify will tell`);
  const loser = [one, other].find((node) => edits.get(node)?.name !== final.name);
  const everywhere = mesh.running.map(({ id }) => id).join(', ');
  say(`${one.id} and ${other.id} both show "${final.name}": the later edit wins on every node (${everywhere})`);
  say(`the edit "${edits.get(loser as ClusterNode)?.name}" lost, on ${loser?.id} too`);
}

/** Every seat once, on every node: a constraint of the application's own, made while the nodes are running. */
const SEATS = "CREATE UNIQUE INDEX IF NOT EXISTS seats ON items (name) WHERE name >= 'seat ' AND name < 'seat!'";

/** One seat, taken twice by nodes that cannot reach each other; then one row has it everywhere, and the other waits. */
async function unique(mesh: Mesh, nodes: ClusterNode[], say: (text: string) => void): Promise<void> {
  const [one, other] = nodes.filter(({ state }) => state === 'running');
  if (!one || !other) return say('this needs two running nodes');
  for (const { file } of mesh.running) addSeats(file);
  const link = mesh.link(one.id, other.id);
  link?.cut();
  const name = `seat ${1 + (systemClock.now() % 1_000_000)}`;
  say(`items have a UNIQUE seat now; link ${link?.name} is cut, and "${name}" is given away on both sides of it`);
  const taken = new Map<ClusterNode, string>();
  for (const node of [one, other]) {
    const { status, json } = await ask('POST', node.port, '/api/items', { name, value: 1 });
    if (status !== 201) {
      link?.heal();
      return say(`${node.id} refuses it with ${status}; link ${link?.name} is healed`);
    }
    taken.set(node, `/api/items/${json.id}`);
    await systemClock.sleep(20);
  }
  await systemClock.sleep(SHOW_MS);
  link?.heal();
  say(`link ${link?.name} is healed`);
  const winner = taken.get(other) as string;
  const loser = taken.get(one) as string;
  const isSettled = async (node: ClusterNode): Promise<boolean> =>
    (await itemOn(node, winner)) !== undefined && (await itemOn(node, loser)) === undefined;
  const settled = await eventually(async () => (await Promise.all([one, other].map(isSettled))).every(Boolean));
  if (!settled) return say(`${one.id} and ${other.id} do not agree yet: verify will tell`);
  say(`the later row, of ${other.id}, has the seat on both; the one of ${one.id} is hidden on both, and kept`);
  await systemClock.sleep(SHOW_MS);
  await ask('DELETE', one.port, winner);
  const back = await eventually(
    async () => (await itemOn(one, loser)) !== undefined && (await itemOn(other, loser)) !== undefined,
  );
  say(
    back
      ? `${other.id}'s row is deleted, and ${one.id}'s is back on both`
      : 'it does not come back yet: verify will tell',
  );
}

function addSeats(file: string): void {
  const { db, close } = openDatabase(file);
  try {
    db.exec(SEATS);
  } finally {
    close();
  }
}

async function itemOn(node: ClusterNode, path: string): Promise<Item | undefined> {
  const answer = await ask('GET', node.port, path).catch(() => undefined);
  return answer?.status === 200 ? answer.json : undefined;
}

async function eventually(condition: () => Promise<boolean>): Promise<boolean> {
  const end = systemClock.now() + ARRIVAL_MS;
  while (!(await condition())) {
    if (systemClock.now() > end) return false;
    await systemClock.sleep(20);
  }
  return true;
}
