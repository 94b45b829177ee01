/** A client of one sqld; what replicates is the servers. */
import { createRequire } from 'node:module';
import { serveClient } from '../client.mjs';

const { createClient } = createRequire(import.meta.url)('@libsql/client/http');
let client;

await serveClient({
  connect({ port }) {
    client = createClient({ url: `http://127.0.0.1:${port}` });
  },
  write: (rows) =>
    client.batch(
      rows.map((args) => ({ sql: 'INSERT INTO items VALUES (?, ?, ?, ?, ?)', args })),
      'write',
    ),
  present: async (id) =>
    (await client.execute({ sql: 'SELECT 1 FROM items WHERE id = ?', args: [id] })).rows.length === 1,
  async rows() {
    const all = [];
    for (let last = ''; ; ) {
      const sql = 'SELECT id, name, value FROM items WHERE id > ? ORDER BY id LIMIT 5000';
      const { rows } = await client.execute({ sql, args: [last] });
      if (rows.length === 0) return all;
      for (const { id, name, value } of rows) all.push([id, name, value]);
      last = rows.at(-1).id;
    }
  },
  close: () => client.close(),
});
