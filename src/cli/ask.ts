/** Asking a running node or hub, by the socket beside its database file or by the URL of its -admin-listen. */
import http from 'node:http';
import https from 'node:https';
import { ADMIN_HEADER, ADMIN_PREFIX } from '../admin/answer.ts';
import { messageOf } from '../errors.ts';
import { readToken, socketOf } from './admin.ts';
import { file, UsageError } from './flags.ts';

/** Nobody answers: exit code 3. */
export class Unreachable extends Error {}
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
}

export interface Ask {
  get<T>(path: string): Promise<T>;
  post<T>(path: string, body?: Record<string, unknown>): Promise<T>;
}

export function asker(target: Target): Ask {
  const { db, url, adminTokenFile } = target;
  if ((db === undefined) === (url === undefined)) throw new UsageError('name the node: -db <file>, or -url <url>');
  const token = adminTokenFile === undefined ? undefined : readToken(adminTokenFile);
  const base = url === undefined ? undefined : parsed(url);
  const socketPath = db === undefined ? undefined : socketOf(db);
  if (db !== undefined && socketPath === undefined) throw new UsageError(`${db} is no file: there is nobody to ask`);
  const send = <T>(method: string, path: string, body?: Record<string, unknown>): Promise<T> =>
    request<T>({ base, socketPath, token }, method, path, body).catch((error) => {
      if (!(error instanceof Unreachable)) throw error;
      throw new Unreachable(
        db === undefined ? `${url} does not answer: ${error.message}` : nobodyOn(db, error.message),
      );
    });
  return { get: (path) => send('GET', path), post: (path, body = {}) => send('POST', path, body) };
}

function nobodyOn(db: string, reason: string): string {
  return `nobody who runs on ${db} answers (${reason}): is it running, and not with -admin off? --offline looks at the file`;
}

function parsed(url: string): URL {
  try {
    return new URL(url);
  } catch {
    throw new UsageError(`-url must be such as http://127.0.0.1:9101, not ${JSON.stringify(url)}`);
  }
}

interface Way {
  base: URL | undefined;
  socketPath: string | undefined;
  token: string | undefined;
}

function request<T>(
  { base, socketPath, token }: Way,
  method: string,
  path: string,
  body: Record<string, unknown> | undefined,
): Promise<T> {
  const options: http.RequestOptions = {
    method,
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
    sent.on('error', (error) => reject(new Unreachable(messageOf(error))));
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}
