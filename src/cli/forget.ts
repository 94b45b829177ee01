/** `rowcast forget`: says of a node that it is gone for good, with this one stopped or running. */
import { systemClock } from '../clock.ts';
import { Connection } from '../sqlite/connection.ts';
import { forgetNode } from '../tombstones/detached.ts';
import { describeFlags, type Environment, parseFlags, takeArgument, text, UsageError } from './flags.ts';
import { openDatabase } from './open.ts';
import { FLAGS_HELP } from './program.ts';
import { bindingFlag, processFlags } from './shared-flags.ts';

const FORGET_FLAGS = {
  db: text('file', "The node's database file."),
  binding: bindingFlag,
  busyMs: { ...processFlags.busyMs, help: "How long to wait for another process's lock on the database." },
};

const FORGET_HELP = `rowcast forget: a node is gone for good, and tombstones are no longer kept for it

  rowcast forget -db a.db c

By its id; one that never said its id, by its URL. To be said on each node that collects tombstones, which need not be
stopped; take it out of their peers, too. If it is heard again it counts again.

${FLAGS_HELP}

${describeFlags(FORGET_FLAGS)}

Exit codes: 0 done, 1 no such node is known, 2 a wrong command line.
`;

export async function forget(args: string[], env: Environment): Promise<number> {
  const { argument: id, rest } = takeArgument(args);
  const flags = parseFlags(FORGET_FLAGS, rest, env);
  if (flags === 'help') {
    process.stdout.write(FORGET_HELP);
    return 0;
  }
  if (id === undefined) throw new UsageError('there is nothing to do: name the id of a node');
  const opened = openDatabase(flags.db, { binding: flags.binding, busyMs: flags.busyMs, existing: true });
  try {
    const db = new Connection(opened.db);
    forgetNode(db, id, systemClock);
    db.release();
  } finally {
    opened.close();
  }
  process.stdout.write(`forgotten ${id}\n`);
  return 0;
}
