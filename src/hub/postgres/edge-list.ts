/** The edges of a group for whoever is none of its processes: `rowcast hub-edges`. */
import { RowcastError } from '../../errors.ts';
import type { EdgeRow } from '../store.ts';
import type { PostgresDriver } from './driver.ts';
import { PostgresEdges } from './edges.ts';
import { Epoch } from './epoch.ts';
import { SCHEMA, SCHEMA_VERSION } from './schema.ts';
import { Sessions } from './sessions.ts';

export interface EdgeList {
  list(): Promise<EdgeRow[]>;
  /** How many are new. */
  add(urls: string[]): Promise<number>;
  /** How many there were. */
  forget(urls: string[]): Promise<number>;
  close(): Promise<void>;
}

/** Creates nothing; rejects where there is no group, or one of another version. */
export async function openEdgeList(driver: PostgresDriver, url: string): Promise<EdgeList> {
  const sessions = new Sessions({ driver, url, name: 'rowcast hub-edges' });
  const edges = new PostgresEdges(sessions, new Epoch(sessions));
  try {
    await refuseOthers(sessions);
  } catch (error) {
    await sessions.close();
    throw error;
  }
  const counted = async (change: () => Promise<void>): Promise<number> => {
    const before = (await edges.all()).length;
    await change();
    return Math.abs((await edges.all()).length - before);
  };
  return {
    list: () => edges.all(),
    add: (urls) => counted(() => edges.add(urls)),
    forget: (urls) => counted(() => edges.forget(urls)),
    close: () => sessions.close(),
  };
}

async function refuseOthers(sessions: Sessions): Promise<void> {
  const [found] = await sessions.query<{ there: boolean }>(`SELECT to_regclass('${SCHEMA}.meta') IS NOT NULL AS there`);
  if (!found?.there) {
    const hint = 'start a hub with this -store first: it makes the tables';
    throw new RowcastError('INVALID_DATABASE', 'there is no group of hubs in this database', { hint });
  }
  const [meta] = await sessions.query<{ version: number }>(`SELECT schema_version AS version FROM ${SCHEMA}.meta`);
  if (meta?.version !== SCHEMA_VERSION) {
    const problem = `the schema has version ${meta?.version}, not ${SCHEMA_VERSION}`;
    throw new RowcastError('INVALID_DATABASE', problem, { hint: 'use the Rowcast of the hubs' });
  }
}
