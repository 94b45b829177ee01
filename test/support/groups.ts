/** Groups of hubs for tests: several of them in this process, on one database. */
import { createListener } from '../../src/http/index.ts';
import type { Hub, HubConfig } from '../../src/hub/hub.ts';
import { createGroupHub } from '../../src/hub/postgres/index.ts';
import { cleanUp } from './clean-up.ts';
import { type Door, door } from './hubs.ts';
import { database } from './nodes.ts';
import { plantedDriver } from './planted-driver.ts';

export interface GroupHub {
  hub: Hub;
  door: Door;
  instance: string;
}

let hubs = 0;

export async function groupHub(
  url: string,
  config: Partial<HubConfig> = {},
  { driver = plantedDriver({}), instance = `h${++hubs}` } = {},
): Promise<GroupHub> {
  const at = await door();
  const scratch = await database('SELECT 1');
  const options = { id: 'hub', edges: [], batchMs: 5, maxAheadMs: 0, ...config };
  const hub = await createGroupHub({ driver, url, scratch, instance }, options);
  cleanUp(() => hub.stop());
  at.open(createListener(hub));
  return { hub, door: at, instance };
}
