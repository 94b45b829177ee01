/**
 * A server that has lost what the group has acknowledged: the standby that is promoted had not heard of it, its files were put
 * back from a backup, or it is another one that has a dump. The ids of transactions come again, and hubs that go on running must not take the new rows for those
 * that they have sent. The nodes have what is missing, and send it.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { Binaries, Postgres } from '../../demo/postgres.ts';
import { createListener } from '../../src/http/index.ts';
import { cleanUp } from '../support/clean-up.ts';
import { type GroupHub, groupHub } from '../support/groups.ts';
import { count, door, edge, insert } from '../support/hubs.ts';
import { type TestNode, until } from '../support/nodes.ts';
import { hasPostgres, newDatabase, ownServer, query, servers } from '../support/postgres.ts';

/** The package has the server alone. */
const dumping = servers.find(({ folder }) => existsSync(join(folder, 'pg_dump')));
const program = (name: string): string => join((dumping as Binaries).folder, name);

describe.skipIf(!hasPostgres)('a group whose server has lost the latest commits', () => {
  test('has them again, and sends everything to everybody, after an asynchronous standby was promoted', async () => {
    const { primary, standby, url } = await withStandby();
    const group = await started(url);
    await group.write('early', 30);
    const [at] = await query(primary.url(), 'SELECT pg_current_wal_lsn()::text AS lsn');
    await until('the standby has them', async () => {
      const [said] = await query(standby.url(), 'SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn AS has', [at?.lsn]);
      return said?.has === true;
    });
    await standby.kill();
    await group.write('late', 30);
    await primary.kill();
    await standby.start(primary.port);
    await query(standby.url(), 'SELECT pg_promote()');
    await group.isWhole();
  });

  test('has them again, and sends everything to everybody, after its files were put back', async () => {
    const server = await ownServer();
    const url = await newDatabase(server);
    const group = await started(url);
    await group.write('early', 30);
    await server.shutDown();
    const backup = await copyOf(server);
    await server.start();
    await group.write('late', 30);
    await server.kill();
    // Looked at where nobody else finds it: as soon as the hubs do, the nodes send what it lacks.
    await backup.start();
    const found = await query(backup.url(new URL(url).pathname.slice(1)), 'SELECT row_id FROM rowcast.rows');
    expect(found).toHaveLength(90);
    await backup.shutDown();
    await backup.start(server.port);
    await group.isWhole();
  });

  test.skipIf(!dumping)(
    'has them again, and sends everything to everybody, after a dump was read into another',
    async () => {
      const server = await ownServer({ binaries: dumping });
      const url = await newDatabase(server);
      const group = await started(url);
      await group.write('early', 30);
      const dump = execFileSync(program('pg_dump'), ['-d', url], { maxBuffer: 100_000_000 });
      await group.write('late', 30);
      await server.kill();
      const other = await ownServer({ binaries: dumping });
      await query(other.url(), `ALTER USER postgres PASSWORD '${server.password}'`);
      const there = (database?: string): string => other.url(database, 'postgres', server.password);
      const name = new URL(url).pathname.slice(1);
      await query(there(), `CREATE DATABASE ${name}`);
      execFileSync(program('psql'), ['-q', '-v', 'ON_ERROR_STOP=1', '-d', there(name)], { input: dump });
      await other.shutDown();
      await other.start(server.port);
      await group.isWhole();
    },
  );
});

describe.skipIf(!hasPostgres)('a group whose server has a synchronous standby', () => {
  test('has lost nothing that it has acknowledged when that is promoted, though no node had it yet', async () => {
    const { primary, standby, url } = await withStandby();
    await query(primary.url(), "ALTER SYSTEM SET synchronous_standby_names = '*'");
    await query(primary.url(), 'SELECT pg_reload_conf()');
    await waitsFor(primary, standby);
    const group = await started(url);
    await group.write('early', 10);
    await group.acknowledged('late', 30);
    await primary.kill();
    // Looked at where the hubs do not find it: no node has sent anything again.
    await query(standby.url(), 'SELECT pg_promote()');
    const database = standby.url(new URL(url).pathname.slice(1));
    const late = await query(database, "SELECT row_id FROM rowcast.rows WHERE row_id LIKE 'late%'");
    expect(late).toHaveLength(90);
    await standby.shutDown();
    await standby.start(primary.port);
    group.reopen();
    await group.isWhole();
    // Nor is it another database to anybody.
    expect(group.found).toEqual([]);
  });
});

/** Each process of a server hears of a setting in its own time: resolves when a commit has waited for the standby. */
async function waitsFor(primary: Postgres, standby: Postgres): Promise<void> {
  await standby.kill();
  let commit: Promise<unknown> = Promise.resolve();
  for (let n = 1, isWaiting = false; !isWaiting; n++) {
    let isDone = false;
    commit = query(primary.url(), `CREATE TABLE probe_${n} ()`).finally(() => {
      isDone = true;
    });
    await until('it is committed, or waits', async () => {
      const waiting = await query(primary.url(), "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
      isWaiting = waiting.length > 0;
      return isWaiting || isDone;
    });
  }
  await standby.start();
  await commit;
}

/** A server, another one that follows it, and a database. */
async function withStandby(): Promise<{ primary: Postgres; standby: Postgres; url: string }> {
  const primary = await ownServer();
  const url = await newDatabase(primary);
  await primary.shutDown();
  const standby = await copyOf(primary, { standby: true });
  await primary.start();
  await standby.start();
  return { primary, standby, url };
}

async function copyOf(server: Postgres, options?: { standby: boolean }): Promise<Postgres> {
  const made = await server.copy(options);
  cleanUp(() => made.stop());
  return made;
}

/** Two hubs and three nodes, which are told of nothing. */
async function started(url: string) {
  const doors = await Promise.all([door(), door(), door()]);
  const hubs = [await groupHub(url, { edges: doors.map((at) => at.url) }), await groupHub(url)] as [GroupHub, GroupHub];
  const nodes: TestNode[] = [];
  const join = async (at: Awaited<ReturnType<typeof door>>): Promise<void> => {
    const hub = hubs[nodes.length % 2] as GroupHub;
    nodes.push(await edge(`n${nodes.length}`, [hub.door.url], at));
  };
  for (const at of doors) await join(at);
  const found: string[] = [];
  for (const { hub } of hubs) {
    hub.on('restored', () => found.push('restored'));
    hub.on('peer-restored', () => found.push('peer-restored'));
    hub.on('peer-replaced', () => found.push('peer-replaced'));
  }
  let rows = 0;
  /** On all nodes, none of which can be reached from now on; resolves when the group has all of it. */
  const acknowledged = async (name: string, each: number): Promise<void> => {
    for (const at of doors) at.close();
    for (let i = 0; i < each; i++) for (const [j, node] of nodes.entries()) insert(node, `${name}-${j}-${i}`);
    rows += each * nodes.length;
    await until('all is acknowledged', () => nodes.every(({ manager }) => manager.health().pending_changes === 0));
  };
  const reopen = (): void => {
    for (const [i, at] of doors.entries()) at.open(createListener((nodes[i] as TestNode).manager));
  };
  const write = async (name: string, each: number): Promise<void> => {
    for (let i = 0; i < each; i++) for (const [j, node] of nodes.entries()) insert(node, `${name}-${j}-${i}`);
    rows += each * nodes.length;
    await until(`all have what is ${name}`, () => nodes.every((node) => count(node) === rows));
  };
  /** A node that comes now is given everything by the group alone, and what is written now reaches all. */
  const isWhole = async (): Promise<void> => {
    const at = await door();
    await until('an edge can be added', () =>
      hubs[0].hub.edges.add(at.url).then(
        () => true,
        () => false,
      ),
    );
    await join(at);
    await write('after', 5);
    const [stored] = await query(url, 'SELECT count(*)::int AS n FROM rowcast.rows');
    expect(stored).toEqual({ n: rows });
    await until('all is well', async () =>
      (await Promise.all(hubs.map(({ hub }) => hub.health()))).every(({ ok }) => ok),
    );
  };
  return { write, acknowledged, reopen, isWhole, found };
}
