/**
 * A peer as somebody would write it from the text of the specification in an afternoon: no tombstones, `>=` by updated_at,
 * JSON.parse, one answer for the whole batch. It shares no code with the library, so what it understands is the protocol.
 */
import type http from 'node:http';
import { openDatabase, type TestDatabase } from './lane.ts';
import { cleanUp, ITEMS, rowsOf, serve } from './nodes.ts';

const COLUMNS = ['id', 'name', 'value', 'created_at', 'updated_at'];
const json = (row: string): string =>
  `json_object(${COLUMNS.map((column) => `'${column}', ${row}.${column}`).join(', ')})`;
const capture = (op: string, row: string): string =>
  `CREATE TRIGGER capture_${op} AFTER ${op} ON items WHEN (SELECT value FROM _meta WHERE key = 'syncing') = 0 ` +
  `BEGIN INSERT INTO _changes (op, row_id, row_data) VALUES ('${op}', ${row}.id, ${json(row)}); END;`;
const SCHEMA = `${ITEMS};
  CREATE TABLE _changes (change_id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, row_id TEXT, row_data TEXT);
  CREATE TABLE _meta (key TEXT PRIMARY KEY, value INTEGER);
  INSERT INTO _meta VALUES ('syncing', 0);
  ${capture('INSERT', 'NEW')} ${capture('UPDATE', 'NEW')} ${capture('DELETE', 'OLD')}`;

type Row = Record<string, string | number | null>;
type Change = { op: string; table: string; row: Row | null; old_id: string | null };

export class PlainPeer {
  url = '';
  readonly db: TestDatabase;

  constructor(db: TestDatabase) {
    this.db = db;
    db.exec(SCHEMA);
  }

  /** Sends batches to `peer` until nothing is left, and says how many requests that took. */
  async ship(peer: string): Promise<number> {
    for (let requests = 0; ; requests++) {
      const rows = rowsOf(this.db, 'SELECT * FROM _changes ORDER BY change_id LIMIT 10000');
      if (rows.length === 0) return requests;
      const batchId = rows.at(-1)?.change_id as number;
      const changes = rows.map(({ op, row_id, row_data }) => ({
        op,
        table: 'items',
        row: JSON.parse(row_data as string),
        old_id: op === 'DELETE' ? row_id : null,
      }));
      const response = await fetch(`${peer}/sync`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'X-Node-Id': 'plain' },
        body: JSON.stringify({ batch_id: batchId, changes }),
      });
      const answer = (await response.json()) as { ack?: number };
      if (answer.ack !== batchId) throw new Error(`no acknowledgement: ${response.status} ${JSON.stringify(answer)}`);
      this.db.exec(`DELETE FROM _changes WHERE change_id <= ${batchId}`);
    }
  }

  apply(changes: Change[]): number {
    let applied = 0;
    this.db.exec("BEGIN IMMEDIATE; UPDATE _meta SET value = 1 WHERE key = 'syncing'");
    for (const { op, row, old_id } of changes) {
      const id = op === 'DELETE' ? (old_id ?? row?.id) : row?.id;
      const [local] = rowsOf(this.db, 'SELECT updated_at FROM items WHERE id = ?', id);
      const wins = !local || Number(row?.updated_at) >= Number(local.updated_at);
      if (!wins) continue;
      if (op === 'DELETE') this.db.prepare('DELETE FROM items WHERE id = ?').run(id);
      else
        this.db
          .prepare('INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?)')
          .run(...COLUMNS.map((c) => row?.[c] ?? null));
      applied += 1;
    }
    this.db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'; COMMIT");
    return applied;
  }
}

/** A plain peer that listens on loopback until the test ends. `seen` collects the bodies it was sent. */
export async function plainPeer(seen: string[] = []): Promise<PlainPeer> {
  const db = await openDatabase();
  cleanUp(() => db.close());
  const peer = new PlainPeer(db);
  peer.url = await serve((request: http.IncomingMessage, response: http.ServerResponse) => {
    let text = '';
    request.on('data', (chunk) => {
      text += chunk;
    });
    request.on('end', () => {
      if (request.url !== '/sync') return void response.writeHead(404).end();
      seen.push(text);
      const body = JSON.parse(text) as { batch_id: number; changes: Change[] };
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ applied: peer.apply(body.changes), ack: body.batch_id }));
    });
  });
  return peer;
}
