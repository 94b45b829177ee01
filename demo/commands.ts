/** What a person can ask for, as a key or as a line, and the doing of it. */
import { systemClock } from '../src/clock.ts';
import { messageOf } from '../src/errors.ts';
import { ask } from './client.ts';
import { type Mesh, NODE_IDS } from './mesh.ts';
import type { ClusterNode } from './nodes.ts';
import { SCENES, type Scene } from './scenes.ts';

export type Command =
  | { kind: 'write'; count: number; node?: string }
  | { kind: 'kill' | 'start'; node: string }
  | { kind: 'cut' | 'heal'; one: string; other: string }
  | { kind: 'scene'; scene: Scene; nodes: string[] }
  | { kind: 'stream' | 'verify' | 'status' | 'help' | 'quit' }
  | { kind: 'wrong'; message: string };

export const LINES = [
  'write 10      10 rows on each running node (write 10 b: on b alone)',
  'kill b        kill -9; start b brings it back',
  'cut a b       cuts the link between a and b; heal a b mends it',
  ...SCENES.map(({ word, summary }) => `${word.padEnd(13)} ${summary} (${word} a b: on those)`),
  'verify        compares every row of the three databases',
  'status        rows, pending changes, lag and peers of each node',
  'quit          stops the nodes and ends',
];

const ROWS_MAX = 100_000;
/** How long a write is watched on its way to the others. */
const SPREAD_MS = 60_000;
const VERIFY_MS = 120_000;

/** A key does what makes sense now: the same one kills a node and brings it back, cuts a link and heals it. */
export function fromKey(key: string, mesh: Mesh): Command | undefined {
  if (key === 'q' || key === '\x03' || key === '\x04') return { kind: 'quit' };
  if (key === 'w') return { kind: 'write', count: 10 };
  if (key === 'r') return { kind: 'stream' };
  if (key === 'v') return { kind: 'verify' };
  const scene = SCENES.find((one) => one.key === key);
  if (scene) return { kind: 'scene', scene, nodes: NODE_IDS };
  const node = mesh.node(key);
  if (node) return { kind: node.state === 'running' ? 'kill' : 'start', node: key };
  const link = mesh.links[Number.parseInt(key, 10) - 1];
  if (link) return { kind: link.isCut ? 'heal' : 'cut', one: link.ends[0], other: link.ends[1] };
  return undefined;
}

export function fromLine(line: string): Command | undefined {
  const [word = '', first, second] = line
    .trim()
    .toLowerCase()
    .split(/[\s,]+/);
  if (word === '') return undefined;
  if (word === 'write') return writeCommand(first ?? '10', second);
  if (word === 'kill' || word === 'start') {
    if (first !== undefined && NODE_IDS.includes(first)) return { kind: word, node: first };
    return { kind: 'wrong', message: `${word} which node? One of ${NODE_IDS.join(', ')}` };
  }
  if (word === 'cut' || word === 'heal') {
    const [one = '', other = ''] = [first, second];
    if (NODE_IDS.includes(one) && NODE_IDS.includes(other) && one !== other) return { kind: word, one, other };
    return { kind: 'wrong', message: `${word} which link? Name its two nodes: ${word} a b` };
  }
  const scene = SCENES.find((one) => one.word === word);
  if (scene) return sceneCommand(scene, first, second);
  if (word === 'verify' || word === 'status' || word === 'help' || word === 'quit') return { kind: word };
  return { kind: 'wrong', message: `there is no command "${word}"; help lists them` };
}

/** Two nodes, or the first two that run. */
function sceneCommand(scene: Scene, one: string | undefined, other: string | undefined): Command {
  if (one === undefined) return { kind: 'scene', scene, nodes: NODE_IDS };
  if (other !== undefined && one !== other && NODE_IDS.includes(one) && NODE_IDS.includes(other))
    return { kind: 'scene', scene, nodes: [one, other] };
  return { kind: 'wrong', message: `${scene.word} between which nodes? Name two: ${scene.word} a b` };
}

function writeCommand(count: string, node: string | undefined): Command {
  const rows = Number(count);
  if (!Number.isInteger(rows) || rows < 1 || rows > ROWS_MAX)
    return { kind: 'wrong', message: `write how many rows? A number from 1 to ${ROWS_MAX}` };
  if (node !== undefined && !NODE_IDS.includes(node))
    return { kind: 'wrong', message: `write on which node? One of ${NODE_IDS.join(', ')}` };
  return { kind: 'write', count: rows, ...(node !== undefined && { node }) };
}

/** Does what concerns the mesh; status, help, stream and quit are the caller's. */
export async function perform(command: Command, mesh: Mesh, say: (text: string) => void): Promise<void> {
  if (command.kind === 'write') {
    const targets = mesh.running.filter(({ id }) => (command.node ?? id) === id);
    if (targets.length === 0) say('nothing written: no such node is running');
    await Promise.all(targets.map((node) => writeAndWatch(node, command.count, mesh, say)));
  }
  if (command.kind === 'kill') await kill(command.node, mesh, say);
  if (command.kind === 'start') await start(command.node, mesh, say);
  if (command.kind === 'cut' || command.kind === 'heal') {
    const link = mesh.link(command.one, command.other);
    link?.[command.kind]();
    say(command.kind === 'cut' ? `link ${link?.name} is cut` : `link ${link?.name} is healed`);
  }
  if (command.kind === 'scene') {
    const nodes = command.nodes.map((id) => mesh.node(id)).filter((node) => node !== undefined);
    await command.scene.play(mesh, nodes, say);
  }
  if (command.kind === 'verify') await verify(mesh, say);
  if (command.kind === 'wrong') say(command.message);
}

async function kill(id: string, mesh: Mesh, say: (text: string) => void): Promise<void> {
  const node = mesh.node(id);
  if (node?.state !== 'running') return say(`${id} is not running`);
  const { pid } = node;
  await node.kill();
  say(`kill -9 ${pid}: ${id} is gone`);
}

async function start(id: string, mesh: Mesh, say: (text: string) => void): Promise<void> {
  const node = mesh.node(id);
  if (!node || node.state === 'running' || node.state === 'starting') return say(`${id} is running already`);
  try {
    await node.start();
    say(`${id} is back as pid ${node.pid}, with its own file`);
  } catch (error) {
    say(messageOf(error));
  }
}

async function verify(mesh: Mesh, say: (text: string) => void): Promise<void> {
  const { equal, rows, fingerprint, differences } = await mesh.settle(VERIFY_MS);
  const count = rows.values().next().value?.size ?? 0;
  if (equal) return say(`all three files are equal: ${count} rows each, content ${fingerprint}`);
  const counts = `rows ${[...rows].map(([id, content]) => `${id} ${content.size}`).join(', ')}`;
  say(`the files are not equal${mesh.whole ? '' : ' while a node is down or a link is cut'}: ${counts}`);
  if (mesh.whole) for (const difference of differences) say(`  ${difference}`);
}

/** Writes, and then looks for the last row on the others: the time is what a reader there would have waited. */
async function writeAndWatch(node: ClusterNode, count: number, mesh: Mesh, say: (text: string) => void): Promise<void> {
  let ids: string[];
  try {
    ids = await mesh.write(node, count);
  } catch (error) {
    return say(`writing on ${node.id} failed: ${messageOf(error)}`);
  }
  const from = systemClock.now();
  const last = ids.at(-1) as string;
  const others = mesh.nodes.filter((other) => other !== node);
  const news = await Promise.all(others.map((other) => arrival(last, from, node, other, mesh)));
  say(`${count} rows on ${node.id}: ${news.join(', ')}`);
}

async function arrival(id: string, from: number, node: ClusterNode, other: ClusterNode, mesh: Mesh): Promise<string> {
  while (systemClock.now() - from < SPREAD_MS) {
    if (other.state !== 'running') return `${other.id} gets them when it is back`;
    if (mesh.link(node.id, other.id)?.isCut) return `${other.id} gets them when the link is healed`;
    const answer = await ask('GET', other.port, `/api/items/${id}`).catch(() => undefined);
    if (answer?.status === 200) return `on ${other.id} after ${systemClock.now() - from} ms`;
    await systemClock.sleep(5);
  }
  return `not on ${other.id} yet`;
}
