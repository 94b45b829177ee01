import { describe, expect, test } from 'vitest';
import { askFlags } from '../../src/cli/ask.ts';
import { asked, placed } from '../../src/cli/asked.ts';
import {
  choice,
  describeFlags,
  type Environment,
  file,
  integer,
  parseFlags,
  text,
  toggle,
} from '../../src/cli/flags.ts';
import { HUB_FLAGS, HUB_HELP } from '../../src/cli/hub.ts';
import { SERVE_FLAGS, SERVE_HELP } from '../../src/cli/serve.ts';
import { SETTINGS } from '../../src/config.ts';

const FLAGS = {
  id: text('name', 'Who.'),
  listen: text('host:port', 'Where.', { default: '127.0.0.1:9001' }),
  peer: text('url', 'To whom.', { repeatable: true }),
  batchMs: integer('How often.', { default: 50, min: 1, max: 1_000 }),
  binding: choice(['auto', 'better-sqlite3', 'node-sqlite'], 'Which.'),
};
const DEFAULTS = { id: 'a', listen: '127.0.0.1:9001', peer: [], batchMs: 50, binding: 'auto' };

const parse = (args: string[], env: Environment = {}): unknown => parseFlags(FLAGS, args, env);
/** The message of the refusal; anything else than a refusal fails the test. */
function refusal(args: string[], env: Environment = {}): string {
  try {
    parse(args, env);
  } catch (error) {
    expect((error as Error).constructor.name).toBe('UsageError');
    return (error as Error).message;
  }
  throw new Error('nothing was refused');
}

describe('a flag', () => {
  test.each([
    ['in Go style', ['-id', 'a', '-batch-ms', '7']],
    ['in Go style with =', ['-id=a', '-batch-ms=7']],
    ['in GNU style', ['--id', 'a', '--batch-ms', '7']],
    ['in GNU style with =', ['--id=a', '--batch-ms=7']],
  ])('is read %s', (_style, args) => {
    expect(parse(args)).toEqual({ ...DEFAULTS, batchMs: 7 });
  });

  test('may be repeated where that makes sense, in order', () => {
    expect(parse(['-id', 'a', '-peer', 'x', '--peer=y', '-peer', 'a,b'])).toEqual({
      ...DEFAULTS,
      peer: ['x', 'y', 'a,b'],
    });
  });

  test('is refused the second time where it does not', () => {
    expect(refusal(['-id', 'a', '--id=b'])).toBe('-id is given twice');
  });

  test('keeps a value with = or a dash in it', () => {
    expect(parse(['-id', '-5', '-peer=http://h/?a=b'])).toEqual({ ...DEFAULTS, id: '-5', peer: ['http://h/?a=b'] });
  });
});

test('a toggle stands alone, and may be said with a value or in the environment', () => {
  const read = (args: string[], env: Environment = {}): unknown =>
    parseFlags({ once: toggle('Once.'), dir: text('folder', 'Where.', { default: 'x' }) }, args, env);
  expect(read([])).toEqual({ once: false, dir: 'x' });
  expect(read(['--once', '-dir', 'y'])).toEqual({ once: true, dir: 'y' });
  expect(read(['-once=false'], { ROWCAST_ONCE: 'true' })).toEqual({ once: false, dir: 'x' });
  expect(read([], { ROWCAST_ONCE: 'true' })).toEqual({ once: true, dir: 'x' });
  expect(() => read(['-once', '-once'])).toThrow('-once is given twice');
  expect(() => read(['-once=yes'])).toThrow('-once must be one of false, true, not "yes"');
});

test('what a command is asked is typed; where it looks may stand in the environment', () => {
  const ofProgram = { ROWCAST_ID: 'a', ROWCAST_TABLE: 'items', ROWCAST_PEER: 'http://b,http://c', ROWCAST_DB: 'a.db' };
  const flags = asked({ ...askFlags, id: file('Which.'), table: text('name', 'Which.', { repeatable: true }) });
  const read = (args: string[], env: Environment = ofProgram): unknown => parseFlags(flags, args, placed(args, env));
  const unset = { url: undefined, adminTokenFile: undefined, id: undefined, table: [] };
  expect(read([])).toEqual({ ...unset, db: 'a.db' });
  expect(read(['-id', 'r', '-table', 't'])).toEqual({ ...unset, db: 'a.db', id: 'r', table: ['t'] });
  // Whoever types one place does not mean the other.
  for (const args of [['-url', 'http://h'], ['--url=http://h']]) {
    expect(read(args)).toEqual({ ...unset, db: undefined, url: 'http://h' });
  }
  expect(read(['-db', 'b.db'], { ROWCAST_URL: 'http://h' })).toEqual({ ...unset, db: 'b.db' });
  expect(describeFlags(flags)).toContain('  -table <name>\n        Which.\n        (repeatable)\n'.trimEnd());
  expect(describeFlags(flags)).not.toContain('ROWCAST_ID');
  expect(describeFlags(asked({ json: toggle('As JSON.') }))).toBe('  -json\n        As JSON.');
});

describe('the environment', () => {
  test('gives what the command line does not', () => {
    const env = { ROWCAST_ID: 'a', ROWCAST_PEER: 'x, y,', ROWCAST_BATCH_MS: '9', ROWCAST_BINDING: 'node-sqlite' };
    expect(parse([], env)).toEqual({ ...DEFAULTS, peer: ['x', 'y'], batchMs: 9, binding: 'node-sqlite' });
  });

  test('loses against the command line, lists included', () => {
    const env = { ROWCAST_ID: 'env', ROWCAST_PEER: 'x,y', ROWCAST_BATCH_MS: '9' };
    expect(parse(['-id', 'a', '-peer', 'z', '-batch-ms', '50'], env)).toEqual({ ...DEFAULTS, peer: ['z'] });
  });

  test('is not consulted when a variable is empty', () => {
    expect(parse(['-id', 'a'], { ROWCAST_LISTEN: '', ROWCAST_PEER: ' ' })).toEqual(DEFAULTS);
  });

  test('is named when it is what is wrong', () => {
    expect(refusal(['-id', 'a'], { ROWCAST_BATCH_MS: 'x' })).toMatch(/^ROWCAST_BATCH_MS must be a whole number/);
  });
});

describe('a refusal says which flag and what is allowed', () => {
  test.each([
    ['misspelt', ['-lisen', 'x'], /^unknown flag -lisen; did you mean -listen\?\nallowed: -id -listen -peer -batch-ms/],
    ['unfinished', ['-bat', 'x'], /^unknown flag -bat; did you mean -batch-ms\?/],
    ['in another case', ['-ID', 'x'], /^unknown flag -ID; did you mean -id\?/],
    ['unlike any', ['--frobnicate'], /^unknown flag -frobnicate\nallowed: /],
    ['from the prototype', ['-constructor', 'x'], /^unknown flag -constructor\nallowed: /],
    ['missing', [], /^-id is required: -id <name>, or ROWCAST_ID$/],
    ['without a value', ['-id'], /^-id needs a value: -id <name>$/],
    ['without a value before another', ['-id', '-listen', 'x'], /^-id needs a value/],
    ['empty', ['-id', ''], /^-id is empty$/],
    [
      'not a number',
      ['-id', 'a', '-batch-ms', 'soon'],
      /^-batch-ms must be a whole number from 1 to 1000, not "soon"$/,
    ],
    ['a fraction', ['-id', 'a', '-batch-ms', '1.5'], /^-batch-ms must be a whole number/],
    ['hexadecimal', ['-id', 'a', '-batch-ms', '0x10'], /^-batch-ms must be a whole number/],
    ['out of range', ['-id', 'a', '-batch-ms', '1001'], /from 1 to 1000/],
    [
      'no choice',
      ['-id', 'a', '-binding', 'node-sqlit'],
      /one of auto, .*, not "node-sqlit"; did you mean node-sqlite\?/,
    ],
    ['no flag', ['a.db'], /^unexpected argument "a.db": every option is a flag$/],
    ['a URL that is no flag', ['http://ann:s3cret@h/?s3cret'], /^unexpected argument "http:\/\/h\/": /],
    ['a lone dash', ['-'], /^unexpected argument "-"/],
    ['a terminator', ['--', 'x'], /^unexpected argument "--"/],
  ])('%s', (_what, args, reason) => {
    expect(refusal(args)).toMatch(reason);
  });
});

describe('help', () => {
  test.each(['-h', '--h', '-help', '--help'])('is what %s asks for, whatever else is there', (flag) => {
    expect(parse([flag])).toBe('help');
    expect(parse(['-id', 'a', flag, '-nonsense'])).toBe('help');
  });

  test('tells of every flag its name, default and environment variable', () => {
    expect(describeFlags(FLAGS)).toContain(
      '  -batch-ms <n>\n        How often.\n        (default 50; env ROWCAST_BATCH_MS)\n',
    );
    expect(describeFlags(FLAGS)).toContain('(repeatable; env ROWCAST_PEER, comma separated)');
    expect(describeFlags(FLAGS)).toContain('(required; env ROWCAST_ID)');
  });

  test('of both programs fits a terminal of 120 columns and names every flag', () => {
    for (const line of `${SERVE_HELP}${HUB_HELP}`.split('\n')) expect(line.length).toBeLessThanOrEqual(120);
    for (const key of Object.keys(SERVE_FLAGS)) {
      expect(SERVE_HELP).toContain(`\n  -${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)} <`);
    }
  });
});

test('every setting of the library is a flag of both programs, with its default and its range', () => {
  for (const flags of [SERVE_FLAGS, HUB_FLAGS]) {
    for (const [name, { default: otherwise, min, max }] of Object.entries(SETTINGS)) {
      const flag = flags[name as keyof typeof SETTINGS];
      expect([name, flag.default, flag.parse(String(min)), flag.parse(String(max))]).toEqual([
        name,
        String(otherwise),
        min,
        max,
      ]);
      expect(() => flag.parse(String(max + 1))).toThrow(`from ${min} to ${max}`);
    }
  }
});

describe('the flags of serve', () => {
  const serveFlags = (...args: string[]): unknown => parseFlags(SERVE_FLAGS, ['-id', 'a', '-db', 'a.db', ...args], {});

  test.each([
    ['127.0.0.1:9001', { host: '127.0.0.1', port: 9001 }],
    ['localhost:0', { host: 'localhost', port: 0 }],
    [':9001', { host: undefined, port: 9001 }],
    ['9001', { host: undefined, port: 9001 }],
    ['[::1]:65535', { host: '::1', port: 65_535 }],
  ])('-listen %s is an address', (value, listen) => {
    expect(serveFlags('-listen', value)).toMatchObject({ listen });
  });

  test.each(['localhost', 'localhost:', ':65536', 'a:b:1', '::1:9001', 'http://localhost:9001', '127.0.0.1:9001/'])(
    '-listen %s is not',
    (value) => {
      expect(() => serveFlags('-listen', value)).toThrow(/^-listen must be host:port such as 127.0.0.1:9001, not/);
    },
  );

  test('a peer is a base URL, normalised', () => {
    expect(serveFlags('-peer', 'HTTP://Host:80/x/')).toMatchObject({ peer: ['http://host/x'] });
  });

  test.each([
    ['127.0.0.1:9002', /^-peer "127.0.0.1:9002" is not a URL \(a peer is a base URL such as/],
    ['ftp://h', /^-peer "ftp:\/\/h" uses ftp: instead of http: or https:/],
    ['http://h/?q', /has a query or a fragment/],
  ])('-peer %s is refused', (value, reason) => {
    expect(() => serveFlags('-peer', value)).toThrow(reason);
  });

  test.each(['with space', 'ümlaut', 'x'.repeat(201)])('-id %s is refused', (id) => {
    expect(() => parseFlags(SERVE_FLAGS, ['-id', id, '-db', 'x'], {})).toThrow(
      /^-id must be at most 200 printable ASCII/,
    );
  });
});
