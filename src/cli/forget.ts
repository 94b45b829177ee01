/** `rowcast forget`: says of a node that it is gone for good, with this one stopped or running. */
import { systemClock } from '../clock.ts';
import { Connection } from '../sqlite/connection.ts';
import { forgetNode } from '../tombstones/detached.ts';
import { asker, askFlags, Refused, Unreachable } from './ask.ts';
import { asked, placed } from './asked.ts';
import { describeFlags, type Environment, parseFlags, takeArgument, UsageError, type Values } from './flags.ts';
import { openDatabase } from './open.ts';
import { fileOf } from './operate.ts';
import { FLAGS_HELP } from './program.ts';
import { bindingFlag, processFlags } from './shared-flags.ts';
import { inOneLine } from './show.ts';

const FORGET_FLAGS = asked({
  ...askFlags,
  binding: bindingFlag,
  busyMs: { ...processFlags.busyMs, help: "How long to wait for another process's lock on the database." },
});

const FORGET_HELP = `rowcast forget: a node is gone for good, and tombstones are no longer kept for it

  rowcast forget -db a.db c

By its id; one that never said its id, by its URL. To be said on each node that collects tombstones, which need not be
stopped: whoever runs on the file is asked, and else it is written there. Take it out of their peers, too. If it is
heard again it counts again. A hub forgets an edge that is taken out of its edges.

${FLAGS_HELP}

${describeFlags(FORGET_FLAGS)}

Exit codes: 0 done, 1 no such node is known, 2 a wrong command line, 3 nobody answers at -url.
`;

export async function forget(args: string[], env: Environment): Promise<number> {
  const { argument: id, rest } = takeArgument(args);
  const flags = parseFlags(FORGET_FLAGS, rest, placed(rest, env));
  if (flags === 'help') {
    process.stdout.write(FORGET_HELP);
    return 0;
  }
  if (id === undefined) throw new UsageError('there is nothing to do: name the id of a node');
  try {
    await asker(flags).post('forget', { id });
  } catch (error) {
    if (error instanceof Refused) return failed(error, 1);
    if (!(error instanceof Unreachable)) throw error;
    if (flags.db === undefined) return failed(error, 3);
    forgetInFile(flags, id);
  }
  process.stdout.write(`forgotten ${id}\n`);
  return 0;
}

/** Nobody runs on it, or with another door: it is found there. */
function forgetInFile(flags: Values<typeof FORGET_FLAGS>, id: string): void {
  const opened = openDatabase(fileOf(flags), { binding: flags.binding, busyMs: flags.busyMs, existing: true });
  try {
    const db = new Connection(opened.db);
    forgetNode(db, id, systemClock);
    db.release();
  } finally {
    opened.close();
  }
}

function failed(error: Error, code: number): number {
  process.stderr.write(`rowcast forget: ${inOneLine(error.message)}\n`);
  return code;
}
