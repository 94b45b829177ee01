import { chownSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { freePort, run, start } from '../../lib/processes.mjs';
import { installPackages, unpackDebian, unprivileged } from '../install.mjs';
import { Pair } from '../pair.mjs';

const SYSTEM_TABLES = ['mysql_system_tables.sql', 'mysql_performance_tables.sql', 'mysql_system_tables_data.sql'];
const TABLE =
  'CREATE TABLE items (id varchar(36) PRIMARY KEY, name text, value bigint, created_at bigint, updated_at bigint) ENGINE=InnoDB CHARACTER SET ascii';

let program;

export const mariadb = {
  name: 'mariadb',
  label: 'MariaDB replica',
  durability: 'every commit flushed on both sides, redo log and binary log',
  doesNot: 'more than one writer without conflicts that stop it; work without two servers',
  async install() {
    program = await findProgram();
    await installPackages('mariadb');
    const text = await run(program.server, ['--no-defaults', '--version'], { env: program.env });
    return `MariaDB ${/Ver ([\d.]+)/.exec(text)[1]}`;
  },
  async start(folder) {
    const owner = unprivileged();
    if (owner.uid !== undefined) chownSync(folder, owner.uid, owner.gid);
    const [a, b] = [await server(folder, 'a', 1, owner), await server(folder, 'b', 2, owner)];
    await statements(a, ['SET SESSION sql_log_bin = 0', 'CREATE DATABASE bench', 'USE bench', TABLE]);
    await statements(b, [
      'SET SESSION sql_log_bin = 0',
      'CREATE DATABASE bench',
      'USE bench',
      TABLE,
      `CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=${a.port}, MASTER_USER='root', MASTER_USE_GTID=slave_pos`,
      'START SLAVE',
    ]);
    return Pair.startAround(a, b, { program: fileURLToPath(new URL('client.mjs', import.meta.url)) });
  },
};

async function findProgram() {
  const places = [{ root: '/', env: process.env }];
  if (!existsSync('/usr/sbin/mariadbd')) {
    const { folder, env } = await unpackDebian('mariadb', 'mariadb-server-core');
    places.unshift({ root: folder, env });
  }
  const { root, env } = places[0];
  return { server: join(root, 'usr/sbin/mariadbd'), share: join(root, 'usr/share/mysql'), env };
}

async function server(folder, name, id, owner) {
  const data = join(folder, name);
  mkdirSync(data);
  if (owner.uid !== undefined) chownSync(data, owner.uid, owner.gid);
  const common = [
    '--no-defaults',
    `--datadir=${data}`,
    `--lc-messages-dir=${program.share}`,
    `--character-sets-dir=${join(program.share, 'charsets')}`,
  ];
  const options = { ...owner, env: program.env, cwd: data };
  await bootstrap(common, options);
  const port = await freePort();
  const flags = [
    `--port=${port}`,
    '--bind-address=127.0.0.1',
    `--socket=${join(data, 'socket')}`,
    `--pid-file=${join(data, 'pid')}`,
    `--server-id=${id}`,
    '--log-bin=binlog',
    '--binlog-format=ROW',
    '--log-slave-updates=0',
    '--innodb-flush-log-at-trx-commit=1',
    '--sync-binlog=1',
    '--skip-name-resolve',
  ];
  const child = start(program.server, [...common, ...flags], { ...options, stdio: 'ignore' });
  for (let attempt = 0; ; attempt++) {
    try {
      await statements({ port }, ['SELECT 1']);
      return { port, child };
    } catch (error) {
      if (attempt === 100 || child.exitCode !== null) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

/** The system tables, made the way mariadb-install-db does; root may come in from this machine without a password. */
function bootstrap(common, options) {
  const sql = [
    'CREATE DATABASE IF NOT EXISTS mysql;',
    'USE mysql;',
    'SET @auth_root_socket=NULL;',
    ...SYSTEM_TABLES.map((name) => readFileSync(join(program.share, name), 'utf8')),
  ].join('\n');
  return new Promise((resolve, reject) => {
    const child = start(program.server, [...common, '--bootstrap', '--log-warnings=0'], {
      ...options,
      stdio: ['pipe', 'ignore', 'pipe'],
    });
    let said = '';
    child.stderr.on('data', (text) => (said += text));
    child.once('error', reject);
    child.stdin.on('error', () => {});
    child.once('close', (code) =>
      code === 0 ? resolve() : reject(new Error(`mariadbd --bootstrap: ${said.slice(-500)}`)),
    );
    child.stdin.end(sql);
  });
}

async function statements({ port }, list) {
  const mysql = createRequire(import.meta.url)('mysql2/promise');
  const client = await mysql.createConnection({ host: '127.0.0.1', port, user: 'root' });
  try {
    for (const sql of list) await client.query(sql);
  } finally {
    await client.end();
  }
}
