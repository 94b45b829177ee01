/**
 * PostgreSQL for tests: a server for each file that asks for one, in the system's temporary folder, and a database for each
 * test. Where there is none the tests that need it are skipped with a message; in CI that is a failure.
 */
import pg from 'pg';
import { afterAll, beforeAll } from 'vitest';
import { type Binaries, findBinaries, MISSING, Postgres, type PostgresOptions } from '../../demo/postgres.ts';
import { cleanUp } from './clean-up.ts';

/** All that are here: the package's first, which is the one that every test can have. */
export const servers: Binaries[] = await findBinaries();
export const hasPostgres = servers.length > 0;
if (!hasPostgres && process.env.CI) throw new Error(MISSING);
if (!hasPostgres) console.log(`skipped: ${MISSING}`);

/** A server from before the first test of a file, or of a `describe`, until after its last. */
export function postgresServer(options: PostgresOptions = {}): () => Postgres {
  let server: Postgres | undefined;
  beforeAll(async () => {
    if (hasPostgres) server = await Postgres.start(options);
  });
  afterAll(() => server?.stop());
  return () => server as Postgres;
}

/** A server of the test's own, which may be killed. */
export async function ownServer(options: PostgresOptions = {}): Promise<Postgres> {
  const server = await Postgres.start(options);
  cleanUp(() => server.stop());
  return server;
}

let made = 0;

/** The URL of an empty database. It goes with its server. */
export async function newDatabase(server: Postgres): Promise<string> {
  const name = `t${++made}_${process.pid}`;
  await query(server.url(), `CREATE DATABASE ${name}`);
  return server.url(name);
}

/** As the superuser, on a connection of its own. */
export async function query(url: string, sql: string, params: unknown[] = []): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(sql, params)).rows;
  } finally {
    await client.end();
  }
}
