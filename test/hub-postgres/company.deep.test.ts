/** A group is one database to everybody: its processes, its restarts, and what it remembers of others. */
import { describe, expect, test } from 'vitest';
import type { PostgresDriver } from '../../src/hub/postgres/driver.ts';
import { createGroupHub } from '../../src/hub/postgres/index.ts';
import type { Found } from '../../src/hub/store.ts';
import { type Introduction, introduce, readIntroduction } from '../../src/wire/introduction.ts';
import { Cluster, incOf, settled, write } from '../support/cluster.ts';
import { openGroupStore } from '../support/group-store.ts';
import { database, until } from '../support/nodes.ts';
import { Gate, plantedDriver } from '../support/planted-driver.ts';
import { hasPostgres, newDatabase, ownServer, postgresServer, query } from '../support/postgres.ts';

const T = 4_000_000_000_000;
const INC = '0123456789abcdef';

function said(inc: string, tick: number, { id = 'a', boot = '1-00000001', t0 = 0, low = 0 } = {}): string {
  return `id=${id}; inc=${inc}; boot=${boot}; t0=${t0}; t=${tick}${low ? `; low=${low}` : ''}`;
}

function batch(id: string): string {
  const change = { op: 'UPDATE', table: 'items', row: { id, updated_at: T }, old_id: null };
  return JSON.stringify({ batch_id: 1, changes: [change] });
}

const A = { from: 'a', plain: false };

describe.skipIf(!hasPostgres)('the company of a group', () => {
  const server = postgresServer();

  test('all processes are one database, and what one is told the others know', async () => {
    const url = await newDatabase(server());
    const [one, two] = [await openGroupStore(url), await openGroupStore(url)];
    await one.receive(batch('x'), { ...A, said: said(INC, 7) });
    const self = readIntroduction(await one.company.toSender(said(INC, 7)));
    expect(self).toMatchObject({ id: 'hub', you: { inc: INC, tick: 7 } });
    await two.receive(batch('y'), { ...A, said: said(INC, 8) });
    const other = readIntroduction(await two.company.toSender(said(INC, 8)));
    expect(other).toMatchObject({ inc: self?.inc, boot: self?.boot, you: { inc: INC, tick: 8 } });
    expect(other?.tick).toBeGreaterThan(self?.tick as number);
    // Less than another process has heard does not count.
    await one.receive(batch('z'), { ...A, said: said(INC, 5) });
    expect(await query(url, 'SELECT tick FROM rowcast.nodes WHERE inc = $1', [INC])).toEqual([{ tick: '8' }]);
  });

  test('an edge that has gone back, or another one in its place, is given everything once more, whoever hears it', async () => {
    const url = await newDatabase(server());
    const [one, two] = [await openGroupStore(url), await openGroupStore(url)];
    const found: Found[] = [];
    for (const { company } of [one, two]) company.onFound((event) => found.push(event));
    await one.receive(batch('x'), A);
    await one.addEdges(['http://a']);
    const answer = async (store: typeof one, words: string): Promise<boolean | undefined> => {
      const { generation } = await store.edge('http://a');
      const read = await store.read(0, { changes: 10, bytes: 1_000_000 });
      const [noted] = await store.answered([
        { url: 'http://a', generation, said: words, position: read?.end as number },
      ]);
      return noted?.counts;
    };
    expect(await answer(one, said(INC, 10))).toBe(true);
    const before = await two.edge('http://a');
    expect(before).toMatchObject({ inc: INC });
    expect(before.position).toBeGreaterThan(0);
    // An attach that begins below what it has told.
    expect(await answer(two, said(INC, 4, { boot: '2-00000002', t0: 3 }))).toBe(false);
    expect(await one.edge('http://a')).toMatchObject({ position: 0 });
    expect(found).toEqual([{ kind: 'peer-restored', id: 'a', urls: ['http://a'] }]);
    expect((await one.edge('http://a')).generation).toBeGreaterThan(before.generation);
    await answer(one, said('fedcba9876543210', 1));
    expect(await two.edge('http://a')).toMatchObject({ position: 0, inc: 'fedcba9876543210' });
    expect(found.slice(1)).toEqual([{ kind: 'peer-replaced', id: 'a', url: 'http://a' }]);
  });

  test('says what is still to come when every edge has spoken, to whichever process', async () => {
    const url = await newDatabase(server());
    const [one, two] = [await openGroupStore(url), await openGroupStore(url)];
    await one.addEdges(['http://a', 'http://b']);
    const low = async (store: typeof one): Promise<number | undefined> => {
      await store.company.look();
      return readIntroduction(await store.company.toSender(said('aaaaaaaaaaaaaaaa', 1)))?.low;
    };
    const hear = async (store: typeof one, at: string, words: string): Promise<void> => {
      const { generation } = await store.edge(at);
      await store.answered([{ url: at, generation, said: words, position: undefined }]);
      await store.company.look();
    };
    await hear(one, 'http://a', said(INC, 1, { low: 5_000 }));
    await hear(two, 'http://b', said('fedcba9876543210', 1, { id: 'b', low: 3_000 }));
    const third = await openGroupStore(url);
    expect(await low(third)).toBe(3_000);
    await one.addEdges(['http://c']);
    const fourth = await openGroupStore(url);
    expect(await low(fourth)).toBeUndefined();
  });

  /** Two processes of which one, once armed, stands still before it commits what is to be durable. */
  async function slowAndFast(url: string) {
    const gate = new Gate();
    let isArmed = false;
    const driver = plantedDriver({
      hold: ({ text, isDurable }) => (isArmed && isDurable && text === 'COMMIT' ? gate.pass() : undefined),
    });
    const arm = (): void => {
      isArmed = true;
    };
    return { slow: await openGroupStore(url, { driver }), fast: await openGroupStore(url), gate, arm };
  }

  const waitsForALock = (url: string): Promise<void> =>
    until('it waits for the first', async () => {
      const [found] = await query(url, 'SELECT count(*)::int AS n FROM pg_locks WHERE NOT granted');
      return Number(found?.n) > 0;
    });

  test('two that hear of one database at once undo nothing of what the other notes', async () => {
    const url = await newDatabase(server());
    const { slow, fast, gate, arm } = await slowAndFast(url);
    const sealed = (n: number, tick: number): string =>
      `${said(INC, tick, { boot: `${n}-0000000${n}`, t0: tick })}; seal=${`${n}`.repeat(16)}`;
    await fast.addEdges(['http://a']);
    const { generation } = await fast.edge('http://a');
    await fast.answered([{ url: 'http://a', generation, said: sealed(1, 5), position: undefined }]);
    arm();
    const first = slow.receive(batch('x'), { ...A, said: sealed(2, 7) });
    await gate.arrived;
    const second = fast.receive(batch('y'), { ...A, said: sealed(3, 9) });
    await waitsForALock(url);
    gate.open();
    await Promise.all([first, second]);
    const [known] = await query(url, 'SELECT boot, claim FROM rowcast.nodes WHERE inc = $1', [INC]);
    expect(known).toEqual({
      boot: '1-00000001',
      claim: `9.3-00000003.${'3'.repeat(16)} 7.2-00000002.${'2'.repeat(16)}`,
    });
  });

  test('two that hear of a database for the first time, at once, are told of it as if one came after the other', async () => {
    const url = await newDatabase(server());
    const { slow, fast, gate, arm } = await slowAndFast(url);
    arm();
    const first = slow.receive(batch('x'), { ...A, said: said(INC, 9, { boot: '2-00000002', t0: 8 }) });
    await gate.arrived;
    // It was under way for long.
    const late = fast.receive(batch('y'), { ...A, said: said(INC, 3) });
    await waitsForALock(url);
    gate.open();
    await Promise.all([first, late]);
    const [known] = await query(url, 'SELECT boot, tick FROM rowcast.nodes WHERE inc = $1', [INC]);
    expect(known).toEqual({ boot: '2-00000002', tick: '9' });
    // Nor is what it brought taken for what that database has.
    const origins = await query(url, 'SELECT row_id, origin FROM rowcast.rows ORDER BY row_id');
    expect(origins).toEqual([
      { row_id: 'x', origin: INC },
      { row_id: 'y', origin: null },
    ]);
  });

  test('an edge that is put back when a hub dies that had heard of its start gets its own later rows', async () => {
    const url = await newDatabase(server());
    const cluster = new Cluster();
    const hub = async (instance: string): Promise<{ stop(): Promise<void> }> => {
      const scratch = await database('SELECT 1');
      const group = { driver: plantedDriver({}), url, scratch, instance };
      return cluster.serveHub(instance, ['a', 'b'], scratch, (config) =>
        createGroupHub(group, { ...config, id: 'hub' }),
      );
    };
    const [one] = [await hub('h1'), await hub('h2')];
    const a = await cluster.node('a', ['h1']);
    const b = await cluster.node('b', ['h2']);
    write(a, '1');
    await settled('1', a, b);
    const inc = incOf(a);
    const is = async (sql: string): Promise<boolean> => (await query(url, sql, [inc])).length === 1;
    await until('it is known there', () => is('SELECT 1 FROM rowcast.edges WHERE inc = $1'));
    await a.manager.flush();
    const putBack = cluster.backup(a);
    await a.stop();
    cluster.cut.add(cluster.url('a'));
    const started = await cluster.node('a', ['h1']);
    write(started, '2');
    await settled('1 2', b);
    expect(await is('SELECT 1 FROM rowcast.nodes WHERE inc = $1 AND claim IS NOT NULL')).toBe(true);
    await Promise.all([started.stop(), one.stop()]);
    putBack();
    cluster.cut.clear();
    const again = await cluster.node('a', ['h2']);
    await settled('1 2', again, b);
    await until('it has told', () => again.events.length > 0);
    expect(again.events).toEqual(['restored {}']);
  });

  test('remembers a thousand strangers, and those that are edges', async () => {
    const url = await newDatabase(server());
    const store = await openGroupStore(url);
    await store.receive(batch('x'), { ...A, said: said(INC, 1) });
    const strangers =
      "SELECT lpad(to_hex(n), 16, '0'), 'x' || n, '1-00000001', '', 0, 1, n FROM generate_series(1, 1500) AS n";
    await query(url, `INSERT INTO rowcast.nodes (inc, id, boot, before, t0, tick, heard) ${strangers}`);
    await query(url, 'UPDATE rowcast.nodes SET heard = 9999 WHERE inc = $1', [INC]);
    await store.company.look();
    const [left] = await query(
      url,
      'SELECT count(*) AS n, bool_or(inc = $1) AS a, bool_or(self) AS own FROM rowcast.nodes',
      [INC],
    );
    expect(left).toEqual({ n: '1001', a: true, own: true });
  });

  test('a server that was started anew begins another attach, and one that has gone back is another database', async () => {
    const own = await ownServer();
    const [one, two] = [await openGroupStore(own.url()), await openGroupStore(own.url())];
    const restored: Found[] = [];
    for (const { company } of [one, two]) company.onFound((found) => restored.push(found));
    const self = async (store: typeof one): Promise<ReturnType<typeof readIntroduction>> => {
      await store.company.look();
      return readIntroduction(await store.company.toSender(said(INC, 1)));
    };
    for (const id of ['x', 'y', 'z']) await one.receive(batch(id), A);
    const first = await self(one);
    await own.kill();
    await own.start();
    // The first word after that may be to a connection that is gone.
    await one.clock().catch(() => {});
    await two.clock().catch(() => {});
    const second = await self(one);
    expect(second).toMatchObject({ inc: first?.inc });
    expect(Number.parseInt(second?.boot ?? '', 10)).toBe(Number.parseInt(first?.boot ?? '', 10) + 1);
    expect(second?.t0).toBeGreaterThanOrEqual(first?.tick as number);
    expect(await self(two)).toMatchObject({ inc: second?.inc, boot: second?.boot });
    expect(restored.filter(({ kind }) => kind === 'restored')).toEqual([]);
    // As an earlier state of the server would be.
    await query(own.url(), "UPDATE rowcast.ticked SET tick = 1; UPDATE rowcast.meta SET attached = 'before'");
    const third = await self(one);
    expect(third?.inc).not.toBe(first?.inc);
    expect(await self(two)).toMatchObject({ inc: third?.inc, boot: third?.boot });
    expect(restored.filter(({ kind }) => kind === 'restored')).toHaveLength(1);
  });

  /** What a node says to the group that has heard `header` from one of its processes. */
  const having = (header: string | undefined): string => {
    const { inc, tick, boot, seal } = readIntroduction(header) as Introduction;
    return introduce({ id: 'a', inc: INC, boot: '1-00000001', t0: 0, tick: 9, you: { inc, tick, boot, seal } });
  };

  /** Two processes, of which the second is told what the first has said, on a server that was started anew. */
  async function startedAnew(driver?: PostgresDriver) {
    const own = await ownServer();
    const [one, two] = [await openGroupStore(own.url(), driver && { driver }), await openGroupStore(own.url())];
    const restored: Found[] = [];
    for (const { company } of [one, two]) {
      company.onFound((found) => void (found.kind === 'restored' && restored.push(found)));
    }
    for (const id of ['x', 'y', 'z']) await one.receive(batch(id), A);
    const before = readIntroduction(await two.company.toSender(said(INC, 1)));
    await own.kill();
    await own.start();
    // The first word after that may be to a connection that is gone.
    for (const store of [one, two]) await store.clock().catch(() => {});
    return { own, one, two, restored, before };
  }

  test('a database that was put back in the server that runs begins another attach, below what it had told', async () => {
    const url = await newDatabase(server());
    const [name, backup] = [new URL(url).pathname.slice(1), 'put_back'];
    const told = async (id: string): Promise<ReturnType<typeof readIntroduction>> => {
      const store = await openGroupStore(url);
      await store.receive(batch(id), A);
      const introduced = readIntroduction(await store.company.toSender(said(INC, 1)));
      await store.close();
      return introduced;
    };
    await told('x');
    await query(server().url(), `CREATE DATABASE ${backup} TEMPLATE ${name}`);
    for (const id of ['y', 'z']) await told(id);
    const before = await told('w');
    await query(server().url(), `DROP DATABASE ${name}`);
    await query(server().url(), `ALTER DATABASE ${backup} RENAME TO ${name}`);
    const after = await told('v');
    expect(after?.boot).not.toBe(before?.boot);
    expect(after?.t0).toBeLessThan(before?.tick as number);
  });

  test('a process that hears of the next attach from others, before it has looked itself, takes it for its own', async () => {
    const { one, two, restored, before } = await startedAnew();
    await one.company.look();
    const next = await one.company.toSender(said(INC, 1));
    expect(readIntroduction(next)?.boot).not.toBe(before?.boot);
    await two.receive(batch('v'), { ...A, said: having(next) });
    await two.company.hello(having(next));
    expect(restored).toEqual([]);
    const { inc, boot } = readIntroduction(await two.company.toSender(said(INC, 1))) as Introduction;
    expect({ inc, boot }).toEqual({ inc: before?.inc, boot: readIntroduction(next)?.boot });
  });

  /** Stands still before the nth commit from now on that is to be durable, which then fails. */
  function failing() {
    const gate = new Gate();
    let left = Number.POSITIVE_INFINITY;
    const driver = plantedDriver({
      answer: ({ text, isDurable }) => {
        if (text !== 'COMMIT' || !isDurable || --left !== 0) return undefined;
        return gate.pass().then(() => Promise.reject(new Error('the connection is gone')));
      },
    });
    const arm = (nth: number): void => {
      left = nth;
    };
    return { gate, driver, arm };
  }

  test('an attach is told of when it is committed: one that fails has never been', async () => {
    const { gate, driver, arm } = failing();
    const { one, two, restored, before } = await startedAnew(driver);
    arm(1);
    const failed = one.company.look().catch(() => 'failed');
    await gate.arrived;
    const told = one.company.toSender(said(INC, 1));
    gate.open();
    expect(await failed).toBe('failed');
    expect(readIntroduction(await told)?.boot).toBe(before?.boot);
    for (const { company } of [one, two]) {
      await company.look();
      await company.hello(having(await told));
    }
    expect(restored).toEqual([]);
    const [now, other] = [await one.company.toSender(said(INC, 1)), await two.company.toSender(said(INC, 1))];
    expect(readIntroduction(other)).toMatchObject({ inc: before?.inc, boot: readIntroduction(now)?.boot });
  });

  test('so is another identity: one that could not be written down is taken later', async () => {
    const { gate, driver, arm } = failing();
    const { own, one, two, restored, before } = await startedAnew(driver);
    // As an earlier state of the server would be.
    await query(own.url(), 'UPDATE rowcast.ticked SET tick = 1');
    arm(2);
    const failed = one.company.look().catch(() => 'failed');
    await gate.arrived;
    const told = one.company.toSender(said(INC, 1));
    gate.open();
    expect(await failed).toBe('failed');
    expect(readIntroduction(await told)?.inc).toBe(before?.inc);
    for (const { company } of [one, two]) await company.look();
    expect(restored).toHaveLength(1);
    const [now, other] = [await one.company.toSender(said(INC, 1)), await two.company.toSender(said(INC, 1))];
    expect(readIntroduction(now)?.inc).not.toBe(before?.inc);
    expect(readIntroduction(other)?.inc).toBe(readIntroduction(now)?.inc);
  });

  test('the answers of many edges take as many statements as those of a few, and none where nobody has moved', async () => {
    const url = await newDatabase(server());
    const asked: string[] = [];
    const hold = ({ text }: { text: string }): undefined => void asked.push(text);
    const store = await openGroupStore(url, { driver: plantedDriver({ hold }) });
    const urls = Array.from({ length: 200 }, (_, i) => `http://e${i}`);
    await store.addEdges(urls);
    const rows = new Map((await store.edges()).map((row) => [row.url, row]));
    const statements = async (count: number, tick: number, position: number): Promise<string[]> => {
      asked.length = 0;
      const answers = urls.slice(0, count).map((one, i) => {
        const inc = i.toString(16).padStart(16, '0');
        const words = `id=e${i}; inc=${inc}; boot=1-00000001; t0=0; t=${tick}`;
        return { url: one, generation: rows.get(one)?.generation as number, said: words, position };
      });
      // One after the other, as they come: what comes while the server is busy waits, and goes together.
      const noted = await Promise.all(answers.map((one) => store.answered([one])));
      expect(noted.every(([one]) => one?.counts)).toBe(true);
      return asked.filter((text) => /rowcast\.(edges|nodes|names)/.test(text)).sort();
    };
    await statements(200, 1, 1);
    const few = await statements(3, 2, 2);
    expect(await statements(200, 3, 3)).toEqual(few);
    expect((await statements(200, 3, 3)).filter((text) => text.startsWith('UPDATE'))).toEqual([]);
  });
});
