/** Migrates a database over and over, there and back, until it is killed. Says each time that it has begun. */
import { attach, openDatabase } from './kill-library.mjs';

const [path, kind] = process.argv.slice(2);
const db = await openDatabase(path, { table: false });
const manager = attach(db, { id: 'node', peers: ['http://127.0.0.1:9'], batchMs: 3_600_000 }, ['items']);
const KINDS = {
  rename: [
    ['ALTER TABLE items RENAME COLUMN name TO title', { rename: { items: { name: 'title' } } }],
    ['ALTER TABLE items RENAME COLUMN title TO name', { rename: { items: { title: 'name' } } }],
  ],
  table: [
    ['ALTER TABLE items RENAME TO things', { renameTable: { items: 'things' } }],
    ['ALTER TABLE things RENAME TO items', { renameTable: { things: 'items' } }],
  ],
  drop: [
    ['ALTER TABLE items DROP COLUMN value', {}],
    ['ALTER TABLE items ADD COLUMN value INTEGER', {}],
  ],
  rebuild: [
    [
      'CREATE TABLE made (id TEXT PRIMARY KEY, name TEXT NOT NULL, value INTEGER, updated_at INTEGER); ' +
        "INSERT INTO made SELECT id, name || '.', value, updated_at FROM items; DROP TABLE items; " +
        'ALTER TABLE made RENAME TO items',
      {},
    ],
  ],
};
const steps = KINDS[kind];
for (let i = 0; ; i++) {
  const [sql, options] = steps[i % steps.length];
  process.stdout.write('begun\n');
  manager.migrate(sql, options);
}
