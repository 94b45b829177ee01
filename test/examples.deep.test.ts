/** Every example, run as its first lines say: two processes, each with a file of its own, each the other's peer. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { lane } from './support/lane.ts';
import { cleanUp, node, scratchFolder, until } from './support/nodes.ts';
import { freePorts } from './support/programs.ts';

const examples = fileURLToPath(new URL('../examples/', import.meta.url));
const require = createRequire(import.meta.url);

/** Which runtime an example needs, besides what is installed with the project. */
const NEEDS: Record<string, 'better-sqlite3' | 'node-sqlite' | 'bun-sqlite'> = {
  'bun-serve.ts': 'bun-sqlite',
  'express.mjs': 'better-sqlite3',
  'hono.mjs': 'better-sqlite3',
  'kysely.mjs': 'better-sqlite3',
  'node-http.mjs': 'better-sqlite3',
  'node-sqlite.mjs': 'node-sqlite',
};

describe('the examples', () => {
  it('are all listed here', () => {
    const present = readdirSync(examples).filter((name) => /\.(mjs|ts)$/.test(name));
    expect(present.sort()).toEqual(Object.keys(NEEDS));
  });

  it('fit on a page', () => {
    for (const name of Object.keys(NEEDS)) {
      expect(readFileSync(join(examples, name), 'utf8').split('\n').length, name).toBeLessThan(52);
    }
  });

  it('are run as their first lines say, and say how when they are not', () => {
    for (const [name, binding] of Object.entries(NEEDS)) {
      const text = readFileSync(join(examples, name), 'utf8');
      const program = name.endsWith('.ts') ? 'bun' : 'node';
      expect(text).toContain(`//   ${program} examples/${name} a 8001 a.db http://127.0.0.1:8002\n`);
      if (!runsHere(binding)) continue;
      const { status, stderr } = spawnSync(process.execPath, [join(examples, name)], { encoding: 'utf8' });
      expect(stderr).toContain(`usage: ${program} examples/${name} <id> <port> <database file> <peer URL>...\n`);
      expect(status, name).toBe(2);
    }
  });

  for (const [name, binding] of Object.entries(NEEDS)) {
    it.runIf(runsHere(binding))(`${name}: two processes replicate to each other, and end when told`, async () => {
      const folder = scratchFolder();
      const [a = 0, b = 0] = await freePorts(2);
      const nodes = [start(name, 'a', a, join(folder, 'a.db'), b), start(name, 'b', b, join(folder, 'b.db'), a)];
      await Promise.all(nodes.map((node) => node.listening()));

      expect((await fetch(`http://127.0.0.1:${a}/notes`, { method: 'POST', body: 'from a' })).ok).toBe(true);
      expect((await fetch(`http://127.0.0.1:${b}/notes`, { method: 'POST', body: 'from b' })).ok).toBe(true);
      for (const port of [a, b]) {
        await until(`both notes are on port ${port}`, async () => (await texts(port)).length === 2);
        expect((await texts(port)).sort()).toEqual(['from a', 'from b']);
      }
      expect(await notes(a)).toEqual(await notes(b));
      expect(await json(a, '/health')).toMatchObject({ ok: true, node_id: 'a', item_count: 2, dead_letter: 0 });
      for (const port of [a, b])
        expect(await compared(port)).toMatchObject([{ equal: true, differences: 2, repaired: 2 }]);

      expect(await Promise.all(nodes.map((node) => node.end()))).toEqual([0, 0]);
    });
  }
});

/** The project's own better-sqlite3 is built for one Node; node:sqlite and bun:sqlite come with their runtimes. */
function runsHere(binding: string): boolean {
  if (lane === 'bun-sqlite' || binding === 'bun-sqlite') return lane === binding;
  try {
    if (binding === 'node-sqlite') return require('node:sqlite') !== undefined;
    const BetterSqlite3 = require('better-sqlite3');
    new BetterSqlite3(':memory:').close();
    return true;
  } catch {
    return false;
  }
}

function start(name: string, id: string, port: number, file: string, peer: number) {
  expect(existsSync(join(examples, '..', 'dist', 'src', 'index.js')), 'npm run build comes first').toBe(true);
  const args = [join(examples, name), id, String(port), file, `http://127.0.0.1:${peer}`];
  const child: ChildProcess = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => (output += chunk));
  const exited = new Promise<number | string>((resolve) => {
    child.on('exit', (code, signal) => resolve(code ?? signal ?? 'unknown'));
  });
  cleanUp(() => child.kill('SIGKILL'));
  return {
    listening: () =>
      until(`${name} ${id} listens`, async () => {
        if (child.exitCode !== null) throw new Error(`${name} ${id} ended with ${child.exitCode}:\n${output}`);
        return fetch(`http://127.0.0.1:${port}/health`).then(
          (response) => response.ok,
          () => false,
        );
      }),
    end: async () => {
      child.kill('SIGTERM');
      return exited;
    },
  };
}

async function json(port: number, path: string): Promise<unknown> {
  return (await fetch(`http://127.0.0.1:${port}${path}`)).json();
}

/** What a node that has nothing finds when it compares itself with that one, and fetches what it lacks. */
async function compared(port: number): Promise<unknown> {
  const schema = 'CREATE TABLE notes (id TEXT PRIMARY KEY, text TEXT, updated_at INTEGER)';
  const { manager } = await node({ id: 'asker', peers: [`http://127.0.0.1:${port}`], schema, tables: ['notes'] });
  return manager.verify(undefined, { repair: true });
}

async function notes(port: number): Promise<{ id: string; text: string }[]> {
  const rows = (await json(port, '/notes')) as { id: string; text: string }[];
  return rows.sort((one, other) => (one.id < other.id ? -1 : 1));
}

async function texts(port: number): Promise<string[]> {
  return (await notes(port)).map(({ text }) => text);
}
