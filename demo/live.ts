/** The cluster with a person in front of it: a view and keys in a terminal, lines in and out anywhere else. */
import { createInterface } from 'node:readline';
import { systemClock } from '../src/clock.ts';
import { messageOf } from '../src/errors.ts';
import { type Command, fromKey, fromLine, LINES, perform } from './commands.ts';
import type { Mesh } from './mesh.ts';
import { Screen } from './screen.ts';
import { frame, statusLines, toTry, type View } from './view.ts';

export interface Live {
  mesh: Mesh;
  folder: string;
  /** Who hears what happens in the mesh. */
  listeners: Set<(text: string) => void>;
  /** Resolves with an exit code when a signal wants this to end. */
  interrupted: Promise<number>;
}

const FRAME_MS = 100;
const STREAM_MS = 100;
const LOG_KEPT = 200;

/** Returns the exit code. */
export async function runScreen({ mesh, folder, listeners, interrupted }: Live): Promise<number> {
  const screen = new Screen(process.stdin, process.stdout);
  const log: View['log'] = [];
  const began = systemClock.now();
  const say = (text: string): void => {
    const seconds = ((systemClock.now() - began) / 1_000).toFixed(1);
    log.push({ at: `${seconds.padStart(6)} s`, text });
    if (log.length > LOG_KEPT) log.shift();
  };
  listeners.add(say);
  const stream = new Stream(mesh);
  const colour = !process.env.NO_COLOR;
  const draw = (): void => {
    screen.draw(frame(viewOf(mesh, folder, log, stream.writing), screen.size, colour));
  };
  process.on('exit', () => screen.close());
  let over = false;
  const quit = new Promise<number>((end) => {
    screen.open((key) => {
      const command = fromKey(key, mesh);
      if (command?.kind === 'quit') end(0);
      else if (command?.kind === 'stream') say(stream.toggle() ? 'writing on every running node' : 'writing stopped');
      else if (command) void perform(command, mesh, say).then(draw, (error) => say(messageOf(error)));
    });
  });
  try {
    say('starting a, b and c');
    draw();
    void mesh.startAll().then(
      () => say('all three are running: press w'),
      (error) => say(messageOf(error)),
    );
    // Two loops, because a node that is slow to answer must not freeze the picture of the others.
    const loops = [() => mesh.look(), draw].map(async (step) => {
      while (!over) {
        await step();
        await systemClock.sleep(FRAME_MS);
      }
    });
    const code = await Promise.race([quit, interrupted, Promise.all(loops).then(() => 0)]);
    stream.stop();
    return code;
  } finally {
    over = true;
    listeners.delete(say);
    screen.close();
    process.stdout.write(`The database files are in ${folder}\n`);
  }
}

/** Without a terminal: one command per line, one answer after the other. */
export async function runLines({ mesh, folder, listeners, interrupted }: Live): Promise<number> {
  const say = (text: string): void => void process.stdout.write(`${text}\n`);
  listeners.add(say);
  await mesh.startAll();
  for (const { id, port, pid, file } of mesh.nodes) say(`${id}: pid ${pid}, http://127.0.0.1:${port}, ${file}`);
  for (const line of toTry(mesh.nodes)) say(line);
  say('Commands, one per line:');
  for (const line of LINES) say(`  ${line}`);
  return Promise.race([obey(mesh, folder, say), interrupted]);
}

async function obey(mesh: Mesh, folder: string, say: (text: string) => void): Promise<number> {
  let obeyed = false;
  for await (const line of createInterface({ input: process.stdin })) {
    const command = fromLine(line);
    if (!command) continue;
    obeyed = true;
    if (command.kind === 'quit') return 0;
    await answer(command, mesh, folder, say);
  }
  // Whoever starts this without any input (a service, a container) wants it to run until a signal comes.
  return obeyed ? 0 : new Promise<never>(() => {});
}

async function answer(command: Command, mesh: Mesh, folder: string, say: (text: string) => void): Promise<void> {
  if (command.kind === 'help') for (const line of LINES) say(line);
  else if (command.kind === 'status') {
    await mesh.look();
    for (const line of statusLines(viewOf(mesh, folder, [], false))) say(line);
  } else await perform(command, mesh, say);
}

function viewOf(mesh: Mesh, folder: string, log: View['log'], writing: boolean): View {
  return {
    folder,
    nodes: mesh.nodes.map(({ id, port, console, state, pid }) => ({
      id,
      port,
      console,
      state,
      pid,
      health: mesh.health.get(id),
    })),
    links: mesh.links,
    writing,
    log,
    peerName: (url) => mesh.peerName(url),
  };
}

/** One row on every running node, ten times a second, until it is switched off. */
class Stream {
  writing = false;
  readonly #mesh: Mesh;

  constructor(mesh: Mesh) {
    this.#mesh = mesh;
  }

  toggle(): boolean {
    this.writing = !this.writing;
    if (this.writing) void this.#run();
    return this.writing;
  }

  stop(): void {
    this.writing = false;
  }

  async #run(): Promise<void> {
    while (this.writing) {
      // A node that dies in between is shown as what it is; its row was never acknowledged.
      await Promise.all(this.#mesh.running.map((node) => this.#mesh.write(node, 1).catch(() => undefined)));
      await systemClock.sleep(STREAM_MS);
    }
  }
}
