/** A hub of a group, as a program: it waits for a store that is away, and says so. */
import { systemClock } from '../clock.ts';
import { messageOf, RowcastError } from '../errors.ts';
import type { Answer } from '../http/bridge.ts';
import { probeAt } from '../http/probes.ts';
import type { Hub, HubConfig } from '../hub/index.ts';
import { createGroupHub, type GroupOptions, isPassing } from '../hub/postgres/index.ts';
import { failure } from './failure.ts';
import { StartError } from './listen.ts';
import { type Log, sparingly } from './log.ts';
import { type Opened, type OpenOptions, openDatabase } from './open.ts';
import { shownStore } from './store.ts';

const AGAIN_MS = 1_000;

/**
 * One process of the group that shares this store. A server that is being started, or failed over, comes back: whoever starts
 * hubs meanwhile should not have to start them again. What is wrong otherwise is told, and ends the program.
 */
export async function joinGroup(
  group: Omit<GroupOptions, 'scratch'>,
  config: HubConfig,
  { log, binding }: { log: Log; binding: OpenOptions['binding'] },
): Promise<{ opened: Opened; hub: Hub }> {
  const sparing = sparingly(log, systemClock);
  for (;;) {
    const opened = openDatabase(':memory:', { binding });
    try {
      return { opened, hub: await createGroupHub({ ...group, scratch: opened.db }, config) };
    } catch (error) {
      opened.close();
      if (!(error instanceof RowcastError)) throw error;
      const message = `store ${shownStore(group.url)}: ${error.message}`;
      if (!isPassing(error)) throw new StartError(message, { cause: error });
      sparing('warn', 'warning', { code: 'store-away', message: `${message}; tried again every second` });
      await systemClock.sleep(AGAIN_MS);
    }
  }
}

/** The process is there, and not ready: nobody should end it, nor send it anything. */
export const whileWaiting: Answer = async (incoming) => {
  const isNot = { health: () => ({ ok: false, problems: [AWAY] }) };
  return (await probeAt(incoming.path, isNot, { otherwise: 'short' })?.(incoming)) ?? failure(503, AWAY);
};

const AWAY = 'starting: the store was not reached yet';

/** Where the store cannot be reached from here, another process may reach it: a balancer goes there with 503. */
export function elsewhereMeanwhile(answer: Answer): Answer {
  return async (incoming) => {
    try {
      return await answer(incoming);
    } catch (error) {
      if (!(error instanceof RowcastError) || error.code !== 'DATABASE_FAILED') throw error;
      return failure(503, `the store failed: ${messageOf(error)}`);
    }
  };
}
