/** One node of the cluster: a real `rowcast serve` process that is started, killed and started again. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { systemClock } from '../src/clock.ts';
import { LOOPBACK } from './link.ts';

export type ProcessState = 'stopped' | 'starting' | 'running' | 'killed' | 'failed';

export interface NodeOptions {
  id: string;
  port: number;
  /** Of its console. */
  consolePort: number;
  file: string;
  peers: string[];
  /** Another program than `rowcast serve` with these: its command and flags, and what its environment has besides. */
  program?: { args: string[]; env: Record<string, string> };
  /** A line of the node's own log. */
  onLog(line: Record<string, unknown>): void;
  /** It ended, and nobody here wanted that. */
  onFailure(reason: string): void;
}

/** How long a node may take to end by itself before it is killed. */
const STOP_MS = 3_000;

/** What a program says of itself. */
const OWN_WORDS = /^rowcast [a-z-]+: /;

const program = fileURLToPath(new URL('../src/cli/main.js', import.meta.url));
const dieWithParent = fileURLToPath(new URL('./die-with-parent.js', import.meta.url));

export class ClusterNode {
  state: ProcessState = 'stopped';
  readonly id: string;
  readonly port: number;
  /** Where a browser finds its console. */
  readonly console: string;
  readonly file: string;
  readonly #options: NodeOptions;
  #child: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();
  #complaint = '';

  constructor(options: NodeOptions) {
    this.#options = options;
    this.id = options.id;
    this.port = options.port;
    this.console = `http://${LOOPBACK}:${options.consolePort}/_rowcast/`;
    this.file = options.file;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Resolves when the node says that it serves; rejects with what it complained about when it ends instead. */
  async start(): Promise<void> {
    if (this.#child) return;
    this.state = 'starting';
    this.#complaint = '';
    await new Promise<void>((resolve, reject) => {
      this.#spawn(resolve, (reason) => reject(new Error(`node ${this.id} did not start: ${reason}`)));
    });
  }

  /** kill -9: no goodbye, nothing flushed. */
  async kill(): Promise<void> {
    if (!this.#child) return;
    this.state = 'killed';
    this.#child.kill('SIGKILL');
    await this.#exited;
  }

  /** SIGTERM, and SIGKILL for one that does not listen. */
  async stop(): Promise<void> {
    const child = this.#child;
    if (!child) return;
    this.state = 'stopped';
    child.kill('SIGTERM');
    const patience = new AbortController();
    void systemClock.sleep(STOP_MS, patience.signal).then(() => {
      if (!patience.signal.aborted) child.kill('SIGKILL');
    });
    await this.#exited;
    patience.abort();
  }

  /** Stands still, or goes on: nothing is lost, and nobody is told. */
  pause(paused: boolean): void {
    this.#child?.kill(paused ? 'SIGSTOP' : 'SIGCONT');
  }

  /** The last resort, for an exit handler: nothing in it may wait. */
  killNow(): void {
    this.#child?.kill('SIGKILL');
  }

  #spawn(started: () => void, failed: (reason: string) => void): void {
    const { onLog, onFailure } = this.#options;
    const preload = process.versions.bun === undefined ? '--import' : '--preload';
    const { args, env } = this.#options.program ?? { args: serving(this.#options), env: {} };
    const child = spawn(process.execPath, [preload, dieWithParent, program, ...args], {
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      env: { ...process.env, ...env },
    });
    this.#child = child;
    this.#exited = new Promise((resolve) => {
      const ended = (how: string): void => {
        if (this.#child !== child) return;
        this.#child = undefined;
        const wanted = this.state === 'killed' || this.state === 'stopped';
        const reason = this.#complaint.replace(OWN_WORDS, '') || how;
        if (!wanted && this.state === 'running') onFailure(reason);
        if (!wanted) this.state = 'failed';
        failed(reason);
        resolve();
      };
      child.on('error', (error) => ended(error.message));
      child.on('close', (code, signal) => ended(signal ?? `exit code ${code}`));
    });
    for (const stream of [child.stdout, child.stderr]) {
      if (!stream) continue;
      createInterface({ input: stream }).on('line', (text) => {
        const line = logLine(text);
        if (!line) return this.#complain(text.trim());
        if (line.event === 'started' && this.#child === child && this.state === 'starting') {
          this.state = 'running';
          started();
        }
        onLog(line);
      });
    }
  }

  /** Its own words rather than a runtime's warning or the last line of a stack. */
  #complain(text: string): void {
    if (text && !OWN_WORDS.test(this.#complaint)) this.#complaint = text;
  }
}

function serving({ id, port, consolePort, file, peers }: NodeOptions): string[] {
  const at = ['-listen', `${LOOPBACK}:${port}`, '-admin-listen', `${LOOPBACK}:${consolePort}`];
  return ['serve', '-id', id, ...at, '-db', file, ...peers.flatMap((url) => ['-peer', url])];
}

function logLine(text: string): Record<string, unknown> | undefined {
  if (!text.startsWith('{')) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
