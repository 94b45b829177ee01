/** HTTPS and mutual TLS between programs, on Node and on Bun, with certificates that are made here. */
import { spawnSync } from 'node:child_process';
import { copyFileSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { type Authority, authority, hasOpenssl, type Pair } from '../support/certificates.ts';
import { lane } from '../support/lane.ts';
import { scratchFolder, until } from '../support/nodes.ts';
import {
  freePorts,
  hangUp,
  MAIN,
  type NodeProgram,
  type Parsed,
  type Program,
  type RunOptions,
  runProgram,
  started,
  startNode,
} from '../support/programs.ts';

const onBun = lane === 'bun-sqlite';
const BUN: RunOptions = {
  runtime: { command: fileURLToPath(new URL('../../node_modules/.bin/bun', import.meta.url)), binding: 'bun-sqlite' },
};

/** A request as a client with these certificates makes it, over a connection of its own. */
function ask(
  url: string,
  tls: { ca: string; cert?: string; key?: string },
  init: { method?: string; body?: unknown } = {},
): Promise<{ status: number; body: Parsed; servedBy: string }> {
  return new Promise((resolve, reject) => {
    const body = init.body === undefined ? undefined : JSON.stringify(init.body);
    const request = https.request(url, {
      ...{ ca: tls.ca, ...(tls.cert !== undefined && { cert: tls.cert, key: tls.key }) },
      method: init.method ?? 'GET',
      agent: false,
      headers: { 'content-type': 'application/json', ...(body && { 'content-length': Buffer.byteLength(body) }) },
    });
    request.on('error', reject);
    request.on('response', (response) => {
      const servedBy = (response.socket as import('node:tls').TLSSocket).getPeerCertificate().subject?.CN;
      let text = '';
      response.on('data', (chunk) => {
        text += chunk;
      });
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, body: JSON.parse(text), servedBy: String(servedBy) }),
      );
    });
    request.end(body);
  });
}

const write = (url: string, name: string, tls: Parsed): Promise<unknown> =>
  ask(`${url}/api/items`, tls, { method: 'POST', body: { name } });
const names = async (url: string, tls: Parsed): Promise<string[]> =>
  (await ask(`${url}/api/items`, tls)).body.map(({ name }: Parsed) => name).sort();

const serving = ({ certFile, keyFile }: Pair): string[] => ['-tls-cert', certFile, '-tls-key', keyFile];
const sending = (ca: Pair, own?: Pair): string[] => [
  '-tls-ca',
  ca.certFile,
  ...(own ? ['-tls-client-cert', own.certFile, '-tls-client-key', own.keyFile] : []),
];
/** A member of a cluster in which everybody has a certificate of one authority. */
const mutual = (ca: Authority, own: Pair): string[] => [
  ...serving(own),
  '-tls-client-ca',
  ca.certFile,
  ...sending(ca, own),
];
const listenOn = (port: number): string[] => ['-listen', `127.0.0.1:${port}`];
const https_ = (port: number): string => `https://127.0.0.1:${port}`;

/** Says so once a whole round of attempts has failed. One of them may have failed for another reason: it goes on trying. */
async function isDownFor(program: NodeProgram, reason: RegExp): Promise<void> {
  await until('its log says so', () => program.lines('peer-down').length > 0);
  let last = '';
  await until(`its peer is down for ${reason}`, async () => {
    const { peer_states } = (await (await fetch(`${program.url}/health`)).json()) as Parsed;
    last = String(peer_states[0].last_error);
    return peer_states[0].state === 'down' && reason.test(last);
  }).catch((error) => {
    throw new Error(`${error.message}; it says: ${last}`);
  });
}

describe.skipIf(!hasOpenssl || lane !== 'better-sqlite3')('both runtimes, as server and as client', () => {
  test.each([
    ['Node and Node', {}, {}],
    ['Node and Bun', {}, BUN],
    ['Bun and Bun', BUN, BUN],
  ] as [string, RunOptions, RunOptions][])('%s replicate both ways by mutual TLS', async (_, one, two) => {
    const ca = authority();
    const [a, b] = [ca.issue('a'), ca.issue('b')];
    const [portA, portB] = (await freePorts(2)) as [number, number];
    const nodeA = await startNode('a', [...mutual(ca, a), ...listenOn(portA), '-peer', https_(portB)], undefined, one);
    const nodeB = await startNode('b', [...mutual(ca, b), ...listenOn(portB), '-peer', https_(portA)], undefined, two);
    expect(nodeA.url).toBe(https_(portA));
    const tls = { ca: ca.cert, cert: a.cert, key: a.key };
    await write(nodeA.url, 'from a', tls);
    await write(nodeB.url, 'from b', tls);
    for (const { url } of [nodeA, nodeB]) {
      await until(`${url} has both`, async () => (await names(url, tls)).join() === 'from a,from b');
    }
    const healthOf = async (): Promise<Parsed> => (await ask(`${nodeA.url}/health`, tls)).body;
    await until('it knows that its peer is up', async () => (await healthOf()).peer_states[0].state === 'up');
    const health = await healthOf();
    expect(health).toMatchObject({ ok: true, warnings: [], peer_states: [{ state: 'up' }] });
    expect(health.certificates.map(({ flag }: Parsed) => flag)).toEqual(['tls-cert', 'tls-client-cert']);
    for (const { child, ended } of [nodeA, nodeB]) {
      child.kill('SIGTERM');
      expect(await ended).toBe(0);
    }
  });
});

describe.skipIf(!hasOpenssl)('mutual TLS', () => {
  test('lets nobody in without a certificate of the authority, and sends nothing to whom it does not know', async () => {
    const [ca, other] = [authority(), authority('other')];
    const [a, b, stranger] = [ca.issue('a'), ca.issue('b'), other.issue('stranger')];
    const server = await startNode('a', mutual(ca, a));
    const tls = { ca: ca.cert, cert: b.cert, key: b.key };
    const senders = [
      await startNode('none', [...sending(ca), '-peer', server.url]),
      await startNode('foreign', [...sending(ca, stranger), '-peer', server.url]),
      await startNode('wary', [...sending(other, b), '-peer', server.url]),
      await startNode('usual', ['-tls-client-cert', b.certFile, '-tls-client-key', b.keyFile, '-peer', server.url]),
    ] as const;
    const body = JSON.stringify({ name: 'secret' });
    const headers = { 'content-type': 'application/json' };
    for (const { url } of senders) await fetch(`${url}/api/items`, { method: 'POST', headers, body });
    await isDownFor(senders[0], /certificate/);
    await isDownFor(senders[1], /./);
    await isDownFor(senders[2], /its certificate is of no authority that is trusted here; tls\.ca, or -tls-ca/);
    await isDownFor(senders[3], /its certificate is of no authority that is trusted here/);
    for (const { url } of senders)
      expect(await (await fetch(`${url}/health`)).json()).toMatchObject({ dead_letter: 0 });
    expect(await names(server.url, tls)).toEqual([]);
    await expect(ask(`${server.url}/health`, { ca: ca.cert })).rejects.toThrow();
    await expect(ask(`${server.url}/health`, { ...tls, cert: stranger.cert, key: stranger.key })).rejects.toThrow();
    // Bun turns them away without a word.
    if (onBun) return;
    const turnedAway = (): string[] =>
      server.lines('warning').flatMap(({ code, message }) => (code === 'tls-handshake' ? [message] : []));
    for (const kind of [/PEER_DID_NOT_RETURN_A_CERTIFICATE/, /UNABLE_TO_VERIFY|UNABLE_TO_GET_ISSUER/])
      await until(`the log has told of ${kind}`, () => kind.test(turnedAway().join()));
  });

  test('cannot be done without verification, whatever the environment says', async () => {
    const [ca, other] = [authority(), authority('other')];
    const server = await startNode('a', serving(ca.issue('a')));
    const env = { NODE_TLS_REJECT_UNAUTHORIZED: '0' };
    const sender = await startNode('b', [...sending(other), '-peer', server.url], undefined, { env });
    const plain = await startNode('c', ['-peer', server.url], undefined, { env });
    const headers = { 'content-type': 'application/json' };
    for (const { url } of [sender, plain]) {
      await fetch(`${url}/api/items`, { method: 'POST', headers, body: '{"name":"x"}' });
    }
    await isDownFor(sender, /no authority that is trusted/);
    await isDownFor(plain, /no authority that is trusted/);
    expect(await names(server.url, { ca: ca.cert })).toEqual([]);
  });

  test('is not enough where the certificate is for another name', async () => {
    const ca = authority();
    const server = await startNode('a', serving(ca.issue('a', { names: ['DNS:elsewhere.test'] })));
    const sender = await startNode('b', [...sending(ca), '-peer', server.url]);
    const headers = { 'content-type': 'application/json' };
    await fetch(`${sender.url}/api/items`, { method: 'POST', headers, body: '{"name":"x"}' });
    await isDownFor(sender, /for another name than the URL has/);
  });

  test('serves nothing older than TLS 1.2, and nothing in the clear', async () => {
    const ca = authority();
    const server = await startNode('a', serving(ca.issue('a')));
    const handshake = (version: string): boolean => {
      const to = ['-connect', `127.0.0.1:${server.port}`, `-${version}`, '-cipher', 'DEFAULT@SECLEVEL=0'];
      const { stdout } = spawnSync('openssl', ['s_client', ...to], { input: '', encoding: 'utf8' });
      return /Cipher is (?!\(NONE\))\S/.test(stdout);
    };
    expect(['tls1_1', 'tls1_2', 'tls1_3'].map(handshake)).toEqual([false, true, true]);
    await expect(fetch(`http://127.0.0.1:${server.port}/health`)).rejects.toThrow();
    expect((await ask(`${server.url}/health`, { ca: ca.cert })).body).toMatchObject({ ok: true });
  });

  test('on more than loopback is not open to all, and HTTPS alone is', async () => {
    const ca = authority();
    const codes = (program: Program): string[] => program.lines('warning').map(({ code }) => code);
    expect(codes(await startNode('a', [...mutual(ca, ca.issue('a')), '-listen', '0.0.0.0:0']))).toEqual([]);
    expect(codes(await startNode('b', [...serving(ca.issue('b')), '-listen', '0.0.0.0:0']))).toEqual(['open-to-all']);
  });
});

describe.skipIf(!hasOpenssl)('certificates that are renewed', () => {
  test('count from SIGHUP on, for both sides; wrong ones change nothing', async () => {
    const [ca, next] = [authority(), authority('next')];
    const folder = scratchFolder();
    const at = (name: string): string => join(folder, name);
    const put = (name: string, pair: Pair): void => {
      copyFileSync(pair.certFile, at(`${name}.pem`));
      copyFileSync(pair.keyFile, at(`${name}.key`));
    };
    const files = (name: string): Pair => ({
      certFile: at(`${name}.pem`),
      keyFile: at(`${name}.key`),
      cert: '',
      key: '',
    });
    // Each with files of its own: what is put there for one is not to be found by the other.
    const trusted = (name: string): Authority => files(`trusted-by-${name}`) as Authority;
    const give = (name: string, signer: Pair, pair: Pair): void => {
      put(`trusted-by-${name}`, signer);
      put(name, pair);
    };
    give('a', ca, ca.issue('a'));
    give('b', ca, ca.issue('b'));
    // On Bun another server takes over the port: none that somebody is given in between.
    const [portA, portB] = (await freePorts(2)) as [number, number];
    const nodeA = await startNode('a', [...mutual(trusted('a'), files('a')), ...listenOn(portA)]);
    const nodeB = await startNode('b', [...mutual(trusted('b'), files('b')), ...listenOn(portB), '-peer', nodeA.url]);
    const old = ca.issue('old');
    const before = { ca: ca.cert, cert: old.cert, key: old.key };
    await write(nodeB.url, 'first', before);
    await until('a has it', async () => (await names(nodeA.url, before)).length === 1);

    const failed = await hangUp(nodeA, 'reload-failed', () => writeFileSync(at('a.key'), 'damaged'));
    expect(failed.message).toMatch(/-tls-key .*holds no private key.*nothing was changed/);
    expect((await ask(`${nodeA.url}/health`, before)).servedBy).toBe('a');

    const [renewedA, renewedB] = [next.issue('a-renewed'), next.issue('b-renewed')];
    const atA = await hangUp(nodeA, 'reloaded', () => give('a', next, renewedA));
    expect(atA).toMatchObject({ changed: ['certificates'] });
    const own = next.issue('own');
    const after = { ca: next.cert, cert: own.cert, key: own.key };
    expect((await ask(`${nodeA.url}/health`, after)).servedBy).toBe('a-renewed');
    await expect(ask(`${nodeA.url}/health`, { ...before, ca: next.cert })).rejects.toThrow();
    const atB = await hangUp(nodeB, 'reloaded', () => give('b', next, renewedB));
    expect(atB).toMatchObject({ changed: ['certificates'] });
    await write(nodeB.url, 'second', after);
    await until('a has both', async () => (await names(nodeA.url, after)).length === 2);
    for (const { child, ended } of [nodeA, nodeB]) {
      child.kill('SIGTERM');
      expect(await ended).toBe(0);
    }
  });
});

describe.skipIf(!hasOpenssl)('a hub', () => {
  test('serves and sends by mutual TLS', async () => {
    const ca = authority();
    const [hub, a, b, client] = [ca.issue('hub'), ca.issue('a'), ca.issue('b'), ca.issue('client')];
    const [portA, portB, hubPort] = (await freePorts(3)) as [number, number, number];
    const edges = ['-edge', https_(portA), '-edge', https_(portB)];
    const db = join(scratchFolder(), 'hub.db');
    const relay = runProgram(MAIN, [
      'hub',
      '-id',
      'hub',
      '-db',
      db,
      ...mutual(ca, hub),
      ...listenOn(hubPort),
      ...edges,
    ]);
    expect((await started(relay)).url).toBe(https_(hubPort));
    const nodeA = await startNode('a', [...mutual(ca, a), ...listenOn(portA), '-peer', https_(hubPort)]);
    const nodeB = await startNode('b', [...mutual(ca, b), ...listenOn(portB), '-peer', https_(hubPort)]);
    const tls = { ca: ca.cert, cert: client.cert, key: client.key };
    await write(nodeA.url, 'from a', tls);
    await until('b has it', async () => (await names(nodeB.url, tls)).length === 1);
    const health = (await ask(`${https_(hubPort)}/health`, tls)).body;
    expect(health.certificates).toHaveLength(2);
    await until('the hub knows who they are', async () => {
      const { peer_states } = (await ask(`${https_(hubPort)}/health`, tls)).body;
      return peer_states.map(({ node_id }: Parsed) => node_id).join() === 'a,b';
    });
  });
});

test.skipIf(!hasOpenssl)('wrong files keep a program from starting, with exit code 2 and no port taken', async () => {
  const ca = authority();
  const [a, b] = [ca.issue('a'), ca.issue('b')];
  for (const command of [
    ['serve', '-id', 'a', '-db', ':memory:'],
    ['hub', '-id', 'h', '-db', ':memory:'],
  ]) {
    const program = runProgram(MAIN, [...command, '-tls-cert', a.certFile, '-tls-key', b.keyFile]);
    expect(await program.ended).toBe(2);
    expect(program.stderr()).toMatch(/-tls-key .*b\.key: is not the key of the certificate; /);
    expect(program.stdout()).toBe('');
  }
});
