/** `rowcast identity`: which database this is to the others, and how a copy becomes one of its own. */

import { systemClock } from '../clock.ts';
import { chance } from '../identity/chance.ts';
import { Identity } from '../identity/identity.ts';
import { Connection } from '../sqlite/connection.ts';
import { asker, askFlags, Unreachable } from './ask.ts';
import { toggle, UsageError } from './flags.ts';
import { statusOffline } from './offline.ts';
import { type Binding, openDatabase } from './open.ts';
import { command, fileOf, json, offline, refuseWords, say } from './operate.ts';
import { bindingFlag } from './shared-flags.ts';
import type { ShownStatus } from './show.ts';

export const identity = command({
  name: 'identity',
  usage: `the id of a node or hub, and which database it is to the others

  rowcast identity -db a.db
  rowcast identity -db copy.db --new

A file that was copied is the same database as the one that it was copied from, until the two are heard together; --new
makes it another one at once, with the node running or stopped. To the others it is then a database that they have not
heard of: they give it everything once more, and readers of its feed begin anew. It keeps its rows, and its id: give it
another one by -id where both go on.`,
  flags: {
    ...askFlags,
    binding: bindingFlag,
    offline,
    json,
    new: toggle('Take a new identity. Needs -db, and nobody else has to run.'),
  },
  async run(flags, words) {
    refuseWords(words);
    if (flags.new && flags.db === undefined) throw new UsageError('--new needs -db <file>: it is written there');
    if (flags.new) renew(fileOf(flags), flags.binding);
    const { node_id: id, inc, tables } = await statusOf(flags);
    const role = tables ? 'node' : 'hub';
    return say(flags.json ? `${JSON.stringify({ role, id, inc })}\n` : `${role} ${id}, database ${inc}\n`);
  },
});

/** Of whoever runs on it; of the file where nobody does. */
async function statusOf(flags: Parameters<typeof asker>[0] & { offline: boolean; binding: Binding | undefined }) {
  if (flags.offline) return statusOffline(fileOf(flags), flags.binding);
  try {
    return await asker(flags).get<ShownStatus>('status');
  } catch (error) {
    if (!(error instanceof Unreachable) || flags.db === undefined) throw error;
    return statusOffline(fileOf(flags), flags.binding);
  }
}

/** Whoever runs on the file reads there who it is whenever it says so. */
function renew(file: string, binding: Binding | undefined): void {
  const before = statusOffline(file, binding);
  const opened = openDatabase(file, { binding, busyMs: 5_000, existing: true });
  try {
    const db = new Connection(opened.db);
    const self = { id: before.node_id, random: chance, clock: systemClock };
    new Identity(db, { ...self, maxAheadMs: 0, atUrls: 'SELECT NULL AS inc', low: () => 0 }).renewNow();
    db.release();
  } finally {
    opened.close();
  }
}
