/** A process that has stopped its manager ends by itself. */
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { betterSqlite3, lane } from '../support/lane.ts';
import { ITEMS, node, scratchFolder, serveManager } from '../support/nodes.ts';

test('a process that attaches, ships, stops and closes exits by itself', async () => {
  const receiver = await node({ id: 'receiver' });
  const url = await serveManager(receiver.manager);
  const folder = await compiled();
  const open = {
    'better-sqlite3': `import { createRequire } from 'node:module';
const db = new (createRequire(import.meta.url)(process.env.BINDING))(process.env.DB);`,
    'node-sqlite': `import { DatabaseSync } from 'node:sqlite'; import { fromNodeSqlite } from './sqlite/node-sqlite.js';
const raw = new DatabaseSync(process.env.DB); const db = Object.assign(fromNodeSqlite(raw), { close: () => raw.close() });`,
    'bun-sqlite': `import { Database } from 'bun:sqlite'; const db = new Database(process.env.DB);`,
  }[lane];
  writeFileSync(
    join(folder, 'child.js'),
    `import { attach } from './index.js'; ${open}
db.exec(${JSON.stringify(ITEMS)});
const manager = attach(db, { id: 'child', peers: [process.env.PEER, 'http://127.0.0.1:1'] }, ['items']);
db.exec("INSERT INTO items VALUES ('a', 'from a child', 1, 10, 1000)");
await new Promise((resolve) => manager.on('acked', resolve));
await manager.stop();
db.close();
console.log('closed');`,
  );
  const require = (await import('node:module')).createRequire(import.meta.url);
  const binding = lane === 'better-sqlite3' ? require.resolve(betterSqlite3()) : '';
  const child = spawn(process.execPath, [join(folder, 'child.js')], {
    env: { ...process.env, NODE_OPTIONS: '', BINDING: binding, DB: join(folder, 'child.db'), PEER: url },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // A safety net: a child that does not exit by itself is ended, and the signal then shows in the outcome.
  const net = setTimeout(() => child.kill('SIGKILL'), 200_000);
  let output = '';
  child.stdout.on('data', (chunk) => {
    output += chunk;
  });
  const outcome = await new Promise((resolve) => child.on('close', (code, signal) => resolve({ code, signal })));
  clearTimeout(net);
  expect({ outcome, output }).toEqual({ outcome: { code: 0, signal: null }, output: 'closed\n' });
  expect(receiver.all('SELECT name FROM items')).toEqual([{ name: 'from a child' }]);
});

/** The library as JavaScript, the way it is published: Node 20 runs no TypeScript. */
async function compiled(): Promise<string> {
  const root = fileURLToPath(new URL('../..', import.meta.url));
  const folder = scratchFolder();
  // Types are checked elsewhere; here only the JavaScript is wanted.
  const args = ['-p', 'tsconfig.build.json', '--outDir', folder, '--noCheck'];
  const code = await new Promise((resolve) => {
    spawn(join(root, 'node_modules', '.bin', 'tsc'), args, { cwd: root, stdio: 'inherit' }).on('close', resolve);
  });
  expect(code).toBe(0);
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  return join(folder, 'src');
}
