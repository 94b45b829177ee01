/** Programs as a user runs them, that lose their disk or come back with an old copy of it, in a mesh and in a star. */
import { copyFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildLibrary, root } from '../support/build.ts';
import { openDatabase } from '../support/lane.ts';
import { scratchFolder, until } from '../support/nodes.ts';
import { freePorts, type Parsed, type Program, runProgram, started } from '../support/programs.ts';
import { putUnder } from '../support/put-under.ts';

let build: Awaited<ReturnType<typeof buildLibrary>>;
beforeAll(async () => {
  build = await buildLibrary();
});
afterAll(() => build.remove());

/** The build lies outside the repository: the lane's binding is found from here alone. */
const FOLDER = Number(process.versions.node.split('.')[0]) >= 22 ? join(root, 'test', 'lanes') : root;

/** A program at one place, whose disk can be lost or put back. */
class Place {
  readonly id: string;
  readonly url: string;
  readonly db: string;
  readonly #args: string[];
  program: Program | undefined;

  constructor(id: string, port: number, folder: string, command: string, more: string[]) {
    this.id = id;
    this.url = `http://127.0.0.1:${port}`;
    this.db = join(folder, `${id}.db`);
    this.#args = [command, '-id', id, '-db', this.db, '-listen', `127.0.0.1:${port}`, ...more];
  }

  async start(): Promise<void> {
    this.program = runProgram(join(build.folder, 'cli', 'main.js'), this.#args, { cwd: FOLDER });
    await started(this.program);
  }

  async kill(): Promise<void> {
    this.program?.child.kill('SIGKILL');
    await this.program?.ended;
  }

  async backup(): Promise<string> {
    const copy = `${this.db}.backup`;
    const db = await openDatabase(this.db);
    db.exec(`VACUUM INTO '${copy}'`);
    db.close();
    return copy;
  }

  /** It is killed, and comes back with that copy of its disk, or with none. */
  async comeBack(copy?: string): Promise<void> {
    await this.kill();
    for (const suffix of ['', '-wal', '-shm']) rmSync(this.db + suffix, { force: true });
    if (copy !== undefined) copyFileSync(copy, this.db);
    await this.start();
  }
}

async function ask(url: string, method = 'GET', body?: unknown): Promise<Parsed> {
  const response = await fetch(url, {
    method,
    ...(body !== undefined && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  return response.json();
}

const names = async ({ url }: Place): Promise<string> => {
  const items: Parsed[] = await ask(`${url}/api/items`);
  return items
    .map(({ name }) => name)
    .sort()
    .join(' ');
};

async function add({ url }: Place, ...items: string[]): Promise<void> {
  for (const name of items) await ask(`${url}/api/items`, 'POST', { name, value: 1 });
}

async function agree(expected: string, nodes: Place[]): Promise<void> {
  await until(`all have ${expected}`, async () => {
    const found = await Promise.all(nodes.map((node) => names(node).catch(() => '')));
    return found.every((one) => one === expected);
  });
}

async function mesh(): Promise<Place[]> {
  const folder = scratchFolder();
  const ports = await freePorts(3);
  const peersOf = (port: number): string[] =>
    ports.filter((other) => other !== port).flatMap((other) => ['-peer', `http://127.0.0.1:${other}`]);
  const nodes = ports.map((port, i) => new Place(`n${i}`, port, folder, 'serve', peersOf(port)));
  for (const node of nodes) await node.start();
  return nodes;
}

async function star(): Promise<{ hub: Place; nodes: Place[] }> {
  const folder = scratchFolder();
  const [hubPort, ...ports] = (await freePorts(4)) as [number, ...number[]];
  const nodes = ports.map(
    (port, i) => new Place(`n${i}`, port, folder, 'serve', ['-peer', `http://127.0.0.1:${hubPort}`]),
  );
  const edges = nodes.flatMap(({ url }) => ['-edge', url]);
  const hub = new Place('hub', hubPort, folder, 'hub', edges);
  for (const place of [...nodes, hub]) await place.start();
  return { hub, nodes };
}

describe('a mesh', () => {
  test('a node comes back empty, and then from a copy', async () => {
    const nodes = await mesh();
    const [a, b, c] = nodes as [Place, Place, Place];
    await add(a, 'a1', 'a2');
    await add(b, 'b1');
    await agree('a1 a2 b1', nodes);
    const copy = await a.backup();
    await add(a, 'a3');
    await add(c, 'c1');
    await agree('a1 a2 a3 b1 c1', nodes);
    await a.comeBack();
    await add(b, 'b2');
    await agree('a1 a2 a3 b1 b2 c1', nodes);
    await a.comeBack(copy);
    await agree('a1 a2 a3 b1 b2 c1', nodes);
    await until('it says so', () => a.program?.lines('restored').length === 1);
    await until('b says so, too', () => Number(b.program?.lines('peer-replaced').length) > 0);
    await until('all is well', async () => (await ask(`${a.url}/health`)).ok);
    expect(await ask(`${a.url}/health`)).toMatchObject({ dead_letter: 0 });
  });
});

test('a copy is put under a program that runs, in a mesh and as a hub', async () => {
  const nodes = await mesh();
  const [a, b] = nodes as [Place, Place, Place];
  await add(a, 'a1');
  await agree('a1', nodes);
  const copy = await a.backup();
  await add(a, 'a2');
  await add(b, 'b1');
  await agree('a1 a2 b1', nodes);
  await putUnder(copy, a.db);
  await add(a, 'a3');
  await agree('a1 a2 a3 b1', nodes);
  await until('it says so', () => a.program?.lines('restored').length === 1);

  const { hub, nodes: edges } = await star();
  const [one, two] = edges as [Place, Place];
  await add(one, 'x1');
  await agree('x1', edges);
  const earlier = await hub.backup();
  await add(two, 'x2');
  await agree('x1 x2', edges);
  await putUnder(earlier, hub.db);
  await add(one, 'x3');
  await agree('x1 x2 x3', edges);
  await until('the hub has all', async () => (await ask(`${hub.url}/health`)).item_count === 3);
});

describe('a star', () => {
  test('an edge comes back empty, and then from a copy', async () => {
    const { nodes } = await star();
    const [a, b] = nodes as [Place, Place];
    await add(a, 'a1');
    await add(b, 'b1');
    await agree('a1 b1', nodes);
    const copy = await a.backup();
    await add(a, 'a2');
    await agree('a1 a2 b1', nodes);
    await a.comeBack();
    await add(b, 'b2');
    await agree('a1 a2 b1 b2', nodes);
    await a.comeBack(copy);
    await agree('a1 a2 b1 b2', nodes);
  });

  test('the hub comes back empty, and then from a copy', async () => {
    const { hub, nodes } = await star();
    const [a, b] = nodes as [Place, Place];
    await add(a, 'a1');
    await agree('a1', nodes);
    const copy = await hub.backup();
    await add(b, 'b1');
    await agree('a1 b1', nodes);
    await hub.comeBack();
    await add(a, 'a2');
    await agree('a1 a2 b1', nodes);
    await until('the hub has all', async () => (await ask(`${hub.url}/health`)).item_count === 3);
    await hub.comeBack(copy);
    await add(b, 'b2');
    await agree('a1 a2 b1 b2', nodes);
    await until('the hub has all', async () => (await ask(`${hub.url}/health`)).item_count === 4);
  });
});
