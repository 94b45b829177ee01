/** Asking a running node or hub, by the socket beside its database file or by the URL of its -admin-listen. */
import { statSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { ADMIN_HEADER, ADMIN_PREFIX } from '../admin/answer.ts';
import { type Clock, systemClock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { shownUrl } from '../wire/peer-url.ts';
import { socketOf } from './admin.ts';
import { readToken } from './admin-token.ts';
import { file, UsageError } from './flags.ts';

/** Nobody answers: exit code 3. */
export class Unreachable extends Error {}
/** Whoever runs there may not be asked by this user. */
class NotAllowed extends Unreachable {}
/** It answers, and refuses: what it says is for the person who asked. */
export class Refused extends Error {}

export const askFlags = {
  db: file('The database file of a node or hub that runs on this machine.'),
  url: file('Or the URL of its -admin-listen.'),
  adminTokenFile: file('A file with the token that it wants to be shown there.'),
};

export interface Target {
  db: string | undefined;
  url: string | undefined;
  adminTokenFile: string | undefined;
  /** Given by commands that can do without the program. */
  offline?: boolean;
}

export interface Ask {
  get<T>(path: string): Promise<T>;
  post<T>(path: string, body?: Record<string, unknown>): Promise<T>;
}

export function asker(target: Target, clock: Clock = systemClock): Ask {
  const { db, url, adminTokenFile, offline } = target;
  if ((db === undefined) === (url === undefined)) {
    const both = db === undefined ? '' : ', and not both';
    throw new UsageError(`name the node: -db <file>, or -url <url>${both}`);
  }
  const token = adminTokenFile === undefined ? undefined : readToken(adminTokenFile);
  const base = url === undefined ? undefined : parsed(url);
  const socketPath = db === undefined ? undefined : socketOf(db);
  if (db !== undefined && socketPath === undefined) throw new UsageError(`${db} is no file: there is nobody to ask`);
  if (db !== undefined && socketPath !== undefined) refuseForeign(db, socketPath);
  const send = <T>(method: string, path: string, body?: Record<string, unknown>): Promise<T> =>
    answered<T>({ base, socketPath, token }, { method, path, body }, clock).catch((error) => {
      if (!(error instanceof Unreachable)) throw error;
      if (error instanceof NotAllowed && socketPath !== undefined) throw new NotAllowed(notAllowed(socketPath));
      throw new Unreachable(
        db === undefined
          ? `${shownUrl(url as string)} does not answer: ${error.message}`
          : nobodyOn(db, error.message, offline !== undefined),
      );
    });
  return { get: (path) => send('GET', path), post: (path, body = {}) => send('POST', path, body) };
}

/**
 * Where the path beside the file would be too long, the socket is in a folder in which everybody may put one, under a name
 * that everybody can work out. It is that of the program if it belongs to whom the file belongs to.
 */
function refuseForeign(db: string, socketPath: string): void {
  const [own, there] = [ownerOf(db), ownerOf(socketPath)];
  if (own === undefined || there === undefined || own === there) return;
  throw new Unreachable(`the socket ${socketPath} belongs to another user than ${db}: nobody is asked there`);
}

/** Undefined where there is none. */
function ownerOf(path: string): number | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false })?.uid;
  } catch (error) {
    if (!isForbidden(error)) throw error;
    throw new NotAllowed(notAllowed(path));
  }
}

function isForbidden(error: unknown): boolean {
  const { code } = error as { code?: string };
  return code === 'EACCES' || code === 'EPERM';
}

function notAllowed(path: string): string {
  let owner = 'whom it belongs to';
  try {
    owner = `with the number ${statSync(path).uid}, to whom it belongs`;
  } catch {
    // Not even that may be known.
  }
  return `no permission to use ${path} as user ${process.getuid?.()}: run this as root, or as the user ${owner}`;
}

function nobodyOn(db: string, reason: string, canLook: boolean): string {
  const said = `nobody who runs on ${db} answers (${reason}): is it running, and not with -admin off?`;
  return canLook ? `${said} --offline looks at the file` : said;
}

function parsed(url: string): URL {
  const found = URL.canParse(url) ? new URL(url) : undefined;
  if (found?.protocol === 'http:' || found?.protocol === 'https:') return found;
  throw new UsageError(`-url must be such as http://127.0.0.1:9101, not ${JSON.stringify(shownUrl(url))}`);
}

interface Way {
  base: URL | undefined;
  socketPath: string | undefined;
  token: string | undefined;
}

interface Question {
  method: string;
  path: string;
  body?: Record<string, unknown> | undefined;
}

/** A program that stands still still takes connections, and would keep whoever asks for ever. */
const SILENCE_MS = 10_000;

/** What is to be done may take its time, as long as the program goes on answering questions. */
async function answered<T>(way: Way, question: Question, clock: Clock): Promise<T> {
  const over = new AbortController();
  const silence = async (): Promise<never> => {
    await clock.sleep(SILENCE_MS, over.signal);
    while (question.method !== 'GET' && !over.signal.aborted) {
      await answered(way, { method: 'GET', path: 'routes' }, clock);
      await clock.sleep(SILENCE_MS, over.signal);
    }
    throw new Unreachable(`no answer within ${SILENCE_MS / 1_000} s`);
  };
  try {
    return await Promise.race([exchange<T>(way, question, over.signal), silence()]);
  } finally {
    over.abort();
  }
}

function exchange<T>(
  { base, socketPath, token }: Way,
  { method, path, body }: Question,
  signal: AbortSignal,
): Promise<T> {
  const options: http.RequestOptions = {
    method,
    signal,
    path: `${base?.pathname.replace(/\/+$/, '') ?? ''}${ADMIN_PREFIX}/${path}`,
    ...(base ? { host: base.hostname.replace(/^\[|\]$/g, ''), port: base.port } : { socketPath }),
    headers: {
      ...(!base && { host: 'localhost' }),
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(method === 'POST' && { [ADMIN_HEADER]: '1', 'content-type': 'application/json' }),
    },
  };
  const { request: begin } = base?.protocol === 'https:' ? https : http;
  return new Promise((resolve, reject) => {
    const sent = begin(options, (answer) => {
      const parts: Buffer[] = [];
      answer.on('data', (part) => parts.push(part));
      answer.on('error', (error) => reject(new Unreachable(messageOf(error))));
      answer.on('end', () => {
        try {
          const said = JSON.parse(Buffer.concat(parts).toString());
          if (answer.statusCode === 200) resolve(said);
          else reject(new Refused(String(said.error)));
        } catch {
          reject(new Unreachable(`HTTP ${answer.statusCode}, and no answer of a node's`));
        }
      });
    });
    sent.on('error', (error) => {
      const Kind = isForbidden(error) ? NotAllowed : Unreachable;
      reject(new Kind(messageOf(error)));
    });
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}
