/** The package as it is installed: what is in it, that every entry can be imported and required, and that its programs run. */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { expect, test } from 'vitest';
import { compileInto, root } from '../support/build.ts';
import { scratchFolder } from '../support/nodes.ts';

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));

test('the package, packed and unpacked elsewhere, it can be imported and required', () => {
  const folder = scratchFolder();
  const source = join(folder, 'source');
  mkdirSync(source);
  for (const name of ['package.json', 'LICENSE', 'README.md', 'CHANGELOG.md', 'deploy', 'docs', 'examples', 'src']) {
    if (existsSync(join(root, name))) cpSync(join(root, name), join(source, name), { recursive: true });
  }
  compileInto(join(source, 'dist'));
  execFileSync(process.execPath, [join(root, 'scripts', 'programs.mjs'), join(source, 'dist')]);
  execFileSync('npm', ['pack', '--ignore-scripts', '--offline', '--silent', '--pack-destination', folder], {
    cwd: source,
  });
  const tarball = readdirSync(folder).find((name) => name.endsWith('.tgz')) as string;
  const modules = join(folder, 'node_modules');
  mkdirSync(modules);
  execFileSync('tar', ['-xzf', join(folder, tarball), '-C', modules]);
  execFileSync('mv', [join(modules, 'package'), join(modules, 'rowcast')]);

  const entries = Object.keys(manifest.exports)
    .filter((entry) => entry !== './package.json')
    .map((entry) => entry.replace('.', 'rowcast'));
  const wanted: Record<string, string> = {
    rowcast: 'attach',
    'rowcast/http': 'createHandler',
    'rowcast/hub': 'createHub',
    'rowcast/auth': 'verifyRequest',
    'rowcast/node-sqlite': 'fromNodeSqlite',
  };
  expect(entries).toEqual(expect.arrayContaining(Object.keys(wanted)));
  const required = join(folder, 'required.cjs');
  const imported = join(folder, 'imported.mjs');
  const list = JSON.stringify(wanted);
  writeFileSync(
    required,
    `for (const [entry, name] of Object.entries(${list})) console.log(entry, typeof require(entry)[name]);`,
  );
  writeFileSync(
    imported,
    `for (const [entry, name] of Object.entries(${list})) console.log(entry, typeof (await import(entry))[name]);`,
  );
  const expected = Object.keys(wanted).map((entry) => `${entry} function`);
  for (const script of [required, imported]) {
    const output = execFileSync(process.execPath, [script], { cwd: dirname(script), encoding: 'utf8' });
    expect(output.trim().split('\n'), relative(folder, script)).toEqual(expected);
  }
  const says = (program: string, ...args: string[]): string =>
    execFileSync(process.execPath, [join(modules, 'rowcast', manifest.bin[program]), ...args], { encoding: 'utf8' });
  expect(says('rowcast', 'version')).toBe(`${manifest.version}\n`);
  expect(says('rowcast', 'help', 'serve')).toMatch(/^rowcast serve/);
  expect(says('rowcast', 'help', 'demo')).toMatch(/^rowcast demo/);
  expect(says('rowcast-hub', '--help')).toMatch(/^rowcast hub/);
  const shipped = readdirSync(join(modules, 'rowcast'));
  const allowed = ['CHANGELOG.md', 'LICENSE', 'README.md', 'deploy', 'dist', 'docs', 'examples', 'package.json', 'src'];
  expect(shipped.sort()).toEqual(allowed);
});
