/** Edges are woken for what is stored, whatever fails after it: who sends it again brings nothing new, and wakes nobody. */
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createHub } from '../../src/hub/hub.ts';
import { readIntroduction } from '../../src/wire/introduction.ts';
import { hub, live, plainAck, T } from '../support/hubs.ts';
import { cleanUp, database, scratchFolder, serve, until } from '../support/nodes.ts';
import { watched } from '../support/sender.ts';

const SAID = 'id=a; inc=aaaaaaaaaaaaaaaa; boot=1-aaaaaaaa; t0=0; t=1';

test('a hub that finds after it has stored a batch that it was put back, and has no room to note that', async () => {
  const folder = scratchFolder();
  const [path, backup] = [join(folder, 'hub.db'), join(folder, 'backup.db')];
  const bodies: string[] = [];
  const url = await serve((request, response) => plainAck(request, response, bodies));
  const batch = (id: string): string => JSON.stringify({ batch_id: 1, changes: [live(id, T)] });

  const first = await hub({}, path);
  await first.hub.stop();
  first.db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  copyFileSync(path, backup);
  const later = await hub({}, path);
  const { headers } = await later.hub.receive(batch('lost'), { from: 'a', said: SAID });
  await later.hub.stop();
  const was = readIntroduction(headers['x-rowcast']);

  const db = await database('SELECT 1', backup);
  let isFull = false;
  const handle = watched(db, (sql) => {
    if (!isFull || !sql.startsWith('DELETE FROM main._nodes')) return;
    throw Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL', errcode: 13 });
  });
  const again = await createHub(handle, { id: 'hub', edges: [url], batchMs: 5, maxAheadMs: 0 });
  cleanUp(() => again.stop());
  await again.receive(batch('first'), { from: 'a' });
  await until('the edge has the first', () => bodies.join().includes('"first"'));
  await again.flush();

  isFull = true;
  const said = `${SAID}; you=${was?.inc}.${was?.tick}.${was?.boot}.${was?.seal}`;
  expect((await again.receive(batch('second'), { from: 'a', said })).status).toBe(503);
  isFull = false;
  // The sender has had no answer, and sends it again.
  expect((await again.receive(batch('second'), { from: 'a', said })).status).toBe(200);
  await until('the edge has the second', () => bodies.join().includes('"second"'));
});
