/** Whom the commands ask: the program that runs on the file, and nobody who has put a socket in its place. */
import { chownSync, mkdirSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { socketOf } from '../../src/cli/admin.ts';
import { asker } from '../../src/cli/ask.ts';
import type { Clock } from '../../src/clock.ts';
import { cleanUp, scratchFolder } from '../support/nodes.ts';

const FOR_LONG = { timeout: 30_000 };

// Only root can give a file away.
test.skipIf(process.getuid?.() !== 0)('a socket that belongs to another user than the file is not asked', async () => {
  const folder = join(scratchFolder(), 'a-name-that-is-long'.repeat(8));
  mkdirSync(folder);
  const db = join(folder, 'a.db');
  writeFileSync(db, '');
  const path = socketOf(db) as string;
  const server = http.createServer((_request, response) => response.end('{"ok":true}'));
  await new Promise<void>((done) => server.listen({ path }, done));
  cleanUp(() => new Promise((done) => server.close(done)));
  const target = { db, url: undefined, adminTokenFile: undefined };
  expect(await asker(target).get('status')).toEqual({ ok: true });
  chownSync(path, 12_345, 12_345);
  expect(() => asker(target)).toThrow(/belongs to another user than .*: nobody is asked there/);
});

test('what is said of a -url does not show who asks', async () => {
  const target = { db: undefined, adminTokenFile: undefined };
  const asked = asker({ ...target, url: 'http://ann:s3cret@127.0.0.1:1' }).get('status');
  await expect(asked).rejects.toThrow(/^http:\/\/127\.0\.0\.1:1 does not answer: (?!.*s3cret)/);
  expect(() => asker({ ...target, url: 'ann:s3cret@h' })).toThrow(/, not "h"$/);
});

/** A program that takes whatever it is asked; `answers` says what it answers. A clock that moves when it is told to. */
async function program(answers: (method: string) => boolean) {
  const asked: string[] = [];
  const open: http.ServerResponse[] = [];
  const server = http.createServer((request, response) => {
    asked.push(request.method as string);
    if (answers(request.method as string)) response.end('{"ok":true}');
    else open.push(response);
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  cleanUp(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const sleeping = new Set<() => void>();
  const sleeps = { begun: 0 };
  const clock: Clock = {
    now: () => 0,
    sleep: (_ms, signal) =>
      new Promise((resolve) => {
        sleeps.begun += 1;
        sleeping.add(resolve);
        const wake = (): void => {
          sleeping.delete(resolve);
          resolve();
        };
        signal?.addEventListener('abort', wake, { once: true });
      }),
  };
  const later = (): void => {
    const all = [...sleeping];
    sleeping.clear();
    for (const resolve of all) resolve();
  };
  return { ask: asker({ db: undefined, url, adminTokenFile: undefined }, clock), asked, open, sleeps, later };
}

test('a program that stands still is one that nobody can ask', async () => {
  const { ask, asked, later } = await program(() => false);
  const told = expect(ask.get('status')).rejects.toThrow(/does not answer: no answer within 10 s/);
  await vi.waitFor(() => expect(asked).toEqual(['GET']), FOR_LONG);
  later();
  await told;
});

test('what takes long is waited for as long as the program answers questions, and no longer', async () => {
  let isAlive = true;
  const { ask, open, sleeps, later } = await program((method) => isAlive && method === 'GET');
  const retried = ask.post('dead-letters/retry');
  await vi.waitFor(() => expect(open).toHaveLength(1), FOR_LONG);
  for (const questions of [0, 1, 2]) {
    // One before the first question; one during each, and one after it.
    await vi.waitFor(() => expect(sleeps.begun).toBe(1 + 2 * questions), FOR_LONG);
    later();
  }
  await vi.waitFor(() => expect(sleeps.begun).toBe(7), FOR_LONG);
  open[0]?.end('{"applied":3}');
  expect(await retried).toEqual({ applied: 3 });

  const stopped = expect(ask.post('dead-letters/retry')).rejects.toThrow(/no answer within 10 s/);
  await vi.waitFor(() => expect(open).toHaveLength(2), FOR_LONG);
  isAlive = false;
  later();
  await vi.waitFor(() => expect(open).toHaveLength(3), FOR_LONG);
  later();
  await stopped;
});

test.each(['ftp://127.0.0.1', 'nonsense'])('-url %s is no URL of a program', (url) => {
  expect(() => asker({ db: undefined, url, adminTokenFile: undefined })).toThrow(/-url must be such as http/);
});

test('--offline is advised to those commands that can do without the program', async () => {
  const db = join(scratchFolder(), 'a.db');
  writeFileSync(db, '');
  const target = { db, url: undefined, adminTokenFile: undefined };
  await expect(asker({ ...target, offline: false }).get('status')).rejects.toThrow(/--offline looks at the file$/);
  await expect(asker(target).get('verify')).rejects.toThrow(/not with -admin off\?$/);
});
