/** Three nodes that write while somebody stands on each of their six ways. */
import { expect, test } from 'vitest';
import type { AuthOptions } from '../../src/auth/index.ts';
import { createListener } from '../../src/http/index.ts';
import { draws } from '../support/draws.ts';
import { Random } from '../support/model.ts';
import { cleanUp, node, rowsOf, serve, type TestNode, until } from '../support/nodes.ts';
import { ATTACKS, type Attack, BODY_BYTES_MAX, ManInTheMiddle } from './man-in-the-middle.ts';
import { SECRET } from './messages.ts';

const AUTH: AuthOptions = { keys: [{ id: 'k1', secret: SECRET }] };
const NAMES = ['a', 'b', 'c'];

interface Outcome {
  nodes: TestNode[];
  written: string[];
  men: ManInTheMiddle[];
}

/** Each node writes so often, and until it is enough, with an attack on most of what it sends; then the ways are clear. */
async function attacked(
  rounds: number,
  auth: AuthOptions | undefined,
  attacks: readonly Attack[],
  isEnough: (outcome: Outcome) => boolean,
): Promise<Outcome> {
  const random = new Random(1);
  const urls = new Map<string, string>();
  const men: ManInTheMiddle[] = [];
  const wayTo = async (from: string, to: string): Promise<string> => {
    const other = NAMES.find((name) => name !== from && name !== to) as string;
    const man = new ManInTheMiddle(
      () => urls.get(to) as string,
      () => urls.get(other) as string,
      random,
      attacks,
    );
    men.push(man);
    cleanUp(() => man.close());
    return man.listen();
  };
  const nodes: TestNode[] = [];
  for (const id of NAMES) {
    const peers: string[] = [];
    for (const to of NAMES) if (to !== id) peers.push(await wayTo(id, to));
    // Who answers at a URL is said beforehand: the first answer on such ways may be anybody's.
    const peerIds = Object.fromEntries(NAMES.filter((to) => to !== id).map((to, i) => [peers[i] as string, to]));
    const made = await node({
      id,
      peers,
      batchMs: 5,
      requestTimeoutMs: 2_000,
      maxBodyBytes: BODY_BYTES_MAX,
      ...(auth && { auth: { ...auth, peerIds } }),
    });
    urls.set(id, await serve(createListener(made.manager)));
    nodes.push(made);
  }
  const written: string[] = [];
  for (let round = 0; round < rounds || !isEnough({ nodes, written, men }); round++) {
    for (const [i, { db }] of nodes.entries()) {
      const id = `${NAMES[i]}-${round}`;
      db.prepare('INSERT INTO items (id, name, value, created_at, updated_at) VALUES (?, ?, 1, 1, ?)').run(
        id,
        'n',
        Date.now(),
      );
      written.push(id);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  for (const man of men) man.heal();
  return { nodes, written: written.sort(), men };
}

const idsOf = ({ db }: TestNode): string[] =>
  rowsOf(db, 'SELECT id FROM items ORDER BY id').map(({ id }) => id as string);
const lettersOf = ({ manager }: TestNode): number => manager.health().dead_letter;

test('nothing is lost, nothing is buried, and everything is delivered afterwards', async () => {
  const isMade = (men: ManInTheMiddle[], attack: Attack): boolean => men.some(({ done }) => done.has(attack));
  const { nodes, written } = await attacked(draws(300), AUTH, ATTACKS, ({ men }) =>
    ATTACKS.every((attack) => isMade(men, attack)),
  );
  await until('nothing is pending', () => nodes.every(({ manager }) => manager.health().pending_changes === 0));
  for (const one of nodes) {
    expect(idsOf(one)).toEqual(written);
    expect(lettersOf(one)).toBe(0);
    expect(rowsOf(one.db, 'SELECT DISTINCT name, value FROM items')).toEqual([{ name: 'n', value: 1 }]);
    // Nobody has been made to believe in another database, or that it was put back from a backup.
    expect(rowsOf(one.db, 'SELECT DISTINCT id FROM _nodes ORDER BY id')).toEqual(NAMES.map((id) => ({ id })));
    expect(rowsOf(one.db, 'SELECT count(*) AS n FROM _nodes')).toEqual([{ n: NAMES.length }]);
  }
});

test('what he makes too large for a node is buried by nobody: it has refused what no sender has sent', {
  tags: 'long',
}, async () => {
  const isOver = ({ nodes }: Outcome): boolean =>
    nodes.every((one) => lettersOf(one) > 0 || one.manager.peers.list().every(({ state }) => state === 'down'));
  const { nodes, written } = await attacked(3, AUTH, ['make the request too large'], isOver);
  expect(nodes.map(lettersOf)).toEqual([0, 0, 0]);
  for (const one of nodes) await until('all is there', () => idsOf(one).length === written.length);
  expect(nodes.map(lettersOf)).toEqual([0, 0, 0]);
});

test('without keys, acknowledgements alone that he forges lose rows: the man is a real one', {
  tags: 'long',
}, async () => {
  // While he is there: whoever is reached afterwards says which database it is, and is given what a stranger took for it.
  const isLost = ({ nodes, written }: Outcome): boolean =>
    nodes.every(
      (one) =>
        one.manager.health().pending_changes < written.length / NAMES.length && idsOf(one).length < written.length,
    );
  expect(isLost(await attacked(20, undefined, ['forge an acknowledgement'], isLost))).toBe(true);
});

test('without keys, refusals that he forges bury rows', { tags: 'long' }, async () => {
  const isBuried = ({ nodes }: Outcome): boolean => nodes.some((one) => lettersOf(one) > 0);
  expect(isBuried(await attacked(0, undefined, ['forge a refusal'], isBuried))).toBe(true);
});
