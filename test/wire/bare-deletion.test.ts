import { expect, test } from 'vitest';
import { Connection } from '../../src/sqlite/connection.ts';
import { bareDeletion } from '../../src/wire/body.ts';
import { database } from '../support/nodes.ts';

async function bare(change: string): Promise<string | undefined> {
  const body = new TextEncoder().encode(`{"batch_id":7,"changes":[${change}]}`);
  const found = bareDeletion(new Connection(await database()), body, 7);
  return found && Buffer.from(found).toString();
}

const deletion = (row: string): string => `{"op":"DELETE","table":"it\\"ems","row":${row},"old_id":"\\u0000x"}`;

test('the id and the version stay, letter by letter, under their own names and in their order', async () => {
  expect(await bare(deletion('{"name":"n","Updated_At":-12,"ids":1,"ID":"\\u0000x","updated":2}'))).toBe(
    `{"batch_id":7,"changes":[${deletion('{"Updated_At":-12,"ID":"\\u0000x"}')}]}`,
  );
});

test.each([
  ['a write', '{"op":"UPDATE","table":"items","row":{"id":"x","name":"n","updated_at":5},"old_id":null}'],
  ['a deletion that has no more', deletion('{"id":"x","updated_at":5}')],
  ['one without a row', deletion('null')],
  ['one whose row is none', deletion('{"id":"x","name":"n')],
  ['one whose row says neither', deletion('{"name":"n"}')],
])('there is nothing less of %s', async (_, change) => {
  expect(await bare(change)).toBeUndefined();
});
