/** Asks a node over HTTP, as any client of it would. */
import http from 'node:http';

export interface Answer {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: whatever JSON the node answers with
  json: any;
}

/** It ends what hangs; a machine that has much else to do takes seconds. */
const TIMEOUT_MS = 60_000;

/** Rejects when there is no complete answer: then nobody knows whether a write was done. */
export function ask(method: string, port: number, path: string, body?: unknown, timeout = TIMEOUT_MS): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const payload = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    const headers = payload ? { 'content-type': 'application/json', 'content-length': payload.byteLength } : {};
    const options = { host: '127.0.0.1', port, path, method, headers, agent: false, timeout } as const;
    const request = http.request(options, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('aborted', () => reject(new Error('the answer broke off')));
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        resolve({ status: response.statusCode ?? 0, json: parsed(text) });
      });
    });
    request.on('timeout', () => request.destroy(new Error('no answer')));
    request.on('error', reject);
    request.end(payload);
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
