/** What is asked of PostgreSQL together, and what is not asked where a transaction could not begin. */
import { expect, test } from 'vitest';
import type { PostgresDriver } from '../../src/hub/postgres/driver.ts';
import { type Session, Sessions } from '../../src/hub/postgres/sessions.ts';

type Asked = { text: string; answer(): void; refuse(): void };

/** A server that answers when it is told to, in the order in which it was asked. */
function server(): { sessions: Sessions; asked: Asked[]; texts(): string[] } {
  const asked: Asked[] = [];
  class Client {
    connect = () => Promise.resolve();
    on = () => undefined;
    end = () => Promise.resolve();
    query(text: string): Promise<object> {
      return new Promise((resolve, reject) => {
        const refusal = Object.assign(new Error('canceled'), { code: '57014', severity: 'ERROR' });
        asked.push({ text, answer: () => resolve({ rows: [], rowCount: 1 }), refuse: () => reject(refusal) });
      });
    }
  }
  const driver = { Client } as unknown as PostgresDriver;
  const sessions = new Sessions({ driver, url: 'postgres://nowhere', name: 'test' });
  return { sessions, asked, texts: () => asked.map(({ text }) => text.split(/[ ;]/)[0] as string) };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function writeTwice(session: Session): Promise<string> {
  await Promise.all([session.run('INSERT 1'), session.query('TICK')]);
  await session.run('UPDATE 2');
  return 'done';
}

async function answered({ asked }: ReturnType<typeof server>, count: number): Promise<void> {
  for (const { answer } of asked.slice(0, count)) answer();
  await turn();
}

test('what is prompt begins and asks at once, and waits for all of it before it commits', async () => {
  const it = server();
  const done = it.sessions.promptly(writeTwice);
  await turn();
  expect(it.texts()).toEqual(['BEGIN', 'INSERT', 'TICK']);
  expect(it.asked[0]?.text).toContain('synchronous_commit = on');
  await answered(it, 2);
  expect(it.texts()).toEqual(['BEGIN', 'INSERT', 'TICK']);
  await answered(it, 3);
  expect(it.texts()).toEqual(['BEGIN', 'INSERT', 'TICK', 'UPDATE']);
  await answered(it, 4);
  expect(it.texts().at(-1)).toBe('COMMIT');
  let isDone = false;
  void done.then(() => {
    isDone = true;
  });
  await turn();
  expect(isDone).toBe(false);
  await answered(it, 5);
  expect(await done).toBe('done');
});

test('where it could not begin, nothing more is asked, and it is taken back', async () => {
  const it = server();
  const done = it.sessions.promptly(writeTwice);
  const outcome = done.catch((error) => String(error));
  await turn();
  it.asked[0]?.refuse();
  await turn();
  it.asked[1]?.answer();
  it.asked[2]?.answer();
  await turn();
  expect(it.texts()).toEqual(['BEGIN', 'INSERT', 'TICK', 'ROLLBACK']);
  await answered(it, 4);
  expect(await outcome).toContain('canceled');
  expect(it.texts()).toEqual(['BEGIN', 'INSERT', 'TICK', 'ROLLBACK']);
});

test('any other transaction asks nothing before it has begun', async () => {
  const it = server();
  const done = it.sessions.transaction(writeTwice);
  await turn();
  expect(it.texts()).toEqual(['BEGIN']);
  for (let i = 1; i <= 5; i++) await answered(it, i);
  expect(await done).toBe('done');
});
