/** A group, as a node and a hub of its own (test/send/uncounted.test.ts): where an acknowledgement does not count, nothing behind it does. */
import { describe, expect, test } from 'vitest';
import type { FetchResponse } from '../../src/send/transport.ts';
import { groupHub } from '../support/groups.ts';
import { deliver, live, T } from '../support/hubs.ts';
import { until } from '../support/nodes.ts';
import { hasPostgres, newDatabase, postgresServer } from '../support/postgres.ts';

const EDGE = 'http://e.test';
const PRESENT = 'id=e; inc=aaaaaaaaaaaaaaaa; boot=2-bbbbbbbb; t0=5; t=9';
/** It had ended by then, or is a backup of it that has not said more. */
const BEFORE = 'id=e; inc=aaaaaaaaaaaaaaaa; boot=1-aaaaaaaa; t0=0; t=3';
const IDS = Array.from({ length: 60 }, (_, i) => `row-${String(i).padStart(2, '0')}`);

const answer = (said: string, body: object): FetchResponse => {
  const headers: Record<string, string> = { 'x-rowcast': said, 'x-any-order': '1' };
  return { status: 200, text: async () => JSON.stringify(body), headers: { get: (name) => headers[name] ?? null } };
};

describe.skipIf(!hasPostgres)('a group', () => {
  const server = postgresServer();

  test('sends again what was acknowledged by an earlier state of the edge, and all that follows', async () => {
    const has = new Set<string>();
    let batches = 0;
    const { hub } = await groupHub(await newDatabase(server()), {
      edges: [EDGE],
      batchSize: 10,
      verify: false,
      fetch: async (_url, { body }) => {
        const { batch_id: ack, changes } = JSON.parse(new TextDecoder().decode(body));
        const said = ++batches === 2 ? BEFORE : PRESENT;
        if (said === PRESENT) for (const { row } of changes) has.add(row.id);
        return answer(said, { applied: changes.length, ack });
      },
      get: async () => answer(PRESENT, { ok: true, node_id: 'e' }),
    });
    const changes = IDS.map((id) => live(id, T));
    await deliver(hub, changes, 'a');
    await until('the edge is served', async () => batches > 2 && (await hub.health()).pending_changes === 0);
    expect([...has].sort()).toEqual(IDS);
  });
});
