/** How often a peer was given everything, and why, is counted in the file and told. */
import { expect, test } from 'vitest';
import { collectMetrics } from '../../src/observe/metrics.ts';
import { node } from '../support/nodes.ts';

const PEER = 'http://127.0.0.1:9';
const ITEMS = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, updated_at INTEGER)';

test('by cause, in health and in the metrics', async () => {
  const schema = `${ITEMS}; INSERT INTO items VALUES ('x', 'n', 1000)`;
  const { db, manager } = await node({ schema, peers: [PEER] });
  const seeds = (): unknown => manager.health().peer_states[0]?.seeds;
  expect(seeds()).toMatchObject({ new: 1, manual: 0 });
  manager.peers.reseed(PEER);
  manager.peers.reseed(PEER);
  expect(seeds()).toMatchObject({ new: 1, manual: 2, table: 0 });
  db.exec('DROP TRIGGER _rowcast_items_update');
  manager.receive('{"batch_id":1,"changes":[]}');
  expect(seeds()).toMatchObject({ new: 1, manual: 2, table: 1 });
  const metrics = collectMetrics(manager);
  expect(await metrics.text()).toContain(`rowcast_peer_seeds_total{peer="${PEER}",cause="manual"} 2\n`);
  metrics.stop();
  db.exec(`UPDATE _meta SET value = 'nonsense' WHERE key = 'seeds ${PEER}'`);
  expect(seeds()).toMatchObject({ new: 0 });
  manager.peers.reseed(PEER);
  expect(seeds()).toMatchObject({ manual: 1 });
});
