/** A group with more than a thousand edges that have sockets of their own, some of which never answer. */
import { describe, expect, test } from 'vitest';
import { fakeEdges } from '../support/fake-edges.ts';
import { groupHub } from '../support/groups.ts';
import { deliver, live } from '../support/hubs.ts';
import { until } from '../support/nodes.ts';
import { plantedDriver, type Statement } from '../support/planted-driver.ts';
import { hasPostgres, newDatabase, postgresServer, query } from '../support/postgres.ts';

/** More than the strangers that are remembered. */
const EDGES = 1_200;
const DEAF = 120;
const LIVE = EDGES - DEAF;
const BATCHES = 5;
/** Longer than any test: who waits for an edge that never answers waits for ever. */
const NEVER_MS = 3_600_000;

/** What a hub does again and again, however many edges there are, says nothing of one, of some, or of a place. */
const OF_EDGES = /\burl = |\binc = (ANY|g\.inc|\$1)|AS m \(url|seq > \$1/;

describe.skipIf(!hasPostgres)('more than a thousand edges of a group', () => {
  const server = postgresServer();

  test('all that answer get everything, by far fewer statements than they acknowledge batches', async () => {
    const url = await newDatabase(server());
    const ask = fakeEdges();
    const urls: string[] = await ask('open', { first: 0, count: EDGES, deaf: DEAF });
    const statements: string[] = [];
    const hold = ({ text }: Statement): undefined => void statements.push(text);
    const config = { edges: urls, requestTimeoutMs: NEVER_MS, batchSize: 20, verify: false as const };
    const { hub } = await groupHub(url, config, { driver: plantedDriver({ hold }) });
    let rows = 0;
    const receive = async (): Promise<void> => {
      const changes = Array.from({ length: 20 }, () => live(`r${++rows}`, 1_700_000_000_000 + rows));
      await deliver(hub, changes);
    };
    const delivered = async (): Promise<void> => {
      const [found] = await query(url, 'SELECT max(seq)::text AS last FROM rowcast.rows');
      const batch = Number(found?.last);
      await until('those that answer have it', async () => {
        const { done }: { done: number } = await ask('state', { batch });
        return done === LIVE;
      });
      const sql = `SELECT count(*)::integer AS n FROM rowcast.edges WHERE position >= ${batch}`;
      await until('that is noted', async () => (await query(url, sql))[0]?.n === LIVE);
    };

    await receive();
    await delivered();
    // Each is known: who it is, and what it has said.
    const known = 'SELECT count(DISTINCT n.inc)::integer AS n FROM rowcast.nodes AS n JOIN rowcast.edges AS e ';
    expect(await query(url, `${known} ON e.inc = n.inc AND e.node_id = n.id`)).toEqual([{ n: LIVE }]);
    // By itself, one after the other, none of them was looked up.
    expect(statements.filter((sql) => sql.includes('FROM rowcast.names WHERE id = $1'))).toEqual([]);

    const before = statements.length;
    // The next one comes while that before it is on its way.
    for (let i = 0; i < BATCHES; i++) await receive();
    await delivered();
    const ofEdges = statements.slice(before).filter((sql) => OF_EDGES.test(sql));
    expect(ofEdges.length).toBeGreaterThan(BATCHES);
    expect(ofEdges.length).toBeLessThan((BATCHES * LIVE) / 5);
    const { peer_states: states } = await hub.health();
    expect(
      states
        .filter(({ pending }) => pending > 0)
        .map((state) => state.url)
        .sort(),
    ).toEqual(urls.slice(LIVE).sort());
  });
});
