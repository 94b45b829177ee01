/** A row that a UNIQUE value hides is in its table again, behind the walk that gives a peer everything: it gets there all the same. */
import { expect, test } from 'vitest';
import { Cluster, ids } from '../support/cluster.ts';
import { until } from '../support/nodes.ts';

const UNIQUE = {
  schema:
    'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT UNIQUE, value INTEGER, created_at INTEGER, updated_at INTEGER)',
  verify: false,
  batchSize: 2,
} as const;

const row = (id: string, name: string, at: number) => ({
  op: 'INSERT' as const,
  table: 'items',
  row: { id, name, value: 1, created_at: 1, updated_at: at },
  old_id: null,
});

test.each(['by a write of the application', 'by a received one'])(
  'a row that is visible again %s, behind the walk',
  async (how) => {
    const cluster = new Cluster();
    const a = await cluster.node('a', [], UNIQUE);
    const lost = await cluster.node('b', [], UNIQUE);
    const others = ['b', 'c', 'd', 'e', 'f', 'g'].map((id) => row(id, id, 1000));
    a.manager.applyChanges([row('a', 'same', 1000), row('m', 'same', 2000), ...others]);
    expect(ids(a)).toBe('b c d e f g m');
    a.manager.peers.add(cluster.url('b'));
    const isGiven = (): boolean => a.manager.peers.list().every(({ snapshot, state }) => !snapshot && state === 'up');
    await until('they know each other', isGiven);
    await lost.stop();
    cluster.wipe(lost.path);
    let isFree = false;
    cluster.proxy = ({ url, body }) => {
      if (isFree || url !== `${cluster.url('b')}/sync` || !body.includes('"c"')) return undefined;
      isFree = true;
      if (how === 'by a received one') a.manager.applyChanges([row('m', 'free', 3000)]);
      else {
        a.db.exec("UPDATE items SET name = 'free', updated_at = 3000 WHERE id = 'm'");
        a.manager.applyChanges([row('n', 'n', 1000)]);
      }
      return undefined;
    };
    const b = await cluster.node('b', [], UNIQUE);
    await until('b is given everything', () => isFree && isGiven(), 20_000);
    await a.manager.flush();
    expect(ids(a)).toContain('a b c');
    expect(ids(b).replace(' n', '')).toBe(ids(a).replace(' n', ''));
  },
);
