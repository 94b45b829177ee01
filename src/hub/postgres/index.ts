/** One process of a group of hubs. */
import { systemClock } from '../../clock.ts';
import { checkConfig } from '../../config.ts';
import { chance } from '../../identity/chance.ts';
import { Connection, type Database } from '../../sqlite/connection.ts';
import type { Hub, HubConfig } from '../api.ts';
import { relayOn } from '../hub.ts';
import type { PostgresDriver } from './driver.ts';
import { PostgresStore } from './store.ts';

export { isPassing } from './sessions.ts';

export interface GroupOptions {
  /** The module `pg`. */
  driver: PostgresDriver;
  /** `postgres://user@host/database` */
  url: string;
  /** An empty SQLite database in memory, of which nothing is kept. */
  scratch: Database;
  /** The name of this process, which no other one of the group has. */
  instance: string;
}

/** `config.id` is the id of the group, which is one node to all others; `config.edges` are added to those that it has. */
export async function createGroupHub(group: GroupOptions, given: HubConfig): Promise<Hub> {
  const config = checkConfig(given, 'hub');
  const { id, maxBodyBytes, maxAheadMs, clock = systemClock, random = chance } = config;
  const { driver, url, instance } = group;
  const scratch = new Connection(group.scratch);
  const store = new PostgresStore({ driver, url, scratch, instance, id, clock, random, maxBodyBytes, maxAheadMs });
  return relayOn(store, config);
}
