/**
 * `node bench/compare.mjs`: what a comparison costs each side, and a seed by comparison against a snapshot.
 * `--rows 1000000` for a million. Two processes over loopback, databases in memory.
 */
import { fork } from 'node:child_process';
import http from 'node:http';
import { parseArgs } from 'node:util';
import Database from 'better-sqlite3';
import { createListener } from '../dist/src/http/index.js';
import { attach } from '../dist/src/index.js';
import { beginSeed } from '../dist/src/send/peers.js';
import { Connection } from '../dist/src/sqlite/connection.js';
import { Heartbeat } from './lib/heartbeat.mjs';

const { values } = parseArgs({ options: { rows: { type: 'string', default: '100000' }, other: { type: 'boolean' } } });
const rows = Number(values.rows);
const TABLE =
  'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER)';

if (values.other) serveOther();
else await measure();

function filled() {
  const db = new Database(':memory:');
  db.exec(TABLE);
  db.exec(
    `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ${rows - 1}) ` +
      "INSERT INTO items SELECT printf('%08x-%08x', i * 2654435761 % 4294967296, i), 'name ' || i, i, 1, 1600000000000 + i FROM n",
  );
  return db;
}

/** The other side: differs on demand, and tells its CPU time and its longest block. */
function serveOther() {
  const db = filled();
  const manager = attach(db, { id: 'there', peers: [], verify: false }, ['items']);
  let plain = false;
  const listener = createListener(manager);
  const server = http.createServer((request, response) => {
    if (!plain || request.url === '/sync') return listener(request, response);
    response.writeHead(404).end();
  });
  let beat = new Heartbeat();
  let cpu = process.cpuUsage();
  process.on('message', ({ ask, sql, isPlain }) => {
    if (ask === 'begin') {
      db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
      if (sql) db.exec(sql);
      db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
      plain = isPlain === true;
      beat = new Heartbeat();
      beat.start();
      cpu = process.cpuUsage();
      process.send({});
    } else {
      process.send({ cpu: cpuSince(cpu), block: Math.max(...beat.stop()) });
    }
  });
  server.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }));
}

async function measure() {
  const other = fork(new URL(import.meta.url), ['--other', '--rows', String(rows)]);
  const answer = () => new Promise((resolve) => other.once('message', resolve));
  const { port } = await answer();
  const url = `http://127.0.0.1:${port}`;
  const db = filled();
  const manager = attach(db, { id: 'here', peers: [url], verify: false }, ['items']);
  await manager.flush();
  const run = async (name, message, work) => {
    other.send({ ask: 'begin', ...message });
    await answer();
    const beat = new Heartbeat();
    beat.start();
    const [cpu, began] = [process.cpuUsage(), performance.now()];
    const said = await work();
    const figures = { ms: performance.now() - began, cpu: cpuSince(cpu), block: Math.max(...beat.stop()) };
    other.send({ ask: 'end' });
    const there = await answer();
    print(name, said, figures, there);
  };
  console.log(`${rows.toLocaleString('en')} rows; CPU in ms, blocks in ms\n`);
  console.log('| what | requests | bytes | ms | CPU here | CPU there | block here | block there |');
  console.log('| --- | --- | --- | --- | --- | --- | --- | --- |');
  const older = (where) => `UPDATE items SET name = 'old', updated_at = updated_at - 1 WHERE ${where}`;
  const spread = `value % ${Math.max(1, Math.floor(rows / 1_000))} = 0`;
  for (const [k, where] of [
    [0, 'false'],
    [1, 'value = 77'],
    [1_000, spread],
  ]) {
    await run(`verify, ${k} differ`, { sql: older(where) }, async () => (await manager.verify(url))[0]);
    await manager.verify(url, { repair: true });
  }
  const seed = async () => {
    let bytes = 0;
    let requests = 0;
    const off = manager.on('attempt', (attempt) => {
      bytes += attempt.bytes;
      requests += 1;
    });
    const connection = new Connection(db);
    connection.transaction(() => beginSeed(connection, url, Date.now()));
    connection.release();
    await manager.flush();
    off();
    return { requests, bytes };
  };
  await run('seed, the peer has all', {}, seed);
  await run('seed, 1,000 differ', { sql: older(spread) }, seed);
  await run('snapshot, the peer has all', { isPlain: true }, seed);
  await manager.stop();
  other.kill();
  process.exit(0);
}

function print(name, { requests, bytes }, { ms, cpu, block }, there) {
  const cells = [name, requests, bytes, ms.toFixed(0), cpu, there.cpu, block.toFixed(1), there.block.toFixed(1)];
  console.log(`| ${cells.join(' | ')} |`);
}

function cpuSince(before) {
  const { user, system } = process.cpuUsage(before);
  return Math.round((user + system) / 1_000);
}
