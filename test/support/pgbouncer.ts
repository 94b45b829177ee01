/**
 * Debian's pgbouncer before a PostgreSQL, in transaction mode: each transaction, and each statement outside of one, gets
 * whichever connection to the server is free. In CI it is installed where that is allowed, and its absence is a failure.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { chownSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import type { Postgres } from '../../demo/postgres.ts';
import { cleanUp } from './clean-up.ts';
import { scratchFolder } from './nodes.ts';
import { freePort } from './programs.ts';

const MISSING = 'there is no pgbouncer: on Debian, apt-get install pgbouncer';
const executable = find() ?? install();
if (!executable && process.env.CI) throw new Error(MISSING);
if (!executable) console.log(`skipped: ${MISSING}`);

export const hasPgbouncer = executable !== undefined;

export interface Pooler {
  /** The same database, through it. */
  url(of: string): string;
  kill(): Promise<void>;
  start(): Promise<void>;
}

/** Ends with the test. `settings`: lines of its configuration. */
export async function pooler(server: Postgres, settings: string[] = ['default_pool_size = 12']): Promise<Pooler> {
  const folder = scratchFolder();
  const port = await freePort();
  const file = join(folder, 'pgbouncer.ini');
  writeFileSync(join(folder, 'users'), `"postgres" "${server.password}"\n`);
  writeFileSync(
    file,
    [
      '[databases]',
      `* = host=127.0.0.1 port=${server.port}`,
      '[pgbouncer]',
      ...['listen_addr = 127.0.0.1', `listen_port = ${port}`, 'unix_socket_dir =', 'pool_mode = transaction'],
      ...['auth_type = plain', `auth_file = ${join(folder, 'users')}`, 'server_login_retry = 1', ...settings],
    ].join('\n'),
  );
  const user = unprivileged();
  if (user) for (const path of [folder, file, join(folder, 'users')]) chownSync(path, user.uid, user.gid);
  let child: ChildProcess | undefined;
  let ended: Promise<unknown> = Promise.resolve();
  const end = async (): Promise<void> => {
    child?.kill('SIGKILL');
    await ended;
  };
  const start = async (): Promise<void> => {
    const started = spawn(executable as string, [file], { stdio: ['ignore', 'pipe', 'pipe'], ...user });
    child = started;
    ended = new Promise((resolve) => started.once('close', resolve));
    let said = '';
    const ready = new Promise<void>((resolve) => {
      for (const stream of [started.stdout, started.stderr]) {
        stream.on('data', (chunk) => {
          said += chunk;
          if (said.includes('process up')) resolve();
        });
      }
    });
    const failed = ended.then(() => {
      throw new Error(`pgbouncer did not start: ${said}`);
    });
    await Promise.race([ready, failed]);
    failed.catch(() => {});
  };
  cleanUp(end);
  await start();
  return { url: (of) => of.replace(`:${server.port}/`, `:${port}/`), kill: end, start };
}

/** It does not run as root. */
function unprivileged(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const nobody = /^nobody:[^:]*:(\d+):(\d+):/m.exec(readFileSync('/etc/passwd', 'utf8'));
  return { uid: Number(nobody?.[1] ?? 65_534), gid: Number(nobody?.[2] ?? 65_534) };
}

function find(): string | undefined {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin'];
  return folders.map((folder) => join(folder, 'pgbouncer')).find((path) => existsSync(path));
}

function install(): string | undefined {
  if (!process.env.CI || process.getuid?.() !== 0 || process.platform !== 'linux') return undefined;
  spawnSync('apt-get', ['update'], { stdio: 'ignore' });
  spawnSync('apt-get', ['install', '-y', '--no-install-recommends', 'pgbouncer'], { stdio: 'ignore' });
  return find();
}
