/** A client of one PostgreSQL server; what replicates is the servers. */
import { createRequire } from 'node:module';
import { serveClient } from '../client.mjs';

const { Client } = createRequire(import.meta.url)('pg');
let client;

await serveClient({
  async connect({ port }) {
    client = new Client({ host: '127.0.0.1', port, user: 'bench', database: 'postgres' });
    await client.connect();
  },
  /** One statement for the whole transaction: the fastest that the protocol has short of COPY. */
  async write(rows) {
    const columns = [0, 1, 2, 3, 4].map((c) => rows.map((row) => row[c]));
    await client.query({
      name: 'write',
      text: 'INSERT INTO items SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])',
      values: columns,
    });
  },
  present: async (id) =>
    (await client.query({ name: 'present', text: 'SELECT 1 FROM items WHERE id = $1', values: [id] })).rowCount === 1,
  rows: async () => (await client.query({ text: 'SELECT id, name, value FROM items', rowMode: 'array' })).rows,
  close: () => client.end(),
});
