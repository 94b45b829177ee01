/** A second process on the file, which knows nothing of Rowcast. */
import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { insert } from '../support/capture.ts';
import { expectSameElsewhere, origin } from '../support/elsewhere.ts';
import { betterSqlite3, lane } from '../support/lane.ts';
import { captured, scratchFolder } from '../support/nodes.ts';

test('a second process that writes while this one writes and applies is captured, every row of it', async () => {
  const path = join(scratchFolder(), 'shared.db');
  const it = await origin({ path });
  let childDone = false;
  const child = writeInAnotherProcess(path, 60).finally(() => {
    childDone = true;
  });
  let received = 0;
  let written = 0;
  // Both sides go on until the child is through: its rows meet transactions with the flag set, and local ones.
  while (!childDone || received === 0) {
    received += 1;
    const row = { id: `theirs-${received}`, name: 'n', value: 1, created_at: 1, updated_at: 1000 };
    expect(it.manager.applyChanges([{ op: 'INSERT', table: 'items', row, old_id: null }])).toBe(1);
    if (written < 50) it.db.exec(insert(`ours-${written++}`));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await child;
  const seen = captured(it.db);
  const ids = new Set(seen.map(({ row_id }) => String(row_id)));
  expect([...ids].filter((id) => id.startsWith('child-'))).toHaveLength(60);
  expect([...ids].filter((id) => id.startsWith('ours-'))).toHaveLength(written);
  expect([...ids].filter((id) => id.startsWith('theirs-'))).toEqual([]);
  const deleted = seen.filter(({ op, row_id }) => op === 'DELETE' && String(row_id).startsWith('child-'));
  expect(new Set(deleted.map(({ row_id }) => row_id)).size).toBe(20);
  it.db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
  it.db.exec("DELETE FROM items WHERE id LIKE 'theirs-%'");
  it.db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
  await expectSameElsewhere(it);
});

/** Runs the lane's own binding in a process of its own: `rows` inserts, each updated, every third deleted. */
async function writeInAnotherProcess(path: string, rows: number): Promise<void> {
  const require = createRequire(import.meta.url);
  const open = {
    'bun-sqlite': "new (require('bun:sqlite').Database)(path)",
    'node-sqlite': "new (require('node:sqlite').DatabaseSync)(path)",
    'better-sqlite3': `new (require(${JSON.stringify(require.resolve(betterSqlite3()))}))(path)`,
  }[lane];
  const script = `const path = ${JSON.stringify(path)}; const db = ${open};
    db.exec('PRAGMA busy_timeout = 60000');
    for (let i = 0; i < ${rows}; i++) {
      db.exec("BEGIN IMMEDIATE; INSERT INTO items VALUES ('child-" + i + "', 'n', " + i + ", 1, 1000); COMMIT");
      db.exec("UPDATE items SET name = 'touched' WHERE id = 'child-" + i + "'");
      if (i % 3 === 0) db.exec("DELETE FROM items WHERE id = 'child-" + i + "'");
    }
    db.close();`;
  await promisify(execFile)(process.execPath, ['-e', script]);
}
