/** The rules of the house, read from the sources: which file may import which, and what nobody may call. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, posix, sep } from 'node:path';
import { describe, expect, test } from 'vitest';
import { root } from '../support/build.ts';
import { lane } from '../support/lane.ts';

interface Import {
  from: string;
  /** A path below src/ for a file of ours, the specifier as it is for anything else. */
  to: string;
  own: boolean;
  /** Erased by the compiler: nothing of it is there at run time. */
  typeOnly: boolean;
}

const files = new Map(
  readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => [name.split(sep).join('/'), readFileSync(join(root, 'src', name), 'utf8')]),
);
const imports = [...files].flatMap(([from, text]) => importsOf(from, text));

/** Programs are made of the library; the library knows nothing of them. */
const isProgram = (file: string): boolean => file.startsWith('cli/');

/** The library's two halves, each with an entry of its own: a node, and the hub made of the same parts. */
const isHub = (file: string): boolean => file.startsWith('hub/');

function importsOf(from: string, text: string): Import[] {
  const statements = text.matchAll(/^\s*(import|export)\s+(type\s+)?([^;'"]*?\bfrom\s*)?'([^']+)'/gm);
  return [...statements].map(([, , type, names = '', specifier = '']) => {
    const own = specifier.startsWith('.');
    const listed = /\{([^}]*)\}/
      .exec(names)?.[1]
      ?.split(',')
      .map((name) => name.trim());
    const onlyTypes = listed?.filter((name) => name !== '').every((name) => name.startsWith('type ')) ?? false;
    return {
      from,
      to: own ? posix.join(posix.dirname(from), specifier) : specifier,
      own,
      typeOnly: type !== undefined || (onlyTypes && !/\w+\s*,\s*\{/.test(names)),
    };
  });
}

/** Comments and strings say what they like. */
function codeOf(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|[^:'"`])\/\/.*$/gm, '$1');
}

/** Every file that `file` needs at run time, at whatever distance. */
function reach(file: string, seen = new Set<string>()): string[] {
  for (const { from, to, own, typeOnly } of imports) {
    if (from !== file || !own || typeOnly || seen.has(to)) continue;
    seen.add(to);
    reach(to, seen);
  }
  return [...seen];
}

function show({ from, to, typeOnly }: Import): string {
  return `${from} -> ${typeOnly ? 'type ' : ''}${to}`;
}

describe('the direction of imports', () => {
  test('the sources are being read at all', () => {
    expect(files.size).toBeGreaterThan(20);
    expect(imports.filter((i) => i.from === 'attach.ts').length).toBeGreaterThan(10);
    expect(imports.filter(({ own, to }) => own && !files.has(to)).map(show)).toEqual([]);
  });

  test('there are no cycles', () => {
    const cycles: string[] = [];
    const done = new Set<string>();
    const visit = (file: string, path: string[]): void => {
      if (path.includes(file)) cycles.push([...path.slice(path.indexOf(file)), file].join(' -> '));
      if (path.includes(file) || done.has(file)) return;
      for (const i of imports) if (i.from === file && i.own && !i.typeOnly) visit(i.to, [...path, file]);
      done.add(file);
    };
    for (const file of files.keys()) visit(file, []);
    expect(cycles).toEqual([]);
  });

  test('capture/ knows the database, the wire, the dead letters and the errors, and nothing above it', () => {
    const above = imports.filter(
      ({ from, to, own }) =>
        from.startsWith('capture/') &&
        own &&
        !/^(capture|letters|wire|sqlite)\/|^(identity|journal)\/tables\.ts$|^errors\.ts$/.test(to),
    );
    expect(above.map(show)).toEqual([]);
  });

  test('of the hub only its stores know SQLite: the one for PostgreSQL applies the same rules in a scratch database', () => {
    const isStore = (file: string): boolean => file.startsWith('hub/sqlite-') || file.startsWith('hub/postgres/');
    const users = imports.filter(
      ({ from, to }) => from.startsWith('hub/') && !isStore(from) && to.startsWith('sqlite/'),
    );
    expect(users.map(show)).toEqual(['hub/hub.ts -> sqlite/connection.ts']);
  });

  test('PostgreSQL is known to its store alone, and to whoever makes one', () => {
    const users = imports.filter(
      ({ from, to }) => to.startsWith('hub/postgres/') && !from.startsWith('hub/postgres/') && !isProgram(from),
    );
    expect(users.map(show)).toEqual([]);
  });

  test('the composition root is imported by the public entry alone, and as a type by the HTTP edge', () => {
    const users = imports.filter(
      ({ from, to, typeOnly }) => to === 'attach.ts' && from !== 'index.ts' && !(from.startsWith('http/') && typeOnly),
    );
    expect(users.map(show)).toEqual([]);
  });

  test('a change and a batch are spelt in wire/body.ts and wire/tabular.ts, and recognised in receive/regular-body.ts', () => {
    const spelling = [...files].filter(([, text]) => /"(batch_id|old_id)"|\{"op":/.test(codeOf(text)));
    expect(spelling.map(([file]) => file).sort()).toEqual([
      'receive/regular-body.ts',
      'wire/body.ts',
      'wire/tabular.ts',
    ]);
  });

  test('the public entry is for callers and programs, not for the library itself', () => {
    const users = imports.filter(
      ({ from, to, typeOnly }) => to === 'index.ts' && !isProgram(from) && !(isHub(from) && typeOnly),
    );
    expect(users.map(show)).toEqual([]);
  });

  test.each(['wire/protocol.ts', 'errors.ts', 'clock.ts'])('%s stands at the bottom', (file) => {
    const up = imports.filter(({ from, to }) => from === file && to !== 'errors.ts' && !to.startsWith('node:'));
    expect(up.map(show)).toEqual([]);
  });

  test.each(['shipper', 'isolate', 'courier', 'request', 'transport', 'link', 'verdict', 'batch-size'])(
    'send/%s.ts, of the ship loop, knows nothing of SQLite',
    (name) => {
      const reached = reach(`send/${name}.ts`).filter((file) =>
        /^(sqlite|capture|letters|receive)\/|^send\/(outbox|peers|snapshot|set-aside)/.test(file),
      );
      expect(reached).toEqual([]);
    },
  );

  test('send and receive never import each other, not even by way of others', () => {
    const opposite: Record<string, string> = { send: 'receive/', receive: 'send/' };
    const across = [...files.keys()].flatMap((file) => {
      const other = opposite[file.split('/')[0] as string];
      const reached = other === undefined ? [] : reach(file).filter((to) => to.startsWith(other));
      return reached.map((to) => `${file} -> ${to}`);
    });
    const named = imports.filter(({ from, to }) => to.startsWith(opposite[from.split('/')[0] as string] ?? ' '));
    expect([...across, ...named.map(show)]).toEqual([]);
  });

  test('the hub knows nothing of capture, not even by way of others', () => {
    const hub = [...files.keys()].filter((file) => file.startsWith('hub/'));
    const reached = hub.flatMap((file) =>
      reach(file)
        .filter((to) => to.startsWith('capture/'))
        .map((to) => `${file} -> ${to}`),
    );
    expect(reached).toEqual([]);
    expect(imports.filter(({ from, to }) => from.startsWith('hub/') && to.startsWith('capture/')).map(show)).toEqual(
      [],
    );
  });

  /** What each room may import beside itself. */
  const rooms: [string, RegExp][] = [
    ['sqlite', /^(errors|clock)\.ts$/],
    ['wire', /^(sqlite\/.*|errors\.ts)$/],
    ['letters', /^((wire|sqlite)\/.*|(errors|clock)\.ts)$/],
    ['identity', /^(wire\/.*|sqlite\/.*|(errors|clock)\.ts)$/],
    ['compare', /^((sqlite|wire)\/.*|(errors|clock)\.ts)$/],
    ['migrate', /^(capture|wire|sqlite)\/|^(receive\/merge|send\/resend|errors|clock)\.ts$/],
    ['auth', /^(wire\/(introduction|protocol|rights)|errors|clock)\.ts$/],
    ['journal', /^(sqlite|wire)\/|^(capture\/registry|letters\/dead-letters|errors|clock|events)\.ts$/],
    [
      'admin',
      /^((http\/bridge|compare\/verify|receive\/tried|letters\/dead-letters|journal\/(conflicts|why)|observe\/version|errors|clock)\.ts|openapi\/.*)$/,
    ],
    ['openapi', /^$/],
    ['observe', /^(sqlite\/.*|capture\/(change-ids|registry)\.ts|(clock|errors|events|health)\.ts)$/],
    ['http', /^(auth\/.*|wire\/.*|feed\/page\.ts|(compare|receive)\/answer\.ts|(errors|attach|clock)\.ts)$/],
    ['feed', /^((sqlite|wire)\/.*|capture\/(change-ids|registry|versions)\.ts|(clock|errors|events)\.ts)$/],
  ];
  test.each(rooms)('%s/ imports what is below it and nothing else', (room, allowed) => {
    const up = imports.filter(
      ({ from, to, own }) => own && from.startsWith(`${room}/`) && !to.startsWith(`${room}/`) && !allowed.test(to),
    );
    expect(up.map(show)).toEqual([]);
  });

  test('the library does not know the programs made of it', () => {
    expect(imports.filter(({ from, to }) => !isProgram(from) && isProgram(to)).map(show)).toEqual([]);
  });

  test('a node does not know the hub', () => {
    const users = imports.filter(({ from, to }) => !isProgram(from) && !isHub(from) && isHub(to));
    expect(users.map(show)).toEqual([]);
  });

  test('the library imports nothing but itself and Node built-ins, and no SQLite binding', () => {
    const foreign = imports.filter(
      ({ from, to, own }) => !isProgram(from) && !own && (!to.startsWith('node:') || to === 'node:sqlite'),
    );
    expect(foreign.map(show)).toEqual([]);
    // open() finds a binding by name at run time, for the programs; it is no part of the library's entries.
    const named = [...files].filter(
      ([file, text]) =>
        !isProgram(file) &&
        file !== 'cli/open.ts' &&
        /(require|import)\s*\(\s*['"`](better-sqlite3|bun:sqlite|node:sqlite)/.test(codeOf(text)),
    );
    expect(named.map(([file]) => file)).toEqual([]);
    expect(imports.filter(({ from, to }) => to === 'cli/open.ts' && !isProgram(from)).map(show)).toEqual([]);
  });
});

describe('the seams', () => {
  const seams: [string, RegExp, string[]][] = [
    ['Date.now', /\bDate\.now\b/, ['clock.ts']],
    ['new Date()', /\bnew Date\(\s*\)/, ['clock.ts']],
    ['performance.now', /\bperformance\.now\b/, ['clock.ts']],
    ['process.hrtime', /\bhrtime\b/, ['clock.ts']],
    ['setTimeout', /\bsetTimeout\b/, ['clock.ts']],
    ['setInterval', /\bsetInterval\b/, ['clock.ts']],
    ['setImmediate', /\bsetImmediate\b/, ['clock.ts', 'send/transport.ts']],
    ['timers', /['"](node:)?timers/, []],
    ['AbortSignal.timeout', /\bAbortSignal\.timeout\b/, []],
    ['Math.random', /\bMath\.random\b/, []],
    // A call, not a method of that name and not the signature of one.
    ['the global fetch', /(?<![.#\w])fetch\((?!\w+\??:)/, ['send/transport.ts']],
    ['globalThis.fetch', /\bglobalThis\.fetch\b/, ['send/transport.ts']],
  ];

  test.each(seams)('%s is named where it belongs and nowhere else', (_, pattern, allowed) => {
    const users = [...files].filter(([file, text]) => !allowed.includes(file) && pattern.test(codeOf(text)));
    expect(users.map(([file]) => file)).toEqual([]);
  });

  test('the library never writes to the console', () => {
    const users = [...files].filter(
      ([file, text]) => !isProgram(file) && /\bconsole\.|process\.(stdout|stderr)/.test(codeOf(text)),
    );
    expect(users.map(([file]) => file)).toEqual([]);
  });

  test('the patterns see what they are for', () => {
    const patternOf = (name: string): RegExp => seams.find(([n]) => n === name)?.[1] ?? /$^/;
    expect(patternOf('the global fetch').test('await fetch(url)')).toBe(true);
    expect(patternOf('the global fetch').test('this.#o.fetch(url)')).toBe(false);
    expect(patternOf('the global fetch').test('fetch(request: Request): Promise<Response>;')).toBe(false);
    expect(patternOf('Date.now').test(codeOf('const a = 1; // Date.now'))).toBe(false);
    expect(patternOf('Date.now').test(codeOf('now: () => Date.now(),'))).toBe(true);
    expect(importsOf('x/a.ts', "import { type A, type B } from '../b.ts';")).toMatchObject([
      { to: 'b.ts', typeOnly: true },
    ]);
    expect(importsOf('a.ts', "import { \n  type A, \n  b, \n } from './b.ts';")).toMatchObject([
      { to: 'b.ts', typeOnly: false },
    ]);
    expect(importsOf('a.ts', "export { b } from './b.ts';")).toMatchObject([{ to: 'b.ts', typeOnly: false }]);
    expect(importsOf('a.ts', "import http from 'node:http';")).toMatchObject([{ to: 'node:http', typeOnly: false }]);
  });
});

describe('files', () => {
  test('every source file is below 400 lines', () => {
    const long = [...files].map(([file, text]) => [file, text.split('\n').length - 1] as const);
    expect(long.filter(([, lines]) => lines >= 400)).toEqual([]);
  });

  test('outside of the rooms stand only what everybody needs and what puts all of it together', () => {
    const atTheRoot = [...files.keys()].filter((file) => !file.includes('/'));
    const together = ['index.ts', 'attach.ts', 'manager.ts', 'config.ts', 'health.ts'];
    expect(atTheRoot.sort()).toEqual([...together, 'clock.ts', 'errors.ts', 'events.ts'].sort());
  });

  test('docs/design.md has a line for every room', () => {
    const rooms = [...files.keys()].filter((file) => file.includes('/')).map((file) => file.split('/')[0] as string);
    const design = readFileSync(join(root, 'docs', 'design.md'), 'utf8');
    const listed = [...design.matchAll(/^\| `([a-z]+)\/` +\|/gm)].map(([, room]) => room as string);
    expect(listed.sort()).toEqual([...new Set(rooms)].sort());
  });

  test('every source file is named in kebab-case', () => {
    expect(
      [...files.keys()].filter((file) => !/^([a-z0-9]+(-[a-z0-9]+)*\/)*[a-z0-9]+(-[a-z0-9]+)*\.ts$/.test(file)),
    ).toEqual([]);
  });

  test('every export has a name', () => {
    expect([...files].filter(([, text]) => /^export default\b/m.test(text)).map(([file]) => file)).toEqual([]);
  });
});

describe('the package', () => {
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));

  test('has no runtime dependency, and every peer is optional', () => {
    expect(Object.keys(manifest.dependencies ?? {})).toEqual([]);
    expect(Object.keys(manifest.optionalDependencies ?? {})).toEqual([]);
    const required = Object.keys(manifest.peerDependencies ?? {}).filter(
      (name) => manifest.peerDependenciesMeta?.[name]?.optional !== true,
    );
    expect(required).toEqual([]);
  });
});

test('the lane under test is the one that was asked for', () => {
  const expected = process.env.ROWCAST_EXPECT_LANE;
  expect(lane).toBe(expected ?? lane);
  expect(process.versions.bun !== undefined).toBe(lane === 'bun-sqlite');
});
