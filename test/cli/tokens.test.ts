/** Bearer tokens: where they come from, what each may do, and that nothing says what they are. */
import { createHash } from 'node:crypto';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { respondItems } from '../../src/cli/items/routes.ts';
import { createItems, ItemStore } from '../../src/cli/items/store.ts';
import { Tokens } from '../../src/cli/tokens.ts';
import { systemClock } from '../../src/clock.ts';
import { toListener } from '../../src/http/bridge.ts';
import { respond } from '../../src/http/respond.ts';
import type { Config } from '../../src/index.ts';
import { attached, cleanUp, database, node, scratchFolder, serve } from '../support/nodes.ts';

const READ = 'read-token-0123456789';
const WRITE = 'write-token-0123456789';
const HEALTH = 'health-token-0123456789==';

function tokensFile(content: unknown): { path: string; put(next: unknown): void } {
  const path = join(scratchFolder(), 'tokens.json');
  const put = (next: unknown): void => writeFileSync(path, typeof next === 'string' ? next : JSON.stringify(next));
  put(content);
  chmodSync(path, 0o600);
  return { path, put };
}

const THREE = {
  tokens: [
    { token: READ, scope: 'read' },
    { token: WRITE, scope: ['read', 'write'] },
    { sha256: createHash('sha256').update(HEALTH).digest('hex'), scope: ['health'] },
  ],
};

/** A node behind these tokens, as `rowcast serve` wires it. */
async function served(
  tokens: Tokens,
  config: Partial<Config> = {},
): Promise<(path: string, token?: string, init?: RequestInit) => Promise<Response>> {
  const db = await database('PRAGMA user_version = 1');
  createItems(db);
  const manager = attached(db, config);
  const store = new ItemStore(db, 'here', systemClock);
  cleanUp(() => store.release());
  const url = await serve(
    toListener(async (incoming) => {
      const options = { changed: () => {}, refusal: tokens.refusal.bind(tokens) };
      const item = await respondItems(store, incoming, options);
      return item ?? respond(manager, { readers: tokens, metrics: METRICS }, incoming);
    }),
  );
  return (path, token, init = {}) => {
    const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` };
    return fetch(url + path, { ...init, headers: { ...authorization, ...(init.headers as Record<string, string>) } });
  };
}

const METRICS = { text: async () => 'rowcast_up 1\n', contentType: 'text/plain' };

const POST = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"name":"x"}' };

describe('the item routes', () => {
  test('are for the scopes read and write', async () => {
    const ask = await served(new Tokens(tokensFile(THREE).path, {}));
    const cases: [number, string, string | undefined, RequestInit?][] = [
      [200, '/api/items', READ],
      [200, '/api/items', READ, { method: 'HEAD' }],
      [200, '/api/items', WRITE],
      [404, '/api/items/none', READ],
      [201, '/api/items', WRITE, POST],
      [403, '/api/items', READ, POST],
      [403, '/api/items/batch', READ, POST],
      [403, '/api/items/x', READ, { method: 'DELETE' }],
      [403, '/api/items/x', READ, { ...POST, method: 'PUT' }],
      [403, '/api/items', HEALTH],
      [401, '/api/items', undefined],
      [401, '/api/items', undefined, POST],
      [401, '/api/items', undefined, { method: 'OPTIONS' }],
      [401, '/api/items', READ.slice(0, -1)],
      [401, '/api/items', `${READ}x`],
    ];
    for (const [status, path, token, init] of cases) {
      const answer = await ask(path, token, init);
      expect([answer.status, path, token, init?.method]).toEqual([status, path, token, init?.method]);
      expect(answer.headers.get('www-authenticate')?.startsWith('Bearer') ?? false).toBe(
        status === 401 || status === 403,
      );
    }
    expect((await ask('/api/items')).headers.get('www-authenticate')).toBe('Bearer');
    const little = await ask('/api/items', READ, POST);
    expect(little.headers.get('www-authenticate')).toBe('Bearer error="insufficient_scope", scope="write"');
    const other = await ask('/api/items', undefined, { headers: { authorization: `Basic ${READ}` } });
    expect(other.status).toBe(401);
    expect(await (await ask('/api/items', READ)).json()).toHaveLength(1);
  });

  test('are open where there are no tokens', async () => {
    const ask = await served(new Tokens(undefined, {}));
    expect((await ask('/api/items', undefined, POST)).status).toBe(201);
    expect(await (await ask('/health')).json()).toMatchObject({ ok: true, node_id: 'node' });
  });
});

describe('/health', () => {
  test('says only whether all is well to who has no token for it', async () => {
    const ask = await served(new Tokens(tokensFile(THREE).path, {}));
    const stranger = await ask('/health');
    expect([stranger.status, await stranger.text()]).toEqual([200, '{"ok":true}']);
    expect(await (await ask('/health', HEALTH)).json()).toMatchObject({ ok: true, node_id: 'node', item_count: 0 });
    expect((await ask('/health', READ)).status).toBe(403);
    expect((await ask('/health', 'some-other-token-0123')).status).toBe(401);
  });

  test('is 503 with ok false to a stranger where the node is not well', async () => {
    const tokens = new Tokens(tokensFile(THREE).path, {});
    const { db, manager } = await node();
    db.exec('DROP TABLE items');
    const incoming = { method: 'GET', path: '/health', header: () => undefined, read: async () => new Uint8Array() };
    const ask = (): Promise<unknown> => respond(manager, { readers: tokens }, { ...incoming, hold: () => true });
    expect(await ask()).toMatchObject({ status: 503, body: '{"ok":false}' });
    await manager.stop();
    expect(await ask()).toMatchObject({ status: 503, body: '{"ok":false}' });
  });
});

describe('what machines ask', () => {
  test('/metrics is for the scope health, /readyz is short without it, /livez is for all', async () => {
    const ask = await served(new Tokens(tokensFile(THREE).path, {}));
    const statuses = async (token?: string): Promise<number[]> =>
      Promise.all(['/metrics', '/readyz', '/livez'].map(async (path) => (await ask(path, token)).status));
    expect(await statuses()).toEqual([401, 200, 200]);
    expect(await statuses(READ)).toEqual([403, 403, 200]);
    expect(await statuses('some-other-token-0123')).toEqual([401, 401, 200]);
    expect(await statuses(HEALTH)).toEqual([200, 200, 200]);
    expect(await (await ask('/readyz')).text()).toBe('{"ready":true}');
    expect(await (await ask('/readyz', HEALTH)).json()).toEqual({ ready: true, problems: [] });
    const open = await served(new Tokens(undefined, {}));
    expect((await open('/metrics')).status).toBe(200);
  });
});

describe('with keys besides', () => {
  const secret = createHash('sha256').update('secret').digest('base64');
  const auth = { keys: [{ id: 'k1', secret }] };

  test('a token for health says as much as a signature, and nobody else is told more than ok', async () => {
    const ask = await served(new Tokens(tokensFile(THREE).path, {}), { auth });
    const introduced = { headers: { 'x-rowcast': 'id=x; inc=5f0c1e9a77b2d310; boot=7-21d0b7e4; t0=812; t=840' } };
    const stranger = await ask('/health', undefined, introduced);
    expect([await stranger.text(), stranger.headers.get('x-rowcast')]).toEqual(['{"ok":true}', null]);
    expect(await (await ask('/health', HEALTH)).json()).toMatchObject({ ok: true, node_id: 'node' });
    expect((await ask('/health', READ)).status).toBe(403);
    expect((await ask('/sync', HEALTH, POST)).status).toBe(401);
    const withoutTokens = await served(new Tokens(undefined, {}), { auth });
    expect(await (await withoutTokens('/health', HEALTH)).text()).toBe('{"ok":true}');
  });
});

describe('tokens', () => {
  test('come from the environment as well, and from one of the two alone', async () => {
    const env = { ROWCAST_TOKENS: `read+write:${WRITE}, health:${HEALTH}` };
    const ask = await served(new Tokens(undefined, env));
    expect((await ask('/api/items', WRITE, POST)).status).toBe(201);
    expect((await ask('/health', HEALTH)).status).toBe(200);
    expect((await ask('/health', WRITE)).status).toBe(403);
    const { path } = tokensFile(THREE);
    expect(() => new Tokens(path, env)).toThrow(/-tokens-file and ROWCAST_TOKENS are both given/);
  });

  test('that are wrong are refused by their place, and never quoted', () => {
    const secret = 'a-secret-that-nobody-may-see';
    const token = (more: object): object => ({ tokens: [THREE.tokens[0], { token: secret, scope: 'read', ...more }] });
    const cases: [unknown, RegExp][] = [
      [`{"tokens": [{"token": "${secret}`, /is not JSON; write/],
      [{ token: secret }, /has no list of tokens/],
      [{ tokens: [] }, /has no token in it; to have none, leave it out/],
      [token({ scope: 'wriet' }), /token 2 needs a scope of read, write, health; did you mean write\?/],
      [token({ scope: [] }), /token 2 needs a scope/],
      [token({ scopes: 'read' }), /token 2 has an unknown key; did you mean scope\?/],
      [token({ sha256: 'ab' }), /token 2 needs either token or sha256/],
      [token({ token: undefined, sha256: secret }), /token 2 has a sha256 that is not 64/],
      [token({ token: `${secret} `.slice(0, 15) }), /token 2 must have 16 characters or more/],
      [token({ token: `${secret}:${secret}` }), /token 2 must have/],
      [token({ token: READ }), /has a token twice/],
    ];
    for (const [content, problem] of cases) {
      const { path } = tokensFile(content);
      const refusal = (): unknown => new Tokens(path, {});
      expect(refusal).toThrow(problem);
      expect(refusal).toThrow(path);
      expect(refusal).not.toThrow(secret.slice(0, 12));
    }
    expect(() => new Tokens(undefined, { ROWCAST_TOKENS: secret })).toThrow(/^ROWCAST_TOKENS: token 1 has no scope/);
    expect(() => new Tokens('/nowhere/tokens', {})).toThrow(/-tokens-file \/nowhere\/tokens: cannot be read/);
  });

  test('count anew when the file was read again; a wrong file changes nothing', async () => {
    const { path, put } = tokensFile(THREE);
    const tokens = new Tokens(path, {});
    const ask = await served(tokens);
    expect([tokens.reread(), tokens.files, tokens.warnings]).toEqual([undefined, [path], []]);
    put({ tokens: [] });
    expect(() => tokens.reread()).toThrow(/has no token in it/);
    expect((await ask('/api/items', READ)).status).toBe(200);
    put({ tokens: [{ token: WRITE, scope: ['write', 'read'] }] });
    tokens.reread()?.();
    expect((await ask('/api/items', READ)).status).toBe(401);
    expect((await ask('/api/items', WRITE)).status).toBe(200);
    chmodSync(path, 0o644);
    expect(tokens.warnings).toMatchObject([{ code: 'secret-readable' }]);
  });
});
