/** `rowcast migrate` and `rowcast aliases`, on a node that is stopped and on one that runs. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { database, rowsOf, scratchFolder, until } from '../support/nodes.ts';
import { MAIN, runProgram, startNode } from '../support/programs.ts';

interface Outcome {
  code: number | string;
  output: string;
}

async function rowcast(...args: string[]): Promise<Outcome> {
  const program = runProgram(MAIN, args);
  return { code: await program.ended, output: program.output() };
}

/** A file of SQL in a folder of its own. */
function file(sql: string): string {
  const path = join(scratchFolder(), 'change.sql');
  writeFileSync(path, sql);
  return path;
}

const RENAME = 'BEGIN; ALTER TABLE notes RENAME COLUMN body TO text; COMMIT;';
const NOTES = 'CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT, updated_at INTEGER)';

describe('a node that runs', () => {
  test('goes on with the new schema, and its peer, which has the old one, with that', async () => {
    const folder = scratchFolder();
    const [a, b] = await Promise.all(['a', 'b'].map(async (id) => await database(NOTES, join(folder, `${id}.db`))));
    if (!a || !b) throw new Error('no databases');
    const second = await startNode('b', ['-table', 'notes'], folder);
    const first = await startNode('a', ['-table', 'notes', '-peer', second.url], folder);
    a.exec("INSERT INTO notes VALUES ('n', 'before', 1000)");
    await until('it is there', () => rowsOf(b, 'SELECT 1 FROM notes').length === 1);
    const done = await rowcast('migrate', '-db', first.db, file(RENAME), '-rename', 'notes.body=text');
    expect(done).toEqual({ code: 0, output: `migrated ${first.db}\n` });
    a.exec("UPDATE notes SET text = 'after', updated_at = 2000");
    await until('it is there', () => rowsOf(b, "SELECT 1 FROM notes WHERE body = 'after'").length === 1);
    expect(rowsOf(b, 'SELECT count(*) AS n FROM _dead_letter')).toEqual([{ n: 0 }]);

    expect((await rowcast('aliases', '-db', first.db)).output).toBe('notes.text was body, and still travels so\n');
    await rowcast('migrate', '-db', second.db, file(RENAME), '-rename', 'notes.body=text');
    const forget = ['aliases', '-db', first.db, '-forget', 'notes.body'];
    const early = await rowcast(...forget);
    expect([early.code, early.output]).toEqual([1, expect.stringMatching(/still travels as "body".*aliases -drop/)]);
    expect((await rowcast('aliases', '-db', first.db, '-drop')).output).toBe('notes.text was body\n');
    a.exec("UPDATE notes SET text = 'new', updated_at = 3000");
    await until('it is there', () => rowsOf(b, "SELECT 1 FROM notes WHERE text = 'new'").length === 1);
    expect(rowsOf(b, 'SELECT count(*) AS n FROM _dead_letter')).toEqual([{ n: 0 }]);

    const add = ['migrate', '-db', first.db, file('ALTER TABLE notes ADD COLUMN body TEXT')];
    const taken = await rowcast(...add);
    expect([taken.code, taken.output]).toEqual([1, expect.stringMatching(/"body", the name that "text" had before/)]);
    expect(await rowcast(...forget)).toEqual({ code: 0, output: 'no table or column had another name\n' });
    expect((await rowcast(...add)).code).toBe(0);
    expect(first.lines('warning')).toEqual([]);
  });
});

describe('what cannot be done', () => {
  test('is said, and changes nothing', async () => {
    const folder = scratchFolder();
    const path = join(folder, 'plain.db');
    await database(NOTES, path);
    const refused = async (wanted: RegExp, code: number, ...args: string[]): Promise<void> => {
      const { code: ended, output } = await rowcast(...args);
      expect([ended, output]).toEqual([code, expect.stringMatching(wanted)]);
    };
    await refused(/no table of the database is synced/, 1, 'migrate', '-db', path, file('SELECT 1'));
    await refused(/there is no file/, 1, 'migrate', '-db', join(folder, 'none.db'), file('SELECT 1'));
    await refused(/cannot read/, 2, 'migrate', '-db', path, join(folder, 'none.sql'));
    await refused(/-rename must be table.old=new/, 2, 'migrate', '-db', path, '-rename', 'a=b');
    await refused(/nothing to do/, 2, 'migrate', '-db', path);
    for (const empty of ['', ' \n;', '-- later\n/* ; */', '/* cut off']) {
      await refused(/holds no statement/, 2, 'migrate', '-db', path, file(empty));
    }
    await refused(/holds no statement/, 2, 'migrate', '-db', path, file(''), '-rename', 'notes.body=text');
    await refused(/-db is required/, 2, 'migrate', file('SELECT 1'));
  });

  test('a statement that fails is named', async () => {
    const folder = scratchFolder();
    const db = await database(NOTES, join(folder, 'd.db'));
    const node = await startNode('d', ['-table', 'notes'], folder);
    node.child.kill('SIGTERM');
    await node.ended;
    const before = rowsOf(db, 'SELECT name, sql FROM sqlite_schema');
    const { code, output } = await rowcast(
      'migrate',
      '-db',
      node.db,
      file(`${RENAME} DROP TABLE absent`),
      '-rename',
      'notes.body=text',
    );
    expect([code, output]).toEqual([1, expect.stringMatching(/no such table: absent, in: DROP TABLE absent/)]);
    expect(rowsOf(db, 'SELECT name, sql FROM sqlite_schema')).toEqual(before);
  });
});
