/**
 * The same man between real programs, for half a minute of writes; on Bun for ten seconds, and for as many as
 * ROWCAST_MAN_SECONDS says.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { lane } from '../support/lane.ts';
import { Random } from '../support/model.ts';
import { cleanUp, scratchFolder, until } from '../support/nodes.ts';
import { freePorts, type NodeProgram, type Parsed, startNode } from '../support/programs.ts';
import { ManInTheMiddle } from './man-in-the-middle.ts';
import { SECRET } from './messages.ts';

const SECONDS = Number(process.env.ROWCAST_MAN_SECONDS ?? (lane === 'better-sqlite3' ? 30 : 10));
const SEED = Number(process.env.ROWCAST_MAN_SEED ?? 1);
const NAMES = ['a', 'b', 'c'];

const post = (url: string, name: string): Promise<Response> =>
  fetch(`${url}/api/items`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name }),
  });

/** Of the whole database, by somebody with the key. */
async function itemCount({ url, port }: NodeProgram): Promise<number> {
  const response = await fetch(`${url}/metrics`);
  const [, n] = /^rowcast_rows(?:\{[^}]*\})? (\d+)$/m.exec(await response.text()) ?? [];
  if (n === undefined) throw new Error(`no count of rows at ${port}`);
  return Number(n);
}

test(
  `nothing is lost and nothing is buried in ${SECONDS} seconds of writes with somebody on every way`,
  async () => {
    const folder = scratchFolder();
    const keys = join(folder, 'keys.json');
    writeFileSync(keys, JSON.stringify({ keys: [{ id: 'k1', secret: SECRET }] }), { mode: 0o600 });
    const random = new Random(SEED);
    const ports = await freePorts(NAMES.length);
    const urlOf = (name: string): string => `http://127.0.0.1:${ports[NAMES.indexOf(name)]}`;
    const men: ManInTheMiddle[] = [];
    const programs: NodeProgram[] = [];
    for (const [i, name] of NAMES.entries()) {
      const args = ['-listen', `127.0.0.1:${ports[i]}`, '-keys-file', keys, '-batch-ms', '20', '-metrics', 'on'];
      for (const to of NAMES) {
        if (to === name) continue;
        const other = NAMES.find((one) => one !== name && one !== to) as string;
        const man = new ManInTheMiddle(
          () => urlOf(to),
          () => urlOf(other),
          random,
        );
        men.push(man);
        cleanUp(() => man.close());
        const way = await man.listen();
        args.push('-peer', way, '-peer-id', `${way}=${to}`);
      }
      programs.push(await startNode(name, [...args, '-request-timeout-ms', '2000'], folder));
    }
    const end = Date.now() + SECONDS * 1_000;
    let written = 0;
    while (Date.now() < end) {
      const answers = await Promise.all(programs.map(({ url }) => post(url, `row ${written}`)));
      for (const { status } of answers) expect(status).toBe(201);
      written += answers.length;
    }
    for (const man of men) man.heal();
    await until('everybody has everything', async () => {
      for (const program of programs) if ((await itemCount(program)) !== written) return false;
      return true;
    });
    for (const program of programs) {
      expect(program.lines('dead-letter')).toEqual([]);
      expect(program.lines('restored')).toEqual([]);
      expect(program.lines('peer-replaced')).toEqual([]);
      const text = await (await fetch(`${program.url}/metrics`)).text();
      expect(/^rowcast_dead_letters(?:\{[^}]*\})? [1-9]/m.exec(text)).toBeNull();
      expect(program.output()).not.toContain(SECRET.slice(0, 12));
    }
    const attacks = men
      .flatMap(({ done }) => [...done] as [string, number][])
      .reduce((sum: number, [, n]: Parsed) => sum + n, 0);
    console.log(`${written} rows written, ${attacks} messages met on the way`);
  },
  600_000 + SECONDS * 1_000,
);
