/** Odd batches to a store on SQLite and to one on PostgreSQL: the same answers, the same rows, in the same order. */
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import type { PostgresStore } from '../../src/hub/postgres/store.ts';
import { SqliteHubStore } from '../../src/hub/sqlite-store.ts';
import type { HubStore, Sender, Stored } from '../../src/hub/store.ts';
import type { DeadLetter } from '../../src/letters/dead-letters.ts';
import { Connection } from '../../src/sqlite/connection.ts';
import { openGroupStore } from '../support/group-store.ts';
import { Random } from '../support/model.ts';
import { database } from '../support/nodes.ts';
import { hasPostgres, newDatabase, postgresServer, query } from '../support/postgres.ts';

const T = 1_700_000_000_000;
const ROUNDS = Number(process.env.ROWCAST_ROUNDS ?? 120);
/** What an administrator may have set for older programs. */
const ODD_SETTINGS = [
  'standard_conforming_strings = off',
  'backslash_quote = off',
  "bytea_output = 'escape'",
  'search_path = pg_catalog',
  "default_transaction_isolation = 'repeatable read'",
];
const ALL = { changes: 1_000, bytes: 10_000_000 };

class Odd {
  readonly #random: Random;

  constructor(seed: number) {
    this.#random = new Random(seed);
  }

  pick<V>(from: readonly V[]): V {
    return from[Math.floor(this.#random.next() * from.length)] as V;
  }

  chance(p: number): boolean {
    return this.#random.next() < p;
  }

  sender(): Sender {
    const from = this.pick(['a', 'b', undefined]);
    const plain = this.chance(0.4);
    const origins = plain || this.chance(0.7) ? undefined : 'p,q,;0,1,2';
    return { from, plain, ...(origins !== undefined && { origins }) };
  }

  batch(): string {
    const length = this.pick([1, 2, 3, 3, 6]);
    // Now and then all of one row and one time: what a plain sender says of it last is what stands.
    const [id, version] = this.chance(0.25) ? [this.id(), this.version()] : [];
    const changes = Array.from({ length }, () => this.change(id, version));
    return `{"batch_id":${this.pick([1, 7, '9007199254740993'])},"changes":[${changes.join(',')}]}`;
  }

  change(id = this.id(), version?: number | string): string {
    if (this.chance(0.06)) return this.pick(['null', '7', '"x"', '[]', '{}', '{"op":"UPSERT"}', 'true']);
    const op = this.pick(['INSERT', 'UPDATE', 'UPDATE', 'DELETE', this.chance(0.1) ? 'delete' : 'UPDATE']);
    const table = this.pick(['"items"', '"items"', '"ITEMS"', '"b\\u0000c"', this.chance(0.1) ? '""' : '"items"']);
    const isRowless = op === 'DELETE' && this.chance(0.25);
    const oldId = op === 'DELETE' ? this.pick([id, id, id, '"x"', 'null']) : 'null';
    const base = this.chance(0.3) ? `,"base":${this.pick([T, T - 1, '"x"', 'null', 3.5])}` : '';
    return `{"op":"${op}","table":${table},"row":${isRowless ? 'null' : this.row(id, version)},"old_id":${oldId}${base}}`;
  }

  id(): string {
    const ids = [
      '"x"',
      '"y"',
      '"X"',
      '"\\u00e9"',
      '""',
      '"a\\u0000b"',
      '"a\\u0001b"',
      '"\\\\u0001\\u0001\\\\"',
      '"$bytes:FF"',
      '"$x"',
      '"[1]"',
    ];
    return this.pick([...ids, '"x"', '"y"', '"x"', '"y"', '5', 'null', '"\\ud800"']);
  }

  version(): number | string {
    return this.pick([T, T, T + 1, T + 2, T + 3, -5, 0, '"x"', 1.5, 9e15, T + 4, T + 5]);
  }

  row(id: string, version = this.version()): string {
    const parts = [`${this.pick(['"id"', '"id"', '"id"', '"ID"'])}:${id}`, `"updated_at":${version}`];
    for (const column of ['name', 'NAME', 'more', 'third', 'a\\nb']) {
      const value = this.pick(['"a"', '"b"', '1', '1.0', 'null', 'true', '{"k":[1]}', '"\\u0000"', '"$null"', '1e2']);
      if (this.chance(column === 'name' ? 0.9 : 0.25)) parts.push(`"${column}":${value}`);
    }
    if (this.chance(0.3)) parts.reverse();
    return `{${parts.join(',')}}`;
  }
}

describe.skipIf(!hasPostgres)('a store on PostgreSQL decides as one on SQLite does', () => {
  const server = postgresServer();

  async function oddDatabase(): Promise<string> {
    const url = await newDatabase(server());
    const name = new URL(url).pathname.slice(1);
    for (const setting of ODD_SETTINGS) await query(url, `ALTER DATABASE ${name} SET ${setting}`);
    return url;
  }

  async function both(): Promise<[SqliteHubStore, PostgresStore]> {
    const options = { clock: systemClock, maxBodyBytes: 250_000, id: 'hub', random: Math.random, maxAheadMs: 0 };
    const sqlite = new SqliteHubStore(new Connection(await database('SELECT 1')), options);
    await sqlite.open();
    return [sqlite, await openGroupStore(await oddDatabase())];
  }

  async function answerOf(store: HubStore, body: string, sender: Sender): Promise<Stored | { code: unknown }> {
    return store.receive(body, sender).catch((error) => ({ code: error.code, message: error.message }));
  }

  /** All that it sends, in its order, and who brought and made it; places themselves are its own. */
  async function stateOf(store: HubStore): Promise<unknown> {
    const segment = await store.read(0, ALL);
    if (!segment) return [];
    const text = new TextDecoder().decode(segment.body);
    const runs = segment.runs.map(({ origin, node, count }) => [origin, node, count]);
    return [text.slice(text.indexOf(',')), segment.count, runs];
  }

  test.each([1, 2, 3])('seed %i', async (seed) => {
    const odd = new Odd(seed);
    const [sqlite, postgres] = await both();
    for (let i = 0; i < ROUNDS; i++) {
      const [body, sender] = [odd.batch(), odd.sender()];
      const [one, two] = [await answerOf(sqlite, body, sender), await answerOf(postgres, body, sender)];
      expect([body, two]).toEqual([body, one]);
      expect([body, await stateOf(postgres)]).toEqual([body, await stateOf(sqlite)]);
      const told = (letters: DeadLetter[]): unknown => letters.map((letter) => ({ ...letter, id: 0, failedAt: 0 }));
      if (i % 10 === 9) expect(told(await postgres.letters.list())).toEqual(told(await sqlite.letters.list()));
    }
  });

  test('an id that is too long for an index stops nobody: it is set aside, or what it came with is, as it would be', async () => {
    const [sqlite, postgres] = await both();
    const random = new Random(5);
    // Of characters that cannot be packed.
    const long = (n: number): string =>
      Array.from({ length: n }, () => Math.floor(random.next() * 36).toString(36)).join('');
    const of = (id: string, more: object = {}): object => ({
      op: 'INSERT',
      table: 'items',
      row: { id, updated_at: T, ...more },
      old_id: null,
    });
    const rowless = (id: string): object => ({ op: 'DELETE', table: 'items', row: null, old_id: id });
    const name = `${'\x01'.repeat(200)}`;
    const kept = [of('before'), of(long(2_000)), { ...of('\0'.repeat(1_000)), table: name }, of('after')];
    const body = JSON.stringify({ batch_id: 1, changes: kept });
    const sender = { from: 'a', plain: false };
    expect(await answerOf(postgres, body, sender)).toEqual(await answerOf(sqlite, body, sender));
    expect(await stateOf(postgres)).toEqual(await stateOf(sqlite));
    const refused = [of(long(2_001)), of('\0'.repeat(1_001)), of(long(60_000)), of(long(70_000)), rowless(long(9_000))];
    const wrong = [...refused, of(long(3_000), { updated_at: 'x' }), rowless(long(1_999))];
    const answer = await postgres.receive(JSON.stringify({ batch_id: 2, changes: [...wrong, of('last')] }), sender);
    expect(answer.ack.applied).toBe(1);
    expect(answer.ack.rejected?.map(({ code }) => code)).toEqual([
      ...refused.map(() => 'bad-id'),
      'bad-timestamp',
      'bad-row',
    ]);
    expect(await postgres.letters.list()).toHaveLength(wrong.length);
  });

  test('what comes at once, at two processes, ends as if it had come one after the other', async () => {
    const odd = new Odd(4);
    const url = await oddDatabase();
    const [sqlite] = await both();
    const group = [await openGroupStore(url), await openGroupStore(url)] as const;
    const change = (): string => {
      const [id, at] = [odd.pick(['p', 'q', 'r', 's', 't']), T + odd.pick([0, 1, 2])];
      const name = odd.pick(['"a"', '"b"', '"c"']);
      if (odd.chance(0.1))
        return `{"op":"DELETE","table":"items","row":{"id":"${id}","updated_at":${at}},"old_id":"${id}"}`;
      return `{"op":"UPDATE","table":"items","row":{"id":"${id}","name":${name},"updated_at":${at}},"old_id":null}`;
    };
    const bodies = Array.from({ length: 80 }, () => `{"batch_id":1,"changes":[${change()},${change()},${change()}]}`);
    for (const body of bodies) await sqlite.receive(body, { from: 'a', plain: false });
    const received = bodies.map((body, i) => (group[i % 2] as HubStore).receive(body, { from: 'a', plain: false }));
    for (const { ack } of await Promise.all(received)) expect(ack.ack).toBe(1);
    const rows = async (store: HubStore): Promise<string[]> => {
      const segment = await store.read(0, ALL);
      const { changes } = JSON.parse(new TextDecoder().decode(segment?.body)) as { changes: object[] };
      return changes.map((one) => JSON.stringify(one)).sort();
    };
    for (const store of group) expect(await rows(store)).toEqual(await rows(sqlite));
  });
});
