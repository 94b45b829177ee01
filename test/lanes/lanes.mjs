/**
 * The lanes: every runtime with every binding that Rowcast supports, and which test files say something new on each.
 * This folder has the runtimes that are not the present one, in a node_modules of their own: in the project's they would
 * shadow the present Node and its binding.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../..', import.meta.url));
export const bin = (name) => join(root, 'node_modules', '.bin', name);
const folder = join(root, 'test', 'lanes');
const platform = `${process.platform}-${process.arch}`;
const installed = (...path) => join(folder, 'node_modules', ...path);
const node = (version) => installed(`node-${version}-${platform}`, 'bin', 'node');

export const deno = installed('@deno', `${platform}-glibc`, 'deno');

/** About the project, not about a runtime: the present Node answers for all. */
const HOUSE = ['house/architecture', 'house/api', 'types'];
/** In these much is left to chance: in `npm test` they draw a part of it (test/support/draws.ts), and here all. */
const DRAWN = ['receive/merge', 'receive/unique', 'compare/property', 'wire/exact-text', 'wire/values'];
/** About how much there is, or in which order things are done, and not about a runtime; each takes half a minute. */
const LONG = ['send/backlog.deep', 'compare/large.deep', 'migrate/order.deep'];
/** What touches the binding, and not what decides about answers, sizes or flags. */
const BINDING = ['attach', 'capture/', 'wire/', 'receive/', 'send/peers', 'send/snapshot', 'hub/'];

/**
 * `test` and `deep` say which files run in `npm test` and in `npm run test:deep`: the `quick` ones, those named
 * `*.deep.test.ts`, or all of them; `only` the listed, these `also`, or `without` them.
 */
export const lanes = [
  {
    name: 'node',
    what: `Node ${process.versions.node} with better-sqlite3 12`,
    command: process.execPath,
    binding: 'better-sqlite3',
    test: { files: 'quick' },
    deep: { files: 'deep', also: DRAWN },
  },
  {
    name: 'bun',
    what: 'Bun with bun:sqlite',
    command: bin('bun'),
    flags: ['--bun'],
    binding: 'bun-sqlite',
    test: { files: 'quick', without: HOUSE },
    deep: { files: 'deep', also: DRAWN, without: ['house/bench', ...LONG] },
  },
  {
    name: 'node-26',
    what: 'Node 26 with node:sqlite',
    command: node(26),
    binding: 'node-sqlite',
    deep: { files: 'all', without: [...HOUSE, 'house/bench', ...LONG] },
  },
  {
    name: 'node-26-better',
    what: 'Node 26 with better-sqlite3 13',
    command: node(26),
    binding: 'better-sqlite3',
    // Programs, crashes and chance have run on this Node and on this binding already, each with the other.
    deep: { files: 'quick', without: HOUSE },
  },
  {
    name: 'node-24',
    what: 'Node 24 with node:sqlite',
    command: node(24),
    binding: 'node-sqlite',
    deep: { files: 'quick', only: BINDING },
  },
  {
    name: 'node-24-better',
    what: 'Node 24 with better-sqlite3 13',
    command: node(24),
    binding: 'better-sqlite3',
    // The same binary as on Node 26, under another Node.
    deep: { files: 'quick', only: ['attach', 'capture/', 'wire/', 'receive/apply'] },
  },
  {
    name: 'node-22',
    what: 'Node 22 with node:sqlite: the oldest Node and the oldest SQLite that this binding has',
    command: node(22),
    binding: 'node-sqlite',
    // Its binding cuts a text at a NUL character on the way to JavaScript: these are full of them.
    deep: {
      files: 'quick',
      without: [
        ...HOUSE,
        'capture/odd-tables',
        'receive/bad-input',
        'compare/property',
        'compare/states',
        'compare/ids',
      ],
    },
  },
];

/** What better-sqlite3 is on a lane: the project's own is compiled for the Node that has installed it, and for no other. */
export function bindingEnv({ command, binding }) {
  const own = command !== process.execPath && binding === 'better-sqlite3';
  return {
    ROWCAST_LANE: binding,
    ROWCAST_EXPECT_LANE: binding,
    ...(own && { ROWCAST_BETTER_SQLITE3: installed('better-sqlite3') }),
  };
}

/** Why this cannot run here; undefined where it can. */
export function missing(command) {
  return existsSync(command) ? undefined : `${command.slice(root.length)} is not installed for ${platform}`;
}

/** Whether the runtimes are as the lock file says; installs them where not. */
export function installLanes() {
  const done = installed('.package-lock.json');
  const lock = join(folder, 'package-lock.json');
  if (existsSync(done) && statSync(done).mtimeMs >= statSync(lock).mtimeMs) return true;
  console.log('installing the other runtimes into test/lanes');
  const options = ['--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error', '--prefix', folder];
  return spawnSync('npm', ['ci', ...options], { stdio: 'inherit' }).status === 0;
}
