/**
 * A power cut takes what was written and not synced. A test cannot pull the plug; it can show that nothing is answered
 * and nothing is sent before the WAL is synced: by the pragma in force at the commit, and by the system calls themselves.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { attach, type Database } from '../src/index.ts';
import { buildLibrary, startChild } from './support/kill-children.ts';
import type { TestDatabase } from './support/lane.ts';
import { cleanUp, database, ITEMS, node, rowsOf, scratchFolder, serve, serveManager } from './support/nodes.ts';
import { parseTrace, sentWith, walIsSyncedBefore, walWritesBetween } from './support/power-trace.ts';

const FULL = 2;
const NORMAL = 1;
const OFF = 0;

const batch = (id: string): string =>
  JSON.stringify({
    batch_id: 7,
    changes: [
      {
        op: 'INSERT',
        table: 'items',
        row: { id, name: `round-${id}`, value: 1, created_at: 1, updated_at: 1000 },
        old_id: null,
      },
    ],
  });

function synchronous(db: TestDatabase): number {
  return Number(Object.values(rowsOf(db, 'PRAGMA synchronous')[0] ?? {})[0]);
}

/** Notes the `synchronous` in force at every COMMIT, and whether the transaction wrote anything but its flag. */
function watched(db: TestDatabase): { handle: Database; commits: number[] } {
  const commits: number[] = [];
  const handle: Database = {
    exec: (sql) => {
      if (sql === 'COMMIT') commits.push(synchronous(db));
      return db.exec(sql);
    },
    prepare: (sql) => db.prepare(sql),
    transaction: (fn) => db.transaction(fn),
  };
  return { handle, commits };
}

describe('by the pragma', () => {
  const levels = [
    ['OFF', OFF],
    ['NORMAL', NORMAL],
    ['FULL', FULL],
    ['EXTRA', 3],
  ] as const;

  test.each(levels)(
    'with synchronous %s the apply commit is at least FULL, and the setting is as before',
    async (_, level) => {
      const db = await database(ITEMS, join(scratchFolder(), 'a.db'));
      const { handle, commits } = watched(db);
      const manager = attach(handle, { id: 'node', peers: [] }, ['items']);
      cleanUp(() => manager.stop());
      db.exec(`PRAGMA synchronous = ${level}`);
      commits.length = 0;
      expect(manager.receive(batch('a'))).toMatchObject({ status: 200 });
      manager.applyChanges(JSON.parse(batch('b')).changes);
      expect(commits).toEqual([Math.max(level, FULL), Math.max(level, FULL)]);
      expect(synchronous(db)).toBe(level);
    },
  );

  test('the setting is as before after a batch that was refused, parked or put off', async () => {
    const db = await database(ITEMS, join(scratchFolder(), 'a.db'));
    const manager = attach(db, { id: 'node', peers: [] }, ['items']);
    cleanUp(() => manager.stop());
    db.exec(`PRAGMA synchronous = ${NORMAL}`);
    expect(manager.receive('{').status).toBe(400);
    expect(synchronous(db)).toBe(NORMAL);
    expect(manager.receive(batch('a').replace('"items"', '"nowhere"')).status).toBe(200);
    expect(synchronous(db)).toBe(NORMAL);
    db.exec('BEGIN');
    expect(manager.receive(batch('a')).status).toBe(503);
    db.exec('ROLLBACK');
    expect(synchronous(db)).toBe(NORMAL);
    db.exec('DROP TABLE _meta');
    expect(manager.receive(batch('a')).status).toBe(503);
    expect(synchronous(db)).toBe(NORMAL);
  });

  test('what is sent was committed at FULL before, and the setting is as before', async () => {
    const receiver = await node({ id: 'receiver' });
    const db = await database(ITEMS, join(scratchFolder(), 'a.db'));
    const { handle, commits } = watched(db);
    db.exec(`PRAGMA synchronous = ${NORMAL}`);
    const atRequest: number[] = [];
    const peer = await serve(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      atRequest.push(commits.lastIndexOf(FULL));
      const { body } = receiver.manager.receive(Buffer.concat(chunks));
      response.end(JSON.stringify(body));
    });
    const manager = attach(handle, { id: 'sender', peers: [peer], batchMs: 3_600_000 }, ['items']);
    cleanUp(() => manager.stop());
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    const before = commits.length;
    await manager.flush();
    expect(atRequest).toHaveLength(1);
    expect(atRequest[0]).toBeGreaterThanOrEqual(before);
    expect(synchronous(db)).toBe(NORMAL);
    expect(rowsOf(receiver.db, 'SELECT id FROM items')).toEqual([{ id: 'a' }]);
  });

  test("the application's own commits keep the application's setting", async () => {
    const db = await database(ITEMS, join(scratchFolder(), 'a.db'));
    const manager = attach(db, { id: 'node', peers: [] }, ['items']);
    cleanUp(() => manager.stop());
    db.exec(`PRAGMA synchronous = ${NORMAL}`);
    db.exec("INSERT INTO items VALUES ('a', 'first', 1, 10, 1000)");
    expect(synchronous(db)).toBe(NORMAL);
  });
});

describe('by the system calls', () => {
  let build: ReturnType<typeof buildLibrary>;
  let missing: string | undefined;
  beforeAll(() => {
    build = buildLibrary();
    missing = missingStrace();
  });
  afterAll(() => build?.remove());

  const strace = (output: string): string[] => [
    'strace',
    '-f',
    '-y',
    '-s',
    '1000',
    '-e',
    'trace=fsync,fdatasync,write,writev,pwrite64,pwritev,sendto,sendmsg',
    '-o',
    output,
  ];

  test('a receiver syncs its WAL between the last write of the batch and the answer', async ({ skip }) => {
    if (missing !== undefined) return giveUp(missing, skip);
    const folder = scratchFolder();
    const output = join(folder, 'trace');
    const child = startChild(build.folder, 'kill-receiver.mjs', [join(folder, 'a.db'), '0'], strace(output));
    const port = (await child.line(1)).split(' ')[1];
    // The first write to a fresh WAL is synced in any case; the later ones only because somebody asked for it.
    for (const id of ['first', 'second', 'third']) {
      const answer = await fetch(`http://127.0.0.1:${port}/sync`, {
        method: 'POST',
        body: batch(id),
        headers: { 'content-type': 'application/json' },
      });
      expect(await answer.json()).toEqual({ applied: 1, ack: 7 });
    }
    await child.end();
    const calls = parseTrace(readFileSync(output, 'utf8'));
    const answers = sentWith(calls, '\\"ack\\":7');
    expect(answers).toHaveLength(3);
    for (const [i, answer] of answers.entries()) {
      const previous = answers[i - 1];
      if (previous) expect(walWritesBetween(calls, previous, answer)).toBeGreaterThan(0);
      expect(walIsSyncedBefore(calls, answer)).toBe(true);
    }
  });

  test('a sender syncs its WAL before it sends what is in it', async ({ skip }) => {
    if (missing !== undefined) return giveUp(missing, skip);
    const folder = scratchFolder();
    const output = join(folder, 'trace');
    const receiver = await node({ id: 'receiver' });
    const peer = await serveManager(receiver.manager);
    const child = startChild(build.folder, 'power-sender.mjs', [join(folder, 'a.db'), peer], strace(output));
    expect(await child.ended).toBe(0);
    expect(rowsOf(receiver.db, 'SELECT id FROM items ORDER BY id')).toEqual([{ id: 'first' }, { id: 'second' }]);
    const calls = parseTrace(readFileSync(output, 'utf8'));
    for (const round of ['first', 'second']) {
      const [request] = sentWith(calls, `round-${round}`);
      if (!request) throw new Error(`the trace does not hold the request of the ${round} round`);
      expect(walIsSyncedBefore(calls, request)).toBe(true);
    }
  });
});

/** What keeps strace from being used here, if anything. CI installs it where it may. */
function missingStrace(): string | undefined {
  if (process.platform !== 'linux') return `strace runs on Linux, not on ${process.platform}`;
  const find = (): boolean => (process.env.PATH ?? '').split(':').some((folder) => existsSync(join(folder, 'strace')));
  if (!find() && process.env.CI && process.getuid?.() === 0) {
    try {
      execFileSync('apt-get', ['install', '-y', '--no-install-recommends', 'strace'], { stdio: 'ignore' });
    } catch {
      // Said below.
    }
  }
  if (!find()) return 'strace is not installed: apt-get install strace';
  try {
    execFileSync('strace', ['-o', '/dev/null', 'true'], { stdio: 'ignore' });
  } catch {
    return 'strace is installed but may not trace here: the container needs the capability SYS_PTRACE';
  }
  return undefined;
}

function giveUp(missing: string, skip: (note?: string) => void): void {
  if (process.env.CI && process.platform === 'linux') throw new Error(missing);
  skip(missing);
}
