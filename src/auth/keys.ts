/** Keys: shared secrets with names. Which of them signs, which verify, and who may use which. */
import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { RowcastError, suggest } from '../errors.ts';
import { isNodeId } from '../wire/protocol.ts';
import { bothOf, eitherOf, type Rights, writeRights } from '../wire/rights.ts';
import { Nonces } from './nonces.ts';

/** A shared secret with a name. */
export interface KeyOptions {
  /** 1 to 64 of A-Z, a-z, 0-9, dot, underscore and hyphen. It travels with every signature. */
  id: string;
  /** 32 bytes or more, as base64. */
  secret: string;
  /** The node ids that may use it. Default `["*"]`: any, and then whoever has the key can speak as anybody. */
  nodes?: string[];
  /** The tables that who signs with it may write. Default `["*"]`: all of them; `[]` is for a reader. */
  write?: string[];
  /** It may delete rows without saying which version of them. Default false. */
  rowless?: boolean;
}

/** What a node, a hub or a server wired by hand knows of keys. */
export interface AuthOptions {
  /** The first one signs; all of them verify. */
  keys: KeyOptions[];
  /** By the URL of a peer: the id of the key for it in place of the first, or null for a peer that cannot sign. */
  sign?: Record<string, string | null>;
  /** By the URL of a peer: the id of the node that must answer there. Without one, the first that answers is kept to. */
  peerIds?: Record<string, string>;
  /** `require`, the default: only what is signed counts. `accept`, for the roll-out: what is not signed is still taken. */
  mode?: AuthMode;
}

export const AUTH_MODES = ['require', 'accept'] as const;
export type AuthMode = (typeof AUTH_MODES)[number];

/** A key as it is worked with. A KeyObject shows its secret to nobody who prints or serialises it. */
export interface Key {
  readonly id: string;
  readonly secret: KeyObject;
  /** Undefined: any. */
  readonly nodes: ReadonlySet<string> | undefined;
  readonly rights: Rights;
}

export interface CheckedAuth {
  keys: Key[];
  sign: Map<string, string | null>;
  peerIds: Map<string, string>;
  mode: AuthMode;
}

const SECRET_BYTES_MIN = 32;
const ANY_NODE = '*';
const KEY_FIELDS = ['id', 'secret', 'nodes', 'write', 'rowless'];
const NO_RIGHTS: Rights = { write: new Set(), rowless: false };
const AUTH_FIELDS = ['keys', 'sign', 'peerIds', 'mode'];

/** The keys in use. They may be replaced while requests are under way: each goes on with the key that it has. */
export class Keyring {
  /** What an unknown key is checked against, so that it takes the same time as a known one. */
  readonly decoy: Key = {
    id: '',
    secret: createSecretKey(randomBytes(SECRET_BYTES_MIN)),
    nodes: new Set(),
    rights: NO_RIGHTS,
  };
  /** By the id of a key: whoever fills its own can have nothing forgotten of another's. */
  readonly #nonces = new Map<string, Nonces>();
  #auth: CheckedAuth;

  constructor(auth: CheckedAuth) {
    this.#auth = auth;
  }

  replace(auth: CheckedAuth): void {
    this.#auth = auth;
  }

  get mode(): AuthMode {
    return this.#auth.mode;
  }

  /** What was seen of a key's requests. */
  noncesOf({ id }: Key): Nonces {
    const known = this.#nonces.get(id) ?? new Nonces();
    this.#nonces.set(id, known);
    return known;
  }

  find(id: string): Key | undefined {
    return this.#auth.keys.find((key) => key.id === id);
  }

  /** The key for requests to a peer; undefined for a peer that is exempt. */
  keyFor(peer: string | undefined): Key | undefined {
    const named = peer === undefined ? undefined : this.#auth.sign.get(peer);
    if (named === null) return undefined;
    return named === undefined ? this.#auth.keys[0] : this.find(named);
  }

  /**
   * What the node at a URL may write that is asked for rows instead of sending them: what one of the keys that name it allows.
   * That it is this node is certain where the key names it with which it answers, or where the id is configured. With a key
   * for everybody it may do what that one may; with one that names nobody but us, what the least of all keys may. While
   * unsigned requests are taken there is nothing to hold it to.
   */
  rightsOf(nodeId: string, peer?: string): Rights | undefined {
    const { keys, mode } = this.#auth;
    if (mode === 'accept') return undefined;
    const key = this.keyFor(peer);
    if (!key) return NO_RIGHTS;
    const named = keys.filter(({ nodes }) => nodes?.has(nodeId)).map(({ rights }) => rights);
    const its = named.reduce(eitherOf, NO_RIGHTS);
    const isCertain = key.nodes?.has(nodeId) || (peer !== undefined && this.idAt(peer) === nodeId);
    if (isCertain && named.length > 0) return its;
    if (!key.nodes) return key.rights;
    const others = keys.filter((other) => other !== key);
    return others.map(({ rights }) => rights).reduce(bothOf, its);
  }

  /** May a node answer with this key? One that names nobody but the node that asks says nothing of those who answer. */
  isFor({ nodes }: Key, nodeId: string, asking: string): boolean {
    return !nodes || nodes.has(nodeId) || [...nodes].every((one) => one === asking);
  }

  /** The id that must answer at a URL; undefined where that is not configured. */
  idAt(peer: string): string | undefined {
    return this.#auth.peerIds.get(peer);
  }
}

/** The keys for a server wired by hand; it remembers which requests it has seen. */
export function createKeyring(options: AuthOptions): Keyring {
  return new Keyring(checkAuth(options));
}

/** Throws INVALID_OPTION, without any part of a secret in what it says. `normalise` spells the URL of a peer. */
export function checkAuth(given: unknown, normalise: (url: string) => string = (url) => url): CheckedAuth {
  const auth = fieldsOf(given, 'auth', AUTH_FIELDS);
  const { keys, mode = 'require' } = auth;
  if (!Array.isArray(keys) || keys.length === 0) throw wrong('"auth.keys" must be an array with at least one key');
  const checked = keys.map(checkKey);
  const ids = checked.map(({ id }) => id);
  const twice = ids.find((id, i) => ids.indexOf(id) !== i);
  if (twice !== undefined) throw wrong(`there are two keys with the id ${JSON.stringify(twice)}`);
  const shared = checked.find((key) =>
    checked.some((other) => other.secret.equals(key.secret) && !maySame(key, other)),
  );
  if (shared) {
    const hint =
      'rowcast keygen makes another: whoever has the one has both, and what "nodes" and rights say of them is void';
    throw wrong(
      `the key ${JSON.stringify(shared.id)} has the secret of another one, which may do something else`,
      hint,
    );
  }
  if (!(AUTH_MODES as readonly unknown[]).includes(mode)) {
    throw wrong(`"auth.mode" must be ${AUTH_MODES.map((one) => `"${one}"`).join(' or ')}, not ${JSON.stringify(mode)}`);
  }
  const sign = byUrl(auth.sign, 'sign', normalise);
  for (const [url, id] of sign) {
    if (id !== null && !ids.includes(id as string)) {
      const hint = `the keys are ${ids.join(', ')}`;
      throw wrong(`"auth.sign" names the key ${JSON.stringify(id)} for ${url}, which is not among the keys`, hint);
    }
  }
  const peerIds = byUrl(auth.peerIds, 'peerIds', normalise);
  for (const [url, id] of peerIds) {
    if (typeof id !== 'string' || !isNodeId(id)) throw wrong(`"auth.peerIds" must name a node id for ${url}`);
    const [other] = [...peerIds].find(([at, its]) => its === id && at !== url) ?? [];
    if (other !== undefined) {
      const hint = 'a node is at one URL, and has an id of its own: nothing would be sent to either';
      throw wrong(`"auth.peerIds" names the node ${JSON.stringify(id)} for ${url} and for ${other}`, hint);
    }
    if (sign.get(url) === null) {
      const hint = 'who cannot sign cannot show who it is: take it out of one of the two';
      throw wrong(`"auth.peerIds" names a node for ${url}, which is exempt by "auth.sign"`, hint);
    }
  }
  return {
    keys: checked,
    sign: sign as Map<string, string | null>,
    peerIds: peerIds as Map<string, string>,
    mode: mode as AuthMode,
  };
}

/** A key that is given another name has both for a while. */
function maySame(one: Key, other: Key): boolean {
  return isDeepStrictEqual([one.nodes, one.rights], [other.nodes, other.rights]);
}

function checkKey(given: unknown, index: number): Key {
  const {
    id,
    secret,
    nodes = [ANY_NODE],
    write = ['*'],
    rowless = false,
  } = fieldsOf(given, `auth.keys[${index}]`, KEY_FIELDS);
  if (typeof id !== 'string' || !/^[A-Za-z0-9._-]{1,64}$/.test(id)) {
    throw wrong(`"auth.keys[${index}].id" must be 1 to 64 of A-Z, a-z, 0-9, ".", "_" and "-"`);
  }
  const bytes = typeof secret === 'string' ? secretBytes(secret) : undefined;
  if (!bytes) {
    const hint = 'rowcast keygen makes one';
    throw wrong(`the secret of key "${id}" must be ${SECRET_BYTES_MIN} bytes or more, as base64`, hint);
  }
  const isList =
    Array.isArray(nodes) && nodes.length > 0 && nodes.every((one) => typeof one === 'string' && isNodeId(one));
  if (!isList) throw wrong(`"nodes" of key "${id}" must be an array of node ids, or ["${ANY_NODE}"]`);
  if (!Array.isArray(write) || !write.every((one) => typeof one === 'string' && one !== '')) {
    throw wrong(`"write" of key "${id}" must be an array of names of tables, or ["*"]`);
  }
  if (typeof rowless !== 'boolean') throw wrong(`"rowless" of key "${id}" must be true or false`);
  return {
    id,
    rights: { write: writeRights(write), rowless },
    secret: createSecretKey(bytes),
    nodes: nodes.includes(ANY_NODE) ? undefined : new Set<string>(nodes),
  };
}

/** With or without its padding; anything else is a typing error. */
function secretBytes(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64');
  const isBase64 = bytes.toString('base64').replace(/=+$/, '') === text.replace(/=+$/, '');
  return isBase64 && bytes.length >= SECRET_BYTES_MIN ? bytes : undefined;
}

function byUrl(given: unknown, name: string, normalise: (url: string) => string): Map<string, unknown> {
  if (given === undefined) return new Map();
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw wrong(`"auth.${name}" must be an object whose keys are URLs of peers`);
  }
  const found = new Map<string, unknown>();
  for (const [spelt, value] of Object.entries(given)) {
    const url = normalise(spelt);
    if (found.has(url)) throw wrong(`"auth.${name}" names ${url} twice`, 'however it is spelt, it is one peer');
    found.set(url, value);
  }
  return found;
}

function fieldsOf(given: unknown, name: string, known: string[]): Record<string, unknown> {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) throw wrong(`"${name}" must be an object`);
  const stranger = Object.keys(given).find((key) => !known.includes(key));
  if (stranger !== undefined) {
    throw wrong(`"${name}" has no "${stranger}"${suggest(stranger, known)}`, `it has ${known.join(', ')}`);
  }
  return given as Record<string, unknown>;
}

function wrong(message: string, hint?: string): RowcastError {
  return new RowcastError('INVALID_OPTION', message, hint === undefined ? {} : { hint });
}
