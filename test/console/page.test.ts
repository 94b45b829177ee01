/** The console's one file: what it is made of, and what holds it to that. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, test } from 'vitest';
import { createAdminHandler } from '../../src/admin/index.ts';
import { pageAt, pageOf } from '../../src/admin/page.ts';
import { root } from '../support/build.ts';
import { Cluster } from '../support/cluster.ts';
import { scratchFolder } from '../support/nodes.ts';

const bin = join(root, 'node_modules', '.bin', 'biome');
const html = readFileSync(join(root, 'src', 'console', 'index.html'), 'utf8');
const script = /<script type="module">([\s\S]*?)<\/script>/.exec(html)?.[1] as string;
const LIBRARY = /\/\* begin (htm\/preact\/standalone\.module\.js) \*\/\n([\s\S]*?)\n\/\* end \*\/\n(.*)\n/;
const [, source, vendored, returned] = LIBRARY.exec(script) as unknown as [string, string, string, string];
/** Everything but the library. */
const own = script.replace(LIBRARY, '');

describe('the page', () => {
  const ask = async (path: string, init?: RequestInit): Promise<Response> => {
    const { manager } = await new Cluster().node('a', []);
    const handler = createAdminHandler(manager, { token: 'a token of some length' });
    return handler(new Request(`http://localhost${path}`, init));
  };

  test('says what to do where its file is not beside the code, as in a bundle', () => {
    const { status, body } = pageAt(pathToFileURL(join(scratchFolder(), 'index.html')));
    expect(status).toBe(500);
    expect(JSON.parse(body).error).toMatch(/page of the console cannot be read \(ENOENT.*keep rowcast external/);
  });

  test('is served without the token, and allows nothing but itself', async () => {
    const answer = await ask('/_rowcast/');
    expect(answer.status).toBe(200);
    expect(await answer.text()).toBe(html);
    const policy = answer.headers.get('content-security-policy')?.split('; ');
    const hash = `'sha256-${createHash('sha256').update(script).digest('base64')}'`;
    expect(policy).toEqual(
      expect.arrayContaining([
        "default-src 'none'",
        `script-src ${hash}`,
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
      ]),
    );
    expect(policy?.join()).not.toContain('unsafe');
    expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
  });

  test('is found without its slash, and answers nothing but a look', async () => {
    expect((await ask('/_rowcast')).headers.get('location')).toBe('_rowcast/');
    expect((await ask('/_rowcast/', { method: 'POST' })).status).toBe(404);
    expect((await ask('/_rowcast/index.html')).status).toBe(404);
  });

  test('another script has another policy', () => {
    const policyOf = (page: string): string | undefined => pageOf(page).headers['content-security-policy'];
    expect(policyOf('<script>a</script><style>b</style>')).not.toBe(policyOf('<script>b</script><style>b</style>'));
  });
});

describe('its source', () => {
  test('has the library as npm has it, but for its last statement', () => {
    const [code, names] = readFileSync(join(root, 'node_modules', source), 'utf8')
      .trimEnd()
      .split('export{');
    expect(vendored).toBe(code);
    const pairs = names
      ?.replace('};', '')
      .split(',')
      .map((pair) => pair.split(' as '));
    expect(returned).toBe(`return {${pairs?.map(([from, to]) => `${to}: ${from}`).join(', ')}};`);
    expect(script).toMatch(/Apache License 2\.0[\s\S]*MIT License/);
  });

  test('has advice for every code of a dead letter that the documentation lists', () => {
    const page = readFileSync(join(root, 'docs', 'dead-letters.md'), 'utf8');
    const [, table = ''] = /its code says why:\n\n([\s\S]*?)\n\n/.exec(page) ?? [];
    const firsts = table.split('\n').map((line) => line.split('|')[1] ?? '');
    const codes = firsts.flatMap((cell) => [...cell.matchAll(/`([\w-]+)`/g)].map(([, code]) => code as string));
    expect(codes.length).toBeGreaterThan(12);
    const [, hints = ''] = /const HINTS = (\{[\s\S]*?\n\});/.exec(own) ?? [];
    const advised = [...hints.matchAll(/^ {2}'?([\w-]+)'?:/gm)].map(([, code]) => code);
    // Those are the sender's faults, all alike.
    expect(advised.sort()).toEqual(codes.filter((code) => !code.startsWith('bad-')).sort());
  });

  test('asks nobody else, and makes no markup of text', () => {
    const addresses =
      own.replaceAll("'http://www.w3.org/2000/svg'", '').match(/\b(https?|wss?):\/\/\w[^\s'"`]*/g) ?? [];
    expect(addresses).toEqual([]);
    expect(html.replace(script, '')).not.toMatch(/\bsrc=|@import|url\(/);
    expect(own).not.toMatch(/innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|localStorage/);
  });

  test('is linted and formatted as everything else', () => {
    const code = own.replace(/const (\{.*?\}) = \(\(\) => \{\n\}\)\(\);/, 'const $1 = library();').trimStart();
    expect(code).toContain('= library();');
    // By the rules of the project and in a folder of its own: in the project's, the linter reads all of it first.
    const folder = scratchFolder();
    const { $schema: _, vcs: __, ...rules } = JSON.parse(readFileSync(join(root, 'biome.json'), 'utf8'));
    writeFileSync(join(folder, 'biome.json'), JSON.stringify(rules));
    writeFileSync(join(folder, 'console.js'), code);
    const options = { encoding: 'utf8', cwd: folder } as const;
    const { status, stdout, stderr } = spawnSync(bin, ['ci', '--error-on-warnings', 'console.js'], options);
    expect(status, stdout + stderr).toBe(0);
    expect(html.split('\n').filter((line) => line.length > 120 && line !== vendored && line !== returned)).toEqual([]);
  });
});
