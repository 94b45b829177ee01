/**
 * Keys for the programs: from a file, or from the environment. There is no flag with a secret in it, because everybody on
 * the machine can see the flags of a process; and nothing that is said of a wrong file quotes from it.
 */
import { randomBytes } from 'node:crypto';
import { AUTH_MODES, type AuthOptions, checkAuth, type KeyOptions } from '../auth/keys.ts';
import { ID_RULE } from '../config.ts';
import { messageOf } from '../errors.ts';
import { normalisePeer, shownUrl } from '../wire/peer-url.ts';
import { isNodeId } from '../wire/protocol.ts';
import { choice, type Environment, file, text, UsageError } from './flags.ts';
import { readSecrets, type Secrets } from './secrets.ts';

export const KEYS_VARIABLE = 'ROWCAST_KEYS';

export const keyFlags = {
  keysFile: file(
    'A JSON file with keys, such as rowcast keygen prints: {"keys": [{"id": "k1", "secret": "<base64>"}]}.\n' +
      'What is sent is then signed by the first of them, and only what is signed by one of them is believed.\n' +
      'Or ROWCAST_KEYS=k1:<base64>,k2:<base64>.',
  ),
  keysMode: choice(AUTH_MODES, 'accept: for the roll-out of keys. What is not signed is still taken.'),
  peerId: {
    ...text('url=id', 'With keys: the id of the node that must answer at a URL. Otherwise the first that answers.'),
    parse: parsePeerId,
    repeatable: true as const,
  },
};

export interface KeyValues {
  keysFile?: string | undefined;
  keysMode?: (typeof AUTH_MODES)[number];
  peerId?: [string, string][];
}

/** The option of attach and createHub; undefined without keys. Throws a UsageError that quotes no secret. */
export function readAuth({ keysFile, keysMode, peerId = [] }: KeyValues, env: Environment): AuthOptions | undefined {
  const secrets = readSecrets({ flag: '-keys-file', path: keysFile, variable: KEYS_VARIABLE, env });
  if (!secrets) {
    if (peerId.length > 0) throw new UsageError('-peer-id needs keys: without them nobody can show who it is');
    return undefined;
  }
  const given = secrets.kind === 'file' ? keysOf(secrets) : keysIn(secrets.text);
  const twice = peerId.find(([url], i) => peerId.findIndex(([other]) => other === url) !== i);
  if (twice) throw new UsageError(`-peer-id names ${shownUrl(twice[0])} twice: one node answers there`);
  const auth = { ...given, peerIds: Object.fromEntries(peerId), ...(keysMode && { mode: keysMode }) };
  try {
    checkAuth(auth, normalisePeer);
  } catch (error) {
    throw new UsageError(`${secrets.where}: ${messageOf(error)}`);
  }
  return auth;
}

export const KEYGEN_HELP = `rowcast keygen [id]: print a new key as the content of a file for -keys-file

  (umask 077; rowcast keygen k1 > keys.json)

Every node that is to use the key gets a copy of the file. A file may have several keys: {"keys": [{...}, {...}]}; the
first one signs, all of them verify. "nodes": ["a", "b"] beside "id" says which nodes may use a key. "sign" beside
"keys" names a key for a peer, {"http://10.0.0.2:9001": "k2"}, or null for a peer that cannot sign
its answers; what it sends is let in with -keys-mode accept alone.
`;

/** `rowcast keygen`. */
export async function keygen(args: string[]): Promise<number> {
  const [id = `k-${randomBytes(4).toString('hex')}`, ...rest] = args;
  if (/^--?(h|help)$/.test(id)) {
    process.stdout.write(KEYGEN_HELP);
    return 0;
  }
  if (rest.length > 0) throw new UsageError('one id at the most: rowcast keygen [id]');
  const keys: KeyOptions[] = [{ id, secret: randomBytes(32).toString('base64') }];
  try {
    checkAuth({ keys });
  } catch (error) {
    throw new UsageError(messageOf(error));
  }
  process.stdout.write(`${JSON.stringify({ keys })}\n`);
  return 0;
}

function keysOf({ text: content, where }: Secrets): Pick<AuthOptions, 'keys' | 'sign'> {
  const refuse = (problem: string): UsageError => new UsageError(`${where}: ${problem}`);
  let parsed: unknown;
  try {
    parsed = JSON.parse(content);
  } catch {
    throw refuse('not JSON; write {"keys": [{"id": "k1", "secret": "<base64>"}]}, as rowcast keygen does');
  }
  const known = ['keys', 'sign'];
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) throw refuse('not an object');
  const stranger = Object.keys(parsed).find((key) => !known.includes(key));
  if (stranger !== undefined) throw refuse(`it has ${known.join(' and ')}, and no ${JSON.stringify(stranger)}`);
  return parsed as Pick<AuthOptions, 'keys' | 'sign'>;
}

/** `id:base64,id:base64`. */
function keysIn(variable: string): Pick<AuthOptions, 'keys'> {
  const keys = variable.split(',').map((part, index): KeyOptions => {
    const [, id, secret] = /^([^:]*):(.*)$/.exec(part.trim()) ?? [];
    if (id === undefined || secret === undefined)
      throw new UsageError(`${KEYS_VARIABLE}: key ${index + 1} is not id:base64`);
    return { id, secret };
  });
  return { keys };
}

function parsePeerId(value: string): [string, string] {
  const at = value.indexOf('=');
  if (at < 0) throw new UsageError(`must be url=id, not ${JSON.stringify(shownUrl(value))}`);
  const id = value.slice(at + 1);
  if (!isNodeId(id)) throw new UsageError(`the id ${ID_RULE}`);
  try {
    return [normalisePeer(value.slice(0, at)), id];
  } catch (error) {
    throw new UsageError(messageOf(error).replace(/^peer /, ''));
  }
}
