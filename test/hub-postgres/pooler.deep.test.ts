/**
 * A pooler between the hubs and PostgreSQL: Debian's pgbouncer in transaction mode, in which no session is one's own. A group
 * works behind it: nothing of a session is relied on, and where notices do not come it is looked more often.
 */
import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/clock.ts';
import type { PostgresDriver } from '../../src/hub/postgres/driver.ts';
import { storeConformance } from '../hub/store-conformance.ts';
import { groupStore, openGroupStore, watchedDriver } from '../support/group-store.ts';
import { type GroupHub, groupHub } from '../support/groups.ts';
import { count, door, edge, insert } from '../support/hubs.ts';
import { type TestNode, until } from '../support/nodes.ts';
import { hasPgbouncer, type Pooler, pooler } from '../support/pgbouncer.ts';
import { hasPostgres, newDatabase, ownServer, postgresServer, query, servers } from '../support/postgres.ts';

describe.skipIf(!hasPostgres || !hasPgbouncer)('behind pgbouncer in transaction mode', () => {
  // The system's own where there is one: the other tests have the package's.
  const server = postgresServer({ binaries: servers.at(-1) });

  storeConformance(
    'PostgreSQL through pgbouncer',
    async () => {
      const url = (await pooler(server())).url(await newDatabase(server()));
      let flushes = 0;
      const store = await openGroupStore(url, { driver: watchedDriver(() => (flushes += 1)) });
      return { store, flushes: () => flushes, reopen: () => openGroupStore(url) };
    },
    { seeds: 1 },
  );

  test('where no notice comes it is looked often while there is news', async () => {
    const url = (await pooler(server())).url(await newDatabase(server()));
    const pauses = new Set<number>();
    const sleep: Clock['sleep'] = (ms, signal) => {
      pauses.add(ms);
      return systemClock.sleep(ms, signal);
    };
    await openGroupStore(url, { clock: { ...systemClock, sleep } });
    const other = await openGroupStore(url);
    let rows = 0;
    await until('it looks often', async () => {
      const row = { id: `r${++rows}`, updated_at: 4_000_000_000_000 };
      const body = JSON.stringify({ batch_id: 1, changes: [{ op: 'UPDATE', table: 'items', row, old_id: null }] });
      await other.receive(body, { from: 'a', plain: false });
      return pauses.has(25);
    });
  });

  test('nothing is lost when it dies, or the server', async () => {
    const own = await ownServer();
    const between: Pooler = await pooler(own);
    const url = between.url(await newDatabase(own));
    const doors = await Promise.all([door(), door(), door()]);
    const hubs = [await groupHub(url, { edges: doors.map((at) => at.url) }), await groupHub(url)] as const;
    const nodes: TestNode[] = [];
    for (const [i, at] of doors.entries()) nodes.push(await edge(`n${i}`, [(hubs[i % 2] as GroupHub).door.url], at));
    let rows = 0;
    const write = (name: string): void => {
      for (const [i, node] of nodes.entries()) for (let j = 0; j < 20; j++) insert(node, `${name}-${i}-${j}`);
      rows += 60;
    };
    const arrived = (what: string): Promise<void> =>
      until(`all have ${what}`, () => nodes.every((node) => count(node) === rows));
    write('before');
    await arrived('what was written before');
    await between.kill();
    write('without it');
    await between.start();
    await arrived('what was written without it');
    write('as the server dies');
    await own.kill();
    write('without the server');
    await own.start();
    await arrived('what was written without the server');
    await until('all is well', async () =>
      (await Promise.all(hubs.map(({ hub }) => hub.health()))).every(({ ok }) => ok),
    );
    const [stored] = await query(
      own.url(new URL(url).pathname.slice(1)),
      'SELECT count(*)::int AS n FROM rowcast.rows',
    );
    expect(stored).toEqual({ n: rows });
  });

  test('a start is refused where it gives a group one connection, or takes transactions apart', async () => {
    const url = await newDatabase(server());
    const refusal = async (...settings: string[]): Promise<string> => {
      // With the limits that a server has in earnest.
      const driver = pg as unknown as PostgresDriver;
      const store = await groupStore((await pooler(server(), settings)).url(url), { driver });
      return store.open().then(
        () => 'opened',
        ({ message }) => message,
      );
    };
    expect(await refusal('default_pool_size = 1')).toContain('it cannot be told which transactions are under way');
    expect(await refusal('pool_mode = statement')).toContain('transaction blocks not allowed');
  });
});
