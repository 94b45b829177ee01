/**
 * The lanes: every runtime with every binding that Rowcast supports, and which test files say something new on each.
 * This folder has the runtimes that are not the present one, in a node_modules of their own: in the project's they would
 * shadow the present Node and its binding.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
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
const HOUSE = ['house/*', 'types', 'console/*', 'observe/promtool'];
/** In `npm test` these draw a part of their inputs or share their cases (test/support/draws.ts); here they have all. */
const DRAWN = testFiles().filter(isDrawn).map(asFilter);
/**
 * What is about rows, batches, answers and peers, whatever binding is below. Of these tests each runtime of `npm test` takes
 * every other one, and `npm run test:deep` has the others: see test/support/deal.ts. What touches the runtime itself (values,
 * SQLite's settings, HTTP, signatures) is not among them.
 */
const DEALT_ROOMS = [
  ...['admin', 'capture', 'cli', 'compare', 'feed', 'hub', 'identity', 'journal', 'letters', 'migrate', 'observe'],
  ...['receive', 'send', 'tombstones', 'health.test.ts', 'tick.test.ts'],
];
/** Of keys, what whole nodes do with them. */
const WITH_KEYS = ['auth/hub', 'auth/man-in-the-middle', 'auth/nodes'].map((name) => `${name}.test.ts`);
/** Sockets, compression and bindings are the runtime's. */
const ON_BOTH = ['receive/connection', 'send/compression', 'send/verdict'].map((name) => `${name}.test.ts`);
export const DEALT = testFiles()
  .filter((name) => DEALT_ROOMS.includes(name.split('/')[0]) || WITH_KEYS.includes(name))
  .filter((name) => !name.includes('.deep.') && !ON_BOTH.includes(name))
  // What has all of its draws is not dealt.
  .filter((name) => process.env.ROWCAST_DRAWS === undefined || !isDrawn(name));
/** About how much there is, or in which order things are done, and not about a runtime; each takes half a minute. */
const LONG = ['send/backlog.deep', 'compare/large.deep', 'migrate/order.deep', 'migrate/power-cut.deep'];
/**
 * Programs that take long, all of which the present Node has: those that are about sockets on Bun as well, which has its own,
 * and those that are about the life of a database on Node 26 with its binding.
 */
const OF_SOCKETS = [
  ...['attacks', 'listen', 'slow', 'tls', 'tokens', 'trust-page'].map((name) => `cli/${name}.deep`),
  ...['auth/man-in-the-middle.deep', 'crash/proxy.deep'],
];
const OF_LIVES = [
  ...['another-user', 'identity', 'keys', 'operate', 'read-only', 'reload'].map((name) => `cli/${name}.deep`),
  ...['demo/demo.deep', 'hub/processes.deep', 'identity/processes.deep', 'migrate/crash.deep'],
];
/** About PostgreSQL and processes, and not about a runtime. What rows and databases are told by is tried on Bun as well. */
const POSTGRES = 'hub-postgres/*';
const POSTGRES_ONCE = [
  'group',
  'older',
  'order',
  'ownership',
  'pooler',
  'programs',
  'same-decisions',
  'server',
  'store',
].map((name) => `hub-postgres/${name}.deep`);
/** What touches the binding, and not what decides about answers, sizes or flags. */
const BINDING = ['attach', 'capture/', 'wire/', 'letters/', 'receive/', 'send/peers', 'send/snapshot', 'hub/'];

/**
 * `test` and `deep` say which files run in `npm test` and in `npm run test:deep`: the `quick` ones, those named
 * `*.deep.test.ts`, or all of them; `only` the listed, these `also`, or `without` them. `hand`: which of the tests that are
 * dealt it takes, `1/2` or `2/2`. `draws`: how much of what is drawn by
 * chance; all of it with one binding, and half with the others.
 */
export const lanes = [
  {
    name: 'node',
    what: `Node ${process.versions.node} with better-sqlite3 12`,
    command: process.execPath,
    binding: 'better-sqlite3',
    test: { files: 'quick', hand: '1/2' },
    deep: { files: 'deep', also: [...DRAWN, ...DEALT.map(asFilter)], hand: '2/2', draws: 'all' },
  },
  {
    name: 'bun',
    what: 'Bun with bun:sqlite',
    command: bin('bun'),
    flags: ['--bun'],
    binding: 'bun-sqlite',
    test: { files: 'quick', without: HOUSE, hand: '2/2' },
    deep: {
      files: 'deep',
      also: [...DRAWN, ...DEALT.map(asFilter)],
      without: [...HOUSE, ...LONG, ...OF_LIVES, ...POSTGRES_ONCE],
      hand: '1/2',
      draws: 'half',
    },
  },
  {
    name: 'node-26',
    what: 'Node 26 with node:sqlite',
    command: node(26),
    binding: 'node-sqlite',
    deep: {
      files: 'all',
      without: [...HOUSE, ...LONG, ...OF_SOCKETS, POSTGRES],
      hand: '1/2',
      draws: 'half',
    },
  },
  {
    name: 'node-26-better',
    what: 'Node 26 with better-sqlite3 13',
    command: node(26),
    binding: 'better-sqlite3',
    // The rest has run on this Node and on this binding already, each with the other.
    deep: { files: 'quick', only: BINDING, hand: '2/2' },
  },
  {
    name: 'node-24',
    what: 'Node 24 with node:sqlite',
    command: node(24),
    binding: 'node-sqlite',
    // The other half has this binding under Node 26.
    deep: { files: 'quick', only: BINDING, hand: '2/2' },
  },
  {
    name: 'node-24-better',
    what: 'Node 24 with better-sqlite3 13',
    command: node(24),
    binding: 'better-sqlite3',
    // The same binary as on Node 26, under another Node.
    deep: { files: 'quick', only: ['attach', 'capture/', 'wire/', 'receive/apply', 'receive/connection'] },
  },
  {
    name: 'node-22',
    what: 'Node 22 with node:sqlite: the oldest Node and the oldest SQLite that this binding has',
    command: node(22),
    binding: 'node-sqlite',
    // Its binding cuts a text at a NUL character on the way to JavaScript: those left out are full of them.
    deep: {
      files: 'quick',
      only: [...BINDING, 'compare/', 'migrate/', 'sqlite/', 'tombstones/'],
      without: ['capture/odd-writes', 'receive/bad-input', 'compare/property', 'compare/states', 'compare/ids'],
      hand: '2/2',
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

/** Every test file, as a path below test/. */
function testFiles() {
  const rooms = readdirSync(join(root, 'test'), { withFileTypes: true }).filter(({ name }) => name !== 'lanes');
  const names = rooms.flatMap((room) =>
    room.isDirectory() ? readdirSync(join(root, 'test', room.name)).map((name) => `${room.name}/${name}`) : [room.name],
  );
  return names.filter((name) => name.endsWith('.test.ts'));
}

function isDrawn(name) {
  return readFileSync(join(root, 'test', name), 'utf8').includes("/support/draws.ts'");
}

/** What vitest finds this file by, and not one whose name begins in the same way. */
function asFilter(name) {
  return name.replace(/test\.ts$/, '');
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
