/** Two hubs on one file would forget each other's edges: the second one is refused, as long as the first one is there. */
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createHub, type Hub } from '../../src/hub/hub.ts';
import { attach } from '../../src/index.ts';
import { hub } from '../support/hubs.ts';
import { lane } from '../support/lane.ts';
import { cleanUp, database, rowsOf, scratchFolder, until } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const ONE = ['http://one.test'];
const TWO = ['http://two.test'];
const quiet = {
  get: () => Promise.reject(new Error('nobody is there')),
  fetch: () => Promise.reject(new Error('nobody is there')),
};

async function another(path: string, edges: string[]): Promise<Hub> {
  const db = await database('SELECT 1', path);
  const made = await createHub(db, { id: 'hub', edges, ...quiet });
  cleanUp(() => made.stop());
  return made;
}

const edgesIn = async (made: Hub): Promise<string[]> => (await made.edges.list()).map(({ url }) => url);

test('a second hub on the file of one that runs is refused, and takes no edge from it', async () => {
  const path = join(scratchFolder(), 'hub.db');
  const first = await hub({ edges: ONE, ...quiet }, path);
  const urls = (): unknown[] => rowsOf(first.db, 'SELECT url FROM _hub_edges').map(({ url }) => url);
  await expect(another(path, TWO)).rejects.toMatchObject({
    code: 'INVALID_DATABASE',
    message: expect.stringContaining('is served by another hub at this moment'),
  });
  expect(urls()).toEqual(ONE);
  await expect(createHub(first.db, { id: 'hub', edges: TWO, ...quiet })).rejects.toThrow(/served by another hub/);
  expect(urls()).toEqual(ONE);
  await first.hub.stop();
  expect(await edgesIn(await another(path, TWO))).toEqual(TWO);
  expect(urls()).toEqual(TWO);
});

// On Bun a connection is closed when its statements are, and those are a running hub's: it has to be stopped.
test.skipIf(lane === 'bun-sqlite')('one that was never stopped is over when its connection is closed', async () => {
  const path = join(scratchFolder(), 'hub.db');
  const first = await hub({ edges: ONE, clock: new VirtualClock(), ...quiet }, path);
  first.db.close();
  expect(await edgesIn(await another(path, ONE))).toEqual(ONE);
});

test('one that waits has the file when the other has ended', async () => {
  const path = join(scratchFolder(), 'hub.db');
  const first = await hub({ edges: ONE, ...quiet }, path);
  const second = hub({ edges: TWO, ...quiet }, path);
  await first.hub.stop();
  expect(await edgesIn((await second).hub)).toEqual(TWO);
});

test('files that are read or refused have no lock beside them, and hubs in memory need none', async () => {
  const path = join(scratchFolder(), 'node.db');
  const db = await database('CREATE TABLE own (id TEXT)', path);
  await expect(createHub(db, { id: 'hub', edges: [] })).rejects.toThrow(/not a hub's/);
  expect(existsSync(`${path}-lock`)).toBe(false);
  rmSync(path);
  const [one, two] = [await hub({ edges: ONE, ...quiet }), await hub({ edges: TWO, ...quiet })];
  expect([await edgesIn(one.hub), await edgesIn(two.hub)]).toEqual([ONE, TWO]);
});

test('where there can be no lock it is said, and the hub runs', async () => {
  const path = join(scratchFolder(), 'hub.db');
  mkdirSync(`${path}-lock`);
  const { hub: made, db } = await hub({ edges: ONE, ...quiet }, path);
  const warnings: string[] = [];
  made.on('warning', ({ code, message }) => warnings.push(`${code}: ${message}`));
  await until('it is said', () => warnings.length > 0);
  expect(warnings).toEqual([`no-lock: ${expected(path)}`]);
  expect(rowsOf(db, 'PRAGMA database_list').map(({ name }) => name)).not.toContain('rowcast_lock');
});

const expected = (path: string): string =>
  `${path}-lock cannot be written: another hub that is started on the same file would not be noticed, and harm this one`;

test("somebody else's file in the place of the lock is named, and left as it is", async () => {
  const path = join(scratchFolder(), 'hub.db');
  const notes = 'no database, but notes of somebody '.repeat(9);
  writeFileSync(`${path}-lock`, notes);
  const db = await database('SELECT 1', path);
  await expect(createHub(db, { id: 'hub', edges: ONE, ...quiet })).rejects.toMatchObject({
    code: 'INVALID_DATABASE',
    message: expect.stringMatching(/hub\.db-lock is where a hub has its lock.*move it away/),
  });
  expect(readFileSync(`${path}-lock`, 'utf8')).toBe(notes);
  rmSync(`${path}-lock`);
  // By the same handle: what was found in the other file is not said of this one.
  const made = await createHub(db, { id: 'hub', edges: ONE, ...quiet });
  cleanUp(() => made.stop());
  expect(await edgesIn(made)).toEqual(ONE);
  expect(await made.health()).toMatchObject({ ok: true, problems: [] });
});

test('a node is not begun on the file of a hub, and leaves it as it is', async () => {
  const path = join(scratchFolder(), 'hub.db');
  const first = await hub({ edges: ONE, ...quiet }, path);
  const schema = (): unknown => rowsOf(first.db, 'SELECT name FROM sqlite_schema ORDER BY name');
  const before = schema();
  const slip = await database('SELECT 1', path);
  slip.exec('CREATE TABLE items (id TEXT PRIMARY KEY, updated_at INTEGER)');
  expect(() => attach(slip, { id: 'x', peers: [] }, ['items'])).toThrow(/the database is a hub's.*a file of its own/);
  slip.exec('DROP TABLE items');
  expect(schema()).toEqual(before);
  await first.hub.stop();
  expect(await edgesIn(await another(path, ONE))).toEqual(ONE);
});
