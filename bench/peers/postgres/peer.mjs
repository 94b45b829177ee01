import { chownSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { freePort, run, start } from '../../lib/processes.mjs';
import { installPackages, Unavailable, unpackDebian, unprivileged } from '../install.mjs';
import { Pair } from '../pair.mjs';

const TABLE = 'CREATE TABLE items (id text PRIMARY KEY, name text, value bigint, created_at bigint, updated_at bigint)';

let programs;

export const postgres = {
  name: 'postgres',
  label: 'PostgreSQL, logical replication',
  durability: 'every commit flushed on A; B as it is by default: applied at once, confirmed when flushed',
  doesNot: 'more than one writer without conflicts that stop it; work without two servers',
  async install() {
    programs = await findPrograms();
    await installPackages('postgres');
    return (await run(join(programs.bin, 'postgres'), ['--version'], { env: programs.env })).trim();
  },
  async start(folder) {
    const owner = unprivileged();
    if (owner.uid !== undefined) chownSync(folder, owner.uid, owner.gid);
    const [a, b] = [await cluster(folder, 'a', owner), await cluster(folder, 'b', owner)];
    await psql(a, TABLE, 'CREATE PUBLICATION bench FOR TABLE items');
    await psql(
      b,
      TABLE,
      `CREATE SUBSCRIPTION bench CONNECTION 'host=127.0.0.1 port=${a.port} user=bench dbname=postgres' PUBLICATION bench WITH (copy_data = false)`,
    );
    const program = fileURLToPath(new URL('client.mjs', import.meta.url));
    // An immediate shutdown: it does not wait for whoever is connected.
    return Pair.startAround(a, b, { program, signal: 'SIGQUIT' });
  },
};

/** Debian keeps them apart by version; the newest is taken, or unpacked from its package when there is none. */
async function findPrograms() {
  const look = (root) => {
    const base = join(root, 'usr/lib/postgresql');
    const versions = existsSync(base) ? readdirSync(base).sort((x, y) => Number(y) - Number(x)) : [];
    return versions.map((version) => join(base, version, 'bin')).find((bin) => existsSync(join(bin, 'initdb')));
  };
  const installed = look('/');
  if (installed) return { bin: installed, env: process.env };
  const { folder, env } = await unpackDebian('postgres', 'postgresql');
  const bin = look(folder);
  if (!bin) throw new Unavailable("Debian's postgresql has no initdb");
  return { bin, env };
}

async function cluster(folder, name, owner) {
  const data = join(folder, name);
  mkdirSync(data);
  if (owner.uid !== undefined) chownSync(data, owner.uid, owner.gid);
  const options = { ...owner, env: programs.env, cwd: data };
  await run(
    join(programs.bin, 'initdb'),
    ['-D', data, '-A', 'trust', '-U', 'bench', '-E', 'UTF8', '--locale=C'],
    options,
  );
  const port = await freePort();
  const settings = {
    listen_addresses: '127.0.0.1',
    port,
    unix_socket_directories: '',
    wal_level: 'logical',
    jit: 'off',
    max_wal_size: '4GB',
    log_min_messages: 'fatal',
  };
  const flags = Object.entries(settings).flatMap(([key, value]) => ['-c', `${key}=${value}`]);
  const child = start(join(programs.bin, 'postgres'), ['-D', data, ...flags], { ...options, stdio: 'ignore' });
  for (let attempt = 0; ; attempt++) {
    try {
      await psql({ port }, 'SELECT 1');
      return { port, child };
    } catch (error) {
      if (attempt === 50) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

function psql({ port }, ...statements) {
  const commands = statements.flatMap((sql) => ['-c', sql]);
  const target = ['-h', '127.0.0.1', '-p', String(port), '-U', 'bench', '-d', 'postgres'];
  return run(join(programs.bin, 'psql'), ['-X', '-q', '-v', 'ON_ERROR_STOP=1', ...target, ...commands], {
    env: programs.env,
  });
}
