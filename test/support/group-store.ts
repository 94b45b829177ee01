/** A group's store in tests: on a database of its own, closed when the test ends. */
import { type Clock, systemClock } from '../../src/clock.ts';
import type { PostgresDriver } from '../../src/hub/postgres/driver.ts';
import { PostgresStore } from '../../src/hub/postgres/store.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { cleanUp } from './clean-up.ts';
import { database } from './nodes.ts';
import { plantedDriver } from './planted-driver.ts';

export interface GroupStoreOptions {
  instance?: string;
  id?: string;
  clock?: Clock;
  maxAheadMs?: number;
  maxBodyBytes?: number;
  driver?: PostgresDriver;
}

let instances = 0;

/** Not yet open. */
export async function groupStore(url: string, options: GroupStoreOptions = {}): Promise<PostgresStore> {
  const store = new PostgresStore({
    driver: plantedDriver({}),
    url,
    scratch: new Connection(await database('SELECT 1')),
    id: 'hub',
    instance: `i${++instances}`,
    clock: systemClock,
    random: Math.random,
    maxBodyBytes: 250_000,
    maxAheadMs: 0,
    ...options,
  });
  cleanUp(() => store.close());
  return store;
}

export async function openGroupStore(url: string, options: GroupStoreOptions = {}): Promise<PostgresStore> {
  const store = await groupStore(url, options);
  await store.open();
  return store;
}

/** Calls back when a transaction is committed that waits for the disk. */
export function watchedDriver(onFlush: () => void): PostgresDriver {
  return plantedDriver({
    hold: ({ text, isDurable }) => {
      if (text === 'COMMIT' && isDurable) onFlush();
      return undefined;
    },
  });
}
