/** Lost disks, old backups, copied files: noticed by whoever can know it, and healed by a seed. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { Cluster, type HubMember, hubIds, ids, incOf, type Member, seeds, settled, write } from '../support/cluster.ts';
import type { TestDatabase } from '../support/lane.ts';
import { rowsOf, until } from '../support/nodes.ts';

describe('in a mesh', () => {
  test('a receiver that was put back from a backup gets what it lacks, deletions too', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b']);
    const b = await cluster.node('b', ['a']);
    write(a, '1', '2', '3');
    await settled('1 2 3', a, b);
    const putBack = cluster.backup(b);
    write(a, '4', '5');
    a.db.exec("DELETE FROM items WHERE id = '1'");
    await settled('2 3 4 5', a, b);
    await b.stop();
    putBack();
    const again = await cluster.node('b', ['a']);
    expect(ids(again)).toBe('1 2 3');
    await settled('2 3 4 5', a, again);
    await until('it has told', () => again.events.length > 0);
    expect(again.events).toEqual(['restored {}']);
    expect(a.events.some((event) => event.startsWith('peer-re'))).toBe(true);
    expect(again.manager.health()).toMatchObject({ ok: true, problems: [] });
  });

  test('an empty database at the URL of one that is lost is given everything', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b']);
    const b = await cluster.node('b', ['a']);
    write(a, '1', '2');
    write(b, '3');
    await settled('1 2 3', a, b);
    await b.stop();
    cluster.wipe(b.path);
    const again = await cluster.node('b', ['a']);
    const acked: number[] = [];
    a.manager.on('acked', ({ batchId }) => acked.push(batchId));
    write(a, '4');
    await settled('1 2 3 4', a, again);
    expect(a.events).toEqual(['peer-replaced {"peer":"http://b.test","id":"b"}']);
    expect(again.events).toEqual([]);
    await until('all is over', () => a.manager.health().pending_changes === 0);
    // By its first answer the new one has said that it is another, and acknowledged nothing.
    const [latest] = rowsOf(a.db, 'SELECT last_acked AS n FROM _peer_state');
    expect(acked.filter((batchId) => batchId === latest?.n)).toHaveLength(1);
  });

  test('a sender that was put back gets its own later rows, and writes on', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b']);
    const b = await cluster.node('b', ['a']);
    write(a, '1');
    await settled('1', a, b);
    const putBack = cluster.backup(a);
    write(a, '2', '3');
    write(b, '4');
    await settled('1 2 3 4', a, b);
    await a.stop();
    putBack();
    const again = await cluster.node('a', ['b']);
    write(again, '5', '6', '7');
    await settled('1 2 3 4 5 6 7', again, b);
    await until('it has told', () => again.events.length > 0);
    expect(again.events).toEqual(['restored {}']);
  });

  test('one that was put back before anybody could ask whether it had been started gets its own later rows', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b']);
    const b = await cluster.node('b', ['a']);
    write(a, '1');
    await settled('1', a, b);
    await until('it is known there', () => incAt(b, 'a') === incOf(a));
    await a.manager.flush();
    const putBack = cluster.backup(a);
    await a.stop();
    cluster.cut.add(cluster.url('a'));
    const started = await cluster.node('a', ['b']);
    write(started, '2');
    await settled('1 2', b);
    await until('it has heard', () => started.manager.health().pending_changes === 0);
    expect(claimsOf(b)).toBe(1);
    await Promise.all([started.stop(), b.stop()]);
    putBack();
    cluster.cut.clear();
    const [again, other] = [await cluster.node('a', ['b']), await cluster.node('b', ['a'])];
    await settled('1 2', again, other);
    await until('it has told', () => again.events.length > 0);
    expect(again.events).toEqual(['restored {}']);
  });

  test('a backup that was started twice before anybody could reach it, and has counted as far, is found out', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b']);
    const b = await cluster.node('b', ['a']);
    write(a, '1');
    await settled('1', a, b);
    const putBack = cluster.backup(a);
    write(a, '2');
    await settled('1 2', a, b);
    await a.manager.flush();
    const ticksOf = ({ db }: Pick<Member, 'db'>): number =>
      Number(rowsOf(db, 'SELECT tick FROM _nodes WHERE self = 1')[0]?.tick);
    const counted = ticksOf(a);
    await a.stop();
    putBack();
    for (const name of ['a', 'b']) cluster.cut.add(cluster.url(name));
    const once = await cluster.node('a', ['b']);
    write(once, '3');
    await until('it has counted as far', () => ticksOf(once) >= counted);
    await once.stop();
    const twice = await cluster.node('a', ['b']);
    cluster.cut.clear();
    await settled('1 2 3', twice, b);
    await until('it has told', () => twice.events.length > 0);
    expect(twice.events).toEqual(['restored {}']);
  });

  test('of a file that was copied and runs twice, the copy becomes a node of its own', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['p', 'c']);
    const p = await cluster.node('p', ['a', 'c']);
    write(a, '1');
    await settled('1', a, p);
    a.db.exec(`VACUUM INTO '${join(cluster.folder, 'c.db')}'`);
    const ofA = (db: TestDatabase): number =>
      Number(rowsOf(db, 'SELECT tick FROM _nodes WHERE inc = ?', incOf(a))[0]?.tick);
    const copied = ofA(a.db);
    write(a, '2');
    await settled('1 2', a, p);
    // Whichever of the two it hears first.
    await until('p knows that there is more of it than the copy has', () => ofA(p.db) > copied);
    const c = await cluster.node('c', ['p', 'a']);
    write(a, '3');
    write(c, '4');
    write(p, '5');
    await settled('1 2 3 4 5', a, p, c);
    await until('the copy has told', () => c.events.length > 0);
    expect(incOf(a)).not.toBe(incOf(c));
    expect(a.events).toEqual([]);
    expect(c.events).toEqual(['restored {}']);
  });

  test('where the copy is heard before the original goes on, either may be the one, or both', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['p', 'c']);
    const p = await cluster.node('p', ['a', 'c']);
    write(a, '1');
    await settled('1', a, p);
    a.db.exec(`VACUUM INTO '${join(cluster.folder, 'c.db')}'`);
    const c = await cluster.node('c', ['p', 'a']);
    write(c, '2');
    write(a, '3');
    write(p, '4');
    await settled('1 2 3 4', a, p, c);
    await until(
      'one has another identity, and has told',
      () => incOf(a) !== incOf(c) && a.events.length + c.events.length > 0,
    );
    // Whoever has known the one by its identity from before finds another one in its place, and nowhere else.
    const isRenewed = ({ events }: Member): boolean => events.includes('restored {}');
    const replaced = [a, c]
      .filter(isRenewed)
      .map(({ name }) => `peer-replaced {"peer":"http://${name}.test","id":"${name}"}`);
    const told = [...a.events, ...c.events].filter((event) => !replaced.includes(event));
    expect([...new Set(told)]).toEqual(['restored {}']);
  });

  test('what a node had sent to one peer only, before it was lost for good, reaches the others', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b', 'c']);
    const b = await cluster.node('b', ['a', 'c']);
    const c = await cluster.node('c', ['a', 'b']);
    write(a, '1');
    write(b, '2');
    await settled('1 2', a, b, c);
    cluster.cut.add(cluster.url('c'));
    write(a, '3');
    await settled('1 2 3', a, b);
    await a.stop();
    cluster.cut.clear();
    await b.stop();
    const rest = await cluster.node('b', ['c']);
    await settled('1 2 3', rest, c);
  });

  test('what a node had sent to one peer only, before it was lost and came back empty, reaches the others', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b', 'c']);
    const b = await cluster.node('b', ['a', 'c']);
    const c = await cluster.node('c', ['a', 'b']);
    write(a, '1');
    await settled('1', a, b, c);
    cluster.cut.add(cluster.url('c'));
    write(a, '2');
    await settled('1 2', a, b);
    await a.stop();
    cluster.cut.clear();
    cluster.wipe(a.path);
    const again = await cluster.node('a', ['b', 'c']);
    write(again, '3');
    await settled('1 2 3', again, b, c);
  });

  test('nor does it matter under which id it comes back', { tags: 'long' }, async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b', 'c']);
    const b = await cluster.node('b', ['a', 'c']);
    const c = await cluster.node('c', []);
    write(a, '1');
    await settled('1', a, b, c);
    await until('it is known there', () => incAt(b, 'a') === incOf(a));
    cluster.cut.add(cluster.url('c'));
    write(a, '2');
    await settled('1 2', a, b);
    await a.stop();
    cluster.cut.clear();
    const again = await cluster.node('x', ['b'], { url: cluster.url('a') });
    await settled('1 2', again, b, c);
  });

  test('what a node had brought before anybody had reached it, and it was lost, reaches the one in its place', async () => {
    const cluster = new Cluster();
    const b = await cluster.node('b', ['a']);
    cluster.cut.add(cluster.url('a'));
    const a = await cluster.node('a', ['b']);
    write(a, '1');
    await settled('1', b);
    await a.stop();
    const again = await cluster.node('x', ['b'], { url: cluster.url('a') });
    cluster.cut.clear();
    await settled('1', again);
  });

  test('a node that has moved to another URL goes on where it was', async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b']);
    const b = await cluster.node('b', ['a']);
    write(a, '1', '2');
    write(b, '3');
    await settled('1 2 3', a, b);
    await a.manager.flush();
    await Promise.all([a.stop(), b.stop()]);
    const moved = await cluster.node('b', ['a'], { url: cluster.url('elsewhere') });
    cluster.requests.length = 0;
    const again = await cluster.node('a', ['elsewhere'], { batchSize: 1 });
    await until('it is known there', () => incAt(again, 'elsewhere') === incOf(moved));
    write(again, '4');
    await settled('1 2 3 4', again, moved);
    const sent = cluster.requests.filter(({ method, url }) => method === 'POST' && url.endsWith('elsewhere.test/sync'));
    // Its answer to the first batch has said who it is, and that was the end of what it has already.
    expect(sent.flatMap(({ body }) => JSON.parse(body).changes).map(({ row }) => row.id)).not.toContain('3');
    expect([...again.events, ...moved.events]).toEqual([]);
  });
});

function incAt({ db }: { db: { prepare(sql: string): { get(...p: unknown[]): unknown } } }, name: string): unknown {
  const row = db.prepare('SELECT inc FROM _peer_state WHERE peer_url = ?').get(`http://${name}.test`);
  return (row as { inc: unknown } | null)?.inc;
}

function claimsOf({ db }: Pick<Member, 'db'>): number {
  return rowsOf(db, 'SELECT 1 FROM _nodes WHERE claim IS NOT NULL').length;
}

describe('there is no alarm', () => {
  test('for a start of which others were told before they could ask, and for the next one', {
    tags: 'long',
  }, async () => {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['b']);
    const b = await cluster.node('b', ['a']);
    write(a, '1');
    await settled('1', a, b);
    await until('it is known there', () => incAt(b, 'a') === incOf(a));
    await a.stop();
    cluster.cut.add(cluster.url('a'));
    const second = await cluster.node('a', ['b']);
    write(second, '2');
    await settled('1 2', second, b);
    expect(claimsOf(b)).toBe(1);
    await second.stop();
    cluster.cut.clear();
    const third = await cluster.node('a', ['b']);
    write(b, '3');
    write(third, '4');
    await settled('1 2 3 4', third, b);
    await until('it has confirmed it', () => claimsOf(b) === 0);
    expect([...a.events, ...b.events, ...second.events, ...third.events]).toEqual([]);
    expect(seeds(b)).toBe(0);
  });

  test('for a start after a start, a kill, or a database of an earlier build', async () => {
    const cluster = new Cluster();
    let a = await cluster.node('a', ['b']);
    const b = await cluster.node('b', ['a']);
    write(a, '1');
    await settled('1', a, b);
    for (let i = 2; i < 5; i++) {
      await a.stop();
      a = await cluster.node('a', ['b']);
      write(a, String(i));
      await until('it has arrived', () => ids(b).includes(String(i)));
    }
    await a.stop();
    const older = await cluster.node('a', ['b']);
    await older.stop();
    // What a build without identities leaves: its own shape of _peer_state, and none of the tables.
    const { database } = await import('../support/nodes.ts');
    const file = await database('SELECT 1', a.path);
    file.exec('DROP TABLE _nodes; DROP TABLE _names; ALTER TABLE _peer_state DROP COLUMN inc');
    file.close();
    const upgraded = await cluster.node('a', ['b']);
    write(upgraded, '5');
    write(b, '6');
    await settled('1 2 3 4 5 6', upgraded, b);
    expect(upgraded.events).toEqual([]);
    expect(seeds(upgraded)).toBe(0);
  });

  test('for two processes on one file', async () => {
    const cluster = new Cluster();
    const p = await cluster.node('p', ['a']);
    const a = await cluster.node('a', ['p']);
    const second = await cluster.node('a', ['p'], { url: cluster.url('second') });
    for (let i = 1; i < 6; i++) {
      write(i % 2 === 0 ? a : second, `${i}`);
      write(p, `p${i}`);
      await until('it has arrived', () => ids(p).includes(`${i}`) && ids(a).includes(`p${i}`));
    }
    expect([...a.events, ...second.events, ...p.events]).toEqual([]);
    expect(seeds(p) + seeds(a)).toBe(0);
    expect(incOf(a)).toBe(incOf(second));
  });
});

describe('what a person has to mend is said', () => {
  test('two databases that answer at one URL: one seed, then down', async () => {
    const cluster = new Cluster();
    const one = await cluster.node('x', []);
    const two = await cluster.node('y', []);
    const a = await cluster.node('a', ['lb']);
    const at = (replica: typeof one): void => void cluster.at.set(cluster.url('lb'), replica.manager);
    at(one);
    write(a, '1');
    await settled('1', one);
    at(two);
    write(a, '2');
    await settled('1 2', two);
    expect(a.events).toEqual(['peer-replaced {"peer":"http://lb.test","id":"y"}']);
    at(one);
    write(a, '3');
    await until('it is down', () => a.manager.health().peer_states[0]?.state === 'down');
    expect(a.manager.health().peer_states[0]?.last_error).toMatch(/two databases answer at this URL/);
    expect(a.events).toHaveLength(1);
    at(two);
    await settled('1 2 3', two);
  });

  test('two of which one answers what is compared: the other is given what it lacks', async () => {
    const cluster = new Cluster();
    const one = await cluster.node('x', []);
    const two = await cluster.node('y', []);
    const a = await cluster.node('a', ['lb']);
    cluster.at.set(cluster.url('lb'), one.manager);
    write(a, '1', '2', '3');
    await settled('1 2 3', one);
    const { manager } = two;
    cluster.at.set(cluster.url('lb'), {
      maxBodyBytes: manager.maxBodyBytes,
      id: manager.id,
      receive: (body, options) => manager.receive(body, options),
      health: () => manager.health(),
      hello: (said) => manager.hello(said),
      answer: (path, body, options) => one.manager.answer(path, body, options),
    });
    write(a, '4');
    await settled('1 2 3 4', two);
  });

  test('a node that is its own peer, which loses nothing', async () => {
    const cluster = new Cluster();
    const warnings: string[] = [];
    const a = await cluster.node('a', ['a']);
    a.manager.on('warning', ({ code }) => warnings.push(code));
    write(a, '1');
    await until('it has told', () => warnings.includes('own-peer'));
    expect(a.manager.health()).toMatchObject({ ok: true, pending_changes: 0 });
    expect(a.events).toEqual([]);
  });
});

describe('in a star', () => {
  async function star(): Promise<{ cluster: Cluster; hub: HubMember; a: Member; b: Member }> {
    const cluster = new Cluster();
    const a = await cluster.node('a', ['hub']);
    const b = await cluster.node('b', ['hub']);
    const hub = await cluster.hub('hub', ['a', 'b']);
    return { cluster, hub, a, b };
  }

  test('a hub that was put back after it had acknowledged, and before it had passed on, loses nothing', async () => {
    const { cluster, hub, a, b } = await star();
    write(a, '1', '2');
    await settled('1 2', a, b);
    const putBack = cluster.backup(hub);
    cluster.cut.add(cluster.url('b'));
    write(a, '3', '4');
    await until('the hub has it', () => hubIds(hub) === '1 2 3 4');
    await hub.stop();
    cluster.cut.clear();
    putBack();
    const again = await cluster.hub('hub', ['a', 'b']);
    write(b, '5');
    await settled('1 2 3 4 5', a, b);
    await until('the hub has told', () => again.events.length > 0);
    expect(again.events).toContain('restored {}');
  });

  test('a hub that was lost is filled by its edges', async () => {
    const { cluster, hub, a, b } = await star();
    write(a, '1', '2');
    write(b, '3');
    await settled('1 2 3', a, b);
    await hub.stop();
    cluster.wipe(hub.path);
    const again = await cluster.hub('hub', ['a', 'b']);
    write(a, '4');
    await settled('1 2 3 4', a, b);
    await until('the hub has all', () => hubIds(again) === '1 2 3 4');
  });

  test('an edge that was put back before the hub could ask whether it had been started gets its own later rows', async () => {
    const { cluster, hub, a, b } = await star();
    write(a, '1');
    await settled('1', a, b);
    const known = (): boolean => rowsOf(hub.db, 'SELECT 1 FROM _hub_edges WHERE inc = ?', incOf(a)).length === 1;
    await until('it is known there', known);
    await a.manager.flush();
    const putBack = cluster.backup(a);
    await a.stop();
    cluster.cut.add(cluster.url('a'));
    const started = await cluster.node('a', ['hub']);
    write(started, '2');
    await settled('1 2', b);
    expect(claimsOf(hub)).toBe(1);
    await Promise.all([started.stop(), hub.stop()]);
    putBack();
    cluster.cut.clear();
    await cluster.hub('hub', ['a', 'b']);
    const again = await cluster.node('a', ['hub']);
    await settled('1 2', again, b);
  });

  test('an edge that was lost, or put back, gets its own rows too', async () => {
    const { cluster, a, b } = await star();
    write(a, '1');
    await settled('1', a, b);
    const putBack = cluster.backup(a);
    write(a, '2', '3');
    write(b, '4');
    await settled('1 2 3 4', a, b);
    await a.stop();
    putBack();
    const second = await cluster.node('a', ['hub']);
    await settled('1 2 3 4', second, b);
    await until('it has told', () => second.events.length > 0);
    await second.stop();
    cluster.wipe(second.path);
    const third = await cluster.node('a', ['hub']);
    write(b, '5');
    await settled('1 2 3 4 5', third, b);
  });
});
