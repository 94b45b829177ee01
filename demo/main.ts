/** `rowcast demo`, and `npm start`: three nodes as real processes, to write to, to kill, to cut off, and to watch. */
import { mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { describeFlags, type Environment, integer, parseFlags, text, toggle } from '../src/cli/flags.ts';
import { openDatabase } from '../src/cli/open.ts';
import { report } from '../src/cli/program.ts';
import { runLines, runScreen } from './live.ts';
import { Mesh } from './mesh.ts';
import { choosePorts, PORT_BASE } from './ports.ts';
import { once } from './script.ts';

const FLAGS = {
  once: toggle(
    'No view: writes on all three, kills one, cuts a link, mends everything, compares the files\n' +
      'row by row, and exits 0 when they are equal',
  ),
  dir: text('folder', 'where the database files a.db, b.db and c.db go; files that are there are used again', {
    default: 'temporary',
  }),
  port: integer(
    'nodes listen on n+1, n+2, n+3, their consoles on n+101 to n+103, links on n+12 to n+32; if one is\n' +
      'taken, on any free ports',
    {
      default: PORT_BASE,
      min: 0,
      max: 65_000,
    },
  ),
};

const HELP = `rowcast demo [flags]   (in a clone of the repository: npm start -- [flags])

Three Rowcast nodes as three processes, each with its own SQLite file, every one
linked to every other. A live view shows writes spreading; keys write rows, kill
and restart nodes, cut and heal links, make a conflict. Without a terminal it takes lines: help.

${describeFlags(FLAGS)}
`;

/**
 * Resolves to the exit code. Mistakes are told here: `rowcast` has been made one file, and does not know the errors of these
 * modules for its own.
 */
export async function demo(args: string[], env: Environment): Promise<number> {
  try {
    const flags = parseFlags(FLAGS, args, env);
    if (flags !== 'help') return await run(flags);
    process.stdout.write(HELP);
    return 0;
  } catch (error) {
    return report('rowcast demo', error);
  }
}

async function run({ dir, port, once: scripted }: { dir: string; port: number; once: boolean }): Promise<number> {
  const folder = dir === FLAGS.dir.default ? mkdtempSync(join(tmpdir(), 'rowcast-')) : resolve(dir);
  mkdirSync(folder, { recursive: true });
  const listeners = new Set<(text: string) => void>();
  const mesh = await Mesh.create({
    folder,
    // A scripted run goes beside anything else that runs here.
    ports: await choosePorts(3, scripted ? 0 : port),
    open: (file) => {
      const { db, close } = openDatabase(file);
      db.exec('PRAGMA query_only = 1');
      return { prepare: (sql) => db.prepare(sql), close };
    },
    say: (text) => {
      for (const listener of listeners) listener(text);
    },
  });
  // Whatever ends this process: on a crash or a signal here, and in the nodes themselves (die-with-parent.ts) when even this is skipped.
  process.on('exit', () => mesh.killNow());
  const interrupted = new Promise<number>((end) => {
    for (const [signal, code] of [
      ['SIGINT', 130],
      ['SIGTERM', 143],
      ['SIGHUP', 129],
    ] as const)
      process.on(signal, () => end(code));
  });
  try {
    if (scripted) return await Promise.race([runOnce(mesh, listeners), interrupted]);
    const live = process.stdin.isTTY && process.stdout.isTTY ? runScreen : runLines;
    return await live({ mesh, folder, listeners, interrupted });
  } finally {
    await mesh.close();
  }
}

async function runOnce(mesh: Mesh, listeners: Set<(text: string) => void>): Promise<number> {
  const say = (text: string): void => void process.stdout.write(`${text}\n`);
  listeners.add(say);
  await mesh.startAll();
  return (await once(mesh, say)) ? 0 : 1;
}
