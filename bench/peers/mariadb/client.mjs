/** A client of one MariaDB server; what replicates is the servers. */
import { createRequire } from 'node:module';
import { serveClient } from '../client.mjs';

const mysql = createRequire(import.meta.url)('mysql2/promise');
let client;

await serveClient({
  async connect({ port }) {
    client = await mysql.createConnection({ host: '127.0.0.1', port, user: 'root', database: 'bench' });
  },
  /** One statement for the whole transaction. */
  write: (rows) => client.query('INSERT INTO items VALUES ?', [rows]),
  present: async (id) => (await client.execute('SELECT 1 FROM items WHERE id = ?', [id]))[0].length === 1,
  rows: async () => (await client.query({ sql: 'SELECT id, name, value FROM items', rowsAsArray: true }))[0],
  close: () => client.end(),
});
