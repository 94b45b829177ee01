/** Real receivers, one per URL, in place of a network: any of them can be cut off, and what each was sent is known. */
import { attach, type Config, type Manager } from '../../src/index.ts';
import { connectionError, receivedBy, recordingFetch, type Sent } from './bad-servers.ts';
import type { TestDatabase } from './lane.ts';
import { cleanUp, node, rowsOf, type TestNode } from './nodes.ts';
import { VirtualClock } from './virtual-clock.ts';

export interface Receivers {
  /** Those that cannot be reached. */
  away: Set<string>;
  sent: Sent[];
  /** The ids of the rows that were sent there, in order. */
  to(url: string): string[];
  at(url: string): TestNode;
  fetch: NonNullable<Config['fetch']>;
}

export async function receivers(...urls: string[]): Promise<Receivers> {
  const nodes = new Map<string, TestNode>();
  for (const url of urls) nodes.set(url, await node({ id: new URL(url).hostname }));
  const away = new Set<string>();
  const at = (url: string): TestNode => nodes.get(url) as TestNode;
  const { fetch, sent } = recordingFetch((one, raw) => {
    const url = one.url.replace(/\/sync$/, '');
    if (away.has(url)) connectionError();
    return receivedBy(at(url).manager, raw);
  });
  const to = (url: string): string[] =>
    sent.filter((one) => one.url === `${url}/sync`).flatMap((one) => one.changes.map(({ row }) => row.id as string));
  return { away, sent, to, at, fetch };
}

export interface Sender {
  manager: Manager;
  clock: VirtualClock;
  warnings: string[];
  events: string[];
}

/** Backoffs and ticks of its loops pass at once; minutes have to be moved on. */
export function sender(
  db: TestDatabase,
  network: Receivers,
  peers: string[],
  extra: Partial<Config> = {},
  clock = new VirtualClock((ms) => ms <= 800),
): Sender {
  const manager = attach(db, { maxAheadMs: 0, id: 'sender', peers, clock, fetch: network.fetch, ...extra }, ['items']);
  cleanUp(() => manager.stop());
  const warnings: string[] = [];
  const events: string[] = [];
  manager.on('warning', ({ code }) => warnings.push(code));
  for (const name of ['peer-up', 'peer-down', 'peer-stale'] as const) {
    manager.on(name, ({ peer }) => events.push(`${name} ${peer}`));
  }
  return { manager, clock, warnings, events };
}

export function write(db: TestDatabase, ...ids: string[]): void {
  for (const id of ids) db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, 1000)').run(id, `name of ${id}`);
}

export const changeIds = (db: TestDatabase): unknown[] =>
  rowsOf(db, 'SELECT change_id FROM _changes ORDER BY change_id').map(({ change_id }) => change_id);

export const peerRow = (db: TestDatabase, url: string): Record<string, unknown> =>
  rowsOf(db, 'SELECT * FROM _peer_state WHERE peer_url = ?', url)[0] ?? {};
