/** A hub's dead letters tried again by hand, with the same outcomes as a node's. */
import type { DeadLetter } from '../letters/dead-letters.ts';
import type { RetryResult } from '../receive/tried.ts';
import { batchText } from '../wire/body.ts';
import type { Hub } from './hub.ts';
import type { HubStore } from './store.ts';

/** The letters as whoever runs a hub has them. */
export function lettersOf(store: HubStore): Hub['deadLetters'] {
  return {
    list: (options) => store.letters.list(options),
    retry: (id) => retryLetter(store, id),
    discard: async (id) => {
      await store.letters.get(id);
      await store.letters.remove(id);
    },
  };
}

/** `queued`: on its way to the edges again. `applied`: it is a change after all. `kept`: it stays a letter. */
async function retryLetter(store: HubStore, id: number): Promise<RetryResult> {
  const letter = await store.letters.get(id);
  return letter.direction === 'out' ? sendAgain(store, letter) : receiveAgain(store, letter);
}

/** What an edge refused may be outdated by now. The newest version goes to all; those that have it find it in place. */
async function sendAgain(store: HubStore, { id, table, rowId }: DeadLetter): Promise<RetryResult> {
  const known = table !== null && rowId !== null && (await store.touch(table, rowId));
  if (!known) return { outcome: 'kept', reason: 'the row is not known here' };
  await store.letters.remove(id);
  return { outcome: 'queued' };
}

/** It goes to all, its sender included: that one may have lost it, or been given what it contradicts, since. */
async function receiveAgain(store: HubStore, { id, peer }: DeadLetter): Promise<RetryResult> {
  const change = await store.letters.changeOf(id);
  if (change === undefined) return { outcome: 'kept', reason: 'the change itself was not kept' };
  const { ack } = await store.receive(batchText(0, change), {
    from: peer ?? undefined,
    plain: false,
    again: true,
  });
  const [rejection] = ack.rejected ?? [];
  if (!rejection) {
    await store.letters.remove(id);
    return { outcome: 'applied' };
  }
  await store.letters.countRetry(id, rejection.code, rejection.message);
  return { outcome: 'kept', reason: rejection.message };
}
