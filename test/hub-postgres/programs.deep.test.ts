/** `rowcast hub -store` and `rowcast hub-edges` as an operator meets them. */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { root } from '../support/build.ts';
import { scratchFolder, until } from '../support/nodes.ts';
import { hasPostgres, newDatabase, ownServer, postgresServer, query } from '../support/postgres.ts';
import { freePort, MAIN, type Program, type RunOptions, runProgram, started } from '../support/programs.ts';

const SECRET = 'not-to-be-printed';

function hub(store: string | undefined, args: string[] = [], options: RunOptions = {}): Program {
  const env = { ...options.env, ...(store !== undefined && { ROWCAST_STORE: store }) };
  return runProgram(MAIN, ['hub', '-id', 'hub', '-listen', '127.0.0.1:0', ...args], { ...options, env });
}

/** How it ends, and what it says. */
async function refusal(program: Program): Promise<[code: number | string, said: string]> {
  const code = await program.ended;
  expect(program.output()).not.toContain(SECRET);
  return [code, program.stderr()];
}

async function edges(store: string, ...args: string[]): Promise<string> {
  const program = runProgram(MAIN, ['hub-edges', ...args], { env: { ROWCAST_STORE: store } });
  expect(await program.ended, program.output()).toBe(0);
  return program.stdout();
}

describe.skipIf(!hasPostgres)('a hub of a group', () => {
  const server = postgresServer();

  test('refuses a command line that is wrong, and prints no password', async () => {
    const [shown, wrong, both, none] = await Promise.all([
      refusal(hub(undefined, ['-store', `postgres://rowcast:${SECRET}@127.0.0.1/x`])),
      refusal(hub(`mysql://rowcast:${SECRET}@127.0.0.1/x`)),
      refusal(hub(`postgres://rowcast:${SECRET}@127.0.0.1/x`, ['-store-file', '/dev/null'])),
      refusal(hub(undefined)),
    ]);
    expect(shown).toEqual([2, expect.stringContaining('every user of this machine can read command lines')]);
    expect(wrong).toEqual([2, expect.stringContaining('ROWCAST_STORE must be a URL: postgres://')]);
    expect(both).toEqual([2, expect.stringContaining('-store and -store-file are both given')]);
    expect(none).toEqual([2, expect.stringContaining('-db is required')]);
  });

  test('refuses a store that it cannot use, and says why', async () => {
    const port = await freePort();
    const [another, other] = [await newDatabase(server()), await newDatabase(server())];
    const first = hub(another);
    await started(first);
    first.child.kill('SIGTERM');
    expect(await first.ended).toBe(0);
    await query(another, 'UPDATE rowcast.meta SET schema_version = 99');
    await query(other, 'CREATE SCHEMA rowcast; CREATE TABLE rowcast.notes (x int)');
    const file = join(scratchFolder(), 'store');
    writeFileSync(file, `${server().url('postgres', 'postgres', SECRET)}\n`, { mode: 0o600 });
    const [away, password, version, foreign, list] = await Promise.all([
      refusal(
        runProgram(MAIN, ['hub-edges', 'list'], {
          env: { ROWCAST_STORE: `postgres://rowcast:${SECRET}@127.0.0.1:${port}/x` },
        }),
      ),
      refusal(hub(undefined, ['-store-file', file])),
      refusal(hub(another)),
      refusal(hub(other)),
      refusal(runProgram(MAIN, ['hub-edges', 'list'], { env: { ROWCAST_STORE: another } })),
    ]);
    expect(away).toEqual([
      1,
      expect.stringContaining(`store postgres://rowcast@127.0.0.1:${port}/x: PostgreSQL cannot`),
    ]);
    expect(password).toEqual([1, expect.stringContaining('password authentication failed')]);
    expect(version).toEqual([1, expect.stringContaining('the schema has version 99')]);
    expect(foreign[0]).toBe(1);
    expect(list).toEqual([1, expect.stringContaining('the schema has version 99')]);
  });

  test('refuses a server that does not flush', async () => {
    const careless = await ownServer({ settings: ['fsync=off'] });
    expect(await refusal(hub(careless.url()))).toEqual([1, expect.stringContaining('fsync = off')]);
  });

  test('refuses a database that cannot hold every text', async () => {
    const options = "ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0";
    await query(server().url(), `CREATE DATABASE narrow ${options}`);
    expect(await refusal(hub(server().url('narrow')))).toEqual([1, expect.stringContaining('the encoding LATIN1')]);
  });

  test('says how to install what it lacks', async () => {
    const folder = scratchFolder();
    cpSync(join(root, 'dist'), join(folder, 'dist'), { recursive: true });
    cpSync(join(root, 'package.json'), join(folder, 'package.json'));
    const program = runProgram(join(folder, 'dist/src/cli/main.js'), ['hub', '-id', 'h', '-store', 'postgres://db/x'], {
      cwd: folder,
    });
    expect(await refusal(program)).toEqual([1, expect.stringContaining('npm install pg')]);
  });

  test('refuses the name of another that runs', async () => {
    const store = await newDatabase(server());
    const first = hub(store, ['-instance', 'one']);
    expect((await started(first)).store).toBe(store.replace(/:[^:@]+@/, '@'));
    // However long it stands still between two beats, it is seen.
    const LATER = "BEGIN NEW.seen := NEW.seen + interval '1 hour'; RETURN NEW; END";
    await query(store, `CREATE FUNCTION later() RETURNS trigger LANGUAGE plpgsql AS '${LATER.replaceAll("'", "''")}'`);
    const when = 'BEFORE INSERT OR UPDATE ON rowcast.hubs FOR EACH ROW';
    await query(store, `CREATE TRIGGER later ${when} EXECUTE FUNCTION later()`);
    const ahead = "SELECT 1 FROM rowcast.hubs WHERE seen > now() + interval '30 minutes'";
    await until('it has been seen since', async () => (await query(store, ahead)).length === 1);
    const twin = hub(store, ['-instance', 'one']);
    expect(await refusal(twin)).toEqual([1, expect.stringContaining('another process of the group is called "one"')]);
    await started(hub(store, ['-instance', 'two']));
  });

  test('is told of its edges while it runs, and -edge takes none out', async () => {
    const store = await newDatabase(server());
    const { url } = await started(hub(store, ['-edge', 'http://127.0.0.1:1', '-edge', 'http://127.0.0.1:2']));
    const peers = async (): Promise<string[]> => (await (await fetch(`${url}/health`)).json()).peers.sort();
    await until('it serves both', async () => (await peers()).length === 2);
    const file = join(scratchFolder(), 'urls');
    writeFileSync(file, '# two more\nhttp://127.0.0.1:3\nhttp://127.0.0.1:4\n');
    expect(await edges(store, 'add', 'http://127.0.0.1:1', '-file', file)).toBe('2 added, 4 in all\n');
    expect(await edges(store, 'forget', 'http://127.0.0.1:2')).toBe('1 forgotten, 3 left\n');
    expect(await edges(store, 'list')).toBe([1, 3, 4].map((n) => `http://127.0.0.1:${n}  -\n`).join(''));
    const left = [1, 3, 4].map((n) => `http://127.0.0.1:${n}`);
    await until('it serves the others', async () => (await peers()).join() === left.join());
    // One that names none of them takes none of them out.
    await started(hub(store));
    expect(await edges(store, 'list')).toContain('http://127.0.0.1:4');
  });

  test('waits for a server that is away when it is started, and says so', async () => {
    const own = await ownServer();
    await own.kill();
    const port = await freePort();
    const store = own.url('postgres', 'postgres', SECRET);
    const waiting = runProgram(MAIN, ['hub', '-id', 'hub', '-listen', `127.0.0.1:${port}`], {
      env: { ROWCAST_STORE: store },
    });
    await until('it says so', () => waiting.stdout().includes('"store-away"'));
    expect(waiting.stdout()).toContain('store postgres://postgres@127.0.0.1');
    const statuses = ['/livez', '/readyz', '/health'].map(
      async (path) => (await fetch(`http://127.0.0.1:${port}${path}`)).status,
    );
    expect(await Promise.all(statuses)).toEqual([200, 503, 503]);
    // By then it can be asked, and says what is wrong: to wait for a password would be in vain.
    await own.start();
    expect(await refusal(waiting)).toEqual([1, expect.stringContaining('password authentication failed')]);

    await own.kill();
    const next = hub(own.url());
    await until('it waits', () => next.stdout().includes('"store-away"'));
    await own.start();
    const { url } = await started(next);
    await until('it is well', async () => (await fetch(`${url}/health`)).status === 200);
  });

  test('SIGHUP while it waits for its store ends nothing: the files are read again when it runs', async () => {
    const own = await ownServer();
    await own.kill();
    const file = join(scratchFolder(), 'urls');
    writeFileSync(file, 'http://127.0.0.1:1\n');
    const waiting = hub(own.url(), ['-edges-file', file]);
    await until('it waits', () => waiting.stdout().includes('"store-away"'));
    writeFileSync(file, 'http://127.0.0.1:1\nhttp://127.0.0.1:2\n');
    waiting.child.kill('SIGHUP');
    await own.start();
    await started(waiting);
    await until('it has read them', () => waiting.stdout().includes('"event":"reloaded"'));
    expect(waiting.stdout()).toContain('"added":["http://127.0.0.1:2"]');
    expect(await edges(own.url(), 'list')).toContain('http://127.0.0.1:2');
  });

  test('is not well while the store cannot be reached, and then is again', async () => {
    const own = await ownServer();
    const { url } = await started(hub(own.url()));
    const status = async (path: string, init?: RequestInit): Promise<number> =>
      (await fetch(`${url}${path}`, { ...init, headers: { 'content-type': 'application/json' } })).status;
    const batch = (id: number): RequestInit => ({
      method: 'POST',
      body: JSON.stringify({ batch_id: id, changes: [] }),
    });
    expect([await status('/health'), await status('/sync', batch(1))]).toEqual([200, 200]);
    await own.kill();
    await until('it says so', async () => (await status('/health')) === 503);
    expect([await status('/sync', batch(2)), await status('/livez')]).toEqual([503, 200]);
    await own.start();
    await until('it is well', async () => (await status('/health')) === 200);
    await until('it takes batches again', async () => (await status('/sync', batch(3))) === 200);
  });
});

test.skipIf(!hasPostgres)('the role that the docs describe is enough, and may do no more', async () => {
  const own = await ownServer();
  const [, sql] = /```sql\n(.*?)```/s.exec(readFileSync(join(root, 'docs/group.md'), 'utf8')) as unknown as [
    string,
    string,
  ];
  await query(own.url(), sql);
  const store = own.url('postgres', 'rowcast', 'secret');
  const { url } = await started(hub(store));
  expect((await fetch(`${url}/health`)).status).toBe(200);
  const body = '{"batch_id":1,"changes":[{"op":"INSERT","table":"t","row":{"id":"x","updated_at":5},"old_id":null}]}';
  const sent = await fetch(`${url}/sync`, { method: 'POST', body, headers: { 'content-type': 'application/json' } });
  expect(await sent.json()).toMatchObject({ applied: 1 });
  await expect(query(store, 'CREATE SCHEMA other')).rejects.toThrow('permission denied');
});
