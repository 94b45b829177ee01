/** What docs/keys.md prints is run as printed, but for addresses and the way the program is called. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import * as auth from '../../src/auth/index.ts';
import { node, rowsOf, scratchFolder, serve, until } from '../support/nodes.ts';
import { freePorts, MAIN, runProgram, started } from '../support/programs.ts';
import { SECRET } from './messages.ts';

const page = readFileSync(fileURLToPath(new URL('../../docs/keys.md', import.meta.url)), 'utf8');
const blocks = (language: string): string[] =>
  [...page.matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, 'gs'))].map(([, block]) => block as string);

test('the commands that set two nodes up', async () => {
  const [setUp] = blocks('sh');
  const [keygen, ...serves] = (setUp as string).trim().split('\n') as [string, ...string[]];
  const folder = scratchFolder();
  const made = runProgram(MAIN, ['keygen', /rowcast keygen (\S+) > keys\.json/.exec(keygen)?.[1] as string]);
  expect(await made.ended).toBe(0);
  writeFileSync(join(folder, 'keys.json'), made.stdout(), { mode: 0o600 });
  const ports = await freePorts(2);
  const programs = serves.map((line) => {
    const local = line.replaceAll(/10\.0\.0\.(\d):9001/g, (_, n) => `127.0.0.1:${ports[Number(n) - 1]}`);
    const [name, ...args] = local.split(' ');
    expect(name).toBe('rowcast');
    return runProgram(
      MAIN,
      args.map((arg) => (/\.(db|json)$/.test(arg) ? join(folder, arg) : arg)),
    );
  });
  for (const program of programs) expect(await started(program)).toMatchObject({ keys: 'require' });
  const [a, b] = ports.map((port) => `http://127.0.0.1:${port}/api/items`) as [string, string];
  await fetch(a, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"name":"first"}' });
  await until('b has it', async () => ((await (await fetch(b)).json()) as unknown[]).length === 1);
});

test('a server that is wired by hand', async () => {
  const code = blocks('js').at(-1) as string;
  const [imports, ...rest] = code.trim().split('\n') as [string, ...string[]];
  const names = /\{(.*)\}/
    .exec(imports)?.[1]
    ?.split(',')
    .map((name) => name.trim()) as string[];
  // The keyring is made once; the rest is what every request does.
  const [keyring, ...perRequest] = rest.join('\n').trim().split('\n') as [string, ...string[]];
  const keys = [{ id: 'k1', secret: SECRET }];
  const made = new Function('createKeyring', 'keys', `${keyring}\nreturn keyring;`)(auth.createKeyring, keys);
  const b = await node({ id: 'b' });
  const given = ['keyring', 'manager', 'method', 'request', 'requestBody', 'unpacked', 'answer', ...names];
  const exported = new Map(Object.entries(auth));
  const run = new Function(...given, perRequest.join('\n'));
  const url = await serve((request, response) => {
    if (request.url === '/health') {
      // Its own /health, signed likewise: a sender asks for it first.
      const header = (name: string): string => request.headers[name] as string;
      const verified = auth.verifyRequest(made, { method: 'GET', path: '/health', header });
      if (verified.kind !== 'verified') return void response.writeHead(401).end();
      const [body, headers] = [JSON.stringify(b.manager.health()), { 'x-node-id': 'b' }];
      const signed = auth.signAnswer(verified.sender, { status: 200, headers, body });
      return void response.writeHead(200, { ...headers, ...signed }).end(body);
    }
    const chunks: Buffer[] = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks);
      const answer = (status: number, headers: Record<string, string>, text: string): void =>
        void response.writeHead(status, headers).end(text);
      run(made, b.manager, request.method, request, body, body, answer, ...names.map((name) => exported.get(name)));
    });
  });
  const a = await node({ id: 'a', peers: [url], batchMs: 5, auth: { keys } });
  a.db.exec("INSERT INTO items (id, name, updated_at) VALUES ('x', 'n', 1000)");
  await until('b has it', () => rowsOf(b.db, 'SELECT id FROM items').length === 1);
  await until('a knows', () => a.manager.health().pending_changes === 0);
  expect((await fetch(`${url}/sync`, { method: 'POST', body: '{"batch_id":1,"changes":[]}' })).status).toBe(401);
});
