/** What follows from hearing of a database, as a table; and how it introduces itself. */
import { describe, expect, test } from 'vitest';
import { isBehind, isCopyOf, judge, type Memory, type Own } from '../../src/identity/judge.ts';
import { introduce, readIntroduction } from '../../src/wire/introduction.ts';

const INC = '5f0c1e9a77b2d310';
const boot = (number: number, letter = 'a'): string => `${number}-${letter.repeat(8)}`;
/** At boot 7, which began at 100; the latest that was heard is 120. */
const KNOWN: Memory = {
  boot: boot(7),
  before: [boot(6), boot(5)],
  t0: 100,
  tick: 120,
  seal: 'c'.repeat(16),
  back: null,
};
const said = (b: string, t0: number, tick: number) => ({ inc: INC, boot: b, t0, tick });

test.each<[string, ReturnType<typeof said>, Memory | undefined, object]>([
  ['never heard of', said(boot(3), 5, 9), undefined, { kind: 'new', remember: { boot: boot(3), t0: 5, tick: 9 } }],
  ['goes on', said(boot(7), 100, 130), KNOWN, { kind: 'same', remember: { tick: 130, seal: null } }],
  ['a message has overtaken another', said(boot(7), 100, 110), KNOWN, { kind: 'same', remember: KNOWN }],
  ['started again', said(boot(8), 120, 121), KNOWN, { kind: 'restarted', remember: { boot: boot(8), t0: 120 } }],
  [
    'started often',
    said(boot(12), 300, 301),
    KNOWN,
    { kind: 'restarted', remember: { before: [boot(7), boot(6), boot(5)] } },
  ],
  ['late, of the start before', said(boot(6), 90, 100), KNOWN, { kind: 'late' }],
  ['late, of one that was never heard of', said(boot(4), 40, 45), KNOWN, { kind: 'late' }],
  ['late, of one long ago', said(boot(5), 50, 60), KNOWN, { kind: 'late' }],
  [
    'put back: less than was heard',
    said(boot(8), 119, 150),
    KNOWN,
    { kind: 'went-back', remember: { ...KNOWN, back: boot(8) }, again: false },
  ],
  ['put back to an earlier start', said(boot(6, 'b'), 90, 101), KNOWN, { kind: 'went-back', again: false }],
  ['put back, under the same number', said(boot(7, 'b'), 120, 120), KNOWN, { kind: 'went-back', again: false }],
  [
    'put back, and heard again',
    said(boot(8), 119, 160),
    { ...KNOWN, back: boot(8) },
    { kind: 'went-back', again: true },
  ],
  [
    'goes on though a copy has begun',
    said(boot(6), 90, 101),
    KNOWN,
    { kind: 'went-back', remember: { boot: boot(6), tick: 101, back: boot(7) }, again: false },
  ],
])('%s', (_, heard, memory, expected) => {
  expect(judge(heard, memory)).toMatchObject(expected);
});

test('after a copy was found out, it is behind, and the original goes on', () => {
  const found = judge(said(boot(6), 90, 101), KNOWN) as { remember: Memory };
  expect(judge(said(boot(7), 100, 140), found.remember)).toMatchObject({ kind: 'went-back', again: true });
  expect(judge(said(boot(6), 90, 102), found.remember)).toMatchObject({ kind: 'same' });
});

test.each<[string, Parameters<typeof isBehind>[1], boolean]>([
  ['of this start, however far', { inc: INC, boot: boot(7), tick: 999 }, false],
  ['of a start before', { inc: INC, boot: boot(6), tick: 100 }, false],
  ['of a start before, but later than we began', { inc: INC, boot: boot(6), tick: 101 }, true],
  ['of another start with our number', { inc: INC, boot: boot(7, 'b'), tick: 3 }, true],
  ['of a start after ours', { inc: INC, boot: boot(9), tick: 3 }, true],
])('what is remembered of us: %s', (_, you, expected) => {
  expect(isBehind({ ...KNOWN, ended: new Map() }, you)).toBe(expected);
});

/** Of the two starts before this one it is known how far they came; of those before, it is not. */
const SELF: Own = {
  ...KNOWN,
  ended: new Map([
    [boot(6), 100],
    [boot(5), 70],
  ]),
};

test.each<[string, Parameters<typeof isBehind>[1], boolean]>([
  ['of the start before, as far as it came', { inc: INC, boot: boot(6), tick: 100 }, false],
  ['of one before that, further than it came', { inc: INC, boot: boot(5), tick: 71 }, true],
  ['of one before that, as far as it came', { inc: INC, boot: boot(5), tick: 70 }, false],
  ['of another one in its place', { inc: INC, boot: boot(5, 'b'), tick: 3 }, true],
  ['of one long ago', { inc: INC, boot: boot(4), tick: 60 }, false],
  ['of one long ago, later than we began', { inc: INC, boot: boot(4), tick: 101 }, true],
])('where it is known how far each start came: %s', (_, you, expected) => {
  expect(isBehind(SELF, you)).toBe(expected);
});

test.each<[string, ReturnType<typeof said>, boolean]>([
  ['ourselves', said(boot(7), 100, 110), false],
  ['a late message of our own', said(boot(6), 90, 100), false],
  ['one that began before us and goes on', said(boot(6), 90, 101), true],
  ['one that began after us', said(boot(8), 120, 121), false],
  ['one of the same number, below us', said(boot(7, '0'), 100, 101), true],
])('under our identity speaks %s', (_, heard, expected) => {
  expect(isCopyOf(KNOWN, heard)).toBe(expected);
});

describe('the header', () => {
  const full = { id: 'a;b=c', inc: INC, boot: '7-21d0b7e4', t0: 812, tick: 840 };

  const you = { inc: '9be0aa10c2f4d871', tick: 1290, boot: '3-aa11cc22' };
  const seal = '0123456789abcdef';

  const claims = [{ ...you, seal }, you];

  test.each([full, { ...full, you }, { ...full, seal, you: { ...you, seal } }, { ...full, claims }])('%j', (one) => {
    expect(readIntroduction(introduce(one))).toEqual(one);
    expect(readIntroduction(`${introduce(one)}; later=x`)).toEqual(one);
  });

  test.each([
    undefined,
    null,
    '',
    'id=a',
    'id=a; inc=xyz; boot=1-aaaaaaaa; t0=1; t=1',
    `id=a; inc=${INC}; boot=1; t0=1; t=1`,
    `id=a; inc=${INC}; boot=1-aaaaaaaa; t0=-1; t=1`,
    `id=a; inc=${INC}; boot=1-aaaaaaaa; t0=1; t=1e3`,
    `id=a; inc=${INC}; boot=1-aaaaaaaa; t0=1; t=${'9'.repeat(20)}`,
    `${introduce(full)}; ${'x'.repeat(3_000)}`,
  ])('%s is a plain peer’s', (header) => {
    expect(readIntroduction(header)).toBeUndefined();
  });

  test('what it remembers of us and does not spell right is nothing', () => {
    expect(readIntroduction(`${introduce(full)}; you=${INC}.x.3-aa11cc22`)).toEqual(full);
  });
});
