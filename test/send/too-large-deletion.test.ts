import { expect, test } from 'vitest';
import { type Reply, receivedBy, recordingFetch, type Sent } from '../support/bad-servers.ts';
import { door, edge, hub, quiet } from '../support/hubs.ts';
import { type NodeOptions, node, rowsOf, type TestNode, until } from '../support/nodes.ts';
import { PEER } from '../support/sender.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const LIMIT = 2_000;
const TOO_LARGE: Reply = { status: 413, body: '{"error":"too large"}' };
const LARGE = 'z'.repeat(2 * LIMIT);

interface Pair {
  sender: TestNode;
  receiver: TestNode;
  /** Every body, as it came. */
  bodies: string[];
  /** What the peer says in the receiver's place; undefined: what that one says. */
  peer: { answer(sent: Sent, size: number): Reply | undefined };
}

async function pair({ schema, ...config }: NodeOptions = {}): Promise<Pair> {
  const receiver = await node({ id: 'receiver', ...(schema && { schema }) });
  const bodies: string[] = [];
  const peer: Pair['peer'] = { answer: (_, size) => (size > LIMIT ? TOO_LARGE : undefined) };
  const network = recordingFetch((sent, raw) => {
    bodies.push(Buffer.from(raw).toString());
    return peer.answer(sent, raw.byteLength) ?? receivedBy(receiver.manager, raw);
  });
  const clock = new VirtualClock((ms) => ms <= 800);
  const sender = await node({
    id: 'sender',
    peers: [PEER],
    clock,
    fetch: network.fetch,
    ...(schema && { schema }),
    ...config,
  });
  return { sender, receiver, bodies, peer };
}

function write({ db }: TestNode, id: string, name = 'n', time = 1_000): void {
  db.prepare('INSERT INTO items VALUES (?, ?, 1, 10, ?)').run(id, name, time);
}

const idsOf = ({ db }: TestNode): unknown[] => rowsOf(db, 'SELECT id FROM items ORDER BY id').map(({ id }) => id);
const letters = ({ manager }: TestNode): unknown[] => manager.deadLetters.list().map(({ op, rowId }) => [op, rowId]);

/** A row that the peer has and that has grown since beyond what it takes. */
async function grown(sender: TestNode, id: string): Promise<void> {
  write(sender, id);
  await sender.manager.flush();
  sender.db.prepare('UPDATE items SET name = ?, updated_at = 2000 WHERE id = ?').run(LARGE, id);
  await sender.manager.flush();
  expect(letters(sender)).toContainEqual(['UPDATE', id]);
}

test('a row that has grown too large for the peer is deleted there: the deletion goes out without the row', async () => {
  const { sender, receiver, bodies } = await pair();
  await grown(sender, 'x');
  write(sender, 'y');
  await sender.manager.flush();
  bodies.length = 0;
  sender.db.exec("DELETE FROM items WHERE id = 'x'");
  await sender.manager.flush();
  expect(idsOf(receiver)).toEqual(['y']);
  expect(letters(sender)).toEqual([['UPDATE', 'x']]);
  // At once, and the first try is what it always was.
  const id = JSON.parse(bodies[0] as string).batch_id as number;
  const [version] = rowsOf(receiver.db, "SELECT version FROM _tombstones WHERE row_id = 'x'");
  const change = (row: string): string =>
    `{"batch_id":${id},"changes":[{"op":"DELETE","table":"items","row":${row},"old_id":"x"}]}`;
  const time = Number(version?.version);
  expect(bodies).toEqual([
    change(`{"id":"x","name":"${LARGE}","value":1,"created_at":10,"updated_at":${time}}`),
    change(`{"id":"x","updated_at":${time}}`),
  ]);
});

test('a deletion that is not too large has its row, whatever goes with it', async () => {
  const { sender, bodies } = await pair();
  for (const id of ['a', 'b', 'c']) write(sender, id, 'm'.repeat(LIMIT / 2));
  await sender.manager.flush();
  bodies.length = 0;
  sender.db.exec('DELETE FROM items');
  await sender.manager.flush();
  const taken = bodies.filter((body) => body.length <= LIMIT);
  expect(taken.map((body) => JSON.parse(body).changes.map((c: { row: object }) => Object.keys(c.row).length))).toEqual([
    [5],
    [5],
    [5],
  ]);
});

test('whatever its id, and however its table spells the two columns', async () => {
  const schema = 'CREATE TABLE items (Name TEXT, "ID" TEXT PRIMARY KEY, "Updated_At" INTEGER)';
  const { sender, receiver } = await pair({ schema });
  const odd = ['"', '\\', '\u0001', '\u0000', '$text:x', '€\u{1f600}', '', '12', 'id', "'"];
  const insert = sender.db.prepare('INSERT INTO items VALUES (?, ?, 1000)');
  for (const id of odd) insert.run('n', id);
  await sender.manager.flush();
  expect(idsOf(receiver).length).toBe(odd.length);
  sender.db.prepare('UPDATE items SET Name = ?, Updated_At = 2000').run(LARGE);
  await sender.manager.flush();
  await until('each is a letter', () => letters(sender).length === odd.length);
  sender.db.exec('DELETE FROM items');
  await sender.manager.flush();
  await until('all are gone', () => idsOf(receiver).length === 0);
  expect(letters(sender).length).toBe(odd.length);
  expect(rowsOf(receiver.db, 'SELECT row_id, version FROM _tombstones ORDER BY row_id')).toEqual(
    rowsOf(sender.db, 'SELECT row_id, version FROM _tombstones ORDER BY row_id'),
  );
});

test('the letter of such a deletion arrives when it is retried', async () => {
  const { sender, receiver, peer } = await pair();
  await grown(sender, 'x');
  const { answer } = peer;
  peer.answer = () => ({ status: 422, body: '{"error":"not now"}' });
  sender.db.exec("DELETE FROM items WHERE id = 'x'");
  await sender.manager.flush();
  peer.answer = answer;
  const [letter] = sender.manager.deadLetters.list().filter(({ op }) => op === 'DELETE');
  expect(letter?.row).toContain(LARGE);
  expect(sender.manager.deadLetters.retry(letter?.id as number)).toEqual({ outcome: 'queued' });
  await sender.manager.flush();
  expect(idsOf(receiver)).toEqual([]);
  expect(letters(sender)).toEqual([]);
});

test('among changes that are refused for something else it is found, and arrives', async () => {
  const { sender, receiver, peer } = await pair({ batchSize: 100 });
  await grown(sender, 'x');
  // Refuses what is with the poisoned row before it looks how large it is.
  peer.answer = ({ changes }, size) => {
    if (changes.some(({ row }) => row.id === 'poison')) return { status: 422, body: '{"error":"no"}' };
    return size > LIMIT ? TOO_LARGE : undefined;
  };
  sender.db.exec('BEGIN');
  write(sender, 'a');
  sender.db.exec("DELETE FROM items WHERE id = 'x'");
  write(sender, 'poison');
  sender.db.exec('COMMIT');
  await sender.manager.flush();
  await until('the others have arrived', () => String(idsOf(receiver)) === 'a');
  expect(letters(sender)).toEqual([
    ['UPDATE', 'x'],
    ['INSERT', 'poison'],
  ]);
});

test('a peer that takes not even that gets nothing, and it is a letter', async () => {
  const { sender, receiver, peer, bodies } = await pair();
  await grown(sender, 'x');
  peer.answer = ({ changes }) => (changes.some(({ op }) => op === 'DELETE') ? TOO_LARGE : undefined);
  bodies.length = 0;
  sender.db.exec("DELETE FROM items WHERE id = 'x'");
  write(sender, 'y');
  await sender.manager.flush();
  await until('it goes on behind it', () => String(idsOf(receiver)) === 'x,y');
  expect(letters(sender)).toEqual([['DELETE', 'x']]);
});

test('to a hub that takes less, and from one to an edge that takes less', { tags: 'long' }, async () => {
  const [center, doorA, doorB] = [await door(), await door(), await door()];
  const a = await edge('a', [center.url], doorA);
  const b = await edge('b', [center.url], doorB, { maxBodyBytes: 1_000_000 });
  const made = await hub({ edges: [doorA.url, doorB.url], maxBodyBytes: 2_000_000 });
  const { createListener } = await import('../../src/http/index.ts');
  center.open(createListener(made.hub));
  for (const id of ['for the edge', 'for the hub']) write(a, id);
  await until('b has both', () => idsOf(b).length === 2);
  const grow = a.db.prepare('UPDATE items SET name = ?, updated_at = 2000 WHERE id = ?');
  grow.run('z'.repeat(1_500_000), 'for the edge');
  grow.run('z'.repeat(2_500_000), 'for the hub');
  await until('the hub has refused one', () => letters(a).length === 1);
  await until('the edge has refused the other', async () => (await made.hub.deadLetters.list()).length === 1);
  a.db.exec('DELETE FROM items');
  await until('both are gone', () => idsOf(b).length === 0);
  await quiet([made.hub], [a, b]);
  expect(letters(a)).toEqual([['UPDATE', 'for the hub']]);
  expect((await made.hub.deadLetters.list()).map(({ op, rowId }) => [op, rowId])).toEqual([['UPDATE', 'for the edge']]);
});
