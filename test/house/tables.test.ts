/** docs/tables.md has every internal table and every column, and nothing that is not there. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { createHub } from '../../src/hub/hub.ts';
import type { TestDatabase } from '../support/lane.ts';
import { cleanUp, database, node, rowsOf } from '../support/nodes.ts';

const page = readFileSync(fileURLToPath(new URL('../../docs/tables.md', import.meta.url)), 'utf8');
const [, ofNode = '', ofHub = ''] = page.split(/^## /m);

type Columns = Record<string, string[]>;

test('the tables of a node are on the page', async () => {
  const { db } = await node({ tombstones: { keep: '90d' }, feed: {} });
  expect(onPage(ofNode)).toEqual(inDatabase(db));
});

test('the keys of _meta are on the page', async () => {
  const { db } = await node({ tombstones: { keep: '90d' }, feed: {} });
  // Some have a table or a peer behind them.
  const keys = rowsOf(db, 'SELECT key FROM _meta').map(({ key }) => String(key).split(/[: ]/)[0]);
  const section = ofNode.split('### `_meta`')[1]?.split('\n### ')[0] ?? '';
  const lines = section.matchAll(/^\| (`\w+`(?:, `\w+`)*) \| (?!TEXT|BLOB|any)/gm);
  const described = [...lines].flatMap(([, names = '']) => names.match(/\w+/g));
  expect(keys.length).toBeGreaterThan(0);
  expect(described).toEqual(expect.arrayContaining(keys));
});

test('the tables of a hub are on the page', async () => {
  const db = await database('SELECT 1');
  const hub = await createHub(db, { id: 'hub', edges: [] });
  cleanUp(() => hub.stop());
  const nodes = onPage(ofNode);
  const letters: Columns = {};
  for (const name of ['_dead_letter', '_dead_letter_info', '_nodes', '_names']) letters[name] = nodes[name] ?? [];
  expect({ ...letters, ...onPage(ofHub) }).toEqual(inDatabase(db));
});

/** Each `### name` with the lines of its table, as "column TYPE". */
function onPage(part: string): Columns {
  return Object.fromEntries(
    part
      .split(/^### /m)
      .slice(1)
      .map((section) => [
        /^`(\w+)`/.exec(section)?.[1] ?? section,
        [...section.matchAll(/^\| `(\w+)` \| (INTEGER|TEXT|BLOB|any) \|/gm)].map(([, name, type]) => `${name} ${type}`),
      ]),
  );
}

function inDatabase(db: TestDatabase): Columns {
  const names = rowsOf(
    db,
    "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name LIKE '\\_%' ESCAPE '\\'",
  );
  return Object.fromEntries(
    names.map(({ name }) => [
      name,
      rowsOf(db, 'SELECT name, type FROM pragma_table_info(?)', name).map(
        (column) => `${column.name} ${column.type === '' ? 'any' : column.type}`,
      ),
    ]),
  );
}
