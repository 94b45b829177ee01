/** The socket beside a database file: one program has it, and the next one when that has ended. */
import { existsSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import type { Administered } from '../../src/admin/index.ts';
import { openAdminDoor, socketOf } from '../../src/cli/admin.ts';
import { AdminToken } from '../../src/cli/admin-token.ts';
import { asker } from '../../src/cli/ask.ts';
import { RecentLines } from '../../src/cli/recent-lines.ts';
import type { AlsoInHealth } from '../../src/cli/tls-files.ts';
import type { Clock } from '../../src/clock.ts';
import { cleanUp, node, scratchFolder } from '../support/nodes.ts';

/** Sleeps until it is told that a while has passed. */
function handClock(): Clock & { pass(): void; sleeping: Set<() => void> } {
  const sleeping = new Set<() => void>();
  return {
    now: () => 0,
    sleeping,
    sleep: (_ms, signal) =>
      new Promise((resolve) => {
        sleeping.add(resolve);
        signal?.addEventListener('abort', () => resolve(), { once: true });
      }),
    pass: () => {
      for (const wake of sleeping) wake();
      sleeping.clear();
    },
  };
}

async function doorOn(db: string, subject: Administered, alsoInHealth?: AlsoInHealth) {
  const said: Record<string, unknown>[] = [];
  const clock = handClock();
  const flags = { admin: 'on' as const, adminListen: undefined, adminTokenFile: undefined, host: [] };
  const log = (_level: string, event: string, fields: object = {}): void => void said.push({ event, ...fields });
  const token = new AdminToken(undefined);
  const beside = { log, recent: new RecentLines(0), clock, token, ...(alsoInHealth && { alsoInHealth }) };
  const door = await openAdminDoor(subject, { ...flags, db, clientTimeoutMs: 10_000 }, beside);
  cleanUp(() => door.close());
  return { door, clock, said };
}

const asked = (db: string) =>
  asker({ db, url: undefined, adminTokenFile: undefined }).get<{ node_id: string }>('status');

test('a second program on a file answers at its socket when the first one has ended', async () => {
  const db = join(scratchFolder(), 'a.db');
  writeFileSync(db, '');
  const first = await doorOn(db, (await node({ id: 'first' })).manager);
  const second = await doorOn(db, (await node({ id: 'second' })).manager);
  expect([first.door.socket, second.door.socket]).toEqual([socketOf(db), undefined]);
  expect(second.said).toMatchObject([
    { code: 'no-admin-socket', message: expect.stringMatching(/another program answers at .*until it has ended/) },
  ]);
  second.clock.pass();
  await vi.waitFor(() => expect(second.clock.sleeping.size).toBe(1), { timeout: 30_000 });
  expect(await asked(db)).toMatchObject({ node_id: 'first' });
  first.door.close();
  await vi.waitFor(() => expect(existsSync(socketOf(db) as string)).toBe(false), { timeout: 30_000 });
  second.clock.pass();
  await vi.waitFor(() => expect(second.said).toHaveLength(2), { timeout: 30_000 });
  expect(second.said[1]).toEqual({ event: 'admin-socket', socket: socketOf(db) });
  expect(await asked(db)).toMatchObject({ node_id: 'second' });
  second.door.close();
  await vi.waitFor(() => expect(existsSync(socketOf(db) as string)).toBe(false), { timeout: 30_000 });
});

test('what the program knows is wrong beside its node is in what it says of itself', async () => {
  const db = join(scratchFolder(), 'a.db');
  writeFileSync(db, '');
  const { manager } = await node();
  const problems = ['the certificate has ended'];
  await doorOn(db, manager, (health) => ({ ...health, ok: false, problems }));
  expect(await asked(db)).toMatchObject({ node_id: manager.id, ok: false, problems });
});

test('one that has ended meanwhile takes nothing any more', async () => {
  const db = join(scratchFolder(), 'a.db');
  writeFileSync(db, '');
  const { manager } = await node();
  const first = await doorOn(db, manager);
  const second = await doorOn(db, manager);
  second.door.close();
  first.door.close();
  await vi.waitFor(() => expect(existsSync(socketOf(db) as string)).toBe(false), { timeout: 30_000 });
  second.clock.pass();
  await new Promise((done) => setImmediate(done));
  expect(second.said).toHaveLength(1);
  expect(existsSync(socketOf(db) as string)).toBe(false);
});

test('a link to the file leads to the same program as its name', async () => {
  const folder = scratchFolder();
  const [db, link] = [join(folder, 'a.db'), join(folder, 'current.db')];
  writeFileSync(db, '');
  symlinkSync('a.db', link);
  await doorOn(link, (await node({ id: 'one' })).manager);
  expect(await asked(db)).toMatchObject({ node_id: 'one' });
  expect(await asked(link)).toMatchObject({ node_id: 'one' });
});
