/** What `npm start` runs: three real processes, killed and cut off, and none of them left behind. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { fromLine } from '../../demo/commands.ts';
import { compare } from '../../demo/compare.ts';
import { frame, statusLines, type View } from '../../demo/view.ts';
import { openDatabase } from '../support/lane.ts';
import { cleanUp, database, ITEMS, scratchFolder, serve, until } from '../support/nodes.ts';

const program = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));

describe('npm start -- --once', () => {
  it('writes, kills, cuts, mends, finds all three equal and complete, and exits 0', async () => {
    const folder = scratchFolder();
    const run = cluster('--once', '-dir', folder);
    expect(await run.exited, run.output()).toBe(0);
    expect(run.output()).toMatch(/started a.*\n.*started b.*\n.*started c/);
    expect(run.output()).toMatch(/kill -9 \d+: b died in the middle of its writes/);
    expect(run.output()).toMatch(/cut the link between a and c/);
    expect(run.output()).toMatch(/all three are equal again/);
    expect(run.pids().length).toBe(4);
    expect(run.pids().filter(isAlive)).toEqual([]);

    // Not its word for it: the three files, read here.
    const contents = await Promise.all(['a', 'b', 'c'].map((id) => itemsIn(join(folder, `${id}.db`))));
    const acknowledged = Number(/every one of the (\d+) acknowledged/.exec(run.output())?.[1]);
    expect(contents[0]?.length).toBeGreaterThanOrEqual(acknowledged);
    expect(acknowledged).toBeGreaterThan(300);
    expect(contents[1]).toEqual(contents[0]);
    expect(contents[2]).toEqual(contents[0]);
  });
});

describe('npm start without a terminal', () => {
  it('takes lines, and tells what is true', async () => {
    const run = cluster('-port', '0', '-dir', scratchFolder());
    await run.heard(/Commands, one per line/);
    const [, address = ''] = /the console of a: (http\S+)/.exec(run.output()) ?? [];
    expect(await (await fetch(address)).text()).toContain('<title>Rowcast</title>');
    run.type('write 10');
    await run.heard(/10 rows on a: on b after \d+ ms, on c after \d+ ms/);
    run.type('cut a c', 'kill b', 'write 5 a', 'status', 'verify');
    await run.heard(/5 rows on a: b gets them when it is back, c gets them when the link is healed/);
    await run.heard(/ b .*killed +- +- +-\n/);
    await run.heard(/a-c CUT/);
    await run.heard(/not equal while a node is down or a link is cut: rows a 35, b 30, c 30/);
    run.type('heal c a', 'start b', 'verify', 'nonsense', 'write -1', 'quit');
    await run.heard(/all three files are equal: 35 rows each/);
    await run.heard(/there is no command "nonsense"/);
    await run.heard(/write how many rows\?/);
    expect(await run.exited).toBe(0);
    expect(run.pids().filter(isAlive)).toEqual([]);
  });

  it('makes a conflict before your eyes: two edits of one row, one winner on both, and which one lost', async () => {
    const folder = scratchFolder();
    const run = cluster('-port', '0', '-dir', folder);
    await run.heard(/Commands, one per line/);
    run.type('conflict b c', 'conflict b b', 'verify', 'quit');
    await run.heard(/link b-c is cut.*\nb shows "edited on b".*\nc shows "edited on c"/);
    await run.heard(/link b-c is healed\n(.*\n)*b and c both show "edited on c": the later edit wins on every node/);
    await run.heard(/the edit "edited on b" lost, on b too/);
    await run.heard(/conflict between which nodes\? Name two: conflict a b/);
    await run.heard(/all three files are equal: 1 rows each/);
    expect(await run.exited).toBe(0);
    const contents = await Promise.all(['a', 'b', 'c'].map((id) => itemsIn(join(folder, `${id}.db`))));
    expect(contents.map(([row]) => /'edited on (.)'/.exec(row ?? '')?.[1])).toEqual(['c', 'c', 'c']);
  });

  it('gives one UNIQUE seat away twice: one row has it on both nodes, and the other comes back when it is free', async () => {
    const folder = scratchFolder();
    const run = cluster('-port', '0', '-dir', folder);
    await run.heard(/Commands, one per line/);
    run.type('unique b c', 'verify', 'quit');
    await run.heard(/link b-c is cut, and "seat \d+" is given away on both sides of it/);
    await run.heard(/the later row, of c, has the seat on both; the one of b is hidden on both, and kept/);
    await run.heard(/c's row is deleted, and b's is back on both/);
    await run.heard(/all three files are equal: 1 rows each/);
    expect(await run.exited).toBe(0);
  });

  it('leaves no node behind when it is itself killed with -9', async () => {
    const run = cluster('-port', '0', '-dir', scratchFolder());
    await run.heard(/Commands, one per line/);
    expect(run.pids().filter(isAlive).length).toBe(3);
    run.child.kill('SIGKILL');
    await until('the nodes are gone', () => !run.pids().some(isAlive));
  });

  it('takes other ports when one of its own is taken, and ends its nodes on SIGTERM', async () => {
    const taken = Number(new URL(await serve((_, response) => response.end())).port);
    const run = cluster('-port', String(taken - 1), '-dir', scratchFolder());
    await run.heard(/Commands, one per line/);
    expect(run.output()).not.toContain(`127.0.0.1:${taken},`);
    run.child.kill('SIGTERM');
    expect(await run.exited).toBe(143);
    expect(run.pids().length).toBe(3);
    expect(run.pids().filter(isAlive)).toEqual([]);
  });

  it('says which flag is wrong, and starts nothing', async () => {
    const run = cluster('-prot', '1');
    expect(await run.exited).toBe(2);
    expect(run.output()).toContain('did you mean -port?');
    expect(run.output()).toContain('allowed: -once -dir -port');
  });
});

describe('comparing the files', () => {
  it('sees a missing row, another value, and another storage class', async () => {
    const folder = scratchFolder();
    const files = ['a', 'b'].map((id) => ({ id, file: join(folder, `${id}.db`) }));
    const [a, b] = await Promise.all(files.map(({ file }) => database(ITEMS, file)));
    const outcome = () => compare(files, (file) => openDatabase(file));
    for (const db of [a, b])
      db?.exec("INSERT INTO items VALUES ('1', 'x', 9007199254740993, 1, 1), ('2', 'y', 1, 1, 1)");
    expect(await outcome()).toMatchObject({ equal: true, differences: [] });

    b?.exec("UPDATE items SET value = 9007199254740992 WHERE id = '1'");
    expect((await outcome()).differences).toEqual([expect.stringContaining('row 1: a has')]);
    b?.exec("DELETE FROM items WHERE id = '1'");
    expect((await outcome()).differences).toEqual([expect.stringContaining('b has no such row')]);
    a?.exec("DELETE FROM items WHERE id = '1'");
    b?.exec("UPDATE items SET name = x'79' WHERE id = '2'");
    expect(await outcome()).toMatchObject({ equal: false, differences: [expect.stringContaining('row 2')] });
  });
});

describe('the view', () => {
  it('fits 80 columns and 24 lines, however much there is to tell', () => {
    const view = viewOf({ item_count: 12_345_678, pending_changes: 1_234_567, lag_ms: 99_999 });
    for (const [columns, rows] of [
      [80, 24],
      [40, 10],
      [200, 60],
    ] as const) {
      const lines = frame(view, { columns, rows }, false);
      expect(lines.length).toBeLessThanOrEqual(rows);
      expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(columns);
    }
    const lines = frame(view, { columns: 80, rows: 24 }, false);
    expect(lines.at(-1)).toContain('event 99');
    expect(lines.join('\n')).toContain('12,345,678');
    expect(lines.join('\n')).toContain('quit');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what is looked for
    expect(frame(view, { columns: 80, rows: 24 }, true).map((line) => line.replace(/\x1b\[\d+m/g, ''))).toEqual(lines);
  });

  it('shows nothing of a node that does not answer', () => {
    const [line] = statusLines({ ...viewOf({}), nodes: [{ ...gone, id: 'b' }] });
    expect(line?.trim()).toMatch(/^b +127\.0\.0\.1:9001 +killed +- +- +-$/);
  });

  it('tells a peer that is up, down, tried again, or not yet heard of', () => {
    const peer = (url: string, state: 'up' | 'down' | 'unknown', pending: number, last_error: string | null) => ({
      ...{ url, state, pending, last_error, last_acked: 0, snapshot: false, last_acked_at: null, lag_ms: 0 },
      ...{
        paused: false,
        stale: false,
        verified: null,
        seeds: { new: 0, replaced: 0, restored: 0, stale: 0, table: 0, manual: 0 },
      },
    });
    const states = [
      peer('u', 'up', 3, null),
      peer('d', 'down', 3, 'refused'),
      peer('r', 'up', 3, 'refused'),
      peer('n', 'unknown', 0, null),
    ];
    expect(statusLines(viewOf({ peer_states: states }))[0]).toMatch(/u up +d down +r retry +n \?/);
  });
});

describe('a line', () => {
  it('becomes a command, or an answer that says what is missing', () => {
    expect(fromLine(' write 10 ')).toEqual({ kind: 'write', count: 10 });
    expect(fromLine('write 3 b')).toEqual({ kind: 'write', count: 3, node: 'b' });
    expect(fromLine('CUT a, b')).toEqual({ kind: 'cut', one: 'a', other: 'b' });
    expect(fromLine('')).toBeUndefined();
    expect(fromLine('conflict')).toMatchObject({ kind: 'scene', scene: { word: 'conflict' }, nodes: ['a', 'b', 'c'] });
    for (const wrong of [
      'conflict a',
      'conflict a d',
      'kill',
      'kill d',
      'cut a',
      'cut a a',
      'heal a d',
      'write ten',
      'write 1 d',
      'dance',
    ])
      expect(fromLine(wrong), wrong).toMatchObject({ kind: 'wrong' });
  });
});

const gone: View['nodes'][number] = {
  id: 'a',
  port: 9001,
  console: '',
  state: 'killed',
  pid: undefined,
  health: undefined,
};

function viewOf(health: Partial<NonNullable<View['nodes'][number]['health']>>): View {
  const full = {
    ...{ ok: true, node_id: 'a', item_count: 0, pending_changes: 0, dead_letter: 0, peers: [], peer_states: [] },
    ...{ lag_ms: 0, problems: [], ...health },
  };
  return {
    folder: '/a/rather/long/path/that/goes/on/and/on/until/it/is/wider/than/any/terminal/of/eighty/columns',
    nodes: ['a', 'b', 'c'].map((id) => ({
      id,
      port: 9001,
      console: '',
      state: 'running',
      pid: 4_194_304,
      health: full,
    })),
    links: ['a-b', 'a-c', 'b-c'].map((name) => ({ name, isCut: name === 'a-c' })),
    writing: false,
    log: Array.from({ length: 100 }, (_, i) => ({ at: `${i} s`, text: `event ${i} ${'and so on '.repeat(20)}` })),
    peerName: (url) => url,
  };
}

function cluster(...args: string[]) {
  expect(existsSync(program), 'npm run build comes first').toBe(true);
  const child: ChildProcess = spawn(process.execPath, [program, 'demo', ...args], { stdio: 'pipe' });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => (output += chunk));
  let isOver = false;
  const exited = new Promise<number | null>((resolve) =>
    child.on('close', (code) => {
      isOver = true;
      resolve(code);
    }),
  );
  cleanUp(() => child.kill('SIGKILL'));
  return {
    child,
    exited,
    output: () => output,
    type: (...lines: string[]) => child.stdin?.write(lines.map((line) => `${line}\n`).join('')),
    heard: async (what: RegExp) => {
      await until(`it says ${what}`, () => what.test(output) || isOver);
      expect(output).toMatch(what);
    },
    pids: () => [...new Set([...output.matchAll(/pid (\d+)/g)].map(([, pid]) => Number(pid)))],
  };
}

/** A process that has ended and that nobody has waited for yet still has a number. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    const stat = `/proc/${pid}/stat`;
    return !existsSync(stat) || !/^\d+ \(.*\) [ZX]/.test(readFileSync(stat, 'utf8'));
  } catch {
    return false;
  }
}

async function itemsIn(file: string): Promise<string[]> {
  expect(existsSync(file)).toBe(true);
  const db = await openDatabase(file);
  try {
    return db
      .prepare(
        "SELECT id || ' ' || quote(name) || ' ' || quote(value) || ' ' || updated_at AS line FROM items ORDER BY id",
      )
      .all()
      .map((row) => (row as { line: string }).line);
  } finally {
    db.close();
  }
}
