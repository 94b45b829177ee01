/**
 * What every store of a hub has to keep, whatever it is made of: the rules I1 to I7 of src/hub/store.ts, and what its
 * methods say of themselves. A store runs through it by calling `storeConformance` with a way to make one.
 */
import { describe, expect, test } from 'vitest';
import type { Id, Range } from '../../src/compare/ids.ts';
import type { Columns, Portion } from '../../src/compare/ledger.ts';
import type { EdgeAnswer, EdgeRow, HubStore, Segment, Sender, Stored } from '../../src/hub/store.ts';
import type { BatchLimit } from '../../src/wire/body.ts';
import { readIntroduction } from '../../src/wire/introduction.ts';
import { Random } from '../support/model.ts';
import { database, rowsOf, until } from '../support/nodes.ts';

export interface StoreUnderTest {
  /** Open, and empty. */
  store: HubStore;
  /** How often it has flushed to disk so far. */
  flushes(): number;
  /** The process has ended; another one opens the same data. */
  reopen(): Promise<HubStore>;
}

const T = 4_000_000_000_000;
const ALL: BatchLimit = { changes: 1_000, bytes: 1_000_000 };
const ROWCAST: Sender = { from: 'a', plain: false };
const PLAIN: Sender = { from: 'a', plain: true };

interface WireChange {
  op: string;
  table: string;
  row: Record<string, unknown>;
  old_id: string | null;
}

/** `seeds`: how many orders are drawn of changes that come in any. */
export function storeConformance(name: string, make: () => Promise<StoreUnderTest>, { seeds = 5 } = {}): void {
  describe(`${name}: what it holds, for comparisons`, () => {
    const columns = { id: 'TEXT', name: 'TEXT', updated_at: 'INTEGER' } as const;
    const many: Portion = { rows: 1_000, bytes: 1_000_000 };

    test('every id once, in the order of its bytes, with its version', async () => {
      const { store } = await make();
      await receive(store, [
        live('b', T),
        live('a', T + 1),
        gone('c', T),
        live('B', T),
        live('\u00e9', T),
        live('', T),
      ]);
      const listed = (await store.ledger.list('items', columns, { after: null, upTo: null }, many)).entries;
      expect(listed.map(({ id, version, deleted }) => [id, version, deleted])).toEqual([
        ['', T, false],
        ['B', T, false],
        ['a', T + 1, false],
        ['b', T, false],
        ['c', T, true],
        ['\u00e9', T, false],
      ]);
      expect(await store.ledger.list('ITEMS', columns, { after: 'B', upTo: 'b' }, many)).toEqual({
        entries: listed.slice(2, 4),
        end: null,
      });
      expect(await store.ledger.entries('items', columns, ['c', 'nobody', 'a'], many)).toEqual({
        entries: [listed[2], listed[4]],
        rest: [],
      });
      expect(await store.ledger.outline()).toEqual([{ name: 'items', columns: null, last: '\u00e9' }]);
    });

    test('an id that is not UTF-8 has its place where its bytes have it', async () => {
      const { store } = await make();
      const order = ['$bytes:21FF', 'a', '$bytes:61FF', 'b', 'c', '$bytes:C3', '\u00e9', '$bytes:FF'];
      const rows = order.map((id, i) => (i % 3 === 2 ? gone(id, T) : live(id, T)));
      await receive(store, rows.toReversed());
      for (let i = 0; i < order.length; i++) {
        const range = { after: i === 0 ? null : (order[i - 1] as string), upTo: null };
        const { entries, end } = await store.ledger.list('items', columns, range, { ...many, rows: 3 });
        expect(entries.map(({ id }) => id)).toEqual(order.slice(i, i + 3));
        expect(end).toBe(order[i + 2] ?? null);
        const spelt = await store.ledger.spell('items', columns, { after: null, upTo: order[i] as string }, many);
        expect(spelt).toMatchObject({ rows: i + 1, end: null });
      }
      const { entries } = await store.ledger.entries('items', columns, order, many);
      expect(entries.map(({ id }) => id)).toEqual(order);
      expect(await store.ledger.outline()).toMatchObject([{ last: '$bytes:FF' }]);
    });

    test('a piece of a range is so many rows, or bytes, and at least one', async () => {
      const { store } = await make();
      const rows = ['a', 'b', 'c', 'd'].map((id) => live(id, T, { name: 'x'.repeat(2_000) }));
      await receive(store, [...rows, live('e', T), gone('f', T)]);
      const all = { after: null, upTo: null };
      const piece = async (range: Range, portion: Portion): Promise<[number, Id | null]> => {
        const { rows: n, end, texts } = await store.ledger.spell('items', columns, range, portion);
        const listed = await store.ledger.list('items', columns, range, portion);
        expect(listed).toMatchObject({ entries: { length: n }, end });
        expect(texts.length).toBe(n === 0 ? 0 : 1);
        return [n, end];
      };
      expect(await piece(all, { ...many, rows: 3 })).toEqual([3, 'c']);
      expect(await piece({ after: 'b', upTo: 'd' }, { ...many, rows: 1 })).toEqual([1, 'c']);
      expect(await piece(all, { ...many, bytes: 5_000 })).toEqual([2, 'b']);
      expect(await piece(all, { ...many, bytes: 1 })).toEqual([1, 'a']);
      expect(await piece({ after: 'd', upTo: null }, many)).toEqual([2, null]);
      expect(await piece({ after: 'f', upTo: null }, many)).toEqual([0, null]);
      expect(await store.ledger.spell('nothing', columns, all, many)).toEqual({ rows: 0, texts: [], end: null });
      const some = await store.ledger.entries('items', columns, ['a', 'b', 'e', 'nobody'], { rows: 3, bytes: 4_400 });
      expect(some).toMatchObject({ entries: [{ id: 'a' }, { id: 'b' }], rest: ['e', 'nobody'] });
    });

    test('what is spelt says everything of the columns that are asked for, and nothing of others', async () => {
      const [one, two] = [(await make()).store, (await make()).store];
      const text = async (store: HubStore, of: Columns = columns): Promise<string> => {
        const { texts } = await store.ledger.spell('items', of, { after: null, upTo: null }, many);
        return texts.map((part) => new TextDecoder().decode(part)).join('');
      };
      await receive(one, [live('x', T, { name: 'a', more: 1 }), gone('y', T)]);
      // Other keys, in another order and another case.
      await receive(two, [
        { op: 'UPDATE', table: 'ITEMS', row: { NAME: 'a', updated_at: T, id: 'x' }, old_id: null },
        gone('y', T),
      ]);
      expect(await text(one)).toBe(await text(two));
      expect(await text(one, null)).not.toBe(await text(two, null));
      await receive(two, [live('x', T, { name: 'b' })]);
      expect(await text(one)).not.toBe(await text(two));
      expect((await one.ledger.spell('items', columns, { after: 'x', upTo: null }, many)).rows).toBe(1);
    });

    test('rows are handed out as the first that fit', async () => {
      const { store } = await make();
      await receive(store, [live('a', T), live('b', T), gone('c', T)]);
      const { body, count, rest } = await store.ledger.changes('items', ['c', 'b', 'a', 'x'], 5, { ...many, rows: 2 });
      expect(count).toBe(2);
      // Of what is left there may be nothing: that is found when it is asked for.
      const next = await store.ledger.changes('items', rest, 6, { ...many, rows: 2 });
      expect([next.count, next.rest]).toEqual([1, []]);
      expect(JSON.parse(new TextDecoder().decode(next.body))).toMatchObject({ changes: [{ row: { id: 'c' } }] });
      const batch = JSON.parse(new TextDecoder().decode(body));
      expect(batch).toMatchObject({ batch_id: 5, changes: [{ row: { id: 'a' } }, { row: { id: 'b' } }] });
      expect((await store.ledger.changes('items', ['x'], 5, many)).count).toBe(0);
    });

    test('which rows an edge has not been given yet', async () => {
      const { store } = await make();
      await receive(store, [live('a', T), live('b', T)]);
      const { end } = (await store.read(0, ALL)) as Segment;
      await receive(store, [live('a', T + 1)]);
      expect(await store.ledger.after('items', ['a', 'b', 'c'], end)).toEqual(['a']);
    });

    test('what was noted of a comparison is there for the next process, until the edge is forgotten', async () => {
      const { store, reopen } = await make();
      await store.addEdges(['http://e', 'http://f']);
      await store.noteVerified('http://e', '{"due":1}');
      await store.noteVerified('http://e', '{"due":2}');
      await store.noteVerified('http://f', '{}');
      await store.forgetEdges(['http://f']);
      expect([...(await (await reopen()).verified())]).toEqual([['http://e', '{"due":2}']]);
    });
  });

  describe(`${name}: what is received`, () => {
    test('I1: it is flushed before it is acknowledged; positions are not', async () => {
      const { store, flushes } = await make();
      const before = flushes();
      expect((await receive(store, [live('x', T)])).ack).toEqual({ applied: 1, ack: 7 });
      expect(flushes()).toBeGreaterThan(before);
      // One that is merged in a second attempt, too.
      const again = flushes();
      await receive(store, [live('y', T, { name: 'b' }), live('y', T, { name: 'a' })], PLAIN);
      expect(flushes()).toBeGreaterThan(again);
      await store.addEdges(['http://e']);
      const [edge] = (await store.edges()) as [EdgeRow];
      const unmoved = flushes();
      await store.advance([{ url: edge.url, generation: edge.generation, position: 1 }]);
      expect(flushes()).toBe(unmoved);
    });

    test('I1: it is there for the next process', async () => {
      const { store, reopen } = await make();
      await receive(store, [live('x', T), gone('y', T)]);
      expect(await stateOf(await reopen())).toEqual(await stateOf(store));
    });

    test('I2: the greatest version stands, in whatever order and however often they come', async () => {
      for (let seed = 1; seed <= seeds; seed++) {
        const random = new Random(seed);
        const pick = <V>(from: V[]): V => from[Math.floor(random.next() * from.length)] as V;
        const changes = Array.from({ length: 40 }, () => {
          const id = pick(['p', 'q', 'r']);
          const at = T + pick([0, 1, 2]);
          return random.next() < 0.2
            ? gone(id, at)
            : live(id, at, { name: pick([null, 'a', 'b']), n: pick([1, 10, 9]) });
        });
        const shuffled = changes.map((change) => ({ change, key: random.next() })).sort((a, b) => a.key - b.key);
        const [one, two] = [(await make()).store, (await make()).store];
        for (let i = 0; i < changes.length; i += 4) await receive(one, changes.slice(i, i + 4));
        for (const { change } of [...shuffled, ...shuffled]) await receive(two, [change]);
        expect(await stateOf(two)).toEqual(await stateOf(one));
      }
    });

    test('I2: the newer one wins, a deletion beats a write of its time, the greater content decides a tie', async () => {
      const { store } = await make();
      await receive(store, [live('x', T, { name: 'b' })]);
      expect((await receive(store, [live('x', T, { name: 'a' })])).ack.applied).toBe(0);
      expect((await receive(store, [live('x', T - 1, { name: 'z' })])).ack.applied).toBe(0);
      expect((await receive(store, [live('x', T, { name: 'c' })])).ack.applied).toBe(1);
      expect((await receive(store, [gone('x', T)])).ack.applied).toBe(1);
      expect((await receive(store, [live('x', T, { name: 'd' })])).ack.applied).toBe(0);
      expect((await receive(store, [live('x', T + 1, { name: 'e' })])).ack.applied).toBe(1);
      expect(await stateOf(store)).toEqual([live('x', T + 1, { name: 'e' })]);
    });

    test('I2: columns that a sender does not have keep what they have, and the row is then nobody\u2019s', async () => {
      const { store } = await make();
      await receive(store, [live('x', T, { name: 'old', more: 1 })], { from: 'a', plain: false });
      await receive(store, [live('x', T + 1, { name: 'new' })], { from: 'b', plain: false });
      const [row] = await stateOf(store);
      expect(row?.row).toEqual({ id: 'x', name: 'new', updated_at: T + 1, more: 1 });
      expect(await store.read(0, ALL, 'b')).toBeDefined();
    });

    test('of two writes of a plain sender in one millisecond the later in the batch is its state', async () => {
      const { store } = await make();
      const batch = [live('x', T, { name: 'b' }), live('y', T), live('x', T, { name: 'a' })];
      expect((await receive(store, batch, PLAIN)).ack).toEqual({ applied: 3, ack: 7 });
      expect(nameOf(await stateOf(store), 'x')).toBe('a');
      // The same batch again changes nothing, and nothing has to go out again.
      const end = (await store.read(0, ALL))?.end as number;
      expect((await receive(store, batch, PLAIN)).ack.applied).toBe(3);
      expect(await store.read(end, ALL)).toBeUndefined();
      // Across two batches the order of versions decides, as for everybody.
      expect((await receive(store, [live('x', T, { name: 'b' })], PLAIN)).ack.applied).toBe(1);
      expect((await receive(store, batch, PLAIN)).ack.applied).toBe(1);
      expect(nameOf(await stateOf(store), 'x')).toBe('b');
      // However the keys are spelt: such a change is looked at by itself.
      const odd = { op: 'UPDATE', table: 'ITEMS', row: { ID: 'z', name: 'b', updated_at: T }, old_id: null };
      await receive(store, [odd, live('z', T, { name: 'a' })], PLAIN);
      expect(nameOf(await stateOf(store), 'z')).toBe('a');
      await receive(store, [live('w', T, { name: 'b' }), { ...odd, row: { ...odd.row, ID: 'w', name: 'a' } }], PLAIN);
      expect(nameOf(await stateOf(store), 'w')).toBe('a');
    });

    test('a deletion is one of them: what a plain sender deletes and inserts again in one millisecond is there', async () => {
      const { store } = await make();
      const again = [live('x', T, { name: 'n' }), gone('x', T), live('x', T, { name: 'again' })];
      expect((await receive(store, again, PLAIN)).ack).toEqual({ applied: 3, ack: 7 });
      expect(await stateOf(store)).toEqual([live('x', T, { name: 'again' })]);
      expect((await receive(store, again, PLAIN)).ack.applied).toBe(3);
      const odd = { ...gone('y', T), row: { ID: 'y', updated_at: T } };
      expect((await receive(store, [odd, live('y', T, { name: 'again' })], PLAIN)).ack.applied).toBe(2);
      expect(nameOf(await stateOf(store), 'y')).toBe('again');
      expect((await receive(store, [...again, gone('x', T)], PLAIN)).ack.applied).toBe(4);
      expect((await receive(store, again, ROWCAST)).ack.applied).toBe(3);
      expect((await stateOf(store))[0]).toEqual(gone('x', T));
    });

    test('the later one stands with its own columns alone, whichever is greater', async () => {
      const { store } = await make();
      for (const names of [
        ['a', 'b'],
        ['b', 'a'],
      ] as const) {
        const changes = [live(names[0], T, { name: names[0], more: 1 }), live(names[0], T, { name: names[1] })];
        expect((await receive(store, changes, PLAIN)).ack.applied).toBe(2);
        expect(await stateOf(store)).toContainEqual(changes[1]);
      }
    });

    test('of a Rowcast node\u2019s the greater content decides there, too', async () => {
      const { store } = await make();
      await receive(store, [live('x', T, { name: 'b' }), live('x', T, { name: 'a' })], ROWCAST);
      expect(nameOf(await stateOf(store), 'x')).toBe('b');
    });

    test('what is no batch is refused and changes nothing; what is no change is set aside', async () => {
      const { store } = await make();
      await expect(store.receive('nonsense', ROWCAST)).rejects.toMatchObject({ code: 'INVALID_BATCH' });
      await expect(store.receive('x'.repeat(300_000), ROWCAST)).rejects.toMatchObject({ code: 'BODY_TOO_LARGE' });
      expect(await stateOf(store)).toEqual([]);
      const { ack, letters } = await receive(store, [live('x', T), { op: 'UPSERT' } as never]);
      expect(ack).toMatchObject({ applied: 1, rejected: [{ index: 1, code: 'bad-op' }] });
      expect(letters).toMatchObject([{ direction: 'in', peer: 'a', code: 'bad-op' }]);
      const [letter] = await store.letters.list();
      expect(letter).toMatchObject({ direction: 'in', code: 'bad-op', retryCount: 0 });
      const { id } = letter as { id: number };
      expect(JSON.parse((await store.letters.changeOf(id)) as string)).toEqual({ op: 'UPSERT' });
      await store.letters.countRetry(id, 'bad-row', 'still none');
      expect(await store.letters.get(id)).toMatchObject({ code: 'bad-row', reason: 'still none', retryCount: 1 });
      await store.letters.remove(id);
      expect(await store.letters.list()).toEqual([]);
      await expect(store.letters.get(id)).rejects.toMatchObject({ code: 'NO_SUCH_LETTER' });
    });
  });

  describe(`${name}: the order`, () => {
    test('I3: nothing appears at or below the end of what was read', async () => {
      const { store } = await make();
      const random = new Random(3);
      const placesOf = async (): Promise<number[]> => (await followFrom(store, 0)).map(({ end }) => end);
      let places: number[] = [];
      for (let i = 0; i < 40; i++) {
        const id = `r${Math.floor(random.next() * 5)}`;
        await receive(store, [live(`${id}'`, T + i), live(id, T + i)]);
        if (random.next() < 0.3) await store.touch('items', id);
        const passed = places.at(-1) ?? 0;
        const now = await placesOf();
        expect(now.filter((place) => place <= passed && !places.includes(place))).toEqual([]);
        expect(now.at(-1)).toBeGreaterThan(passed);
        places = now;
      }
    });

    test('I3, I4: whoever follows, however slowly, ends with the newest version of every row', async () => {
      const { store } = await make();
      const random = new Random(4);
      const followers = [1, 2, 5].map((changes) => ({ changes, position: 0, rows: new Map<string, WireChange>() }));
      const follow = async (one: (typeof followers)[number]): Promise<boolean> => {
        const segment = await store.read(one.position, { changes: one.changes, bytes: 1_000_000 });
        if (!segment) return false;
        for (const change of changesOf(segment)) one.rows.set(String(change.row.id), change);
        one.position = segment.end;
        return true;
      };
      for (let i = 0; i < 200; i++) {
        const id = `r${Math.floor(random.next() * 10)}`;
        await receive(store, [random.next() < 0.2 ? gone(id, T + i) : live(id, T + i, { name: `v${i}` })]);
        const who = followers[Math.floor(random.next() * 3)] as (typeof followers)[number];
        if (random.next() < 0.6) await follow(who);
      }
      const state = await stateOf(store);
      for (const one of followers) {
        while (await follow(one));
        const rows = [...one.rows.values()].sort(byId);
        expect(rows).toEqual(state);
      }
    });

    test('I4: a row is in one place, and leaves it by taking a higher one', async () => {
      const { store } = await make();
      await receive(store, [live('x', T), live('y', T), live('z', T)]);
      const first = (await store.read(0, ALL)) as Segment;
      expect(await store.latest()).toBe(first.end);
      expect(await store.countBetween(0, first.end)).toBe(3);
      await receive(store, [live('x', T + 1)]);
      expect(await store.countBetween(0, first.end)).toBe(2);
      const next = (await store.read(first.end, ALL)) as Segment;
      expect(changesOf(next)).toEqual([live('x', T + 1)]);
      expect(idsOf((await store.read(0, ALL)) as Segment)).toEqual(['y', 'z', 'x']);
    });

    test('I5: one entry per row, and of a deleted one its id and version alone', async () => {
      const { store, reopen } = await make();
      for (let i = 0; i < 20; i++) await receive(store, [live('x', T + i, { name: 'v' }), live('y', T + i)]);
      const deletion = {
        op: 'DELETE',
        table: 'items',
        row: { id: 'x', name: 'secret', updated_at: T + 30 },
        old_id: 'x',
      };
      await receive(store, [deletion]);
      await receive(store, [{ op: 'DELETE', table: 'items', row: null as never, old_id: 'y' }]);
      // Another deletion at the same version is the same one.
      const end = (await store.read(0, ALL))?.end as number;
      const other = { ...deletion, row: { id: 'x', name: 'zzz', updated_at: T + 30 } };
      expect((await receive(store, [other])).ack.applied).toBe(1);
      expect(await store.read(end, ALL)).toBeUndefined();
      for (const one of [store, await reopen()]) {
        expect(await stateOf(one)).toEqual([gone('x', T + 30), gone('y', T + 19)]);
      }
    });

    test("what a database sent before its latest start is nobody's own: it may have been put back since", async () => {
      const { store } = await make();
      const inc = '0123456789abcdef';
      const said = (boot: string): Sender => ({
        from: 'a',
        plain: false,
        said: `id=a; inc=${inc}; boot=${boot}; t0=5; t=6`,
      });
      await receive(store, [live('x', T)], said('2-00000002'));
      // Two lives after the same backup have the same number; one of an earlier start has a lower one.
      await receive(store, [live('y', T)], said('2-00000001'));
      await receive(store, [live('z', T)], said('1-00000001'));
      const { runs } = (await store.read(0, ALL)) as Segment;
      expect(runs.map(({ origin, count }) => [origin, count])).toEqual([
        [inc, 1],
        [null, 2],
      ]);
    });

    test('a segment has what fits, at least one change, and says who brought which part of it', async () => {
      const { store } = await make();
      const name = '\u00e9'.repeat(400);
      await receive(store, [live('a"1', T, { name }), gone('a\\2', T)], { from: 'a', plain: false });
      await receive(store, [live('b1', T, { name })], { from: 'b', plain: false });
      await receive(store, [live('n1', T)], { from: undefined, plain: false });
      const whole = (await store.read(0, ALL)) as Segment;
      expect(whole.runs.map(({ origin, count }) => [origin, count])).toEqual([
        ['a', 2],
        ['b', 1],
        [null, 1],
      ]);
      const parts = whole.runs.map(({ start, end }) => JSON.parse(`[${text(whole.body.subarray(start, end))}]`));
      expect(parts.flat()).toEqual(changesOf(whole));
      for (let bytes = 60; bytes < whole.body.byteLength + 60; bytes += 7) {
        const segment = (await store.read(0, { changes: 1_000, bytes })) as Segment;
        expect(segment.count).toBeGreaterThan(0);
        if (segment.count > 1) expect(segment.body.byteLength).toBeLessThanOrEqual(bytes);
        const one = (await store.read(0, { changes: segment.count + 1, bytes: 1_000_000 })) as Segment;
        // What was left out would have been too much, but for the room that is left for the envelope.
        if (one.count > segment.count) expect(one.body.byteLength + 50).toBeGreaterThan(bytes);
      }
      expect(idsOf((await store.read(0, ALL, 'a')) as Segment)).toEqual(['b1', 'n1']);
      expect(idsOf((await store.read(0, { changes: 2, bytes: 1_000_000 })) as Segment)).toEqual(['a"1', 'a\\2']);
      const shipment = {
        batchId: whole.end,
        body: whole.body,
        count: whole.count,
        end: { seq: whole.end, generation: 1 },
      };
      const single = await store.single(shipment, 2);
      expect(JSON.parse(text(single.body))).toEqual({ batch_id: whole.end, changes: [live('b1', T, { name })] });
      expect(single).toMatchObject({ count: 1, end: shipment.end });
    });

    test('names and ids come back as they came, whatever characters are in them', async () => {
      const { store } = await make();
      const odd = [
        '\u0000',
        '\u0001',
        '\u0002',
        '\\',
        '\\u0001',
        '"',
        '\n',
        '\u007f',
        '\u2028',
        '\u{1f600}',
        "'",
        '$1',
      ];
      const all = [...odd, ...odd.flatMap((one) => odd.map((other) => one + other)), '\u0001\u0001\\u0001\u0000\\\\'];
      // The oldest binding cuts a text at a NUL character on the way to JavaScript.
      const [{ text } = {}] = rowsOf(await database('SELECT 1'), "SELECT 'a' || char(0) || 'b' AS text");
      const texts = text === 'a\u0000b' ? all : all.filter((one) => !one.includes('\u0000'));
      const changes = texts.flatMap((one, i) => [gone(one, T + i), { ...live(one, T + i), table: `t${one}` }]);
      for (let i = 0; i < changes.length; i += 100) await receive(store, changes.slice(i, i + 100));
      const found: WireChange[] = [];
      for (let at = 0; ; ) {
        const segment = await store.read(at, { changes: 70, bytes: 1_000_000 });
        if (!segment) break;
        found.push(...changesOf(segment));
        at = segment.end;
      }
      const spelt = (all: WireChange[]): string[] =>
        all.map(({ op, table, row, old_id }) => JSON.stringify([op, table, row, old_id])).sort();
      expect(spelt(found)).toEqual(spelt(changes));
    });

    test('tables and ids with line ends in them are not taken for each other', async () => {
      const { store } = await make();
      const of = (table: string, id: string, at: number): WireChange => ({ ...live(id, at), table });
      const names = (some: WireChange[]): string[] =>
        some.map(({ table, row }) => JSON.stringify([table, row.id])).sort();
      const sent: WireChange[] = [];
      for (const [i, sender] of [ROWCAST, PLAIN].entries()) {
        const [at, x] = [T + 10 * i, `x${i}`];
        // As one text, table and id are the same in each pair; in the last, so are table, time and id.
        const pairs = [
          [of('a', `b\n${x}`, at), of('a\nb', x, at + 1)],
          [of('a', `1\n${x}`, at), of('a\n1', x, at)],
          [of('a', `${at + 5}\n${x}`, at + 3), of(`a\n${at + 3}`, x, at + 5)],
        ];
        for (const pair of pairs) expect((await receive(store, pair, sender)).ack).toEqual({ applied: 2, ack: 7 });
        sent.push(...pairs.flat());
      }
      expect(names((await followFrom(store, 0)).map(({ change }) => change))).toEqual(names(sent));
    });

    test('a segment is as long as it may be, whatever the limit, and its runs are where they are said to be', async () => {
      const { store } = await make();
      const names = ['', 'x'.repeat(300), '\u00e9'.repeat(40), '"'.repeat(30)];
      for (let i = 0; i < 40; i++) {
        const row = live(`r${i}`, T + i, { name: names[i % 4] });
        await receive(store, [i % 7 === 3 ? gone(`r${i}`, T + i) : row], { from: `n${(i >> 1) % 3}`, plain: false });
      }
      const whole = (await store.read(0, ALL)) as Segment;
      const sizes = changesOf(whole).map((change) => Buffer.byteLength(JSON.stringify(change)));
      expect(whole.runs.map(({ origin, count }) => `${origin} ${count}`)).toEqual(
        Array.from({ length: 20 }, (_, i) => `n${i % 3} 2`),
      );
      for (const { start, end, count } of whole.runs) {
        expect(JSON.parse(`[${text(whole.body.subarray(start, end))}]`)).toHaveLength(count);
      }
      for (let bytes = 60; bytes < whole.body.byteLength + 100; bytes += 97) {
        const { count } = (await store.read(0, { changes: 1_000, bytes })) as Segment;
        expect(count).toBe(fittingOf(sizes, bytes));
      }
    });

    test.each([40, 400])('so is one whose rows are alike, and one of %i characters among them', async (length) => {
      const { store } = await make();
      const nameOfRow = (i: number): string => 'x'.repeat(i === 7 ? length : 40);
      await receive(
        store,
        Array.from({ length: 10 }, (_, i) => live(`r${i}`, T + i, { name: nameOfRow(i) })),
      );
      const whole = (await store.read(0, ALL)) as Segment;
      const sizes = changesOf(whole).map((change) => Buffer.byteLength(JSON.stringify(change)));
      for (let bytes = 60; bytes < whole.body.byteLength + 100; bytes += 7) {
        // After one that was read as a whole, since what was read last may decide how the next is read.
        expect(((await store.read(0, ALL)) as Segment).count).toBe(10);
        const segment = (await store.read(0, { changes: 10, bytes })) as Segment;
        expect(changesOf(segment)).toHaveLength(fittingOf(sizes, bytes));
      }
    });

    test('whole slices of one\u2019s own are skipped, and nothing of anybody else\u2019s', async () => {
      const { store } = await make();
      await receive(store, [live('a1', T), live('a2', T), live('a3', T), live('a4', T), live('a5', T)]);
      await receive(store, [live('b1', T)], { from: 'b', plain: false });
      const from = await store.skipOwn(0, 'a', 2);
      expect(idsOf((await store.read(from, ALL)) as Segment)).toEqual(['a5', 'b1']);
      expect(await store.skipOwn(0, 'b', 2)).toBe(0);
    });

    test('a row that is touched goes to everybody again, in its newest version', async () => {
      const { store } = await make();
      await receive(store, [live('x', T), live('y', T)]);
      const { end } = (await store.read(0, ALL)) as Segment;
      expect(await store.touch('ITEMS', 'x')).toBe(true);
      expect(changesOf((await store.read(end, ALL, 'a')) as Segment)).toEqual([live('x', T)]);
      expect(await store.touch('items', 'nobody')).toBe(false);
      expect(await store.touch('nothing', 'x')).toBe(false);
    });

    test('a table that was asked for is known to be, flushed and for the next process too, until it is touched', async () => {
      const { store, flushes, reopen } = await make();
      await receive(store, [live('x', T), live('y', T)]);
      const { end } = (await store.read(0, ALL)) as Segment;
      const before = flushes();
      await store.noteAsked(['items', 'others']);
      expect(flushes()).toBeGreaterThan(before);
      await store.noteAsked(['items']);
      const next = await reopen();
      expect(await next.askedFor()).toEqual(['items', 'others']);
      await next.touchTable('items');
      expect(await next.askedFor()).toEqual(['others']);
      expect(idsOf((await next.read(end, ALL, 'a')) as Segment)).toEqual(['x', 'y']);
      expect(await (await reopen()).askedFor()).toEqual(['others']);
    });

    test('a table that goes out again and again takes no more places each time than before', async () => {
      const { store } = await make();
      await receive(store, [live('x', T), live('y', T), { ...live('o', T), table: 'others' }, live('z', T)]);
      let end = 0;
      for (let times = 0; times < 70; times++) {
        await store.touchTable('items');
        const segment = (await store.read(end, ALL)) as Segment;
        expect(idsOf(segment).filter((id) => id !== 'o')).toEqual(['x', 'y', 'z']);
        end = segment.end;
      }
      expect(end).toBeLessThan(70 * 50_000);
      expect(await store.read(end, ALL)).toBeUndefined();
    });

    test('what an edge has said of itself is told to it again, by the next process too', async () => {
      const { store, reopen } = await make();
      const inc = '0123456789abcdef';
      const boot = (n: number): string => `${n}-0000000${n}`;
      const word = (n: number, tick: number): object => ({ inc, boot: boot(n), tick, seal: `${n}`.repeat(16) });
      const said = (n: number, tick: number): string =>
        `id=a; inc=${inc}; boot=${boot(n)}; t0=${tick}; t=${tick}; seal=${`${n}`.repeat(16)}`;
      const answer = async (one: HubStore, n: number, tick: number): Promise<void> => {
        const { generation } = await one.edge('http://a');
        await one.answered([{ url: 'http://a', generation, said: said(n, tick), position: undefined }]);
      };
      const toldBy = async (one: HubStore): Promise<unknown> => {
        const { you, claims } = readIntroduction(await one.company.toEdge('http://a')) ?? {};
        return { you, claims };
      };
      await store.addEdges(['http://a']);
      await answer(store, 1, 5);
      expect(await toldBy(store)).toEqual({ you: word(1, 5) });
      // What a request says of a start is not believed yet, and is not lost.
      await receive(store, [live('x', T)], { ...ROWCAST, said: said(2, 7) });
      await receive(store, [live('y', T)], { ...ROWCAST, said: said(2, 9) });
      await receive(store, [live('y', T)], { ...ROWCAST, said: said(2, 8) });
      expect(await toldBy(store)).toEqual({ you: word(1, 5), claims: [word(2, 9)] });
      const next = await reopen();
      expect(await toldBy(next)).toEqual({ you: word(1, 5), claims: [word(2, 9)] });
      // It answers, as one that has come less far; and the last that was heard of the attach before is told as well.
      await answer(next, 2, 8);
      expect(await toldBy(next)).toEqual({ you: word(2, 8), claims: [word(1, 5), word(2, 9)] });
      await answer(next, 2, 9);
      expect(await toldBy(await reopen())).toEqual({ you: word(2, 9), claims: [word(1, 5)] });
    });

    test('it hints when a row has advanced', async () => {
      const { store } = await make();
      let hints = 0;
      store.onAdvance(() => (hints += 1));
      await receive(store, [live('x', T)]);
      expect(hints).toBeGreaterThan(0);
      const seen = hints;
      await store.touch('items', 'x');
      expect(hints).toBeGreaterThan(seen);
    });
  });

  describe(`${name}: the edges`, () => {
    const URLS = ['http://a', 'http://b'];
    const edgeOf = async (store: HubStore, url: string): Promise<EdgeRow> =>
      (await store.edges()).find((edge) => edge.url === url) as EdgeRow;

    test('are added once, keep their place, and begin anew when they were forgotten', async () => {
      const { store, reopen } = await make();
      await store.addEdges(URLS);
      const a = await edgeOf(store, 'http://a');
      expect(a).toMatchObject({ position: 0, nodeId: undefined });
      await store.advance([{ url: a.url, generation: a.generation, position: 5 }]);
      await store.addEdges([...URLS, 'http://c']);
      expect((await store.edges()).map(({ url, position }) => [url, position])).toEqual([
        ['http://a', 5],
        ['http://b', 0],
        ['http://c', 0],
      ]);
      const next = await reopen();
      expect(await edgeOf(next, 'http://a')).toMatchObject({ position: 5 });
      const before = await edgeOf(next, 'http://a');
      await next.forgetEdges(['http://a', 'http://nobody']);
      expect((await next.edges()).map(({ url }) => url)).toEqual(['http://b', 'http://c']);
      await next.addEdges(['http://a']);
      const again = await edgeOf(next, 'http://a');
      expect(again.position).toBe(0);
      expect(again.generation).not.toBe(before.generation);
      // An answer that was under way to the one that was forgotten.
      await next.advance([{ url: 'http://a', generation: before.generation, position: 9 }]);
      expect((await edgeOf(next, 'http://a')).position).toBe(0);
    });

    test('are paused durably, and forgotten with their pause', async () => {
      const { store, flushes, reopen } = await make();
      await store.addEdges(URLS);
      const before = flushes();
      await store.pauseEdge('http://a', true);
      expect(flushes()).toBeGreaterThan(before);
      const next = await reopen();
      expect((await next.edges()).map(({ paused }) => paused)).toEqual([true, false]);
      await next.pauseEdge('http://a', false);
      expect(await edgeOf(next, 'http://a')).toMatchObject({ paused: false });
      await next.pauseEdge('http://a', true);
      await next.forgetEdges(['http://a']);
      await next.addEdges(['http://a']);
      expect(await edgeOf(next, 'http://a')).toMatchObject({ paused: false });
    });

    test('I6: one that is given everything once more begins at 0, and what was under way does not move it', async () => {
      const { store } = await make();
      await store.addEdges(URLS);
      const a = await edgeOf(store, 'http://a');
      await store.advance([{ url: a.url, generation: a.generation, position: 5 }]);
      const again = await store.reseedEdge(a.url);
      expect(again).toMatchObject({ url: a.url, position: 0 });
      expect(again.generation).not.toBe(a.generation);
      await store.advance([{ url: a.url, generation: a.generation, position: 9 }]);
      expect(await edgeOf(store, 'http://a')).toEqual(again);
    });

    test('I6: are given everything once more, or forgotten, durably: a power cut must not bring their place back', async () => {
      const { store, flushes } = await make();
      await store.addEdges(URLS);
      for (const change of [() => store.reseedEdge('http://a'), () => store.forgetEdges(['http://a'])]) {
        const before = flushes();
        await change();
        expect(flushes()).toBeGreaterThan(before);
      }
    });

    test('I6: who says for the first time which database it is has acknowledged nothing of what a plain one had', async () => {
      const { store } = await make();
      await store.addEdges(URLS);
      const [a, b] = [await edgeOf(store, 'http://a'), await edgeOf(store, 'http://b')];
      const said = (id: string): string => `id=${id}; inc=${id.padStart(16, '0')}; boot=1-00000001; t0=0; t=1`;
      await store.advance([{ url: a.url, generation: a.generation, position: 5 }]);
      const answer = ({ url, generation }: EdgeRow, id: string): EdgeAnswer => {
        return { url, generation, said: said(id), position: 6 };
      };
      const noted = await store.answered([answer(a, 'a'), answer(b, 'b')]);
      expect(noted.map(({ counts, row }) => [counts, row?.position])).toEqual([
        [false, 0],
        [true, 6],
      ]);
      expect((await edgeOf(store, 'http://a')).generation).not.toBe(a.generation);
      const next = await store.answered([answer(await edgeOf(store, 'http://a'), 'a')]);
      expect(next).toMatchObject([{ counts: true, row: { position: 6 } }]);
    });

    test('a dead letter that is received again is nobody\u2019s own', async () => {
      const { store } = await make();
      const rowless = { op: 'DELETE', table: 'items', row: null, old_id: 'x' } as unknown as WireChange;
      await receive(store, [live('x', T)], { from: 'b', plain: false });
      await receive(store, [rowless, live('y', T)], { from: 'a', plain: false, again: true });
      expect(await store.skipOwn(0, 'a', 1)).toBe(0);
      const found = await followFrom(store, 0);
      expect(idsOf((await store.read(0, ALL, 'a')) as Segment)).toEqual(found.map(({ change }) => change.row.id));
    });

    test('a dead letter that is received again has been let in: the limit of a request does not count', async () => {
      const { store } = await make();
      const large = Array.from({ length: 10 }, (_, i) => live(`r${i}`, T, { name: 'n'.repeat(30_000) }));
      await expect(receive(store, large)).rejects.toMatchObject({ code: 'BODY_TOO_LARGE' });
      expect(await receive(store, large, { from: 'a', plain: false, again: true })).toMatchObject({
        ack: { applied: 10 },
      });
    });

    test('I6: a position moves forward, and by its own generation alone', async () => {
      const { store } = await make();
      await store.addEdges(URLS);
      const [a, b] = [await edgeOf(store, 'http://a'), await edgeOf(store, 'http://b')];
      await store.advance([
        { url: a.url, generation: a.generation, position: 5 },
        { url: b.url, generation: b.generation, position: 7 },
      ]);
      await store.advance([{ url: a.url, generation: a.generation, position: 3 }]);
      expect((await store.edges()).map(({ position }) => position)).toEqual([5, 7]);
      await store.advance([{ url: a.url, generation: a.generation + 1_000, position: 9 }]);
      await store.advance([{ url: 'http://nobody', generation: a.generation, position: 9 }]);
      expect((await store.edges()).map(({ position }) => position)).toEqual([5, 7]);
    });

    test('I6: another node at an address has acknowledged nothing of what the one before it had', async () => {
      const { store, reopen } = await make();
      await store.addEdges(URLS);
      const first = await edgeOf(store, 'http://a');
      await store.advance([{ url: first.url, generation: first.generation, position: 5 }]);
      // Who it is was not known: it is the same one.
      const known = await store.identify(first.url, first.generation, 'one', true);
      expect(known).toMatchObject({ position: 5, nodeId: 'one', generation: first.generation });
      expect(await store.identify(first.url, known.generation, 'one', true)).toEqual(known);
      const second = await store.identify(first.url, known.generation, 'two', true);
      expect(second).toMatchObject({ position: 0, nodeId: 'two' });
      expect(second.generation).not.toBe(known.generation);
      await store.advance([{ url: first.url, generation: known.generation, position: 6 }]);
      expect(await edgeOf(store, 'http://a')).toEqual(second);
      // What somebody has to say of an earlier generation is over.
      expect(await store.identify(first.url, known.generation, 'three', true)).toEqual(second);
      await store.advance([{ url: first.url, generation: second.generation, position: 4 }]);
      expect(await edgeOf(await reopen(), 'http://a')).toMatchObject({ position: 4, nodeId: 'two' });
      await expect(store.identify('http://nobody', 1, 'x', true)).rejects.toMatchObject({ code: 'INVALID_PEER' });
    });

    test('I6: many that answer at once are each heard for themselves', async () => {
      const { store } = await make();
      const urls = Array.from({ length: 8 }, (_, i) => `http://e${i}`);
      const said = (i: number, tick: number, boot = '1-00000001', t0 = 0): string =>
        `id=e${i}; inc=${i.toString(16).padStart(16, '0')}; boot=${boot}; t0=${t0}; t=${tick}`;
      await store.addEdges(urls);
      const rows = await Promise.all(urls.map((url) => store.edge(url)));
      const answer = (i: number, word: string | undefined, position: number | undefined): EdgeAnswer => {
        return { url: urls[i] as string, generation: rows[i]?.generation as number, said: word, position };
      };
      // The last two do not introduce themselves.
      const begun = await store.answered(urls.map((_, i) => answer(i, i < 6 ? said(i, 10) : undefined, 3)));
      expect(begun.map(({ counts, row }) => [counts, row?.position])).toEqual(urls.map(() => [true, 3]));
      const found = await store.answered([
        answer(0, said(0, 11), 5),
        answer(1, said(1, 10), 5),
        // Of an attach that begins below what it has told, and of another database.
        answer(2, said(2, 4, '2-00000002', 3), 5),
        answer(3, said(9, 1), 5),
        { ...answer(4, said(4, 12), 5), generation: (rows[4]?.generation as number) + 1_000 },
        answer(5, said(5, 12), 4),
        answer(5, said(5, 13), 5),
        answer(6, undefined, 5),
        answer(7, undefined, undefined),
        { ...answer(0, said(8, 1), 5), url: 'http://nobody' },
      ]);
      const counts = [true, true, false, false, false, true, true, true, true, false];
      expect(found.map((one) => one.counts)).toEqual(counts);
      const after = await Promise.all(urls.map((url) => store.edge(url)));
      expect(after.map(({ position }) => position)).toEqual([5, 5, 0, 0, 3, 5, 5, 3]);
      const told = await Promise.all([0, 1, 5].map((i) => store.company.toEdge(urls[i] as string)));
      expect(told.map((words) => readIntroduction(words)?.you?.tick)).toEqual([11, 10, 13]);
    });

    test('what it says is still to come is the time of the oldest row that an edge lacks, wherever that has its place', async () => {
      const { store: first, reopen } = await make();
      const [now, day] = [Date.now(), 86_400_000];
      const said = (inc: string): string => `id=e; inc=${inc.repeat(16)}; boot=1-00000001; t0=0; t=1; low=${now}`;
      const urls = ['http://one', 'http://two'] as const;
      await first.addEdges([...urls]);
      // Somebody was away, and brings what it wrote weeks ago after what was written yesterday.
      await receive(first, [live('new', now - day)]);
      await receive(first, [live('old', now - 30 * day)], { from: 'b', plain: false });
      await receive(first, [live('newer', now)]);
      const places = (await followFrom(first, 0)).map(({ end }) => end);
      let store = first;
      const low = async (...positions: (number | undefined)[]): Promise<number | undefined> => {
        // What a process has seen a moment ago it says again.
        for (const again of [false, true]) {
          if (again) store = await reopen();
          for (const [i, url] of urls.entries()) {
            const { generation } = await store.edge(url);
            await store.answered([{ url, generation, said: said(`${i}`), position: positions[i] }]);
          }
          await store.company.look();
        }
        return readIntroduction(await store.company.toSender(said('3')))?.low;
      };
      expect(await low(undefined, undefined)).toBe(now - 30 * day);
      expect(await low(places[2], places[0])).toBe(now - 30 * day);
      expect(await low(places[2], places[1])).toBe(now);
    });

    test('I7: what is done twice, or by two, changes nothing', async () => {
      const { store } = await make();
      await receive(store, [live('x', T), gone('y', T)]);
      const { end } = (await store.read(0, ALL)) as Segment;
      expect((await receive(store, [live('x', T), gone('y', T)], { from: 'b', plain: false })).ack.applied).toBe(2);
      expect(await store.read(end, ALL)).toBeUndefined();
      const shipment = {
        batchId: end,
        body: (await store.read(0, ALL))?.body as never,
        count: 2,
        end: undefined as never,
      };
      for (let i = 0; i < 2; i++) {
        const refusal = { peer: 'http://a', reason: 'no', attempts: 5 };
        expect((await store.letters.setAside(shipment, refusal)).map(({ id }) => id)).toEqual(['x', 'y']);
      }
      expect(await store.letters.list()).toMatchObject([
        { direction: 'out', rowId: 'x', peer: 'http://a', code: 'refused', retryCount: 5 },
        { direction: 'out', rowId: 'y' },
      ]);
      await store.letters.setAside(shipment, { peer: 'http://b', reason: 'no', attempts: 5 });
      expect(await store.letters.list()).toHaveLength(4);
    });

    test('are refused again in a newer version: there is one letter a row, with the newest', async () => {
      const { store } = await make();
      const shipment = (changes: WireChange[]) => ({
        batchId: 1,
        count: changes.length,
        body: Buffer.from(JSON.stringify({ batch_id: 1, changes })) as never,
        end: undefined as never,
      });
      const refusal = { peer: 'http://a', reason: 'no', attempts: 5 };
      await store.letters.setAside(shipment([live('x', T), live('y', T)]), refusal);
      const [first, other] = await store.letters.list();
      const forbidden = [{ index: 0, reason: 'not you' }];
      await store.letters.forbid(shipment([live('x', T + 1, { name: 'newer' })]), { peer: 'http://a', forbidden });
      const [letter, ...others] = await store.letters.list();
      expect(letter).toMatchObject({
        id: first?.id,
        op: 'UPDATE',
        code: 'forbidden',
        reason: 'not you',
        retryCount: 1,
      });
      expect(letter?.row).toContain('newer');
      expect(others).toEqual([other]);
      const change = JSON.parse((await store.letters.changeOf(first?.id as number)) as string);
      expect(change).toEqual(live('x', T + 1, { name: 'newer' }));
      await store.letters.setAside(shipment([gone('x', T + 2)]), refusal);
      expect(await store.letters.list()).toMatchObject([
        { id: first?.id, op: 'DELETE', code: 'refused', reason: 'no', retryCount: 5 },
        { rowId: 'y' },
      ]);
    });

    test('are counted: what each has not acknowledged, but for its own, and how old that is', async () => {
      const { store } = await make();
      await receive(store, [live('x', T + 1), live('y', T + 2), gone('z', T)]);
      await receive(store, [live('w', T + 3)], { from: 'b', plain: false });
      const { end } = (await store.read(0, { changes: 1, bytes: 1_000_000 })) as Segment;
      await receive(store, [{ op: 'UPSERT' } as never]);
      const asked = [
        { position: 0, except: undefined },
        { position: end, except: undefined },
        { position: 0, except: 'a' },
        { position: Number.MAX_SAFE_INTEGER, except: undefined },
      ];
      expect(await store.counts(asked)).toEqual({
        rows: 3,
        letters: 1,
        edges: [
          { pending: 4, oldest: T + 1 },
          { pending: 3, oldest: T + 2 },
          { pending: 1, oldest: T + 3 },
          { pending: 0, oldest: undefined },
        ],
        problems: [],
      });
    });

    test('are said to be at least so many until all are counted, however many there are', async () => {
      const { store } = await make();
      for (let i = 0; i < 12_000; i += 1_000) {
        await receive(
          store,
          Array.from({ length: 1_000 }, (_, j) => live(`r${i + j}`, T)),
        );
      }
      const counts = (): ReturnType<HubStore['counts']> => store.counts([{ position: 0, except: undefined }]);
      const first = await counts();
      expect(first.at_least).toContain('item_count');
      expect([first.rows < 12_000, (first.edges[0]?.pending ?? 0) > 10_000]).toEqual([true, true]);
      await until('all are counted', async () => (await counts()).at_least === undefined);
      const { rows, edges } = await counts();
      expect([rows, edges[0]?.pending]).toEqual([12_000, 12_000]);
    });
  });
}

function live(id: string, updatedAt: number, more: Record<string, unknown> = { name: 'n' }): WireChange {
  return { op: 'UPDATE', table: 'items', row: { id, ...more, updated_at: updatedAt }, old_id: null };
}

function gone(id: string, updatedAt: number): WireChange {
  return { op: 'DELETE', table: 'items', row: { id, updated_at: updatedAt }, old_id: id };
}

/** How many of the first changes a batch of so many bytes has, of which the first one may be larger. */
function fittingOf(sizes: number[], bytes: number): number {
  let fitting = 0;
  for (let room = bytes - 50; fitting < sizes.length && room >= 0; fitting++) room -= (sizes[fitting] as number) + 1;
  const last = sizes.slice(0, fitting).reduce((sum, size) => sum + size + 1, 0) > bytes - 50 ? 1 : 0;
  return Math.max(1, fitting - last);
}

function receive(store: HubStore, changes: WireChange[], sender: Sender = ROWCAST): Promise<Stored> {
  return store.receive(JSON.stringify({ batch_id: 7, changes }), sender);
}

function text(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}

function changesOf({ body, end, count }: Segment): WireChange[] {
  const batch = JSON.parse(text(body)) as { batch_id: number; changes: WireChange[] };
  expect([batch.batch_id, batch.changes.length]).toEqual([end, count]);
  return batch.changes;
}

function idsOf(segment: Segment): unknown[] {
  return changesOf(segment).map(({ row }) => row.id);
}

function byId(a: WireChange, b: WireChange): number {
  return String(a.row.id) < String(b.row.id) ? -1 : 1;
}

function nameOf(state: WireChange[], id: string): unknown {
  return state.find(({ row }) => (row.id ?? row.ID) === id)?.row.name;
}

/** Every change from a place on, and where the one-change segment that it came in ends. */
async function followFrom(store: HubStore, from: number): Promise<{ change: WireChange; end: number }[]> {
  const found: { change: WireChange; end: number }[] = [];
  for (let at = from; ; ) {
    const segment = await store.read(at, { changes: 1, bytes: 1_000_000 });
    if (!segment) return found;
    for (const change of changesOf(segment)) found.push({ change, end: segment.end });
    at = segment.end;
  }
}

/** The newest version of every row, by id. Each row is there once (I4, I5). */
async function stateOf(store: HubStore): Promise<WireChange[]> {
  const rows = (await followFrom(store, 0)).map(({ change }) => change);
  const ids = rows.map(({ row }) => row.id ?? row.ID);
  expect(new Set(ids).size).toBe(ids.length);
  return rows.sort(byId);
}
