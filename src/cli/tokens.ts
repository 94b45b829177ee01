/**
 * Bearer tokens for what people and programs ask a node: the item routes and `/health`. Each has scopes. Of a token only its
 * SHA-256 is kept in memory, and only that is compared. `/sync` is not for tokens: whoever sends there is a peer.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { messageOf, suggest } from '../errors.ts';
import type { Incoming, Outgoing } from '../http/bridge.ts';
import type { Readers } from '../http/respond.ts';
import { failure } from './failure.ts';
import { type Environment, file, UsageError } from './flags.ts';
import type { Held } from './reload.ts';
import { readableByOthers, readSecrets, type Secrets } from './secrets.ts';

export const SCOPES = ['read', 'write', 'health'] as const;
export type Scope = (typeof SCOPES)[number];

const FLAG = '-tokens-file';
export const TOKENS_VARIABLE = 'ROWCAST_TOKENS';

export const tokensFileFlag = file(
  'Bearer tokens for the item routes and /health, with their scopes, which are read, write and health:\n' +
    `{"tokens": [{"token": "<16 characters or more>", "scope": ["read"]}]}\n` +
    `Or ${TOKENS_VARIABLE}=read+write:<token>,health:<token> in the environment.`,
);

interface Token {
  digest: Buffer;
  scopes: ReadonlySet<Scope>;
}

export class Tokens implements Held, Readers {
  readonly name = 'tokens';
  readonly #path: string | undefined;
  readonly #env: Environment;
  #now: Token[];

  constructor(path: string | undefined, env: Environment) {
    this.#path = path;
    this.#env = env;
    this.#now = this.#read();
  }

  get files(): string[] {
    return this.#path === undefined ? [] : [this.#path];
  }

  get warnings(): { code: string; message: string }[] {
    return this.#path === undefined ? [] : readableByOthers(FLAG, this.#path);
  }

  /** False: everybody may do everything, as where there are no tokens. */
  get inUse(): boolean {
    return this.#now.length > 0;
  }

  reread(): (() => void) | undefined {
    const next = this.#read();
    if (spelt(next) === spelt(this.#now)) return undefined;
    return () => {
      this.#now = next;
    };
  }

  /** The answer to a request that has not the token for it; undefined where it has, or none is needed. */
  refusal(incoming: Incoming, scope: Scope): Outgoing | undefined {
    if (!this.inUse) return undefined;
    const scopes = this.#scopesOf(incoming);
    if (scopes === 'none') return refused(401, 'this needs a token: Authorization: Bearer <token>', '');
    if (scopes === 'unknown') return refused(401, 'the token is not known here', ' error="invalid_token"');
    if (scopes.has(scope)) return undefined;
    const asked = ` error="insufficient_scope", scope="${scope}"`;
    return refused(403, `the token has not the scope ${scope}`, asked);
  }

  /** Who may read all of `/health`; a wrong token is told that it is. Undefined where there are no tokens. */
  ofHealth(incoming: Incoming): 'all' | 'short' | Outgoing | undefined {
    if (!this.inUse) return undefined;
    return this.#scopesOf(incoming) === 'none' ? 'short' : (this.refusal(incoming, 'health') ?? 'all');
  }

  #scopesOf(incoming: Incoming): ReadonlySet<Scope> | 'none' | 'unknown' {
    const [, token] = /^Bearer +(\S+) *$/i.exec(incoming.header('authorization') ?? '') ?? [];
    if (token === undefined) return 'none';
    const digest = sha256(token);
    // All of them, so that the time says nothing of which one it was.
    const [found] = this.#now.filter((known) => timingSafeEqual(known.digest, digest));
    return found?.scopes ?? 'unknown';
  }

  #read(): Token[] {
    const secrets = readSecrets({ flag: FLAG, path: this.#path, variable: TOKENS_VARIABLE, env: this.#env });
    if (!secrets) return [];
    const tokens = secrets.kind === 'file' ? fromFile(secrets) : fromVariable(secrets);
    if (tokens.length === 0) throw problem(secrets, 'has no token in it', 'to have none, leave it out');
    const digests = new Set(tokens.map(({ digest }) => digest.toString('hex')));
    if (digests.size < tokens.length) throw problem(secrets, 'has a token twice', 'give it all its scopes at once');
    return tokens;
  }
}

const EXAMPLE = 'write {"tokens": [{"token": "<16 characters or more>", "scope": ["read", "write"]}]}';

function fromFile(secrets: Secrets): Token[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(secrets.text);
  } catch {
    // What the parser says may quote a token.
    throw problem(secrets, 'is not JSON', EXAMPLE);
  }
  const list = (parsed as { tokens?: unknown } | null)?.tokens;
  if (!Array.isArray(list)) throw problem(secrets, 'has no list of tokens', EXAMPLE);
  return list.map((entry: unknown, index) => inPlace(secrets, index, () => tokenFrom(entry)));
}

/** `read+write:<token>,health:<token>` */
function fromVariable(secrets: Secrets): Token[] {
  const entries = secrets.text.split(',').map((entry) => entry.trim());
  return entries.map((entry, index) =>
    inPlace(secrets, index, () => {
      const at = entry.indexOf(':');
      if (at < 0) throw new UsageError('has no scope; write read+write:<token>');
      return { digest: digestOf(entry.slice(at + 1)), scopes: scopesFrom(entry.slice(0, at).split('+')) };
    }),
  );
}

function tokenFrom(entry: unknown): Token {
  if (typeof entry !== 'object' || entry === null) throw new UsageError(`is not an object; ${EXAMPLE}`);
  const known = ['token', 'sha256', 'scope'];
  const stranger = Object.keys(entry).find((key) => !known.includes(key));
  if (stranger !== undefined) throw new UsageError(`has an unknown key${suggest(stranger, known)}`);
  const { token, sha256: hashed, scope } = entry as Record<string, unknown>;
  if ((token === undefined) === (hashed === undefined)) throw new UsageError('needs either token or sha256');
  const scopes = scopesFrom(Array.isArray(scope) ? scope : [scope]);
  if (hashed === undefined) return { digest: digestOf(token), scopes };
  if (typeof hashed !== 'string' || !/^[0-9a-fA-F]{64}$/.test(hashed)) {
    throw new UsageError('has a sha256 that is not 64 hexadecimal digits');
  }
  return { digest: Buffer.from(hashed, 'hex'), scopes };
}

function digestOf(token: unknown): Buffer {
  // What may stand behind `Bearer`, and long enough that nobody guesses it.
  if (typeof token === 'string' && /^[A-Za-z0-9._~+/-]{16,}=*$/.test(token)) return sha256(token);
  throw new UsageError('must have 16 characters or more, of A-Z a-z 0-9 . _ ~ + / - and = at the end');
}

function scopesFrom(given: unknown[]): ReadonlySet<Scope> {
  const stranger = given.find((scope) => !SCOPES.includes(scope as Scope));
  if (given.length > 0 && stranger === undefined) return new Set(given as Scope[]);
  throw new UsageError(`needs a scope of ${SCOPES.join(', ')}${suggest(String(stranger), SCOPES)}`);
}

/** Names the token by its place: what is wrong with a secret is said without the secret. */
function inPlace<T>(secrets: Secrets, index: number, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new UsageError(`${secrets.where}: token ${index + 1} ${messageOf(error)}`);
  }
}

function problem({ where }: Secrets, what: string, hint: string): UsageError {
  return new UsageError(`${where} ${what}; ${hint}`);
}

function refused(status: number, error: string, challenge: string): Outgoing {
  const { headers, ...outgoing } = failure(status, error);
  return { ...outgoing, headers: { ...headers, 'www-authenticate': `Bearer${challenge}` } };
}

function spelt(tokens: Token[]): string {
  return JSON.stringify(tokens.map(({ digest, scopes }) => [digest.toString('hex'), [...scopes].sort()]).sort());
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
