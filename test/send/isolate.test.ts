import { expect, test } from 'vitest';
import { type Reply, receivedBy, recordingFetch, type Sent } from '../support/bad-servers.ts';
import { firstOf } from '../support/draws.ts';
import type { TestDatabase } from '../support/lane.ts';
import { exactRows, type NodeOptions, node, rowsOf, type TestNode, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const PEER = 'http://peer.test';
const OTHER = 'http://other.test';
const refusal: Reply = { status: 422, body: '{"error":"I will not have it"}' };

interface Pair {
  sender: TestNode;
  receiver: TestNode;
  sent: Sent[];
  /** Ids that the peer refuses together with whatever is in the same batch. */
  poison: Set<string>;
}

/** A sender and a real receiver behind a peer that refuses every batch with a poisoned change in it. */
async function pair(
  poison: string[],
  options: NodeOptions & { other?: (sent: Sent, raw: Uint8Array) => Reply } = {},
): Promise<Pair> {
  const { other, ...config } = options;
  const receiver = await node({ id: 'receiver' });
  const bad = new Set(poison);
  const network = recordingFetch((one, raw) => {
    if (other && one.url.startsWith(OTHER)) return other(one, raw);
    return one.changes.some(({ row }) => bad.has(row.id as string)) ? refusal : receivedBy(receiver.manager, raw);
  });
  const clock = new VirtualClock((ms) => ms <= 800);
  const sender = await node({ id: 'sender', peers: [PEER], clock, fetch: network.fetch, batchSize: 10_000, ...config });
  return { sender, receiver, sent: network.sent, poison: bad };
}

/** Rows `row-00001` to `row-<count>`, in one transaction. */
function writeMany(db: TestDatabase, count: number): void {
  db.prepare(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO items SELECT printf('row-%05d', i), 'x', i, 10, 1000 FROM n",
  ).run(count);
}

const count = (db: TestDatabase, table: string): number =>
  Number(rowsOf(db, `SELECT count(*) AS n FROM ${table}`)[0]?.n);

const PLACES: [string, string][] = [
  ['somewhere', 'row-07777'],
  ['the first', 'row-00001'],
  ['the second', 'row-00002'],
  ['in the middle', 'row-05000'],
  ['just after the middle', 'row-05001'],
  ['the last', 'row-10000'],
];
test.each(firstOf(PLACES))(
  'one poisoned change of 10,000, %s, is isolated and 9,999 are delivered in at most 34 requests',
  async (_, bad) => {
    const { sender, receiver, sent } = await pair([bad]);
    writeMany(sender.db, 10_000);
    await sender.manager.flush();
    expect(sent.slice(0, 5).map((one) => one.changes.length)).toEqual(Array(5).fill(10_000));
    expect(count(receiver.db, 'items')).toBe(9_999);
    expect(receiver.all('SELECT id FROM items WHERE id = ?', bad)).toEqual([]);
    expect(sender.manager.deadLetters.list()).toMatchObject([
      { direction: 'out', op: 'INSERT', table: 'items', rowId: bad, peer: PEER, code: 'refused' },
    ]);
    expect(sender.manager.deadLetters.list()[0]?.reason).toContain('I will not have it');
    expect(count(sender.db, '_changes')).toBe(0);
    expect(count(sender.db, 'items')).toBe(10_000);
    expect(sent.length).toBeLessThanOrEqual(34);
  },
);

test('three poisoned changes of 10,000 are isolated, in whatever places', { tags: 'long' }, async () => {
  const bad = ['row-00001', 'row-03333', 'row-10000'];
  const { sender, receiver, sent } = await pair(bad);
  writeMany(sender.db, 10_000);
  await sender.manager.flush();
  expect(count(receiver.db, 'items')).toBe(9_997);
  expect(sender.manager.deadLetters.list().map((letter) => letter.rowId)).toEqual(bad);
  expect(count(sender.db, '_changes')).toBe(0);
  expect(sent.length).toBeLessThanOrEqual(5 + 8 + 3 * 28);
});

test('every subset of a small batch is isolated exactly', { tags: 'long' }, async () => {
  const { sender, receiver, sent, poison } = await pair([]);
  for (const mask of Array.from({ length: 31 }, (_, i) => i + 1)) {
    const ids = [1, 2, 3, 4, 5].map((i) => `row-${mask}-${i}`);
    const bad = ids.filter((_, i) => mask & (1 << i));
    for (const id of bad) poison.add(id);
    sent.length = 0;
    sender.db.exec(`INSERT INTO items VALUES ${ids.map((id) => `('${id}', 'x', 1, 10, 1000)`)}`);
    await sender.manager.flush();
    expect(sent[0]?.changes).toHaveLength(5);
    const arrived = receiver.all('SELECT id FROM items WHERE id GLOB ? ORDER BY id', `row-${mask}-*`);
    expect(arrived.map(({ id }) => id)).toEqual(ids.filter((id) => !bad.includes(id)));
    const letters = sender.manager.deadLetters.list();
    expect(letters.map((letter) => letter.rowId)).toEqual(bad);
    for (const { id } of letters) sender.manager.deadLetters.discard(id);
    expect(count(sender.db, '_changes')).toBe(0);
  }
});

test('what follows a poisoned batch is delivered too', async () => {
  const { sender, receiver } = await pair(['row-00015'], { batchSize: 10 });
  writeMany(sender.db, 45);
  await sender.manager.flush();
  expect(count(receiver.db, 'items')).toBe(44);
  expect(sender.manager.deadLetters.list().map((letter) => letter.rowId)).toEqual(['row-00015']);
});

test('a peer that refuses everything is recognised early, and the batch becomes letters whole', {
  tags: 'long',
}, async () => {
  const { sender, sent, receiver } = await pair([]);
  const { sender: angry, sent: toAngry } = await pair([], { other: () => refusal, peers: [OTHER] });
  writeMany(angry.db, 2_000);
  await angry.manager.flush();
  expect(toAngry.length).toBeLessThanOrEqual(5 + 8);
  expect(angry.manager.health().dead_letter).toBe(2_000);
  expect(count(angry.db, '_changes')).toBe(0);
  expect(count(angry.db, 'items')).toBe(2_000);
  // And the measure does not hit a peer that takes everything.
  writeMany(sender.db, 2_000);
  await sender.manager.flush();
  expect(sent.length).toBe(1);
  expect(count(receiver.db, 'items')).toBe(2_000);
});

test('letters are paged in order', async () => {
  const { sender } = await pair([], { other: () => refusal, peers: [OTHER] });
  writeMany(sender.db, 250);
  await sender.manager.flush();
  const { deadLetters } = sender.manager;
  expect(deadLetters.list().length).toBe(100);
  const seen: (string | null)[] = [];
  for (let after = 0; ; ) {
    const page = deadLetters.list({ limit: 60, after });
    if (page.length === 0) break;
    seen.push(...page.map((letter) => letter.rowId));
    after = page.at(-1)?.id as number;
  }
  expect(seen.length).toBe(250);
  expect(seen).toEqual([...seen].sort());
  expect(new Set(seen).size).toBe(250);
});

test('a letter has exactly the six columns of the specification, and keeps the whole row', async () => {
  const { sender } = await pair(['row-00001']);
  writeMany(sender.db, 1);
  await sender.manager.flush();
  expect(rowsOf(sender.db, "SELECT group_concat(name, ' ') AS n FROM pragma_table_info('_dead_letter')")).toEqual([
    { n: 'dead_id op row_id row_data failed_at retry_count' },
  ]);
  const [letter] = rowsOf(sender.db, 'SELECT * FROM _dead_letter');
  expect(letter).toMatchObject({ dead_id: 1, op: 'INSERT', row_id: 'row-00001', retry_count: 5 });
  expect(JSON.parse(letter?.row_data as string)).toEqual({
    id: 'row-00001',
    name: 'x',
    value: 1,
    created_at: 10,
    updated_at: 1000,
  });
  expect(letter?.failed_at).toBeGreaterThanOrEqual(1_700_000_000_000);
});

test("a letter advances only that peer's watermark: the other still gets the change", async () => {
  const second = await node({ id: 'second' });
  let away = true;
  const { sender, receiver } = await pair(['row-00002'], {
    peers: [PEER, OTHER],
    other: (_sent, raw) => {
      if (away) throw new Error('connect ECONNREFUSED');
      return receivedBy(second.manager, raw);
    },
  });
  writeMany(sender.db, 3);
  await until('the letter is written', () => sender.manager.deadLetters.list().length === 1);
  await until('the rest is delivered', () => count(receiver.db, 'items') === 2);
  expect(count(sender.db, '_changes')).toBe(3);
  const acked = (url: string): unknown =>
    rowsOf(sender.db, 'SELECT last_acked FROM _peer_state WHERE peer_url = ?', url)[0]?.last_acked;
  await until('the watermark moved', () => acked(PEER) === 3);
  expect(acked(OTHER)).toBe(0);
  away = false;
  await until('the other has all', () => count(second.db, 'items') === 3);
  await sender.manager.flush();
  expect(count(sender.db, '_changes')).toBe(0);
  expect(sender.manager.deadLetters.list().map((letter) => letter.peer)).toEqual([PEER]);
});

test('a letter that is retried is delivered once the peer accepts it', async () => {
  const { sender, receiver, poison } = await pair(['row-00002', 'row-00004']);
  writeMany(sender.db, 5);
  await sender.manager.flush();
  const letters = sender.manager.deadLetters.list();
  expect(letters.map((letter) => letter.rowId)).toEqual(['row-00002', 'row-00004']);
  poison.delete('row-00002');
  for (const { id } of letters) expect(sender.manager.deadLetters.retry(id)).toEqual({ outcome: 'queued' });
  await sender.manager.flush();
  expect(count(receiver.db, 'items')).toBe(4);
  // The other one is refused again and is a letter again.
  expect(sender.manager.deadLetters.list().map((letter) => letter.rowId)).toEqual(['row-00004']);
  poison.clear();
  sender.manager.deadLetters.retry(sender.manager.deadLetters.list()[0]?.id as number);
  await sender.manager.flush();
  expect(exactRows(receiver.db, 'items')).toEqual(exactRows(sender.db, 'items'));
  expect(sender.manager.deadLetters.list()).toEqual([]);
});

test('a retried letter does not undo what was written since', async () => {
  const { sender, receiver, poison } = await pair(['row-00001']);
  writeMany(sender.db, 1);
  await sender.manager.flush();
  poison.clear();
  sender.db.exec("UPDATE items SET name = 'newer', updated_at = 2000 WHERE id = 'row-00001'");
  await sender.manager.flush();
  sender.manager.deadLetters.retry(1);
  await sender.manager.flush();
  expect(receiver.all('SELECT name FROM items')).toEqual([{ name: 'newer' }]);
  expect(sender.manager.deadLetters.list()).toEqual([]);
});

test('deletions are isolated, set aside and retried like any other change', async () => {
  const { sender, receiver, poison } = await pair([]);
  writeMany(sender.db, 3);
  await sender.manager.flush();
  poison.add('row-00002');
  sender.db.exec('DELETE FROM items');
  await sender.manager.flush();
  expect(receiver.all('SELECT id FROM items')).toEqual([{ id: 'row-00002' }]);
  expect(sender.manager.deadLetters.list()).toMatchObject([{ op: 'DELETE', rowId: 'row-00002' }]);
  poison.clear();
  sender.manager.deadLetters.retry(sender.manager.deadLetters.list()[0]?.id as number);
  await sender.manager.flush();
  expect(count(receiver.db, 'items')).toBe(0);
});

test('a discarded letter is gone and nothing is sent', async () => {
  const { sender, receiver, sent } = await pair(['row-00002']);
  writeMany(sender.db, 3);
  await sender.manager.flush();
  const before = sent.length;
  sender.manager.deadLetters.discard(1);
  expect(sender.manager.deadLetters.list()).toEqual([]);
  expect(sender.manager.health().dead_letter).toBe(0);
  await sender.manager.flush();
  expect(sent.length).toBe(before);
  expect(count(receiver.db, 'items')).toBe(2);
  for (const id of [1, 99]) expect(() => sender.manager.deadLetters.discard(id)).toThrow(/no dead letter/);
  expect(sender.manager.deadLetters.retry(1)).toEqual({ outcome: 'gone' });
  expect(() => sender.manager.deadLetters.retry(99)).toThrow(/no dead letter/);
});

test('a peer that goes away during isolation gets the rest when it is back, and only the poison is set aside', async () => {
  const receiver = await node({ id: 'receiver' });
  let requests = 0;
  const network = recordingFetch((one, raw) => {
    requests += 1;
    // Away for a while in the middle of the search, twice.
    if ((requests > 8 && requests < 20) || (requests > 30 && requests < 33)) throw new Error('connect ECONNREFUSED');
    return one.changes.some(({ row }) => row.id === 'row-00050') ? refusal : receivedBy(receiver.manager, raw);
  });
  const clock = new VirtualClock((ms) => ms <= 800);
  const sender = await node({ id: 'sender', peers: [PEER], clock, fetch: network.fetch });
  writeMany(sender.db, 100);
  await until('it is over', () => count(sender.db, '_changes') === 0);
  expect(count(receiver.db, 'items')).toBe(99);
  expect(sender.manager.deadLetters.list().map((letter) => letter.rowId)).toEqual(['row-00050']);
});

test('an ack mismatch is isolated like any other refusal', async () => {
  const receiver = await node({ id: 'receiver' });
  const network = recordingFetch((one, raw) =>
    one.changes.some(({ row }) => row.id === 'row-00007')
      ? { status: 200, body: '{"applied":0,"ack":0}' }
      : receivedBy(receiver.manager, raw),
  );
  const clock = new VirtualClock((ms) => ms <= 800);
  const sender = await node({ id: 'sender', peers: [PEER], clock, fetch: network.fetch });
  writeMany(sender.db, 100);
  await sender.manager.flush();
  expect(count(receiver.db, 'items')).toBe(99);
  expect(sender.manager.deadLetters.list().map((letter) => letter.rowId)).toEqual(['row-00007']);
});

test('a poisoned row of a snapshot is isolated, and the snapshot goes on', async () => {
  const receiver = await node({ id: 'receiver' });
  const before = await node({ id: 'sender' });
  writeMany(before.db, 300);
  await before.manager.stop();
  const network = recordingFetch((one, raw) =>
    one.changes.some(({ row }) => row.id === 'row-00123') ? refusal : receivedBy(receiver.manager, raw),
  );
  const { attach } = await import('../../src/index.ts');
  const { cleanUp } = await import('../support/nodes.ts');
  const clock = new VirtualClock((ms) => ms <= 800);
  const config = { id: 'sender', peers: [PEER], clock, fetch: network.fetch, batchSize: 100 };
  const manager = attach(before.db, config, ['items']);
  cleanUp(() => manager.stop());
  await manager.flush();
  expect(count(receiver.db, 'items')).toBe(299);
  expect(manager.deadLetters.list()).toMatchObject([{ op: 'INSERT', rowId: 'row-00123', peer: PEER }]);
  expect(manager.health().peer_states[0]).toMatchObject({ snapshot: false, pending: 0 });
});
