/** Configuration from files, and reading it again while the program runs. */
import { readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { type Environment, UsageError } from '../../src/cli/flags.ts';
import { HUB_FLAGS } from '../../src/cli/hub.ts';
import { type Configured, configured, type Held, HUB_PEERS, NODE_PEERS, Reload } from '../../src/cli/reload.ts';
import { SERVE_FLAGS } from '../../src/cli/serve.ts';
import { RELOADABLE } from '../../src/cli/shared-flags.ts';
import { cleanUp, scratchFolder } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const A = 'http://a.test';
const B = 'http://b.test';
const C = 'http://c.test';
const BASE = ['-id', 'n', '-db', 'n.db'];

type Node = Configured<typeof SERVE_FLAGS>;
const read = (args: string[], env: Environment = {}, running?: Node): Node =>
  configured(SERVE_FLAGS, NODE_PEERS, args, env, running) as Node;

function scratchFile(name: string, text: string): { path: string; put(text: string): void } {
  const path = join(scratchFolder(), name);
  // As a careful writer does: in one step, and another file than before.
  const put = (content: string): void => {
    writeFileSync(`${path}.new`, content);
    renameSync(`${path}.new`, path);
  };
  put(text);
  return { path, put };
}

const config = (content: unknown): string => JSON.stringify(content);

describe('the environment', () => {
  test.each([
    ['ROWCAST_PEERS', 'ROWCAST_PEER'],
    ['ROWCAST_KEY_FILE', 'ROWCAST_KEYS_FILE'],
    ['ROWCAST_KEYFILE', 'ROWCAST_KEYS_FILE'],
    ['ROWCAST_KEY', 'ROWCAST_KEYS'],
    ['ROWCAST_TOKEN', 'ROWCAST_TOKENS'],
    ['ROWCAST_TABLES', 'ROWCAST_TABLE'],
    ['ROWCAST_TOMBSTONE_KEEP', 'ROWCAST_TOMBSTONES_KEEP'],
  ])('%s is not overlooked', (name, meant) => {
    expect(() => read(BASE, { [name]: 'x' })).toThrow(
      `${name} in the environment is none of the variables; did you mean ${meant}? Unset it otherwise`,
    );
    expect(read(BASE, { [name]: ' ' }).peers).toEqual([]);
  });

  test("is somebody else's as well: what Kubernetes makes of a service, what a hub has, and what a shell keeps", () => {
    const others = {
      ROWCAST_PORT: 'tcp://x',
      ROWCAST_PORT_9001_TCP_ADDR: 'x',
      ROWCAST_SERVICE_HOST: 'x',
      ROWCAST_EDGE: 'x',
      ROWCAST_IMAGE: 'x',
      ROWCAST_VERSION: 'x',
    };
    expect(read(BASE, others).flags.id).toBe('n');
    const hub = configured(HUB_FLAGS, HUB_PEERS, BASE, {
      ROWCAST_PEER: A,
      ROWCAST_PEERS_FILE: 'x',
      ROWCAST_TABLE: 'y',
    });
    expect(hub).toMatchObject({ peers: [] });
    expect(() => configured(HUB_FLAGS, HUB_PEERS, BASE, { ROWCAST_EDGES: A })).toThrow('did you mean ROWCAST_EDGE?');
  });
});

describe('-config', () => {
  test('has the flags as its keys; the environment wins over it, and the command line over both', () => {
    const { path } = scratchFile(
      'n.json',
      config({ id: 'file', db: 'file.db', peer: [A, B], 'batch-ms': 7, 'batch-size': 70, 'max-backlog-changes': 5 }),
    );
    const { flags, peers, files } = read(['-config', path, '-id', 'line'], { ROWCAST_BATCH_SIZE: '80' });
    expect(flags).toMatchObject({ id: 'line', db: 'file.db', batchMs: 7, batchSize: 80, maxBacklogChanges: 5 });
    expect([peers, files]).toEqual([[A, B], [path]]);
    expect(read(['-config', path, '-peer', C]).peers).toEqual([C]);
    expect(read([], { ROWCAST_CONFIG: path }).flags.id).toBe('file');
  });

  test('may give one URL as a text, and say where the file of peers is', () => {
    const peers = scratchFile('peers', `${B}\n`);
    const { path } = scratchFile('n.json', config({ id: 'a', db: 'x', peer: A, 'peers-file': peers.path }));
    expect(read(['-config', path])).toMatchObject({ peers: [A, B], files: [path, peers.path] });
  });

  test.each([
    ['no JSON', '{"id": "a"', /-config .*n\.json: not JSON: .*; write \{"peer"/],
    ['empty', '', /not JSON/],
    ['a list', '[]', /not an object; write \{"flag": value, ...\}/],
    [
      'an unknown key',
      config({ 'batch-mss': 5 }),
      /unknown key "batch-mss"; did you mean batch-ms\?; the keys are id, /,
    ],
    ['a key in another spelling', config({ batchMs: 5 }), /unknown key "batchMs"; did you mean batch-ms\?/],
    ['itself', config({ config: 'x' }), /unknown key "config"/],
    [
      'an object as a value',
      config({ 'batch-ms': {} }),
      /"batch-ms" is \{\}; it must be a text, a number or a boolean/,
    ],
    ['a list where there is one value', config({ id: ['a'] }), /"id" is \["a"\]; it must be a text/],
    ['a list of numbers and objects', config({ peer: [{}] }), /"peer" is \[\{\}\]; it must be a list of texts/],
    ['a value out of range', config({ 'batch-ms': 0 }), /^"batch-ms" in .*n\.json must be a whole number from 1/],
    ['a wrong URL', config({ peer: ['ftp://x'] }), /^"peer" in .*n\.json .*uses ftp:/],
    ['a wrong bound', config({ 'max-backlog-changes': 'much' }), /must be a whole number from 1, or auto or unlimited/],
  ])('that is %s is refused with what is wrong, where, and what to do', (_, text, message) => {
    const { path } = scratchFile('n.json', text);
    expect(() => read([...BASE, '-config', path])).toThrow(message);
  });

  test('that is not there is refused', () => {
    expect(() => read([...BASE, '-config', '/nowhere/n.json'])).toThrow(
      /-config \/nowhere\/n.json: cannot be read .*ENOENT/,
    );
  });

  test('of a hub has no bound on a backlog', () => {
    const { path } = scratchFile('h.json', config({ 'max-backlog-changes': 5 }));
    expect(() => configured(HUB_FLAGS, HUB_PEERS, [...BASE, '-config', path], {})).toThrow(/unknown key "max-backlog/);
  });
});

describe('-peers-file', () => {
  test('has a URL a line, with comments, besides those of -peer', () => {
    const { path } = scratchFile('peers', `# all of them\n\n  ${B}  # b\r\nHTTP://C.test:80/\n${A}/\n`);
    expect(read([...BASE, '-peer', A, '-peers-file', path]).peers).toEqual([A, B, C]);
    const hub = configured(HUB_FLAGS, HUB_PEERS, [...BASE, '-edges-file', path], {}) as { peers: string[] };
    expect(hub.peers).toEqual([B, C, A]);
  });

  test('with a comment alone has no peers; empty, it is refused: somebody may be writing it', () => {
    const { path, put } = scratchFile('peers', '# none\n');
    expect(read([...BASE, '-peers-file', path]).peers).toEqual([]);
    put(' \n');
    expect(() => read([...BASE, '-peers-file', path])).toThrow(/-peers-file .*: the file is empty; .*write # none/);
  });

  test('that ends in NUL characters, as after a power cut, is refused: an address may be cut off there', () => {
    const { path, put } = scratchFile('peers', `${A}\n`);
    put(`${A}\n${B.slice(0, -1)}\0\0\0`);
    expect(() => read([...BASE, '-peers-file', path])).toThrow(/-peers-file .*: has NUL characters in it, .*; put the/);
  });

  test.skipIf(process.platform === 'win32')('that is a pipe or a device, or has no end, is not read', () => {
    expect(() => read([...BASE, '-peers-file', '/dev/zero'])).toThrow(
      /-peers-file \/dev\/zero: is not a regular file; /,
    );
    expect(() => read([...BASE, '-config', '/dev/zero'])).toThrow(/is not a regular file/);
    const { path } = scratchFile('peers', '');
    truncateSync(path, 100_000_000);
    expect(() => read([...BASE, '-peers-file', path])).toThrow(/has 100000000 bytes, and 67108864 are allowed/);
  });

  test.each([
    ['http://ann:s3cret@b.test', /peers, line 3: "http:\/\/b\.test" carries credentials/],
    ['http://b.test/?token=s3cret', /peers, line 3: "http:\/\/b\.test\/" has a query/],
    ['http://ann:x/s3cret@b.test:9001', /peers, line 3: "http:\/\/b\.test:9001" is not a URL/],
  ])('with a secret in a line is refused, and nothing shows the secret: %s', async (line, message) => {
    const file = scratchFile('peers', `${A}\n`);
    const { reload, done, logged } = running([...BASE, '-peers-file', file.path]);
    file.put(`${A}\n\n${line}\n`);
    await reload.reload();
    expect(done).toEqual([]);
    expect(logged).toMatchObject([{ event: 'reload-failed', message: expect.stringMatching(message) }]);
    expect(JSON.stringify(logged)).not.toContain('s3cret');
  });

  test.each([
    ['-peer', ['-peer', 'http://ann:s3cret@b.test'], {}],
    ['ROWCAST_PEER', [], { ROWCAST_PEER: 'http://ann:s3cret@b.test' }],
    ['-peer-id', ['-peer-id', 'http://ann:s3cret@b.test'], {}],
    ['-peer-id', ['-peer-id', 'http://ann:s3cret@b.test=b'], {}],
  ])('nor does what is said of %s', (name, args, env) => {
    expect(() => read([...BASE, ...args], env)).toThrow(new RegExp(`^${name} (?!.*s3cret).*http://b.test"`));
  });

  test.each([
    '{"peer": ["http://ann:s3cret@h",x]}',
    '{"peer": ["http://ann:s3cret@b.test", ]}',
    '{"peer": "http://ann:s3cret@b.test',
    config({ peer: ['http://ann:s3cret@b.test'] }),
    config({ peer: [{ url: 'http://ann:s3cret@b.test' }] }),
    config({ id: ['http://b.test?s3cret'] }),
  ])('nor does what is said of a -config: %s', (text) => {
    const { path } = scratchFile('n.json', text);
    expect(() => read([...BASE, '-config', path])).toThrow(/^(?!.*s3cret).*n\.json/s);
  });

  test('that breaks off inside an address changes nothing: the parser would make another address of it', async () => {
    const whole = 'http://127.0.0.1:9001';
    const file = scratchFile('peers', `${A}\n${whole}\n`);
    const { reload, done, logged } = running([...BASE, '-peers-file', file.path]);
    for (let end = whole.length - ':9001'.length - 1; end >= 'http://1'.length; end--) {
      file.put(`${A}\n${whole.slice(0, end)}`);
      await reload.reload();
      expect(done).toEqual([]);
      const message = expect.stringMatching(/line 2: .* which would be the address .*; nothing was changed$/);
      expect(logged.splice(0)).toMatchObject([{ event: 'reload-failed', message }]);
    }
  });

  test('with a line that is no URL is refused with the number of the line', () => {
    const { path } = scratchFile('peers', `${A}\nhttp://b.test/sync\n`);
    expect(() => read([...BASE, '-peers-file', path])).toThrow(/peers, line 2: .*ends in \/sync/);
  });
});

interface Running {
  reload: Reload<typeof SERVE_FLAGS>;
  clock: VirtualClock;
  /** What was done to the peers, and what was logged, in order. */
  done: string[];
  logged: Record<string, unknown>[];
  applied: unknown[];
}

interface GivenMembers {
  add?(url: string): unknown;
  list?(): { url: string }[];
}

function running(args: string[], members: GivenMembers = {}, held: Held[] = []): Running {
  const done: string[] = [];
  const logged: Running['logged'] = [];
  const applied: unknown[] = [];
  const clock = new VirtualClock();
  const reload = new Reload({
    first: read(args),
    held,
    names: NODE_PEERS,
    read: (now) => read(args, {}, now),
    members: {
      add: (url) => {
        members.add?.(url);
        done.push(`add ${url}`);
      },
      remove: async (url) => {
        await Promise.resolve();
        done.push(`remove ${url}`);
      },
      ...(members.list && { list: members.list }),
    },
    reloadable: [...RELOADABLE, 'maxBacklogChanges'],
    apply: ({ batchMs, maxBacklogChanges }) => applied.push({ batchMs, maxBacklogChanges }),
    log: (level, event, fields) => logged.push({ level, event, ...fields }),
    clock,
  });
  cleanUp(() => reload.stop());
  return { reload, clock, done, logged, applied };
}

describe('a reload', () => {
  test('has what the file names as peers, whatever was added and removed by hand meanwhile', async () => {
    const file = scratchFile('peers', `${A}\n${B}\n`);
    let there = [B, C];
    const list = () => there.map((url) => ({ url }));
    const { reload, done, logged } = running([...BASE, '-peers-file', file.path], { list });
    await reload.reload();
    expect(done.splice(0)).toEqual([`add ${A}`]);
    expect(logged.at(-1)).toMatchObject({ event: 'reloaded', added: [A], removed: [] });
    there = [A, C];
    file.put(`${A}\n`);
    await reload.reload();
    // Removed by hand, and out of the file by now: there is nothing left to do, and to fail.
    expect(done.splice(0)).toEqual([]);
    expect(logged.at(-1)).toMatchObject({ event: 'reloaded', added: [], removed: [B] });
    file.put(`${C}\n`);
    await reload.reload();
    expect(done.splice(0)).toEqual([`add ${C}`, `remove ${A}`]);
    there = [C];
    await reload.reload();
    expect([done, logged.at(-1)]).toEqual([[], expect.objectContaining({ added: [], removed: [] })]);
  });

  test('has what is held in files of its own count when all of it could be read, and none of it before', async () => {
    const certificate = scratchFile('certificate', 'first');
    const tokens = scratchFile('tokens', 'first');
    const now: Record<string, string> = {};
    const held = [certificate, tokens].map(({ path }): Held => {
      const name = basename(path);
      now[name] = 'first';
      return {
        name,
        files: [path],
        warnings: [{ code: 'look', message: name }],
        reread: () => {
          const text = readFileSync(path, 'utf8');
          if (text === 'wrong') throw new UsageError(`${name} is wrong`);
          if (text === now[name]) return undefined;
          return () => {
            now[name] = text;
          };
        },
      };
    });
    const { reload, clock, logged } = running(BASE, {}, held);
    certificate.put('second');
    tokens.put('wrong');
    await reload.reload();
    expect(now).toEqual({ certificate: 'first', tokens: 'first' });
    expect(logged).toMatchObject([{ event: 'reload-failed', message: 'tokens is wrong; nothing was changed' }]);
    // It is also noticed without a signal, as any other file is.
    tokens.put('first');
    await clock.advance(11_000);
    expect(now).toEqual({ certificate: 'second', tokens: 'first' });
    expect(logged.slice(1)).toMatchObject([
      { event: 'warning', code: 'look', message: 'certificate' },
      { event: 'reloaded', changed: ['certificate'] },
    ]);
  });

  test('adds first and removes then, and says so in one line', async () => {
    const { path, put } = scratchFile('peers', `${A}\n${B}\n`);
    const { reload, done, logged } = running([...BASE, '-peers-file', path]);
    put(`${C}\n${B}\n`);
    await reload.reload();
    expect(done).toEqual([`add ${C}`, `remove ${A}`]);
    expect(logged).toEqual([{ level: 'info', event: 'reloaded', added: [C], removed: [A], changed: [] }]);
    await reload.reload();
    expect(done).toHaveLength(2);
    expect(logged[1]).toMatchObject({ event: 'reloaded', added: [], removed: [], changed: [] });
  });

  test('applies what can be changed, and names what is read once, each time it differs from what runs', async () => {
    const { path, put } = scratchFile('n.json', config({ 'batch-ms': 5, listen: ':1', 'stop-ms': 1 }));
    const { reload, logged, applied } = running([...BASE, '-config', path]);
    put(config({ 'batch-ms': 6, 'max-backlog-changes': 9, listen: ':2', 'stop-ms': 2 }));
    await reload.reload();
    expect(applied).toEqual([{ batchMs: 6, maxBacklogChanges: 9 }]);
    expect(logged).toMatchObject([
      {
        level: 'warn',
        event: 'reload-ignored',
        keys: ['listen', 'stop-ms'],
        message: expect.stringMatching(/restart to change listen, stop-ms/),
      },
      { event: 'reloaded', changed: ['batch-ms', 'max-backlog-changes'] },
    ]);
    await reload.reload();
    expect(applied).toHaveLength(1);
    expect(logged.slice(2)).toMatchObject([{ keys: ['listen', 'stop-ms'] }, { changed: [] }]);
  });

  test('reads the file of peers with which the program was started, whatever the configuration names by now', async () => {
    const peers = scratchFile('peers', `${A}\n`);
    const others = scratchFile('others', `${B}\n`);
    const { path, put } = scratchFile('n.json', config({ 'peers-file': peers.path }));
    const { reload, done, logged } = running([...BASE, '-config', path]);
    for (const content of [{ 'peers-file': others.path }, {}]) {
      put(config(content));
      await reload.reload();
      expect(logged.splice(0)).toMatchObject([
        { event: 'reload-ignored', keys: ['peers-file'] },
        { event: 'reloaded', added: [], removed: [] },
      ]);
    }
    expect(done).toEqual([]);
    peers.put(`${A}\n${C}\n`);
    await reload.reload();
    expect(done).toEqual([`add ${C}`]);
  });

  test('reads the file of keys with which the program was started, and says so as often as another is named', async () => {
    const key = (id: string): string =>
      `${JSON.stringify({ keys: [{ id, secret: Buffer.alloc(32, id).toString('base64') }] })}`;
    const [keys, others] = [scratchFile('keys', key('k1')), scratchFile('others', key('k2'))];
    const { path, put } = scratchFile('n.json', config({ 'keys-file': keys.path }));
    const { reload, logged, applied } = running([...BASE, '-config', path]);
    put(config({ 'keys-file': others.path }));
    for (let i = 0; i < 3; i++) {
      await reload.reload();
      expect(logged.splice(0)).toMatchObject([
        { event: 'reload-ignored', keys: ['keys-file'] },
        { event: 'reloaded', changed: [] },
      ]);
    }
    expect(applied).toEqual([]);
  });

  test('is ignored where the command line says otherwise', async () => {
    const { path, put } = scratchFile('n.json', config({ 'batch-ms': 5 }));
    const { reload, logged, applied } = running([...BASE, '-config', path, '-batch-ms', '50']);
    put(config({ 'batch-ms': 6 }));
    await reload.reload();
    expect([applied, logged]).toMatchObject([[], [{ event: 'reloaded', changed: [] }]]);
  });

  test('of a bad file changes nothing, also of the good one, and the next good one counts', async () => {
    const peers = scratchFile('peers', `${A}\n`);
    const file = scratchFile('n.json', config({ 'batch-ms': 5 }));
    const { reload, done, logged, applied } = running([...BASE, '-config', file.path, '-peers-file', peers.path]);
    file.put(config({ 'batch-ms': 6 }));
    peers.put(`${A}\n${B}\nhttp//c\n`);
    await reload.reload();
    peers.put('');
    await reload.reload();
    rmSync(peers.path);
    await reload.reload();
    expect([done, applied]).toEqual([[], []]);
    expect(logged.map(({ level, event }) => [level, event])).toEqual(Array(3).fill(['error', 'reload-failed']));
    expect(logged.map(({ message }) => message)).toEqual([
      expect.stringMatching(/peers, line 3: .*is not a URL.*; nothing was changed$/),
      expect.stringMatching(/the file is empty.*; nothing was changed$/),
      expect.stringMatching(/cannot be read.*; nothing was changed$/),
    ]);
    peers.put(`${B}\n`);
    await reload.reload();
    expect([done, applied]).toMatchObject([[`add ${B}`, `remove ${A}`], [{ batchMs: 6 }]]);
  });

  test('that cannot be done is tried again until it is', async () => {
    const { path, put } = scratchFile('peers', `${A}\n`);
    let locked = true;
    const add = (): void => {
      if (locked) throw new Error('the database is locked');
    };
    const { reload, clock, done, logged } = running([...BASE, '-peers-file', path], { add });
    put(`${B}\n`);
    await reload.reload();
    expect(done).toEqual([]);
    expect(logged).toMatchObject([
      { event: 'reload-failed', message: expect.stringMatching(/locked; what is left to do is tried again/) },
    ]);
    locked = false;
    await clock.advance(6_000);
    expect(done).toEqual([`add ${B}`, `remove ${A}`]);
  });

  test('without any file is logged and ignored', async () => {
    const { reload, logged, done } = running([...BASE, '-peer', A]);
    await reload.reload();
    expect(done).toEqual([]);
    expect(logged).toMatchObject([
      {
        level: 'info',
        event: 'reload-ignored',
        signal: 'SIGHUP',
        message: expect.stringMatching(/nothing to reload: start with -config, -peers-file or -keys-file/),
      },
    ]);
  });
});

describe('a file that changes', () => {
  test('is read within seconds, and once', async () => {
    const { path, put } = scratchFile('peers', `${A}\n`);
    const { clock, done, logged } = running([...BASE, '-peers-file', path]);
    await clock.advance(20_000);
    expect(logged).toEqual([]);
    put(`${A}\n${B}\n`);
    await clock.advance(6_000);
    expect(done).toEqual([`add ${B}`]);
    await clock.advance(20_000);
    expect(logged).toHaveLength(1);
  });

  test('is left alone while it is being written', async () => {
    const { path, put } = scratchFile('peers', `${A}\n${B}\n`);
    const { clock, done, logged } = running([...BASE, '-peers-file', path]);
    await clock.advance(4_900);
    put(`${A}\n`);
    await clock.advance(200);
    // It was seen, and is not yet read.
    put(`${A}\n${B}\n${C}\n`);
    await clock.advance(1_000);
    expect([done, logged]).toEqual([[], []]);
    await clock.advance(6_000);
    expect(done).toEqual([`add ${C}`]);
  });

  test('and was read on SIGHUP after it was seen is not read again', async () => {
    const { path, put } = scratchFile('peers', `${A}\n`);
    const { reload, clock, logged } = running([...BASE, '-peers-file', path]);
    await clock.advance(4_900);
    put(`${A}\n${B}\n`);
    await clock.advance(200);
    await reload.reload();
    await clock.advance(20_000);
    expect(logged).toMatchObject([{ event: 'reloaded', added: [B] }]);
  });

  test('and is bad, or gone, is told of once, until it changes again', async () => {
    const { path, put } = scratchFile('peers', `${A}\n`);
    const { clock, done, logged } = running([...BASE, '-peers-file', path]);
    put('nonsense\n');
    await clock.advance(30_000);
    expect(logged).toHaveLength(1);
    rmSync(path);
    await clock.advance(30_000);
    expect(logged).toHaveLength(2);
    put(`${A}\n${C}\n`);
    await clock.advance(6_000);
    expect(done).toEqual([`add ${C}`]);
  });
});

test('after a stop nothing is read any more', async () => {
  const { path, put } = scratchFile('peers', `${A}\n`);
  const { reload, clock, done, logged } = running([...BASE, '-peers-file', path]);
  put(`${B}\n`);
  await reload.stop();
  await reload.reload();
  await clock.advance(20_000);
  expect([done, logged, clock.pending]).toEqual([[], [], 0]);
});
