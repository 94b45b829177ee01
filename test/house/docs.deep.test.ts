/** Every command and snippet that README and docs/ print is run as printed, but for the ports. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { createHandler, createListener } from '../../src/http/index.ts';
import type { Manager } from '../../src/index.ts';
import { lane } from '../support/lane.ts';
import { cleanUp, node, until } from '../support/nodes.ts';
import { freePorts } from '../support/programs.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const pages = [
  'README.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  ...(readdirSync(join(root, 'docs'), { recursive: true }) as string[]).map((name) => join('docs', name)),
].filter((page) => page.endsWith('.md'));
const text = (page: string): string => readFileSync(join(root, page), 'utf8');
const blocks = (page: string, language: string): string[] =>
  [...text(page).matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, 'gs'))].map(([, block]) => block as string);

/** The snippets with better-sqlite3 are for the Node that it is compiled for. */
const onNode20 = lane === 'better-sqlite3' && Number(process.versions.node.split('.')[0]) < 22;

describe.runIf(onNode20)('the README, on a machine that has cloned and installed', () => {
  test('its first program replicates between two terminals', async () => {
    const folder = scratchInside();
    const [program] = blocks('README.md', 'js');
    writeFileSync(join(folder, 'node.mjs'), program as string);
    const started = blocks('README.md', 'sh').find((block) => block.includes('node node.mjs'));
    const [one, two] = (started as string).trim().split('\n') as [string, string];
    const ports = await twoPorts();
    const a = run(withPorts(one, ports), folder);
    const b = run(withPorts(two, ports), folder);
    await until(
      'each has printed the row of the other',
      () => a.output.includes('from-b') && b.output.includes('from-a'),
    );
  });

  test('it listens on this machine alone, and says when a peer is down', async () => {
    const folder = scratchInside();
    const [program] = blocks('README.md', 'js');
    expect(program).toContain(".listen(port, '127.0.0.1')");
    writeFileSync(join(folder, 'node.mjs'), program as string);
    const [port, nobody] = await twoPorts();
    const alone = run(`node node.mjs a ${port} http://127.0.0.1:${nobody}`, folder);
    await until('it misses its peer', () => alone.output.includes(`http://127.0.0.1:${nobody} is down: `));
  });

  test('what it says to install is what npm pack makes', () => {
    const { name, version } = JSON.parse(text('package.json')) as { name: string; version: string };
    const tarballs = [...text('README.md').matchAll(/[\w-]+-[\d.]+\.tgz/g)].map(([tarball]) => tarball);
    expect(new Set(tarballs)).toEqual(new Set([`${name}-${version}.tgz`]));
  });

  test('rowcast serve and the curl lines do what they say', async () => {
    const folder = scratchInside();
    const ports = await twoPorts();
    const lines = (blocks('README.md', 'sh').find((block) => block.includes('rowcast serve')) as string)
      .trim()
      .split('\n');
    const [one, two, write, read] = lines.map((line) => withPorts(line, ports)) as [string, string, string, string];
    const servers = [one, two].map((line) => run(line, folder));
    await until('both have started', () => servers.every(({ output }) => output.includes('"started"')));
    const written = run(write, folder);
    await until('curl has written', () => written.output.includes('"first"'));
    await until('the other node has it', async () => {
      const answer = run(read, folder);
      await answer.ended;
      return answer.output.includes('"first"');
    });
  });
});

describe.runIf(onNode20)('docs/hub.md and the README, on the hub', () => {
  const [hubLine, ...nodeLines] = (blocks('docs/hub.md', 'sh')[0] as string).trim().split('\n') as [
    string,
    ...string[],
  ];

  test('a hub relays between two nodes that name nobody else', async () => {
    const folder = scratchInside();
    const ports = await twoPorts();
    const [hubPort] = await twoPorts();
    expect(blocks('README.md', 'sh').some((block) => block.includes('npx rowcast hub -id hub'))).toBe(true);
    await relays([hubLine, ...nodeLines], ports, hubPort, folder);
  });

  test('so does the one in a program of its own', async () => {
    const folder = scratchInside();
    const ports = await twoPorts();
    const [hubPort] = await twoPorts();
    const [program] = blocks('docs/hub.md', 'js') as [string];
    writeFileSync(join(folder, 'hub.mjs'), withPorts(program, ports).replaceAll('9100', String(hubPort)));
    const hub = run('node hub.mjs', folder);
    await relays(nodeLines, ports, hubPort, folder);
    await until('it has said so', () => hub.output.includes(`${ports[1]} has 1 more`));
  });

  async function relays(lines: string[], ports: [number, number], hubPort: number, folder: string): Promise<void> {
    const programs = lines.map((line) => {
      const local = withPorts(line, ports).replaceAll('9100', String(hubPort));
      return run(local, folder);
    });
    await until('all have started', () => programs.every(({ output }) => output.includes('"started"')));
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ name: 'by way of the hub', value: 1 });
    const items = (port: number): string => `http://127.0.0.1:${port}/api/items`;
    expect((await fetch(items(ports[0]), { method: 'POST', headers, body })).status).toBe(201);
    await until('the other node has it', async () =>
      (await (await fetch(items(ports[1]))).text()).includes('by way of the hub'),
    );
  }
});

describe('docs/api.md', () => {
  const snippet = (mark: string): string => {
    const found = blocks('docs/api.md', 'js').find((block) => block.includes(mark));
    if (!found) throw new Error(`no snippet with ${mark}`);
    return found;
  };

  test('what it imports is exported', async () => {
    const exported: Record<string, object> = {
      rowcast: await import('../../src/index.ts'),
      'rowcast/http': await import('../../src/http/index.ts'),
      'rowcast/node-sqlite': await import('../../src/sqlite/node-sqlite.ts'),
    };
    const imports = [...snippet('import { attach').matchAll(/import \{ (.*?) \} from '(.*?)'/g)];
    expect(imports).toHaveLength(3);
    for (const [, names, from] of imports) {
      for (const name of (names as string).split(', '))
        expect(Object.keys(exported[from as string] ?? {})).toContain(name);
    }
  });

  test.skipIf(lane === 'bun-sqlite')('node:http', async () => {
    const { manager } = await node();
    const [port] = await twoPorts();
    const server = evaluate(`return ${snippet('http.createServer').replace('9001', String(port))}`, {
      http,
      createListener,
      manager,
    });
    cleanUp(() => (server as http.Server).close());
    await until('it listens', () => (server as http.Server).listening);
    await isHealthy(`http://127.0.0.1:${port}`);
  });

  test.runIf(lane === 'bun-sqlite')('Bun.serve', async () => {
    const { manager } = await node();
    const [port] = await twoPorts();
    const server = evaluate(`return ${snippet('Bun.serve').replace('9001', String(port))}`, { createHandler, manager });
    cleanUp(() => (server as { stop(now: boolean): void }).stop(true));
    await isHealthy(`http://127.0.0.1:${port}`);
  });

  test('Hono', async () => {
    const { Hono } = await import('hono');
    const { manager } = await node();
    const app = new Hono();
    evaluate(snippet('c.req.raw'), { app, createHandler, manager });
    const headers = { 'content-type': 'application/json' };
    const answer = await app.request('/sync', { method: 'POST', headers, body: '{"batch_id":3,"changes":[]}' });
    expect(await answer.json()).toEqual({ applied: 0, ack: 3 });
    expect(await (await app.request('/health')).json()).toMatchObject({ ok: true });
  });

  test('Express', async () => {
    const { default: express } = await import('express');
    const { manager } = await node();
    const app = express();
    evaluate(snippet("'/sync/fetch'], listener)"), { app, createListener, manager });
    const server = http.createServer(app);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    cleanUp(() => server.close());
    await isHealthy(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  });

  test('by hand', async () => {
    const { manager } = await node();
    const answer: unknown[] = [];
    const response = {
      writeHead: (status: number) => ({ end: (body: string) => answer.push(status, JSON.parse(body)) }),
    };
    const request = { headers: { 'x-node-id': 'b' } };
    evaluate(snippet('manager.receive(requestBody'), {
      manager,
      request,
      response,
      requestBody: '{"batch_id":3,"changes":[]}',
    });
    expect(answer).toEqual([200, { applied: 0, ack: 3 }]);
  });

  test('by hand, in TypeScript, with the headers of node:http', () => {
    const folder = scratchInside();
    const given =
      'manager: Manager, request: http.IncomingMessage, response: http.ServerResponse, requestBody: Uint8Array';
    const code = [
      "import type http from 'node:http';",
      "import type { Manager } from '../../src/index.ts';",
      `export function receive(${given}): void {\n${snippet('manager.receive(requestBody')}}`,
      `export async function answer(${given}, path: string): Promise<void> {\n${snippet('manager.answer(path')}}`,
    ];
    writeFileSync(join(folder, 'server.mts'), code.join('\n'));
    const config = { extends: join(root, 'tsconfig.json'), include: ['server.mts'] };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
    const tsc = join(root, 'node_modules/typescript/bin/tsc');
    const { stdout, status } = spawnSync(process.execPath, [tsc, '-p', folder], { encoding: 'utf8' });
    expect([stdout, status]).toEqual(['', 0]);
  });
});

test('docs/dead-letters.md: the loop over dead letters runs', async () => {
  const { manager } = await node();
  manager.receive(
    '{"batch_id":1,"changes":[{"op":"INSERT","table":"nowhere","row":{"id":"a","updated_at":5},"old_id":null}]}',
  );
  const printed: unknown[][] = [];
  const console = { log: (...words: unknown[]) => printed.push(words) };
  evaluate(blocks('docs/dead-letters.md', 'js')[0] as string, { rowcast: manager as Manager, console });
  expect(printed).toEqual([[1, 'unknown-table', expect.stringContaining('nowhere')]]);
});

test('docs/operations.md: the verbs on peers do what they say', async () => {
  const code = blocks('docs/operations.md', 'js').find((block) => block.includes('peers.add')) as string;
  const peers = ['http://10.0.0.2:9001', 'http://10.0.0.3:9001'];
  const { manager } = await node({ peers, fetch: () => new Promise(() => {}) });
  await evaluate(`return (async () => { ${code} })()`, { rowcast: manager as Manager });
  expect(manager.peers.list()).toMatchObject([
    { url: peers[0], paused: false },
    { url: 'http://10.0.0.4:9001', paused: false },
  ]);
});

test('every script, file and heading that is referred to exists', () => {
  const { scripts } = JSON.parse(text('package.json')) as { scripts: Record<string, string> };
  for (const page of pages) {
    for (const [, script] of text(page).matchAll(/npm run ([\w:-]+)/g))
      expect(scripts, page).toHaveProperty([script as string]);
    for (const [, target] of text(page).matchAll(/\]\((?!https?:)([^)]+)\)/g)) {
      const [file, heading] = (target as string).split('#') as [string, string | undefined];
      const path = join(root, page, '..', file === '' ? (page.split('/').at(-1) as string) : file);
      if (!heading) continue;
      const headings = [...readFileSync(path, 'utf8').matchAll(/^#+ (.*)$/gm)].map(([, title]) =>
        slug(title as string),
      );
      expect(headings, `${page} -> ${target}`).toContain(heading);
    }
    for (const [, target] of text(page).matchAll(/\]\((?!https?:)([^)#]+)/g)) {
      expect(() => readdirOrRead(join(root, page, '..', target as string)), `${page} -> ${target}`).not.toThrow();
    }
    for (const [name] of text(page).matchAll(/(?:test|src|examples|bench)\/[\w./-]+\.(?:ts|mjs|txt)(?!\.?\w)/g)) {
      expect(() => readFileSync(join(root, name)), `${page} names ${name}`).not.toThrow();
    }
  }
});

test('every source file that the design and the hub page name is there', () => {
  for (const page of ['docs/design.md', 'docs/hub.md']) {
    const names = [...text(page).matchAll(/`([\w-]+(?:\/[\w-]+)*\.ts)`/g)].map(([, name]) => name as string);
    expect(names.length, page).toBeGreaterThan(5);
    for (const name of names) expect(existsSync(join(root, 'src', name)), `${page} names ${name}`).toBe(true);
  }
});

function slug(title: string): string {
  return title
    .toLowerCase()
    .replace(/[^\w\s-]/g, '')
    .replace(/\s+/g, '-');
}

function readdirOrRead(path: string): void {
  try {
    readFileSync(path);
  } catch {
    readdirSync(path);
  }
}

function evaluate(code: string, scope: Record<string, unknown>): unknown {
  return new Function(...Object.keys(scope), code)(...Object.values(scope));
}

async function isHealthy(url: string): Promise<void> {
  expect(await (await fetch(`${url}/health`)).json()).toMatchObject({ ok: true, node_id: 'node' });
}

/**
 * A project where the package is installed; inside the repository, so that the others resolve as well. In the clone itself
 * npm would make of `npx rowcast` an installation, which builds anew, below programs that other tests are just starting.
 */
function scratchInside(): string {
  const folder = mkdtempSync(join(root, 'test', '.scratch-'));
  writeFileSync(join(folder, 'package.json'), '{}');
  mkdirSync(join(folder, 'node_modules', '.bin'), { recursive: true });
  symlinkSync(root, join(folder, 'node_modules', 'rowcast'));
  symlinkSync(join('..', 'rowcast', 'dist', 'src', 'cli', 'main.js'), join(folder, 'node_modules', '.bin', 'rowcast'));
  cleanUp(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const twoPorts = async (): Promise<[number, number]> => (await freePorts(2)) as [number, number];

function withPorts(line: string, [first, second]: [number, number]): string {
  return line.replaceAll('9001', String(first)).replaceAll('9002', String(second));
}

interface Run {
  output: string;
  ended: Promise<void>;
}

/** Runs a line as a shell would, in a process group of its own that ends with the test. */
function run(line: string, cwd: string): Run {
  const child: ChildProcess = spawn('sh', ['-c', line], { cwd, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  const result: Run = { output: '', ended: new Promise((resolve) => child.on('close', () => resolve())) };
  child.stdout?.on('data', (chunk) => (result.output += chunk));
  child.stderr?.on('data', (chunk) => (result.output += chunk));
  cleanUp(async () => {
    try {
      process.kill(-(child.pid as number), 'SIGTERM');
    } catch {
      // It has ended by itself.
    }
    await result.ended;
  });
  return result;
}
