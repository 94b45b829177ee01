/** Hubs for tests, nodes around them, and what is said to them. */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { createListener } from '../../src/http/index.ts';
import { createHub, type Hub, type HubConfig } from '../../src/hub/hub.ts';
import type { Manager } from '../../src/index.ts';
import type { TestDatabase } from './lane.ts';
import { cleanUp, database, type NodeOptions, node, rowsOf, serve, type TestNode, until } from './nodes.ts';
import { batchIn } from './tabular.ts';

export const T = 4_000_000_000_000;

export interface TestHub {
  hub: Hub;
  db: TestDatabase;
  rows(): Record<string, unknown>[];
}

export async function hub(config: Partial<HubConfig> = {}, path = ':memory:'): Promise<TestHub> {
  const db = await database('SELECT 1', path);
  const made = await createHub(db, { id: 'hub', edges: [], batchMs: 5, maxAheadMs: 0, ...config });
  cleanUp(() => made.stop());
  const rows = (): Record<string, unknown>[] =>
    rowsOf(
      db,
      'SELECT op, table_name, row_id, updated_at, row_data, origin FROM _hub_rows ORDER BY table_name, row_id',
    );
  return { hub: made, db, rows };
}

/** A batch as somebody's body; returns the answer's body. */
export async function deliver(
  to: { receive: Hub['receive'] | Manager['receive'] },
  changes: unknown[],
  from?: string,
): Promise<{ applied: number; rejected?: { code: string }[] }> {
  const answer = await to.receive(JSON.stringify({ batch_id: 1, changes }), { from });
  if (answer.status !== 200) throw new Error(`${answer.status} ${answer.body.error}`);
  return answer.body;
}

export function live(
  id: string,
  updatedAt: number,
  more: Record<string, unknown> = { name: 'n' },
  op = 'UPDATE',
): object {
  return { op, table: 'items', row: { id, ...more, updated_at: updatedAt }, old_id: null };
}

export function gone(id: string, updatedAt: number): object {
  return { op: 'DELETE', table: 'items', row: { id, updated_at: updatedAt }, old_id: id };
}

/** A server whose application can come later, that counts what it is asked, and that can be out of order. */
export interface Door {
  url: string;
  syncs: number;
  /** The bodies of every `/sync`, in order, and in the plain form. */
  bodies: string[];
  open(listener: RequestListener): void;
  close(): void;
}

export async function door(): Promise<Door> {
  let inner: RequestListener | undefined;
  const self: Door = {
    url: '',
    syncs: 0,
    bodies: [],
    open: (listener) => {
      inner = listener;
    },
    close: () => {
      inner = undefined;
    },
  };
  self.url = await serve((request, response) => {
    if (!inner) return void response.writeHead(503).end('closed');
    if (request.url === '/sync') {
      self.syncs += 1;
      const chunks: Buffer[] = [];
      request.on('data', (chunk) => chunks.push(chunk));
      request.on('end', () => self.bodies.push(inPlainForm(Buffer.concat(chunks).toString())));
    }
    inner(request, response);
  });
  return self;
}

/** What is no batch at all is kept as it is. */
function inPlainForm(body: string): string {
  return body.includes('"rows":[') ? JSON.stringify(batchIn(body)) : body;
}

/** A node behind a door, shipping to `peers`. */
export async function edge(id: string, peers: string[], at: Door, options: NodeOptions = {}): Promise<TestNode> {
  const made = await node({ id, peers, batchMs: 5, ...options });
  at.open(createListener(made.manager));
  return made;
}

/** A star: a hub and nodes a, b, c, ... that know the hub alone. */
export async function star(n: number, config: Partial<HubConfig> = {}) {
  const center = await door();
  const doors = await Promise.all(Array.from({ length: n }, () => door()));
  const nodes: TestNode[] = [];
  for (const [i, at] of doors.entries()) nodes.push(await edge(String.fromCharCode(97 + i), [center.url], at));
  const made = await hub({ edges: doors.map(({ url }) => url), ...config });
  center.open(createListener(made.hub));
  await until('the edges are known', async () =>
    (await made.hub.health()).peer_states.every((one) => one.node_id !== null),
  );
  return { ...made, center, doors, nodes };
}

export function insert({ db }: TestNode, id: string, name = 'n', time = T): void {
  db.prepare('INSERT INTO items (id, name, value, created_at, updated_at) VALUES (?, ?, 1, 1, CAST(? AS INTEGER))').run(
    id,
    name,
    time,
  );
}

export const count = ({ db }: TestNode): number => rowsOf(db, 'SELECT count(*) AS n FROM items')[0]?.n as number;

/** Nobody has anything left to send. */
export async function quiet(hubs: Hub[], nodes: TestNode[]): Promise<void> {
  await until('all is quiet', async () => {
    for (const { manager } of nodes) await manager.flush();
    for (const one of hubs) await one.flush();
    const healths = await Promise.all([...nodes.map(({ manager }) => manager), ...hubs].map((one) => one.health()));
    return healths.every(({ pending_changes }) => pending_changes === 0);
  });
}

/** Acknowledges everything, and knows no other route. */
export function plainAck(request: IncomingMessage, response: ServerResponse, bodies: string[]): void {
  if (request.url !== '/sync') return void response.writeHead(404).end();
  const chunks: Buffer[] = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    bodies.push(Buffer.concat(chunks).toString());
    response.end(JSON.stringify({ applied: 0, ack: JSON.parse(bodies.at(-1) as string).batch_id }));
  });
}
