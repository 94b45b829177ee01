/** Two things go wrong at once, or one in the middle of another: all heals as if they had come one after the other. */
import { expect, test } from 'vitest';
import { Cluster, hubIds, ids, type Member, settled, write } from '../support/cluster.ts';
import { rowsOf, until } from '../support/nodes.ts';

test('two of three that are put back at once, from backups of different days, get what the third has', {
  tags: 'long',
}, async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b', 'c']);
  const b = await cluster.node('b', ['a', 'c']);
  const c = await cluster.node('c', ['a', 'b']);
  write(a, '1');
  await settled('1', a, b, c);
  const putBackA = cluster.backup(a);
  write(b, '2');
  a.db.exec("DELETE FROM items WHERE id = '1'");
  await settled('2', a, b, c);
  const putBackB = cluster.backup(b);
  write(a, '3');
  write(b, '4');
  await settled('2 3 4', a, b, c);
  await Promise.all([a.stop(), b.stop()]);
  putBackA();
  putBackB();
  const againA = await cluster.node('a', ['b', 'c']);
  const againB = await cluster.node('b', ['a', 'c']);
  write(againA, '5');
  write(againB, '6');
  await settled('2 3 4 5 6', againA, againB, c);
  for (const again of [againA, againB]) {
    await until('it has told', () => again.events.includes('restored {}'));
    await until('it is well', () => again.manager.health().ok);
  }
});

test('a hub and one of its edges that are put back together get what the other edge has', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['hub']);
  const b = await cluster.node('b', ['hub']);
  const hub = await cluster.hub('hub', ['a', 'b']);
  write(a, '1');
  write(b, '2');
  await settled('1 2', a, b);
  const putBacks = [cluster.backup(hub), cluster.backup(a)];
  write(a, '3', '4');
  write(b, '5');
  b.db.exec("DELETE FROM items WHERE id = '1'");
  await settled('2 3 4 5', a, b);
  await Promise.all([hub.stop(), a.stop()]);
  for (const putBack of putBacks) putBack();
  const againHub = await cluster.hub('hub', ['a', 'b']);
  const again = await cluster.node('a', ['hub']);
  write(again, '6');
  await settled('2 3 4 5 6', again, b);
  await until('the hub has all', () => hubIds(againHub) === '2 3 4 5 6');
});

test('where two nodes change places in the middle of a comparison, nothing is mended by what the other has', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b']);
  const b = await cluster.node('b', ['a']);
  const c = await cluster.node('c', []);
  write(a, '1', '2');
  await settled('1 2', a, b);
  // The other one has a newer version of one row and nothing of the other: mended by it, both would differ from b.
  c.db.exec("INSERT INTO items VALUES ('1', 'of c', 1, 10, 9000000000000)");
  let asked = 0;
  const { manager } = b;
  // Whoever asks who is there is still answered by b: only the comparison has begun with one and goes on with the other.
  cluster.at.set(cluster.url('b'), {
    maxBodyBytes: manager.maxBodyBytes,
    id: manager.id,
    receive: (body, options) => manager.receive(body, options),
    health: () => manager.health(),
    hello: (said) => manager.hello(said),
    answer: (path, body, options) => {
      asked += 1;
      return (asked === 1 ? b : c).manager.answer(path, body, options);
    },
  });
  const [result] = await a.manager.verify(cluster.url('b'), { repair: true });
  expect(asked).toBeGreaterThan(1);
  expect(result).toMatchObject({ equal: false, error: 'another database has answered than the one that acknowledges' });
  expect(rowsOf(a.db, "SELECT name FROM items WHERE id = '1'")).toEqual([{ name: '1' }]);
  cluster.at.set(cluster.url('b'), manager);
  write(a, '3');
  await settled('1 2 3', a, b);
  expect(ids(c)).toBe('1');
});

test('a disk that is full in the middle of a seed: nothing is acknowledged, and all is there when it has room', {
  tags: 'long',
}, async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b'], { batchSize: 20 });
  const first = await cluster.node('b', ['a']);
  const names = Array.from({ length: 200 }, (_, i) => String(i).padStart(3, '0'));
  for (const name of names) a.db.exec(`INSERT INTO items VALUES ('${name}', '${name.repeat(200)}', 1, 10, 1000)`);
  const all = names.join(' ');
  await settled(all, a, first);
  await first.stop();
  cluster.wipe(first.path);
  const again = await cluster.node('b', ['a']);
  const [{ page_count: pages }] = rowsOf(again.db, 'PRAGMA page_count') as [{ page_count: number }];
  again.db.exec(`PRAGMA max_page_count = ${pages + 20}`);
  await until('it says that it is full', () => !again.manager.health().ok && ids(again) !== '');
  expect(ids(again)).not.toBe(all);
  expect(seedOf(a)).toBe(1);
  again.db.exec('PRAGMA max_page_count = 100000');
  write(a, '999');
  await settled(`${all} 999`, a, again);
  await until('both are well', () => a.manager.health().ok && again.manager.health().ok);
  await until('the seed is over', () => seedOf(a) === 0);
});

test('a node that is put back to before its migration, with what it wrote after it delivered, gets that back', async () => {
  const cluster = new Cluster();
  const a = await cluster.node('a', ['b']);
  const b = await cluster.node('b', ['a']);
  write(a, '1');
  write(b, '2');
  await settled('1 2', a, b);
  const putBack = cluster.backup(a);
  rename(a);
  a.db.exec("UPDATE items SET title = 'after' WHERE id = '1'");
  a.db.exec("INSERT INTO items (id, title, value, created_at, updated_at) VALUES ('3', 'new', 1, 10, 2000)");
  await settled('1 2 3', a, b);
  await until('b has the change', () => rowsOf(b.db, "SELECT name FROM items WHERE id = '1'")[0]?.name === 'after');
  // The migration is made, and what is written to it has not got away: that is lost with the disk.
  cluster.cut.add(cluster.url('b'));
  a.db.exec("INSERT INTO items (id, title, value, created_at, updated_at) VALUES ('4', 'lost', 1, 10, 2000)");
  await a.stop();
  putBack();
  cluster.cut.clear();
  const again = await cluster.node('a', ['b']);
  await settled('1 2 3', again, b);
  expect(rowsOf(again.db, 'SELECT id, name FROM items ORDER BY id')).toEqual(named('name'));
  // And it is migrated once more, before the other one and while that writes.
  b.db.exec("INSERT INTO items VALUES ('5', 'old', 1, 10, 3000)");
  rename(again);
  await settled('1 2 3 5', again, b);
  rename(b);
  for (const node of [again, b]) {
    await until('nothing is left', () => node.manager.health().pending_changes === 0);
    const rows = rowsOf(node.db, "SELECT id, title FROM items WHERE id <> '5' ORDER BY id");
    expect(rows).toEqual(named('title'));
    expect(node.manager.health()).toMatchObject({ dead_letter: 0 });
  }
});

function rename({ manager }: Member): void {
  manager.migrate((db) => db.exec('ALTER TABLE items RENAME COLUMN name TO title'), {
    rename: { items: { name: 'title' } },
  });
}

function named(column: string): object[] {
  return [
    { id: '1', [column]: 'after' },
    { id: '2', [column]: '2' },
    { id: '3', [column]: 'new' },
  ];
}

/** How many peers are being given everything. */
function seedOf({ manager }: Member): number {
  return manager.health().peer_states.filter(({ snapshot }) => snapshot).length;
}
