import { expect, test } from 'vitest';
import { captured, node } from './support/nodes.ts';

test('an insert is captured', async () => {
  const { db } = await node();
  db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
  expect(captured(db)).toEqual([
    { op: 'INSERT', row_id: 'a', row: { id: 'a', name: 'first', value: 1, created_at: 10, updated_at: 1000 } },
  ]);
});
