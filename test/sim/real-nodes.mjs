/** Two nodes of this process's own runtime on real files and loopback, which write to each other without end. */
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createListener } from '../../dist/src/http/index.js';
import { attach } from '../../dist/src/index.js';

const Database = createRequire(import.meta.url)('better-sqlite3');
/** Few ids: rows are replaced and deleted again and again, and so are their tombstones. */
const IDS = 2_000;
const TABLE =
  'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER)';

export async function startRealNodes() {
  const folder = mkdtempSync(join(tmpdir(), 'rowcast-soak-'));
  const counts = { written: 0, delivered: 0 };
  const nodes = [];
  for (const name of ['a', 'b']) nodes.push(await open(folder, name));
  nodes.forEach((node, i) => {
    const peers = [nodes[1 - i].url];
    node.manager = attach(node.db, { id: node.name, peers }, ['items']);
    node.manager.on('acked', ({ changes }) => {
      counts.delivered += changes;
    });
    node.manager.on('dead-letter', ({ reason }) => node.problems.push(`${node.name}: dead letter: ${reason}`));
  });
  return {
    counts,
    run: async (until, onSample) => {
      for (let round = 0; Date.now() < until; round++) {
        for (const node of nodes) counts.written += write(node, round);
        await pause(20);
        if (round % 100 === 99) onSample(sample(nodes));
      }
    },
    end: async () => {
      for (const node of nodes) await node.manager.flush();
      for (const node of nodes) await node.manager.flush();
      const [a, b] = nodes.map(({ db }) => JSON.stringify(db.prepare('SELECT * FROM items ORDER BY id').all()));
      const problems = nodes.flatMap(({ problems: own }) => own);
      if (a !== b) problems.push('the two real nodes differ');
      for (const { manager, server, db } of nodes) {
        await manager.stop();
        server.closeAllConnections();
        server.close();
        db.close();
      }
      rmSync(folder, { recursive: true, force: true });
      return problems;
    },
  };
}

async function open(folder, name) {
  const path = join(folder, `${name}.db`);
  const db = new Database(path);
  db.pragma('journal_mode = WAL');
  db.exec(TABLE);
  const node = { name, path, db, manager: undefined, problems: [] };
  node.server = http.createServer((request, response) => createListener(node.manager)(request, response));
  await new Promise((resolve) => node.server.listen(0, '127.0.0.1', resolve));
  node.url = `http://127.0.0.1:${node.server.address().port}`;
  node.put = db.prepare(
    'INSERT INTO items VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at',
  );
  node.remove = db.prepare('DELETE FROM items WHERE id = ?');
  return node;
}

function write({ name, db, put, remove }, round) {
  db.transaction(() => {
    for (let i = 0; i < 20; i++) {
      const id = `item-${(round * 7_919 + i * 104_729 + name.length) % IDS}`;
      if ((round + i) % 5 === 0) remove.run(id);
      else put.run(id, name, round, Date.now(), Date.now());
    }
  })();
  return 20;
}

function sample(nodes) {
  const files = nodes.flatMap(({ path }) => [path, `${path}-wal`]);
  return {
    'real nodes, memory': process.memoryUsage().rss,
    'real nodes, files': files.reduce((sum, file) => sum + (statSync(file, { throwIfNoEntry: false })?.size ?? 0), 0),
  };
}

function pause(ms) {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
