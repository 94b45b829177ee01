/** Tools that read a schema, MikroORM's for one, fail at a column without a declared type. */
import { expect, test } from 'vitest';
import { node } from '../support/nodes.ts';

test('every column of the tables that Rowcast makes has a declared type', async () => {
  const { all } = await node();
  const untyped = all(
    'SELECT m.name AS tbl, c.name AS col FROM sqlite_schema AS m, pragma_table_xinfo(m.name) AS c ' +
      "WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND c.type = ''",
  );
  expect(untyped).toEqual([]);
});
