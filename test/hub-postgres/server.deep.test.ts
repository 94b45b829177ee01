/** The PostgreSQL that the other tests stand on: it flushes, a database is one's own, and it comes back after a kill. */
import { existsSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { hasPostgres, newDatabase, ownServer, postgresServer, query, servers } from '../support/postgres.ts';

describe.skipIf(!hasPostgres).each(servers)('PostgreSQL of the $from', (binaries) => {
  const server = postgresServer({ binaries });

  test('flushes, listens on loopback alone, and asks for a password', async () => {
    const settings = "SELECT string_agg(setting, ' ' ORDER BY name) AS s FROM pg_settings WHERE name IN ('fsync', ";
    const [row] = await query(server().url(), `${settings}'listen_addresses', 'synchronous_commit')`);
    expect(row?.s).toBe('on 127.0.0.1 on');
    await expect(query(server().url('postgres', 'postgres', 'wrong'), 'SELECT 1')).rejects.toThrow('password');
  });

  test('a database is empty, and nobody else has it', async () => {
    const [one, two] = [await newDatabase(server()), await newDatabase(server())];
    await query(one, 'CREATE TABLE t (x int)');
    expect(await query(two, "SELECT count(*) AS n FROM pg_class WHERE relname = 't'")).toEqual([{ n: '0' }]);
  });
});

test.skipIf(!hasPostgres)('what was committed is there after a kill, and nothing is left after the end', async () => {
  const server = await ownServer();
  await query(server.url(), 'CREATE TABLE t AS SELECT 7 AS x');
  await server.kill();
  await expect(query(server.url(), 'SELECT 1')).rejects.toThrow();
  await server.start();
  expect(await query(server.url(), 'SELECT x FROM t')).toEqual([{ x: 7 }]);
  await server.stop();
  expect(existsSync(server.folder)).toBe(false);
});
