/** A process that is killed in the middle of a migration: the database is as it was before it, or as it is after it. */
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { startChild } from '../crash/kill-children.ts';
import { buildLibrary } from '../support/build.ts';
import { Random } from '../support/model.ts';
import { database, rowsOf, scratchFolder } from '../support/nodes.ts';

const ROWS = 2_000;
const ROUNDS = 6;
const T = 1_700_000_000_000;

let build: Awaited<ReturnType<typeof buildLibrary>>;
beforeAll(async () => {
  build = await buildLibrary();
});
afterAll(() => build.remove());

test.each(['rename', 'table', 'drop', 'rebuild'])('%s', async (kind) => {
  const random = new Random(kind.length);
  for (let round = 0; round < ROUNDS; round++) {
    const path = join(scratchFolder(), 'killed.db');
    const schema = 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, updated_at INTEGER)';
    const first = await database(schema, path);
    const manager = attach(first, { id: 'node', peers: ['http://127.0.0.1:9'], batchMs: 3_600_000 }, ['items']);
    first.exec(
      `WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS}) ` +
        `INSERT INTO items SELECT 'r' || i, 'n', i, ${T} FROM n`,
    );
    await manager.stop();
    // A few milliseconds into one of its migrations.
    const child = startChild(build.folder, 'migrate-loop.mjs', [path, kind]);
    await child.line(1 + random.below(4));
    await new Promise((resolve) => setTimeout(resolve, random.below(40)));
    await child.kill();

    const db = await database('SELECT 1', path);
    const columns = (table: string): string[] =>
      rowsOf(db, 'SELECT name FROM pragma_table_info(?)', table).map(({ name }) => String(name));
    const table = columns('items').length > 0 ? 'items' : 'things';
    // What was recorded is what stands: the latest change of each row, and no row that differs from it.
    const name = columns(table).includes('title') ? 'title' : 'name';
    const recorded = rowsOf(
      db,
      `SELECT row_id, max(change_id), row_data ->> '$.updated_at' AS version, row_data ->> '$.name' AS name ` +
        `FROM _changes GROUP BY row_id ORDER BY row_id`,
    ).map(({ row_id, version, name: value }) => [row_id, version, value]);
    const after = attach(db, { id: 'node', peers: ['http://127.0.0.1:9'], batchMs: 3_600_000 }, ['items']);
    const warnings: string[] = [];
    after.on('warning', ({ code }) => warnings.push(code));
    after.receive('{"batch_id":1,"changes":[]}');
    const standing = rowsOf(db, `SELECT id, updated_at AS version, ${name} AS name FROM ${table} ORDER BY id`);
    expect(standing.map(({ id, version, name: value }) => [id, version, value])).toEqual(recorded);
    expect(recorded).toHaveLength(ROWS);
    const { problems, item_count } = after.health();
    expect(item_count).toBe(ROWS);
    // A column that is back is asked for, and the peer is not there to be asked.
    expect(problems.filter((problem) => kind !== 'drop' || !problem.includes('a column was gone and is back'))).toEqual(
      [],
    );
    await Promise.resolve();
    expect(warnings).toEqual([]);
    await after.stop();
  }
});
