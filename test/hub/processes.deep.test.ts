/** `rowcast-hub` and eight `rowcast serve` as a user runs them: killed at random, and in the end all the same. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildLibrary, root } from '../support/build.ts';
import { lane, openDatabase } from '../support/lane.ts';
import { Random } from '../support/model.ts';
import { cleanUp, database, rowsOf, scratchFolder, until } from '../support/nodes.ts';
import { freePorts, type Parsed, type Program, runProgram, started } from '../support/programs.ts';

let build: Awaited<ReturnType<typeof buildLibrary>>;
beforeAll(async () => {
  build = await buildLibrary();
});
afterAll(() => build.remove());

/** The build lies outside the repository: the lane's binding is found from here alone. */
const FOLDER = Number(process.versions.node.split('.')[0]) >= 22 ? join(root, 'test', 'lanes') : root;

function run(program: 'main' | 'rowcast-hub', args: string[]): Program {
  return runProgram(join(build.folder, 'cli', `${program}.js`), args, { cwd: FOLDER });
}

async function ask(url: string, method = 'GET', body?: unknown): Promise<Parsed> {
  const response = await fetch(url, {
    method,
    ...(body !== undefined && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`HTTP ${response.status} ${await response.text()}`);
  return response.json();
}

/** A program that can be killed and started again at the same place. */
class Place {
  readonly id: string;
  readonly url: string;
  readonly db: string;
  readonly #args: string[];
  #program: Program | undefined;
  starts = 0;

  constructor(id: string, port: number, folder: string, command: string, more: string[]) {
    this.id = id;
    this.url = `http://127.0.0.1:${port}`;
    this.db = join(folder, `${id}.db`);
    this.#args = [command, '-id', id, '-db', this.db, '-listen', `127.0.0.1:${port}`, ...more];
  }

  async start(): Promise<void> {
    this.starts += 1;
    this.#program = run('main', this.#args);
    await started(this.#program);
  }

  async kill(): Promise<void> {
    this.#program?.child.kill('SIGKILL');
    await this.#program?.ended;
  }
}

const NODES = 8;
const WRITES = 500;
const KILLS = 10;
const SHARED = '01890a5d-ac96-774b-bcce-b302099a8057';

/** What a writer was told: the value a row of its own must at least have, or that it is gone. */
interface Told {
  values: Map<string, number>;
  gone: Set<string>;
  /** A write on it got no answer: it may have happened. */
  doubtful: Set<string>;
}

test('eight nodes and a hub, killed at random, one node away throughout: all nine agree in the end', async () => {
  const folder = scratchFolder();
  const [hubPort, ...ports] = (await freePorts(NODES + 1)) as [number, ...number[]];
  const hubUrl = `http://127.0.0.1:${hubPort}`;
  const nodes = ports.map((port, i) => new Place(`n${i}`, port, folder, 'serve', ['-peer', hubUrl]));
  const hub = new Place(
    'hub',
    hubPort,
    folder,
    'hub',
    nodes.flatMap(({ url }) => ['-edge', url]),
  );
  const random = new Random(lane.length);
  const told: Told[] = nodes.map(() => ({ values: new Map(), gone: new Set(), doubtful: new Set() }));
  let serial = 0;

  /** One random write on a node; what was answered is remembered, what was not is in doubt. */
  const write = async (i: number): Promise<void> => {
    const { url } = nodes[i] as Place;
    const { values, gone, doubtful } = told[i] as Told;
    const own = [...values.keys()].filter((id) => !doubtful.has(id));
    const dice = random.next();
    const value = ++serial;
    const id = dice < 0.5 || own.length === 0 ? undefined : (own[Math.floor(random.next() * own.length)] as string);
    try {
      if (dice > 0.95) {
        // Everybody writes to the same row: who wins is not known, only that all agree.
        await ask(`${url}/api/items/${SHARED}`, 'PUT', { value });
      } else if (id === undefined) {
        const made = await ask(`${url}/api/items`, 'POST', { name: `by n${i}`, value });
        values.set(made.id, value);
      } else if (dice < 0.85) {
        await ask(`${url}/api/items/${id}`, 'PUT', { value });
        values.set(id, value);
      } else {
        await ask(`${url}/api/items/${id}`, 'DELETE');
        values.delete(id);
        gone.add(id);
      }
    } catch {
      if (id !== undefined) doubtful.add(id);
    }
  };

  // The last one writes before there is a hub, and is away from then on.
  const away = nodes.at(-1) as Place;
  await away.start();
  for (let i = 0; i < 20; i++) await write(NODES - 1);
  await away.kill();
  const present = nodes.slice(0, -1);
  await Promise.all([hub, ...present].map((place) => place.start()));
  await ask(`${(nodes[0] as Place).url}/api/items`, 'POST', { id: SHARED, name: 'shared', value: 0 });

  let restarting = Promise.resolve();
  for (let n = 0; n < WRITES; n++) {
    if (n % Math.floor(WRITES / KILLS) === 25) {
      const victim = random.next() < 0.4 ? hub : (present[Math.floor(random.next() * present.length)] as Place);
      // The writers do not wait for it.
      restarting = restarting.then(() => victim.kill()).then(() => victim.start());
    }
    await Promise.all([0, 1, 2].map(() => write(Math.floor(random.next() * (NODES - 1)))));
  }
  await restarting;
  await away.start();

  const places = [hub, ...nodes];
  const health = (): Promise<{ pending_changes: number; dead_letter: number }[]> =>
    Promise.all(places.map(({ url }) => ask(`${url}/health`)));
  // Twice: a node may hand over its last change when the hub has been asked already, but not after it had none left.
  for (const time of ['first', 'second']) {
    await until(`nobody has anything left to send, for the ${time} time`, async () =>
      (await health()).every(({ pending_changes }) => pending_changes === 0),
    );
  }
  expect((await health()).map(({ dead_letter }) => dead_letter)).toEqual(places.map(() => 0));

  // Nothing echoes: while everybody is asked again and again, nobody sends.
  const handles = await Promise.all(nodes.map(({ db }) => openDatabase(db)));
  const hubDb = await openDatabase(hub.db);
  for (const db of [...handles, hubDb]) cleanUp(() => db.close());
  const sent = async (): Promise<unknown[]> => {
    const { peer_states: states } = await ask(`${hub.url}/health`);
    const acked = states.map((state: Record<string, unknown>) => [state.last_acked, state.last_acked_at]);
    return [acked, handles.map((db) => rowsOf(db, 'SELECT shipped, last_acked FROM _peer_state'))];
  };
  const before = await sent();
  for (let i = 0; i < 30; i++) await health();
  expect(await sent()).toEqual(before);

  // All nine agree.
  const rows = (db: (typeof handles)[number]): unknown[] => rowsOf(db, 'SELECT * FROM items ORDER BY id');
  const first = rows(handles[0] as (typeof handles)[number]) as { id: string; value: number }[];
  for (const db of handles) expect(rows(db)).toEqual(first);
  const kept = rowsOf(hubDb, "SELECT row_data FROM _hub_rows WHERE op <> 'DELETE' ORDER BY row_id");
  expect(kept.map(({ row_data }) => JSON.parse(row_data as string))).toEqual(first);

  // Nothing that was answered is lost.
  const there = new Map(first.map(({ id, value }) => [id, value]));
  for (const { values, gone, doubtful } of told) {
    const lost = [...values].filter(([id, value]) => !doubtful.has(id) && there.get(id) !== value);
    expect(lost).toEqual([]);
    expect([...gone].filter((id) => there.has(id))).toEqual([]);
  }
  expect(first.length).toBeGreaterThan(100);
  expect(places.reduce((sum, { starts }) => sum + starts, 0)).toBe(NODES + 2 + KILLS);
  expect(rowsOf(hubDb, 'PRAGMA integrity_check')).toEqual([{ integrity_check: 'ok' }]);
});

describe('the program', () => {
  test('rowcast-hub relays, says so in its log, and stops in order when asked', async () => {
    const folder = scratchFolder();
    const [a, b, h] = (await freePorts(3)) as [number, number, number];
    const at = (port: number): string => `http://127.0.0.1:${port}`;
    const nodes = [a, b].map((port) => new Place(`n${port}`, port, folder, 'serve', ['-peer', at(h)]));
    const edges = nodes.flatMap(({ url }) => ['-edge', url]);
    const hub = run('rowcast-hub', [
      '-id',
      'hub',
      '-listen',
      `127.0.0.1:${h}`,
      '-db',
      join(folder, 'hub.db'),
      '-stop-ms',
      '600000',
      ...edges,
    ]);
    await Promise.all([started(hub), ...nodes.map((place) => place.start())]);
    await ask(`${at(a)}/api/items`, 'POST', { name: 'n', value: 1 });
    await until('it has arrived', async () => (await ask(`${at(b)}/api/items`)).length === 1);
    expect(await ask(`${at(h)}/health`)).toMatchObject({
      ok: true,
      node_id: 'hub',
      item_count: 1,
      peers: [at(a), at(b)],
    });
    expect((await fetch(`${at(h)}/api/items`)).status).toBe(404);
    hub.child.kill('SIGTERM');
    expect(await hub.ended).toBe(0);
    const lines = hub
      .stdout()
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines[0]).toMatchObject({ event: 'started', node: 'hub', edges: [at(a), at(b)], binding: lane });
    expect(lines.at(-1)).toMatchObject({ event: 'stopped', requests: 'finished' });
  });

  test('rowcast hub --help is the help of both, and a wrong flag ends with 2', async () => {
    const both = [run('main', ['hub', '--help']), run('rowcast-hub', ['--help'])];
    for (const program of both) expect(await program.ended).toBe(0);
    expect(both[0]?.stdout()).toContain('-edge <url>');
    expect(both[0]?.stdout()).toBe(both[1]?.stdout());
    const wrong = run('rowcast-hub', ['-id', 'hub', '-db', 'x', '-edges', 'http://127.0.0.1:1']);
    expect(await wrong.ended).toBe(2);
    expect(wrong.stderr()).toContain('did you mean -edge?');
  });

  test('a database that is not a hub\u2019s is refused with a message that names it', async () => {
    const folder = scratchFolder();
    const attempt = async (file: string): Promise<string> => {
      const program = run('rowcast-hub', ['-id', 'hub', '-listen', '127.0.0.1:0', '-db', file]);
      expect(await program.ended).toBe(1);
      return program.stderr();
    };
    const foreign = join(folder, 'node.db');
    await database('CREATE TABLE items (id TEXT PRIMARY KEY)', foreign);
    expect(await attempt(foreign)).toMatch(/database .*node\.db is not a hub's: it holds "items".*own/);
    const text = join(folder, 'text.db');
    writeFileSync(text, 'this is not a database, but long enough to be taken for the head of one '.repeat(20));
    expect(await attempt(text)).toMatch(/text\.db is not a SQLite database/);
  });
});
