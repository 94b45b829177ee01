/**
 * A backup that is put back under a running process, by SQLite's backup API or page by page: nothing is attached anew, so
 * the process itself has to see that its file is not what it was.
 */
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { Cluster, hubIds, ids, incOf, type Member, settled, write } from '../support/cluster.ts';
import { betterSqlite3, lane } from '../support/lane.ts';
import { database, ITEMS, rowsOf, until } from '../support/nodes.ts';
import { putUnder } from '../support/put-under.ts';

/** A copy of the file as it is now, and what puts its content back into the open file, in one transaction. */
function kept(
  cluster: Cluster,
  { db }: Pick<Member, 'db'>,
  name: string,
): { path: string; putUnder(to: string): Promise<void> } {
  const path = join(cluster.folder, `${name}.kept.db`);
  db.exec(`VACUUM INTO '${path}'`);
  return { path, putUnder: (to) => putUnder(path, to) };
}

const pair = async (): Promise<{ cluster: Cluster; a: Member; b: Member }> => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b']);
  const b = await cluster.node('b', ['a']);
  write(a, '1', '2');
  write(b, '3');
  await settled('1 2 3', a, b);
  return { cluster, a, b };
};

const told = async ({ events }: Member): Promise<void> => {
  await until('it has told', () => events.includes('restored {}'));
};

describe('an earlier state under a running node', () => {
  test('is noticed, and what it lacks comes back', async () => {
    const { cluster, a, b } = await pair();
    const backup = kept(cluster, a, 'a');
    write(a, '4');
    write(b, '5');
    a.db.exec("DELETE FROM items WHERE id = '1'");
    await settled('2 3 4 5', a, b);
    const inc = incOf(a);
    await backup.putUnder(a.path);
    await told(a);
    await settled('2 3 4 5', a, b);
    expect(incOf(a)).not.toBe(inc);
    expect(a.events).toEqual(['restored {}']);
    expect(a.manager.health()).toMatchObject({ ok: true, problems: [] });
  });

  test.runIf(lane === 'better-sqlite3')('is noticed when it came by the backup API', async () => {
    const { cluster, a, b } = await pair();
    const { path } = kept(cluster, a, 'a');
    write(a, '4');
    await settled('1 2 3 4', a, b);
    const Database = createRequire(import.meta.url)(betterSqlite3());
    const from = new Database(path);
    await from.backup(a.path);
    from.close();
    write(a, '5');
    await told(a);
    await settled('1 2 3 4 5', a, b);
  });

  test('loses nothing of what is written then under numbers that other changes had', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b', 'c']);
    const b = await cluster.node('b', ['a', 'c']);
    const c = await cluster.node('c', ['a', 'b']);
    write(a, '1');
    await settled('1', a, b, c);
    const backup = kept(cluster, a, 'a');
    cluster.cut.add(cluster.url('c'));
    write(a, '2', '3');
    await settled('1 2 3', a, b);
    await backup.putUnder(a.path);
    // What b was sent is still at hand for c, under the numbers that these get.
    write(a, '4', '5');
    cluster.cut.clear();
    await settled('1 2 3 4 5', a, b, c);
    await told(a);
  });

  test('takes no acknowledgement of what was sent before for one of what is written then', async () => {
    const { cluster, a, b } = await pair();
    const backup = kept(cluster, a, 'a');
    let release = (): void => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let holding = false;
    cluster.tamper = async (answer, url, method) => {
      if (method === 'POST' && url === `${cluster.url('b')}/sync`) {
        holding = true;
        await held;
      }
      return answer;
    };
    write(a, '4');
    await until('b has it, and its answer is on its way', () => holding && ids(b) === '1 2 3 4');
    await backup.putUnder(a.path);
    write(a, '5');
    release();
    cluster.tamper = undefined;
    await settled('1 2 3 4 5', a, b);
  });

  test('nor where the peer is a plain one, which does not say who it is', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['plain']);
    const received: string[] = [];
    let release: (() => void) | undefined;
    let holding = false;
    cluster.at.set(cluster.url('plain'), {
      maxBodyBytes: 1e6,
      id: 'plain',
      receive: async (body: Uint8Array) => {
        const { batch_id, changes } = JSON.parse(new TextDecoder().decode(body));
        for (const { row } of changes) received.push(row.id);
        if (received.includes('2') && !holding) {
          holding = true;
          await new Promise<void>((resolve) => {
            release = resolve;
          });
        }
        return { status: 200, body: { applied: changes.length, ack: batch_id } };
      },
      health: () => ({ ok: true }),
    } as never);
    write(a, '1');
    await until(
      'it has arrived, and is noted',
      () => a.manager.health().pending_changes === 0 && received.includes('1'),
    );
    const backup = kept(cluster, a, 'a');
    write(a, '2');
    await until('it is there', () => holding);
    await backup.putUnder(a.path);
    write(a, '3');
    release?.();
    await until('what was written then has arrived', () => received.includes('3'));
  });

  test('is no alarm where it is the present state', async () => {
    const { cluster, a, b } = await pair();
    await until('nothing is under way', () => [a, b].every(({ manager }) => manager.health().pending_changes === 0));
    await kept(cluster, a, 'a').putUnder(a.path);
    write(a, '4');
    write(b, '5');
    await settled('1 2 3 4 5', a, b);
    expect([...a.events, ...b.events]).toEqual([]);
  });

  test('is told to whoever follows the changes of its rows', async () => {
    const { cluster, a, b } = await pair();
    const backup = kept(cluster, a, 'a');
    let missed = 0;
    a.manager.on('change', (event) => {
      if (event.missed) missed += 1;
    });
    write(a, '4');
    await settled('1 2 3 4', a, b);
    await backup.putUnder(a.path);
    write(a, '5');
    await settled('1 2 3 4 5', a, b);
    await until('it was told', () => missed > 0);
  });

  test('is noticed by two processes on the file, which both go on', async () => {
    const cluster = new Cluster();
    const p = await cluster.node('p', ['a']);
    const a = await cluster.node('a', ['p']);
    const second = await cluster.node('a', ['p'], { url: cluster.url('second') });
    write(a, '1');
    await settled('1', p, a, second);
    const backup = kept(cluster, a, 'a');
    write(second, '2');
    write(p, '3');
    await settled('1 2 3', p, a, second);
    await backup.putUnder(a.path);
    write(a, '4');
    write(second, '5');
    await settled('1 2 3 4 5', p, a, second);
    expect(a.manager.health()).toMatchObject({ ok: true });
  });
});

test('the file of another node under a running one: both are databases of their own', { tags: 'long' }, async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b', 'c']);
  const b = await cluster.node('b', ['a', 'c']);
  const c = await cluster.node('c', ['a', 'b']);
  write(a, '1');
  write(b, '2');
  await settled('1 2', a, b, c);
  cluster.cut.add(cluster.url('a'));
  write(b, '3');
  await settled('1 2 3', b, c);
  const { putUnder } = kept(cluster, b, 'b');
  await putUnder(a.path);
  cluster.cut.clear();
  write(a, '4');
  write(b, '5');
  write(c, '6');
  await settled('1 2 3 4 5 6', a, b, c);
  await until('they are told apart', () => incOf(a) !== incOf(b));
  expect(a.events).toContain('restored {}');
  expect(b.events).not.toContain('restored {}');
});

test('a file from before Rowcast under a running node is filled by its peers', async () => {
  const { cluster, a, b } = await pair();
  const path = join(cluster.folder, 'older.db');
  const older = await database(ITEMS, path);
  older.exec("INSERT INTO items VALUES ('0', 'old', 1, 10, 20)");
  older.close();
  const db = await database('SELECT 1', a.path);
  db.exec(`ATTACH '${path}' AS kept`);
  db.exec('BEGIN IMMEDIATE');
  const objects =
    "SELECT type, name FROM main.sqlite_schema WHERE type IN ('table', 'trigger') AND name NOT LIKE 'sqlite%'";
  for (const { type, name } of rowsOf(db, `${objects} ORDER BY type = 'table'`)) db.exec(`DROP ${type} main."${name}"`);
  db.exec(`${ITEMS}; INSERT INTO main.items SELECT * FROM kept.items`);
  db.exec('COMMIT');
  db.close();
  await settled('0 1 2 3', a, b);
  await until('it is well again', () => a.manager.health().ok);
});

describe('an earlier state under a running hub', () => {
  test('is noticed, and everybody ends with everything', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['hub']);
    const b = await cluster.node('b', ['hub']);
    const hub = await cluster.hub('hub', ['a', 'b']);
    write(a, '1');
    await settled('1', a, b);
    const backup = kept(cluster, hub, 'hub');
    cluster.cut.add(cluster.url('b'));
    write(a, '2', '3');
    await until('the hub has it', () => hubIds(hub) === '1 2 3');
    await backup.putUnder(hub.path);
    cluster.cut.clear();
    write(a, '4');
    write(b, '5');
    await settled('1 2 3 4 5', a, b);
    await until('the hub has told', () => hub.events.includes('restored {}'));
    await until('the hub has all', () => hubIds(hub) === '1 2 3 4 5');
  });

  test('edges that were paused, resumed or removed since stay so', async () => {
    const cluster = new Cluster();
    const [a, b, c, d] = [
      await cluster.node('a', ['hub']),
      await cluster.node('b', ['hub']),
      await cluster.node('c', ['hub']),
      await cluster.node('d', ['hub']),
    ];
    const member = await cluster.hub('hub', ['a', 'b', 'c', 'd']);
    const { hub } = member;
    await hub.edges.pause(cluster.url('b'));
    write(a, '1');
    await settled('1', a, c, d);
    const backup = kept(cluster, member, 'hub');
    await hub.edges.resume(cluster.url('b'));
    await hub.edges.pause(cluster.url('c'));
    await hub.edges.remove(cluster.url('d'));
    write(a, '2');
    await settled('1 2', a, b);
    await backup.putUnder(member.path);
    write(a, '3');
    await settled('1 2 3', a, b);
    const stored = (): unknown => rowsOf(member.db, 'SELECT url, paused FROM _hub_edges ORDER BY url');
    const wanted = [
      { url: cluster.url('a'), paused: 0 },
      { url: cluster.url('b'), paused: 0 },
      { url: cluster.url('c'), paused: 1 },
    ].sort((one, other) => (one.url < other.url ? -1 : 1));
    await until('the file has the edges of the process', () => JSON.stringify(stored()) === JSON.stringify(wanted));
    expect((await hub.edges.list()).map(({ url, paused }) => [url, paused]).sort()).toEqual(
      wanted.map(({ url, paused }) => [url, paused === 1]),
    );
    expect([ids(c), ids(d)]).toEqual(['1', '1']);
    await hub.edges.resume(cluster.url('c'));
    await settled('1 2 3', a, b, c);
  });

  test('takes no acknowledgement of what was sent before for one of what came then', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['hub']);
    const b = await cluster.node('b', ['hub']);
    const hub = await cluster.hub('hub', ['a', 'b']);
    write(a, '1');
    await settled('1', a, b);
    const backup = kept(cluster, hub, 'hub');
    let release = (): void => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let holding = false;
    cluster.tamper = async (answer, url) => {
      if (url === `${cluster.url('b')}/sync`) {
        holding = true;
        await held;
      }
      return answer;
    };
    write(a, '2');
    await until('b has it, and its answer is on its way', () => holding && ids(b) === '1 2');
    await backup.putUnder(hub.path);
    write(a, '3');
    await until('the hub has it', () => hubIds(hub).includes('3'));
    release();
    cluster.tamper = undefined;
    await settled('1 2 3', a, b);
  });
});
