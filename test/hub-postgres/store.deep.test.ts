/** The hub's store on PostgreSQL: what every store has to keep. */
import { describe } from 'vitest';
import { storeConformance } from '../hub/store-conformance.ts';
import { openGroupStore, watchedDriver } from '../support/group-store.ts';
import { hasPostgres, newDatabase, postgresServer } from '../support/postgres.ts';

describe.skipIf(!hasPostgres)('PostgreSQL', () => {
  const server = postgresServer();

  storeConformance('PostgreSQL', async () => {
    const url = await newDatabase(server());
    let flushes = 0;
    const store = await openGroupStore(url, { driver: watchedDriver(() => (flushes += 1)) });
    return { store, flushes: () => flushes, reopen: () => openGroupStore(url) };
  });
});
