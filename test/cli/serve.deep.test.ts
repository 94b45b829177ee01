/** `rowcast serve` as a user runs it: a process, its answers, its log, its exit code. */
import { chmodSync, cpSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, test } from 'vitest';
import { createLog, logEvents } from '../../src/cli/log.ts';
import { RowcastError } from '../../src/errors.ts';
import { Emitter } from '../../src/events.ts';
import { hub } from '../support/hubs.ts';
import { lane, openDatabase } from '../support/lane.ts';
import { cleanUp, database, exactRows, rowsOf, scratchFolder, serve as serveHttp, until } from '../support/nodes.ts';
import {
  freePort,
  MAIN,
  type Parsed,
  type Program,
  runProgram,
  startNode as start,
  started,
} from '../support/programs.ts';

const run = (args: string[], env: Record<string, string> = {}, wrapper: string[] = []): Program =>
  runProgram(MAIN, args, { env, wrapper });

async function ask(url: string, body?: unknown, method = body === undefined ? 'GET' : 'POST'): Promise<Parsed> {
  const response = await fetch(url, {
    method,
    ...(body !== undefined && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`HTTP ${response.status} ${text}`);
  return JSON.parse(text);
}

describe('a node', () => {
  test('says where it listens, with which binding, and serves items and health', async () => {
    const node = await start('a');
    expect(node.started).toEqual({
      time: expect.stringMatching(/^\d{4}-.*Z$/),
      level: 'info',
      event: 'started',
      node: 'a',
      url: `http://127.0.0.1:${node.started.port}`,
      port: expect.any(Number),
      db: node.db,
      binding: lane,
      tables: ['items'],
      peers: [],
      admin: `${node.db}-rowcast.sock`,
      pid: node.child.pid,
    });
    const item = await ask(`${node.url}/api/items`, { name: 'first', value: 1 });
    expect(await ask(`${node.url}/api/items`)).toEqual([item]);
    expect(await ask(`${node.url}/health`)).toMatchObject({ ok: true, node_id: 'a', item_count: 1, peers: [] });
    const missing = await fetch(`${node.url}/nothing`);
    expect([missing.status, missing.headers.get('content-type')]).toEqual([404, 'text/plain']);
    const db = await database('PRAGMA user_version', node.db);
    expect(rowsOf(db, 'PRAGMA journal_mode')).toEqual([{ journal_mode: 'wal' }]);
  });

  test('serves its figures and the probes, unless it is told not to', async () => {
    const node = await start('a');
    await ask(`${node.url}/api/items`, { name: 'first', value: 1 });
    expect(await (await fetch(`${node.url}/metrics`)).text()).toContain('\nrowcast_rows{table="items"} 1\n');
    expect(await ask(`${node.url}/livez`)).toEqual({ ok: true });
    expect(await ask(`${node.url}/readyz`)).toEqual({ ready: true, problems: [] });
    const silent = await start('b', ['-metrics', 'off']);
    expect((await fetch(`${silent.url}/metrics`)).status).toBe(404);
  });

  test('tells what it finds at its start, in its log and its figures', async () => {
    const before = await start('a');
    await ask(`${before.url}/api/items`, { name: 'first', value: 1 });
    before.child.kill('SIGTERM');
    await before.ended;
    const db = await database('DROP TRIGGER _rowcast_items_insert', before.db);
    db.exec("INSERT INTO items (id, name, value, created_at, updated_at) VALUES ('x', 'unseen', 1, 1, 1)");
    const after = await start('a', [], dirname(before.db));
    expect(after.lines('warning').map(({ code }) => code)).toContain('capture-gap');
    expect(await (await fetch(`${after.url}/metrics`)).text()).toContain('\nrowcast_capture_gaps_total 1\n');
  });

  test('ships a write to its peer at once, however long its tick, and every 64-bit integer exactly', async () => {
    const b = await start('b');
    const a = await start('a', ['-peer', b.url, '-batch-ms', '3600000']);
    const exact = '{"name":"x","value":9223372036854775807}';
    const headers = { 'content-type': 'application/json' };
    const made = await fetch(`${a.url}/api/items`, { method: 'POST', headers, body: exact });
    const item = await made.text();
    expect(item).toContain('"value":9223372036854775807,');
    await until('b has it', async () => (await (await fetch(`${b.url}/api/items`)).text()) === `[${item}]`);
    const { id } = JSON.parse(item);
    await ask(`${a.url}/api/items/${id}`, { name: 'y' }, 'PUT');
    await until('b has the update', async () => (await ask(`${b.url}/api/items/${id}`)).name === 'y');
    await ask(`${a.url}/api/items/${id}`, undefined, 'DELETE');
    await until('b has the deletion', async () => (await ask(`${b.url}/api/items`)).length === 0);
  });

  test('takes its configuration from the environment, and the command line wins', async () => {
    const folder = scratchFolder();
    const program = run(['serve', '--id=flag'], {
      ROWCAST_ID: 'env',
      ROWCAST_DB: join(folder, 'env.db'),
      ROWCAST_LISTEN: '127.0.0.1:0',
      ROWCAST_PEER: 'http://127.0.0.1:1,http://127.0.0.1:2/',
    });
    await until('it has started', () => program.lines('started').length === 1);
    expect(program.lines('started')[0]).toMatchObject({
      node: 'flag',
      db: join(folder, 'env.db'),
      peers: ['http://127.0.0.1:1', 'http://127.0.0.1:2'],
    });
  });

  test('warns when it is its own peer', async () => {
    const port = await freePort();
    const node = await start('a', ['-listen', `127.0.0.1:${port}`, '-peer', `http://127.0.0.1:${port}/`]);
    await until('it warns', () => node.lines('warning').length === 1);
    expect(node.lines('warning')[0]).toMatchObject({ level: 'warn', code: 'own-peer' });
  });

  test('goes on after a kill -9 with what it had not shipped', async () => {
    const folder = scratchFolder();
    const port = await freePort();
    const peer = `http://127.0.0.1:${port}`;
    const a = await start('a', ['-peer', peer], folder);
    const item = await ask(`${a.url}/api/items`, { name: 'kept', value: 1 });
    a.child.kill('SIGKILL');
    await a.ended;
    const b = await start('b', ['-listen', `127.0.0.1:${port}`]);
    await start('a', ['-peer', peer], folder);
    await until('b has it', async () => JSON.stringify(await ask(`${b.url}/api/items`)) === JSON.stringify([item]));
  });
});

describe('-table', () => {
  const NOTES = 'CREATE TABLE notes (id TEXT PRIMARY KEY, body BLOB, updated_at INTEGER)';

  test('syncs existing tables, and the item routes are not there', async () => {
    const folder = scratchFolder();
    const [dbA, dbB] = [await database(NOTES, join(folder, 'a.db')), await database(NOTES, join(folder, 'b.db'))];
    const b = await start('b', ['-table', 'notes'], folder);
    const a = await start('a', ['-table', 'notes', '-peer', b.url], folder);
    expect(a.started.tables).toEqual(['notes']);
    dbA.exec("INSERT INTO notes VALUES ('n', x'00ff', 5)");
    await until('b has it', () => exactRows(dbB, 'notes').length === 1);
    expect(exactRows(dbB, 'notes')).toEqual(exactRows(dbA, 'notes'));
    const response = await fetch(`${a.url}/api/items`);
    expect([response.status, response.headers.get('content-type')]).toEqual([404, 'text/plain']);
    expect(rowsOf(dbA, "SELECT name FROM sqlite_schema WHERE name = 'items'")).toEqual([]);
  });

  test('with items among the tables serves the item routes on it', async () => {
    const folder = scratchFolder();
    const columns = 'id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER, extra TEXT';
    const db = await database(`${NOTES}; CREATE TABLE items (${columns})`, join(folder, 'a.db'));
    const a = await start('a', ['-table', 'notes', '-table', 'items'], folder);
    await ask(`${a.url}/api/items`, { name: 'x', value: 1 });
    expect(rowsOf(db, 'SELECT name, extra FROM items')).toEqual([{ name: 'x', extra: null }]);
  });

  test('with an items table of other columns says that the item routes are not served', async () => {
    const folder = scratchFolder();
    await database('CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER)', join(folder, 'a.db'));
    const a = await start('a', ['-table', 'items'], folder);
    expect((await fetch(`${a.url}/api/items`)).status).toBe(404);
    await until('it warns', () => a.lines('warning').length > 0);
    expect(a.lines('warning')[0]).toMatchObject({ code: 'items', message: expect.stringContaining('created_at') });
  });
});

describe('an ordinary mistake is told in a line, without a stack', () => {
  /** Runs to the end; `said` is standard error. */
  async function fails(args: string[], env: Record<string, string> = {}, wrapper: string[] = []) {
    const program = run(args, env, wrapper);
    const code = await program.ended;
    expect(program.stderr()).not.toMatch(/^\s+at /m);
    expect(program.stdout()).toBe('');
    return { code, said: program.stderr() };
  }
  const node = (folder: string, ...args: string[]): string[] => [
    'serve',
    '-id',
    'a',
    '-db',
    join(folder, 'a.db'),
    '-listen',
    '127.0.0.1:0',
    ...args,
  ];

  test('no command, or one that does not exist', async () => {
    expect(await fails([])).toMatchObject({ code: 2, said: expect.stringContaining('rowcast serve') });
    const { code, said } = await fails(['sevre']);
    expect([code, said]).toEqual([
      2,
      expect.stringMatching(/^rowcast: unknown command "sevre"; did you mean serve\?\n/),
    ]);
  });

  test('a bad flag', async () => {
    const { code, said } = await fails(['serve', '-lsten', 'x']);
    expect(code).toBe(2);
    expect(said).toMatch(/^rowcast serve: unknown flag -lsten; did you mean -listen\?\nallowed: -id -db /);
    expect(said).toContain('see rowcast serve --help');
  });

  test('a malformed peer', async () => {
    const { code, said } = await fails(node(scratchFolder(), '-peer', '10.0.0.2:9001'));
    expect([code, said]).toEqual([2, expect.stringMatching(/^rowcast serve: -peer "10.0.0.2:9001" is not a URL/)]);
  });

  test('a port that is taken, and then the database is not touched', async () => {
    const other = await start('other');
    const folder = scratchFolder();
    const args = node(folder).map((arg) => (arg === '127.0.0.1:0' ? `127.0.0.1:${other.started.port}` : arg));
    const { code, said } = await fails(args);
    expect([code, said]).toEqual([1, expect.stringMatching(/^rowcast serve: port \d+ is taken: another program/)]);
    expect(existsSync(join(folder, 'a.db'))).toBe(false);
  });

  test('a host that does not exist', async () => {
    const args = node(scratchFolder()).map((arg) => (arg === '127.0.0.1:0' ? 'no-such-host.invalid:0' : arg));
    const { code, said } = await fails(args);
    expect(code).toBe(1);
    expect(said).toMatch(/^rowcast serve: (host no-such-host.invalid|cannot listen on no-such-host.invalid)/);
  });

  test('a folder that is missing, and a folder instead of a file', async () => {
    const folder = scratchFolder();
    const missing = await fails(node(join(folder, 'nowhere')));
    expect(missing).toEqual({
      code: 1,
      said: expect.stringMatching(/: the folder .*nowhere does not exist: create it/),
    });
    mkdirSync(join(folder, 'a.db'));
    expect(await fails(node(folder))).toEqual({
      code: 1,
      said: expect.stringMatching(/a\.db is a folder, not a data/),
    });
  });

  test('a file that is not a database', async () => {
    const folder = scratchFolder();
    writeFileSync(join(folder, 'a.db'), 'This is a letter and not a database, however long it may be. '.repeat(50));
    expect(await fails(node(folder))).toEqual({
      code: 1,
      said: expect.stringMatching(/a\.db is not a SQLite database$/m),
    });
  });

  test('the file of a hub, in which it makes no table', async () => {
    const folder = scratchFolder();
    const made = await hub({ edges: [] }, join(folder, 'a.db'));
    const tables = (): unknown => rowsOf(made.db, 'SELECT name FROM sqlite_schema ORDER BY name');
    const before = tables();
    expect(await fails(node(folder))).toEqual({ code: 1, said: expect.stringMatching(/a\.db is the file of a hub: /) });
    expect(tables()).toEqual(before);
  });

  test('a database that another process has locked', async () => {
    const folder = scratchFolder();
    const db = await database('CREATE TABLE t (a)', join(folder, 'a.db'));
    db.exec('BEGIN IMMEDIATE');
    const { code, said } = await fails(node(folder, '-busy-ms', '50'));
    db.exec('ROLLBACK');
    expect([code, said]).toEqual([1, expect.stringMatching(/a\.db is locked: another process holds it/)]);
  });

  // Permissions do not bind root, who becomes nobody here.
  const asNobody = process.getuid?.() === 0 ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] : [];
  test('a file without a WAL that another process has locked for a moment is waited for, as long as -busy-ms says', async () => {
    const folder = scratchFolder();
    const file = join(folder, 'a.db');
    const other = await openDatabase(file);
    cleanUp(() => other.close());
    other.exec('CREATE TABLE t (a); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)');
    const { code, said } = await fails(node(folder, '-busy-ms', '50'));
    expect([code, said]).toEqual([1, expect.stringMatching(/is locked: another process holds it/)]);
    const program = run(node(folder, '-busy-ms', '600000'));
    // What does not wait ends at once, whenever that is; what waits must be let go some time.
    await Promise.race([program.ended, new Promise((resolve) => setTimeout(resolve, 1_500))]);
    other.exec('ROLLBACK');
    await started(program);
  });

  test('a binding that was built for another Node is quoted with what it says to do', async () => {
    const folder = scratchFolder();
    const module = join(folder, 'node_modules', 'better-sqlite3');
    mkdirSync(module, { recursive: true });
    writeFileSync(join(module, 'package.json'), '{"name":"better-sqlite3","version":"12.0.0","main":"index.cjs"}');
    writeFileSync(
      join(module, 'index.cjs'),
      "module.exports = class { constructor() { throw new Error('The module was compiled against\\na different Node.js version' +" +
        "' using\\nNODE_MODULE_VERSION 127. Please try re-compiling') } }",
    );
    const open = join(folder, 'dist', 'src', 'cli', 'open.js');
    cpSync(join(dirname(MAIN), '..'), join(folder, 'dist', 'src'), { recursive: true });
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    const script = join(folder, 'open.mjs');
    writeFileSync(
      script,
      `const { openDatabase } = await import(${JSON.stringify(pathToFileURL(open).href)});\n` +
        "try { openDatabase(':memory:', { binding: 'better-sqlite3' }) } catch (error) { process.stderr.write(error.message) }",
    );
    const program = runProgram(script, [], { cwd: folder });
    await program.ended;
    const wanted =
      lane === 'bun-sqlite' ? /not a binding for Bun/ : /NODE_MODULE_VERSION 127\. Please try re-compiling/;
    expect(program.stderr()).toMatch(wanted);
  });

  test('no permission to write the file, or beside it', async () => {
    const folder = scratchFolder();
    await database('CREATE TABLE t (a)', join(folder, 'a.db'));
    chmodSync(folder, 0o555);
    cleanUp(() => chmodSync(folder, 0o755));
    chmodSync(join(folder, 'a.db'), 0o444);
    const file = await fails(node(folder), {}, asNobody);
    expect(file).toEqual({ code: 1, said: expect.stringMatching(/no permission to write .*a\.db: run this as/) });
    chmodSync(join(folder, 'a.db'), 0o666);
    const beside = await fails(node(folder), {}, asNobody);
    expect(beside).toEqual({ code: 1, said: expect.stringMatching(/no permission to write in the folder/) });
  });

  test('a table that is missing, or that cannot be synced', async () => {
    const folder = scratchFolder();
    const schema = 'CREATE TABLE numbered (n INTEGER PRIMARY KEY); CREATE TABLE timeless (id TEXT PRIMARY KEY)';
    const db = await database(schema, join(folder, 'a.db'));
    for (const [table, reason] of [
      ['items', /table "items" does not exist/],
      ['nosuch', /table "nosuch" does not exist \(create it/],
      ['numbered', /table "numbered" has no TEXT primary key "id"/],
      ['timeless', /table "timeless" has no INTEGER column "updated_at"/],
      ['_changes', /table "_changes" is an internal table/],
    ] as const) {
      expect(await fails(node(folder, '-table', table))).toEqual({ code: 1, said: expect.stringMatching(reason) });
    }
    expect(rowsOf(db, "SELECT name FROM sqlite_schema WHERE name LIKE '\\_%' ESCAPE '\\'")).toEqual([]);
  });

  test('and then the file is as it was, and none is made where there was none', async () => {
    const folder = scratchFolder();
    const path = join(folder, 'a.db');
    const nowhere = await fails(node(folder, '-table', 'notes'));
    expect(nowhere).toEqual({
      code: 1,
      said: expect.stringMatching(/there is no file .*a\.db, and -table names tables/),
    });
    expect(existsSync(path)).toBe(false);
    const yours = await openDatabase(path);
    yours.exec('CREATE TABLE items (n INTEGER PRIMARY KEY)');
    yours.close();
    await fails(node(folder, '-table', 'notes'));
    await fails(node(folder));
    await fails(['hub', ...node(folder).slice(1)]);
    const after = await openDatabase(path);
    cleanUp(() => after.close());
    expect(Object.values(after.prepare('PRAGMA journal_mode').get() as object)).toEqual(['delete']);
  });

  test('an items table of other columns, or a view of that name, when no table is named', async () => {
    const folder = scratchFolder();
    const db = await database('CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER)', join(folder, 'a.db'));
    const table = await fails(node(folder));
    expect(table).toEqual({
      code: 1,
      said: expect.stringMatching(/lacks one of the columns id, .*; name the tables .* -table/),
    });
    const columns = 'NULL AS id, NULL AS name, NULL AS value, NULL AS created_at, NULL AS updated_at';
    db.exec(`DROP TABLE items; CREATE VIEW items AS SELECT ${columns}`);
    expect(await fails(node(folder))).toEqual({ code: 1, said: expect.stringMatching(/table "items" is a view/) });
  });

  test('a binding that is not there', async () => {
    const other = lane === 'bun-sqlite' ? 'node-sqlite' : 'bun-sqlite';
    const { code, said } = await fails(node(scratchFolder(), '-binding', other));
    expect([code, said]).toEqual([
      1,
      expect.stringMatching(new RegExp(`${other} is not a binding for (Node|Bun): use`)),
    ]);
  });

  test.runIf(Number(process.versions.node.split('.')[0]) < 22 && lane === 'better-sqlite3')(
    'node:sqlite on a Node that has none',
    async () => {
      const { code, said } = await fails(node(scratchFolder(), '-binding', 'node-sqlite'));
      expect(code).toBe(1);
      expect(said).toMatch(/no SQLite binding could be loaded:\n {2}node-sqlite: .*\nnode:sqlite is part of Node from/);
    },
  );
});

test('help and version are there in every spelling', async () => {
  const said = async (...args: string[]): Promise<string> => {
    const program = run(args);
    expect([await program.ended, program.stderr()]).toEqual([0, '']);
    return program.stdout();
  };
  const [help, short, long] = await Promise.all([said('help'), said('-h'), said('--help')]);
  expect(help).toContain('rowcast serve');
  expect([short, long]).toEqual([help, help]);
  const [serve, helpServe] = await Promise.all([said('serve', '-id', 'a', '--help'), said('help', 'serve')]);
  expect(serve).toContain('-peer <url>');
  expect(helpServe).toBe(serve);
  for (const version of await Promise.all([said('version'), said('--version')])) {
    expect(version).toMatch(/^\d+\.\d+\.\d+\S*\n$/);
  }
});

describe('stopping', () => {
  test.each(['SIGTERM', 'SIGINT'] as const)(
    '%s ships what is pending, closes the database and exits 0',
    async (signal) => {
      const b = await start('b');
      const a = await start('a', ['-peer', b.url, '-batch-ms', '3600000', '-stop-ms', '600000']);
      // The first tick is over once something has gone through; the next is in an hour.
      await ask(`${a.url}/api/items`, { name: 'routed', value: 1 });
      await until('b has it', async () => (await ask(`${b.url}/api/items`)).length === 1);
      const db = await database('PRAGMA user_version', a.db);
      db.exec("INSERT INTO items VALUES ('behind', 'its back', 2, 3, 4)");
      a.child.kill(signal);
      expect(await a.ended).toBe(0);
      expect((await ask(`${b.url}/api/items`)).map(({ name }: Parsed) => name)).toEqual(['routed', 'its back']);
      expect(a.lines('stopping')).toMatchObject([{ signal }]);
      expect(a.lines('stopped')).toMatchObject([{ requests: 'finished', shipped: true, pending: 0 }]);
      expect(a.stderr().replace(/.*(ExperimentalWarning|--trace-warnings).*\n/g, '')).toBe('');
    },
  );

  test('leaves one file: the journal is gone with the last connection', async () => {
    const a = await start('a');
    await ask(`${a.url}/api/items`, { name: 'x', value: 1 });
    expect(existsSync(`${a.db}-wal`)).toBe(true);
    a.child.kill('SIGTERM');
    expect(await a.ended).toBe(0);
    expect(existsSync(`${a.db}-wal`)).toBe(false);
  });

  test('lets a running request end, and takes no new connection', async () => {
    const a = await start('a', ['-stop-ms', '600000']);
    const idle = net.connect(a.started.port, '127.0.0.1');
    cleanUp(() => idle.destroy());
    await new Promise((resolve) => idle.once('connect', resolve));
    const body = '{"name":"late","value":1}';
    const socket = net.connect(a.started.port, '127.0.0.1');
    cleanUp(() => socket.destroy());
    let answer = '';
    socket.on('data', (chunk) => {
      answer += chunk;
    });
    // The program says 100 when it has the request and waits for its body.
    socket.write(
      `POST /api/items HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nexpect: 100-continue\r\n\r\n`,
    );
    await until('the request is running', () => answer.includes('100 Continue'));
    socket.write(body.slice(0, 5));
    a.child.kill('SIGTERM');
    await until('it is stopping', () => a.lines('stopping').length === 1);
    await until('connections are refused', () =>
      fetch(`${a.url}/health`).then(
        () => false,
        () => true,
      ),
    );
    socket.write(body.slice(5));
    expect(await a.ended).toBe(0);
    expect(answer).toMatch(/HTTP\/1\.1 201/);
    expect(a.lines('stopped')).toMatchObject([{ requests: 'finished' }]);
    const db = await database('PRAGMA user_version', a.db);
    expect(rowsOf(db, 'SELECT name FROM items')).toEqual([{ name: 'late' }]);
  });

  /** A peer that takes a batch and never answers. */
  async function silentPeer(): Promise<{ url: string; asked(): number }> {
    let asked = 0;
    const url = await serveHttp(() => {
      asked += 1;
    });
    return { url, asked: () => asked };
  }

  test('gives up after -stop-ms on a peer that does not answer, and keeps the changes', async () => {
    const peer = await silentPeer();
    const a = await start('a', ['-peer', peer.url, '-stop-ms', '100']);
    await ask(`${a.url}/api/items`, { name: 'x', value: 1 });
    await until('the peer is asked', () => peer.asked() > 0);
    a.child.kill('SIGTERM');
    expect(await a.ended).toBe(0);
    expect(a.lines('stopped')).toMatchObject([{ shipped: false, pending: 1 }]);
    const db = await database('PRAGMA user_version', a.db);
    expect(rowsOf(db, 'SELECT op FROM _changes')).toEqual([{ op: 'INSERT' }]);
  });

  test.each([
    ['serve', ['-db', ':memory:']],
    ['hub', ['-db', ':memory:']],
  ])(
    '%s does not end with SIGHUP where there is no terminal: it says that there is nothing to reload',
    async (command, args) => {
      const program = run([command, '-id', 'a', '-listen', '127.0.0.1:0', ...args]);
      const { url } = await started(program);
      program.child.kill('SIGHUP');
      await until('it has said so', () => program.lines('reload-ignored').length === 1);
      expect(program.lines('reload-ignored')[0]).toMatchObject({
        signal: 'SIGHUP',
        message: expect.stringMatching(/nothing to reload/),
      });
      expect((await fetch(`${url}/health`)).status).toBe(200);
      program.child.kill('SIGTERM');
      expect(await program.ended).toBe(0);
    },
  );

  test('ends at once with the second signal', async () => {
    const peer = await silentPeer();
    const a = await start('a', ['-peer', peer.url, '-stop-ms', '3600000']);
    await ask(`${a.url}/api/items`, { name: 'x', value: 1 });
    await until('the peer is asked', () => peer.asked() > 0);
    let code: number | string | undefined;
    void a.ended.then((value) => {
      code = value;
    });
    // Two in quick succession are one Ctrl-C that npm has passed on, so it may take more than one.
    await until('it has ended', () => {
      if (code === undefined) a.child.kill('SIGINT');
      return code !== undefined;
    });
    expect(code).toBe(130);
    expect(a.lines('stopping').length).toBe(1);
    expect(a.lines('stopped')).toEqual([]);
  });
});

describe('the log', () => {
  test('tells once when a peer is down and once when it is up, and nothing of the traffic', async () => {
    const port = await freePort();
    const a = await start('a', ['-peer', `http://127.0.0.1:${port}`, '-batch-ms', '1']);
    await ask(`${a.url}/api/items`, { name: 'secret name', value: 1 });
    await until('the peer is down', () => a.lines('peer-down').length > 0);
    await start('b', ['-listen', `127.0.0.1:${port}`]);
    await until('the peer is up', () => a.lines('peer-up').length > 0);
    for (let value = 0; value < 50; value++) await ask(`${a.url}/api/items`, { name: 'secret name', value });
    await until('all is shipped', async () => (await ask(`${a.url}/health`)).pending_changes === 0);
    a.child.kill('SIGTERM');
    await a.ended;
    const events = a
      .stdout()
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).event);
    expect(events).toEqual(['started', 'peer-down', 'peer-up', 'stopping', 'stopped']);
    expect(a.lines('peer-down')[0]).toMatchObject({ level: 'warn', reason: expect.any(String) });
    expect(a.stdout()).not.toContain('secret');
  });

  test('tells of a dead letter without what the peer quotes', async () => {
    const refusing = await serveHttp((request, response) => {
      request.resume().on('end', () => response.writeHead(422).end('{"error":"secret name is not wanted"}'));
    });
    const a = await start('a', ['-peer', refusing]);
    await ask(`${a.url}/api/items`, { name: 'secret name', value: 1 });
    await until('it is buried', () => a.lines('dead-letter').length > 0);
    expect(a.lines('dead-letter')).toMatchObject([
      { level: 'error', peer: refusing, reason: 'HTTP 422', tables: ['items'], changes: 1 },
    ]);
    expect(a.stdout()).not.toContain('secret');
  });

  test('tells of parked changes in one line per cause', async () => {
    const a = await start('a');
    const change = (id: string): unknown => ({
      op: 'INSERT',
      table: 'strangers',
      row: { id, secret: 'secret', updated_at: 5 },
      old_id: null,
    });
    const changes = Array.from({ length: 30 }, (_, i) => change(`secret-${i}`));
    const answer = await ask(`${a.url}/sync`, { batch_id: 30, changes });
    expect(answer).toMatchObject({ applied: 0, ack: 30 });
    await until('it is told', () => a.lines('dead-letter').length > 0);
    expect(a.lines('dead-letter')).toMatchObject([{ code: 'unknown-table', table: 'strangers', changes: 30 }]);
    expect(a.stdout()).not.toContain('secret');
  });

  test('may lose its reader without the node noticing', async () => {
    const a = await start('a', ['-peer', 'http://127.0.0.1:1']);
    a.child.stdout?.destroy();
    await ask(`${a.url}/api/items`, { name: 'x', value: 1 });
    // The peer goes down, which is a line that nobody reads.
    const down = async (): Promise<boolean> => (await ask(`${a.url}/health`)).peer_states[0].state === 'down';
    await until('the peer is down', down);
    expect((await ask(`${a.url}/health`)).ok).toBe(true);
  });

  test('writes a failure that comes with every tick once a minute, with a count', () => {
    const time = { now: 0 };
    const clock = { now: () => time.now, sleep: () => Promise.resolve() };
    const lines: Parsed[] = [];
    const events = new Emitter();
    logEvents(
      events,
      createLog('a', clock, (line) => lines.push(JSON.parse(line))),
      clock,
    );
    const fail = (message: string): void => events.emit('error', new RowcastError('DATABASE_FAILED', message));
    for (; time.now < 60_000; time.now += 50) fail('disk full');
    fail('disk full');
    fail('another');
    expect(lines.map(({ time: at, message, repeated }) => [at.slice(14, 19), message, repeated])).toEqual([
      ['00:00', 'disk full', undefined],
      ['01:00', 'disk full', 1_199],
      ['01:00', 'another', undefined],
    ]);
  });
});
