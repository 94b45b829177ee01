/** A few nodes and hubs in this process, each with a file, between which requests go by a table of URLs. */
import { copyFileSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { type Clock, systemClock } from '../../src/clock.ts';
import { type Replica, respond } from '../../src/http/respond.ts';
import { createHub, type Hub, type HubConfig } from '../../src/hub/hub.ts';
import { attach, type Config, type Manager, type RowcastEvents } from '../../src/index.ts';
import type { FetchResponse } from '../../src/send/transport.ts';
import type { TestDatabase } from './lane.ts';
import { cleanUp, database, ITEMS, rowsOf, scratchFolder, until } from './nodes.ts';

export interface Member {
  name: string;
  path: string;
  db: TestDatabase;
  manager: Manager;
  /** Events of identity, as they came. */
  events: string[];
  stop(): Promise<void>;
}

export interface HubMember extends Omit<Member, 'manager'> {
  hub: Hub;
}

const BEGINNING = systemClock.now();

/** Time goes ten times as fast, and so the long pauses, between attempts, between two looks and for an answer, are short. */
export const hurried: Clock = {
  now: () => BEGINNING + 10 * (systemClock.now() - BEGINNING),
  sleep: (ms, signal) => systemClock.sleep(ms < 100 ? ms : ms / 10, signal),
};

interface Seen {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string;
}

export class Cluster {
  /** Who answers at a URL. */
  readonly at = new Map<string, Replica>();
  /** Every request, in order. */
  readonly requests: Seen[] = [];
  /** Every answer, in order, as it was given. */
  readonly answers: { status: number; headers: Record<string, string>; body: string }[] = [];
  /** What becomes of an answer on its way, where somebody is there who changes it. */
  tamper:
    | ((
        answer: FetchResponse & { body: string },
        url: string,
        method: string,
      ) => FetchResponse | Promise<FetchResponse>)
    | undefined;
  /** What somebody before all of them answers in their place; undefined where the request goes on. */
  proxy: ((request: Seen) => FetchResponse | undefined) | undefined;
  /** Nothing gets to these URLs. */
  readonly cut = new Set<string>();
  readonly folder = scratchFolder();

  url(name: string): string {
    return `http://${name}.test`;
  }

  /** A node with the file of that name, at the URL of that name unless another is given. */
  async node(
    name: string,
    peers: string[],
    extra: Partial<Config> & { url?: string; file?: string; tables?: string[]; schema?: string } = {},
  ): Promise<Member> {
    const { url = this.url(name), file = name, tables = ['items'], schema = ITEMS, ...config } = extra;
    const path = join(this.folder, `${file}.db`);
    const db = await database(existsSync(path) ? 'SELECT 1' : schema, path);
    const manager = attach(
      db,
      {
        id: name,
        peers: peers.map((peer) => this.url(peer)),
        ...this.#seams(),
        clock: hurried,
        batchMs: 5,
        maxAheadMs: 0,
        ...config,
      },
      tables,
    );
    const member = { name, path, db, manager, events: watched(manager) };
    return { ...member, stop: this.#serve(url, manager, db) };
  }

  async hub(name: string, edges: string[], extra: Partial<Config> = {}): Promise<HubMember> {
    const path = join(this.folder, `${name}.db`);
    const db = await database('SELECT 1', path);
    const member = await this.serveHub(name, edges, db, (config) => createHub(db, { ...config, id: name, ...extra }));
    return { ...member, path, db };
  }

  /** A hub of any making, at the URL of that name. */
  async serveHub(
    name: string,
    edges: string[],
    db: TestDatabase,
    make: (config: Omit<HubConfig, 'id'>) => Promise<Hub>,
  ): Promise<Omit<HubMember, 'path' | 'db'>> {
    const urls = edges.map((edge) => this.url(edge));
    const hub = await make({ edges: urls, ...this.#seams(), clock: hurried, batchMs: 5, maxAheadMs: 0 });
    const events = watched(hub as unknown as Manager);
    return { name, hub, events, stop: this.#serve(this.url(name), hub, db) };
  }

  /** A copy of the file as it is now, to be put back later. */
  backup({ db, path }: Pick<Member, 'db' | 'path'>): () => void {
    const kept = `${path}.backup-${this.requests.length}-${Math.random()}`;
    db.exec(`VACUUM INTO '${kept}'`);
    return () => {
      this.wipe(path);
      copyFileSync(kept, path);
    };
  }

  wipe(path: string): void {
    for (const suffix of ['', '-wal', '-shm']) rmSync(path + suffix, { force: true });
  }

  #seams(): Pick<Config, 'fetch' | 'get'> {
    return {
      fetch: (url, { headers, body }) => this.#ask('POST', url, headers, body),
      get: (url, { headers }) => this.#ask('GET', url, headers, undefined),
    };
  }

  async #ask(
    method: string,
    url: string,
    headers: Record<string, string>,
    body: Uint8Array | undefined,
  ): ReturnType<NonNullable<Config['fetch']>> {
    const { origin, pathname } = new URL(url);
    const seen = { method, url, headers, body: body ? new TextDecoder().decode(body) : '' };
    this.requests.push(seen);
    const instead = this.proxy?.(seen);
    if (instead) return instead;
    const replica = this.at.get(origin);
    if (!replica || this.cut.has(origin)) throw new Error('ECONNREFUSED');
    const incoming = {
      method,
      path: pathname,
      header: (name: string) => headers[name],
      read: async (_max: number, tap?: (chunk: Uint8Array) => void) => {
        if (body) tap?.(body);
        return body ?? new Uint8Array();
      },
      hold: () => true,
    };
    const answer = await respond(replica, {}, incoming);
    this.answers.push(answer);
    const whole = {
      status: answer.status,
      text: async () => answer.body,
      headers: { get: (name: string) => (name === 'accept-encoding' ? null : (answer.headers[name] ?? null)) },
    };
    if (!this.tamper) return whole;
    const { body: _, ...given } = { body: '', ...(await this.tamper({ ...whole, body: answer.body }, url, method)) };
    return given;
  }

  #serve(url: string, replica: Replica & { stop(): Promise<void> }, db: TestDatabase): () => Promise<void> {
    this.at.set(url, replica);
    let stopped: Promise<void> | undefined;
    const stop = (): Promise<void> => {
      stopped ??= (async () => {
        if (this.at.get(url) === replica) this.at.delete(url);
        await replica.stop();
        db.close();
      })();
      return stopped;
    };
    cleanUp(stop);
    return stop;
  }
}

function watched(manager: Manager): string[] {
  const events: string[] = [];
  const names = ['restored', 'peer-replaced', 'peer-restored'] as const;
  for (const name of names)
    manager.on(name, (event: RowcastEvents[typeof name]) => events.push(`${name} ${JSON.stringify(event)}`));
  return events;
}

export function write({ db }: Pick<Member, 'db'>, ...ids: string[]): void {
  for (const id of ids) db.prepare('INSERT OR REPLACE INTO items VALUES (?, ?, 1, 10, ?)').run(id, id, Date.now());
}

export function ids({ db }: Pick<Member, 'db'>): string {
  return rowsOf(db, 'SELECT id FROM items ORDER BY id')
    .map(({ id }) => id)
    .join(' ');
}

export function hubIds({ db }: Pick<HubMember, 'db'>): string {
  return rowsOf(db, "SELECT row_id AS id FROM _hub_rows WHERE op <> 'DELETE' ORDER BY row_id")
    .map(({ id }) => id)
    .join(' ');
}

export async function settled(expected: string, ...members: Pick<Member, 'db' | 'name'>[]): Promise<void> {
  await until(`all have ${expected}: ${members.map((one) => `${one.name} has ${ids(one)}`).join(', ')}`, () =>
    members.every((one) => ids(one) === expected),
  );
}

/** The seeds that a node has begun for its peers. */
export function seeds({ db }: Pick<Member, 'db'>): number {
  return Number(rowsOf(db, 'SELECT sum(snapshot_run) AS n FROM _peer_state')[0]?.n);
}

export function incOf({ db }: Pick<Member, 'db'>): unknown {
  return rowsOf(db, 'SELECT inc FROM _nodes WHERE self = 1')[0]?.inc;
}
