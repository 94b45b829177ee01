/** What docs/trust.md prints is run as printed, but for names, ports and the way the program is called. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { checkAuth } from '../../src/auth/keys.ts';
import { Tokens } from '../../src/cli/tokens.ts';
import { authority, hasOpenssl } from '../support/certificates.ts';
import { scratchFolder, until } from '../support/nodes.ts';
import { freePorts, MAIN, type Parsed, runProgram, started } from '../support/programs.ts';

const page = readFileSync(fileURLToPath(new URL('../../docs/trust.md', import.meta.url)), 'utf8');
/** The commands of the first block with this in it, each in one line. */
function commandsWith(mark: string): string[] {
  const blocks = [...page.matchAll(/```sh\n(.*?)```/gs)].map(([, block]) => block as string);
  const found = blocks.find((block) => block.includes(mark)) as string;
  return found
    .replaceAll(/\s*\\\n\s*/g, ' ')
    .trim()
    .split('\n');
}
const jsonWith = (mark: string): string =>
  [...page.matchAll(/```json\n(.*?)```/gs)].map(([, block]) => block as string).find((block) => block.includes(mark)) ??
  '';

function ask(url: string, tls: https.RequestOptions, body?: string): Promise<Parsed> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json' };
    const request = https.request(url, { ...tls, agent: false, method: body ? 'POST' : 'GET', headers });
    request.on('error', reject);
    request.on('response', (response) => {
      let text = '';
      response.on('data', (chunk) => {
        text += chunk;
      });
      response.on('end', () => resolve(JSON.parse(text)));
    });
    request.end(body);
  });
}

describe.skipIf(!hasOpenssl)('docs/trust.md', () => {
  test('five commands make a cluster over the internet', async () => {
    const commands = commandsWith('rowcast keygen');
    expect(commands).toHaveLength(5);
    const [keygen, certificate, copy, ...nodes] = commands as [string, string, string, string, string];
    const folders = { a: scratchFolder(), b: join(scratchFolder(), 'b') };
    mkdirSync(folders.b);
    const ports = await freePorts(2);

    const made = runProgram(MAIN, ['keygen', /rowcast keygen (\S+) > keys\.json/.exec(keygen)?.[1] as string]);
    expect(await made.ended).toBe(0);
    writeFileSync(join(folders.a, 'keys.json'), made.stdout(), { mode: 0o600 });
    const local = certificate.replaceAll(/DNS:[ab]\.example\.org/g, 'IP:127.0.0.1');
    execFileSync('sh', ['-c', local], { cwd: folders.a, stdio: 'pipe' });
    const [scp, ...files] = copy.split(' ');
    expect([scp, files.pop()]).toEqual(['scp', 'b.example.org:']);
    for (const file of files) copyFileSync(join(folders.a, file), join(folders.b, file));

    const programs = nodes.map((line, i) => {
      const here = line
        .replace(/-listen :9001/, `-listen 127.0.0.1:${ports[i]}`)
        .replaceAll(/[ab]\.example\.org:9001/g, `127.0.0.1:${ports[1 - i]}`);
      const folder = [folders.a, folders.b][i] as string;
      const args = here.split(' ').slice(1);
      return runProgram(
        MAIN,
        args.map((arg) => (/\.(db|json|pem|key)$/.test(arg) ? join(folder, arg) : arg)),
      );
    });
    for (const program of programs) await started(program);
    const [a, b] = ports.map((port) => `https://127.0.0.1:${port}`) as [string, string];
    const [cert, key] = ['cluster.pem', 'cluster.key'].map((file) => readFileSync(join(folders.b, file), 'utf8'));
    const tls = { ca: cert, cert, key } as https.RequestOptions;
    await ask(`${a}/api/items`, tls, '{"name":"over the internet"}');
    await until('b has it', async () => (await ask(`${b}/api/items`, tls)).length === 1);
    const health = await ask(`${a}/health`, tls);
    // Who may connect is not yet who speaks.
    expect(health).toEqual({ ok: true });
    await expect(ask(`${a}/health`, { ca: cert } as https.RequestOptions)).rejects.toThrow();
    for (const program of programs) {
      const codes = program.lines('warning').map(({ code }: Parsed) => code);
      expect(codes.filter((code: string) => code === 'open-to-all')).toEqual([]);
    }
  });

  test('an authority of your own', async () => {
    const folder = scratchFolder();
    const [ca, node] = commandsWith('-out ca.pem') as [string, string];
    execFileSync('sh', ['-c', ca], { cwd: folder, stdio: 'pipe' });
    const local = node.replace('DNS:a.example.org', 'IP:127.0.0.1');
    execFileSync('sh', ['-c', local], { cwd: folder, stdio: 'pipe' });
    const at = (file: string): string => join(folder, file);
    const flags = ['-tls-cert', at('a.pem'), '-tls-key', at('a.key'), '-listen', '127.0.0.1:0'];
    const { url } = await started(runProgram(MAIN, ['serve', '-id', 'a', '-db', ':memory:', ...flags]));
    const read = (file: string): string => readFileSync(at(file), 'utf8');
    expect(await ask(`${url}/health`, { ca: read('ca.pem') })).toMatchObject({ ok: true });
    await expect(ask(`${url}/health`, { ca: authority('other').cert })).rejects.toThrow();
  });
});

test('the files of tokens and of keys with rights', () => {
  const path = join(scratchFolder(), 'tokens.json');
  writeFileSync(path, jsonWith('"tokens"').replace('<64 hexadecimal digits>', 'ab'.repeat(32)), { mode: 0o600 });
  expect(new Tokens(path, {}).inUse).toBe(true);
  // To each key a secret of its own.
  let made = 0;
  const { keys } = JSON.parse(
    jsonWith('"write": []').replaceAll('"..."', () => JSON.stringify('xyz'.charAt(made++).repeat(44))),
  );
  expect(checkAuth({ keys }).keys.map(({ rights }) => rights.write)).toEqual([
    undefined,
    new Set(['sales', 'customers']),
    new Set(),
  ]);
});
