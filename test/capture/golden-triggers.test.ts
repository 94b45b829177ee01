/** The triggers of the README's table as they are installed, so that a change to the generator shows what it does. */
import { expect, test } from 'vitest';
import { formatSql } from '../support/format-sql.ts';
import { node } from '../support/nodes.ts';

const TABLES: Record<string, string> = {
  items: 'CREATE TABLE items (id TEXT PRIMARY KEY, name TEXT, value INTEGER, created_at INTEGER, updated_at INTEGER)',
  'items-unique': 'CREATE TABLE items (id TEXT PRIMARY KEY, email TEXT COLLATE NOCASE UNIQUE, updated_at INTEGER)',
};

for (const [name, schema] of Object.entries(TABLES)) {
  test(`the triggers are those of test/golden/triggers-${name}.sql`, async () => {
    const it = await node({ schema });
    const found = it.all("SELECT sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid");
    const texts = found.map(({ sql }) => String(sql));
    const formatted = texts.map(formatSql);
    for (const [i, text] of formatted.entries()) {
      expect(text.replace(/\s+/g, ''), 'the formatter changes nothing but white space').toBe(
        texts[i]?.replace(/\s+/g, ''),
      );
      expect(text.split('\n').filter((line) => line.length > 120)).toEqual([]);
    }
    await expect(
      `${formatted.join(';\n\n')};\n`,
      'If the change is meant: npx vitest run test/capture/golden-triggers -u',
    ).toMatchFileSnapshot(`../golden/triggers-${name}.sql`);
  });
}
