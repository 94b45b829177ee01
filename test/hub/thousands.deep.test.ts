/** A hub as a program, with hundreds of edges that have sockets of their own, some of which never answer. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { fakeEdges } from '../support/fake-edges.ts';
import { live } from '../support/hubs.ts';
import { scratchFolder, until } from '../support/nodes.ts';
import { hangUp, MAIN, runProgram, started } from '../support/programs.ts';

/** A listener and a connection for each: within a thousand open files. */
const EDGES = 300;
const DEAF = 40;
const FIRST = 250;

test('hundreds of edges from a file, more of them after SIGHUP, and all that answer have everything', async () => {
  const ask = fakeEdges();
  const urls: string[] = await ask('open', { first: 0, count: EDGES, deaf: DEAF });
  const folder = scratchFolder();
  const file = join(folder, 'edges');
  writeFileSync(file, urls.slice(EDGES - FIRST).join('\n'));
  const args = ['-id', 'hub', '-db', join(folder, 'hub.db'), '-listen', '127.0.0.1:0', '-edges-file', file];
  const hub = runProgram(MAIN, ['hub', ...args]);
  const { url } = await started(hub);
  const done = async (batch: number): Promise<number> => {
    const state: { done: number } = await ask('state', { batch });
    return state.done;
  };
  for (let batch = 0; batch < 5; batch++) {
    const changes = Array.from({ length: 100 }, (_, i) =>
      live(`r${100 * batch + i}`, 1_700_000_000_000 + i, undefined, 'INSERT'),
    );
    const headers = { 'content-type': 'application/json', 'x-node-id': 'source' };
    const body = JSON.stringify({ batch_id: batch + 1, changes });
    const answer = await fetch(`${url}/sync`, { method: 'POST', headers, body });
    expect([answer.status, await answer.json()]).toMatchObject([200, { ack: batch + 1 }]);
  }
  await until('those that answer have it', async () => (await done(500)) === FIRST - DEAF);
  const { added } = await hangUp(hub, 'reloaded', () => writeFileSync(file, urls.join('\n')));
  expect(added).toHaveLength(EDGES - FIRST);
  await until('they have it, too', async () => (await done(500)) === EDGES - DEAF);
  // The hub notes what an edge has answered a moment later.
  await until('the hub knows who lacks something', async () => {
    const health = (await (await fetch(`${url}/health`)).json()) as { peer_states: { pending: number }[] };
    return health.peer_states.filter(({ pending }) => pending > 0).length === DEAF;
  });
  hub.child.kill('SIGTERM');
  expect(await hub.ended).toBe(0);
});
