/** A hub's dead letters tried again by hand, with the same outcomes as a node's. */

import type { DeadLetter, DeadLetters } from '../dead-letters.ts';
import type { RetryResult } from '../receive/retry.ts';
import type { Connection } from '../sqlite/connection.ts';
import { batchText } from '../wire/body.ts';
import type { HubStore } from './store.ts';

/** `queued`: on its way to the edges again. `applied`: it is a change after all. `kept`: it stays a letter. */
export function retryLetter(db: Connection, store: HubStore, letters: DeadLetters, id: number): RetryResult {
  const letter = letters.get(id);
  return letter.direction === 'out' ? sendAgain(db, letters, letter) : receiveAgain(db, store, letters, letter);
}

/** What an edge refused may be outdated by now. The newest version goes out, to all: those that have it find it in place. */
function sendAgain(db: Connection, letters: DeadLetters, letter: DeadLetter): RetryResult {
  return db.transaction(() => {
    db.run(
      'UPDATE _hub_rows SET seq = (SELECT max(seq) + 1 FROM _hub_rows), origin = NULL WHERE table_name = ? AND row_id = ?',
      letter.table,
      letter.rowId,
    );
    if (db.changes() === 0) return { outcome: 'kept', reason: 'the row is not known here' };
    letters.remove(letter.id);
    return { outcome: 'queued' };
  });
}

function receiveAgain(db: Connection, store: HubStore, letters: DeadLetters, letter: DeadLetter): RetryResult {
  const kept = letters.changeOf(letter.id);
  if (!kept) return { outcome: 'kept', reason: 'the change itself was not kept' };
  const { ack } = store.receive(batchText(0, kept.change), letter.peer ?? undefined);
  const [rejection] = ack.rejected ?? [];
  db.transaction(() => {
    if (rejection) letters.countRetry(letter.id, rejection.code, rejection.message);
    else letters.remove(letter.id);
  });
  return rejection ? { outcome: 'kept', reason: rejection.message } : { outcome: 'applied' };
}
