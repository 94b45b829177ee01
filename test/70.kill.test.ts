/** Processes killed in the middle of their work, ten times over: what was committed or acknowledged is not lost. */
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { buildLibrary, type Child, startChild } from './support/kill-children.ts';
import { openDatabase } from './support/lane.ts';
import { cleanUp, exactRows, node, rowsOf, scratchFolder, serveManager } from './support/nodes.ts';

const CYCLES = 10;
/** Some twenty-five processes are started one after the other; on a busy machine that alone takes a minute. */
const PATIENCE = { timeout: 400_000 };
let build: ReturnType<typeof buildLibrary>;
beforeAll(() => {
  build = buildLibrary();
});
afterAll(() => build.remove());

/** Counted in writes and acknowledgements, not in time: the moment within one is chance enough. */
const some = (most: number): number => 1 + Math.floor(Math.random() * most);

/** What a writer has said: the value each row must at least have, and the rows that may or must be gone. */
function readReport(lines: string[]): { values: Map<string, number>; deleted: Set<string>; doubtful: Set<string> } {
  const values = new Map<string, number>();
  const deleted = new Set<string>();
  const doubtful = new Set<string>();
  for (const line of lines) {
    const [sign, id, value] = line.split(' ') as [string, string, string | undefined];
    if (sign === '+') values.set(id, Number(value));
    if (sign === '?') doubtful.add(id);
    if (sign === '-') {
      doubtful.delete(id);
      values.delete(id);
      deleted.add(id);
    }
  }
  return { values, deleted, doubtful };
}

test('a writer killed again and again: every write it reported is on both nodes in the end', PATIENCE, async () => {
  const path = join(scratchFolder(), 'writer.db');
  const receiver = await node({ id: 'receiver', path: join(scratchFolder(), 'receiver.db') });
  let acknowledged = 0;
  receiver.manager.on('applied', ({ applied }) => {
    acknowledged += applied;
  });
  const peer = await serveManager(receiver.manager);
  const report: string[] = [];
  for (let cycle = 0; cycle < CYCLES; cycle++) {
    const writer = startChild(build.folder, 'kill-writer.mjs', [path, peer]);
    await writer.line(some(150));
    await writer.kill();
    report.push(...writer.lines);
  }
  const drain = startChild(build.folder, 'kill-writer.mjs', [path, peer, 'drain']);
  expect(await drain.line(1)).toBe('drained');
  expect(await drain.ended).toBe(0);

  const sender = await openDatabase(path);
  cleanUp(() => sender.close());
  const { values, deleted, doubtful } = readReport(report);
  expect(values.size).toBeGreaterThan(CYCLES);
  expect(acknowledged).toBeGreaterThan(0);
  for (const db of [sender, receiver.db]) {
    const there = new Map(rowsOf(db, 'SELECT id, value FROM items').map((row) => [row.id, Number(row.value)]));
    const lost = [...values].filter(([id, value]) => !doubtful.has(id) && !((there.get(id) ?? -1) >= value));
    expect(lost).toEqual([]);
    expect([...deleted].filter((id) => there.has(id))).toEqual([]);
  }
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender, 'items'));
  expect(rowsOf(sender, 'SELECT count(*) AS n FROM _changes')).toEqual([{ n: 0 }]);
  expect(rowsOf(sender, 'PRAGMA integrity_check')).toEqual([{ integrity_check: 'ok' }]);
});

test('a receiver killed again and again: every change it acknowledged is in its file', PATIENCE, async () => {
  const path = join(scratchFolder(), 'receiver.db');
  let child: Child = startChild(build.folder, 'kill-receiver.mjs', [path, '0']);
  const port = (await child.line(1)).split(' ')[1] as string;
  const writer = await node({
    id: 'writer',
    peers: [`http://127.0.0.1:${port}`],
    path: join(scratchFolder(), 'writer.db'),
    batchMs: 1,
    batchSize: 5,
  });
  let acks = 0;
  let enough = (): void => {};
  writer.manager.on('acked', () => {
    acks += 1;
    enough();
  });

  let written = 0;
  let writing = true;
  const write = async (): Promise<void> => {
    while (writing) {
      written += 1;
      writer.db.exec(`INSERT INTO items VALUES ('row-${written}', 'new', ${written}, 1, ${written})`);
      if (written % 4 === 0)
        writer.db.exec(`UPDATE items SET name = 'changed', updated_at = updated_at + 1 WHERE value = ${written - 2}`);
      // No faster than it is taken away, or the last drain is all that the test does.
      const backlog = Number(rowsOf(writer.db, 'SELECT count(*) AS n FROM _changes')[0]?.n);
      await new Promise((resolve) => (backlog > 200 ? setTimeout(resolve, 2) : setImmediate(resolve)));
    }
  };
  const written_all = write();

  for (let cycle = 0; cycle < CYCLES; cycle++) {
    const until = acks + some(20);
    await new Promise<void>((resolve) => {
      enough = () => {
        if (acks >= until) resolve();
      };
    });
    await child.kill();
    // Killed and not yet started again: what the file holds now is what the acknowledgements are worth.
    const acked = Number(rowsOf(writer.db, 'SELECT last_acked FROM _peer_state')[0]?.last_acked);
    const still = new Set(
      rowsOf(writer.db, 'SELECT row_id FROM _changes WHERE change_id > ?', acked).map(({ row_id }) => row_id),
    );
    const received = await openDatabase(path);
    const there = new Map(rowsOf(received, 'SELECT id, name FROM items').map((row) => [row.id, row.name]));
    received.close();
    const lost = rowsOf(writer.db, 'SELECT id, name FROM items').filter(
      ({ id, name }) => !still.has(id) && there.get(id) !== name,
    );
    expect(lost).toEqual([]);
    expect(there.size).toBeGreaterThan(0);
    child = startChild(build.folder, 'kill-receiver.mjs', [path, port]);
    await child.line(1);
  }
  writing = false;
  await written_all;
  let result = await writer.manager.flush();
  while (result.unreachable.length > 0) result = await writer.manager.flush();
  await child.kill();
  const received = await openDatabase(path);
  cleanUp(() => received.close());
  expect(exactRows(received, 'items')).toEqual(exactRows(writer.db, 'items'));
  expect(rowsOf(received, "SELECT value FROM _meta WHERE key = 'syncing'")).toEqual([{ value: 0 }]);
  expect(rowsOf(received, 'PRAGMA integrity_check')).toEqual([{ integrity_check: 'ok' }]);
  expect(writer.manager.health()).toMatchObject({ ok: true, dead_letter: 0, pending_changes: 0 });
});
