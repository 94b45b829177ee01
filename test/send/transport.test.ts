/** A request of ours, on a real socket: how it is ended, and what stays when it is over. */
import type http from 'node:http';
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { NoAnswer, postBatch, type RequestOptions } from '../../src/send/request.ts';
import { type Transport, transportFor } from '../../src/send/transport.ts';
import { cleanUp, serve } from '../support/nodes.ts';

function transport(): Transport {
  const made = transportFor({});
  cleanUp(() => made.close());
  return made;
}

/** Resolves when the server has the request, and when it has lost it. */
async function silentServer(answer: (response: http.ServerResponse) => void = () => {}) {
  let came = (): void => {};
  let went = (): void => {};
  const arrived = new Promise<void>((resolve) => {
    came = resolve;
  });
  const lost = new Promise<void>((resolve) => {
    went = resolve;
  });
  const url = await serve((_, response) => {
    response.on('close', went);
    answer(response);
    came();
  });
  return { url, arrived, lost };
}

const sent = (signal: AbortSignal) => ({
  method: 'POST' as const,
  headers: {},
  body: new Uint8Array([123, 125]),
  redirect: 'manual' as const,
  signal,
});

describe('a request that is taken back', () => {
  test('is lost at the other side as well', async () => {
    const { url, arrived, lost } = await silentServer();
    const request = new AbortController();
    const answer = transport().fetch(url, sent(request.signal));
    const failed = expect(answer).rejects.toThrow();
    await arrived;
    request.abort();
    await failed;
    await lost;
  });

  test('in the middle of its answer has none', async () => {
    const { url } = await silentServer((response) => {
      response.writeHead(200, { 'content-length': 10 });
      response.write('begun');
    });
    const request = new AbortController();
    const answer = await transport().fetch(url, sent(request.signal));
    const failed = expect(answer.bytes(100)).rejects.toThrow();
    request.abort();
    await failed;
  });

  test('before it begins does not arrive', async () => {
    let requests = 0;
    const url = await serve((_, response) => {
      requests += 1;
      response.end();
    });
    const request = new AbortController();
    request.abort();
    const one = transport();
    await expect(one.fetch(url, sent(request.signal))).rejects.toThrow();
    await (await one.fetch(url, sent(new AbortController().signal))).bytes(100);
    expect(requests).toBe(1);
  });
});

test.skipIf(process.versions.bun !== undefined)(
  'what is said to a request that is over leaves the connection to the next',
  async () => {
    const sockets = new Set<unknown>();
    const url = await serve((request, response) => {
      sockets.add(request.socket);
      request.resume().on('end', () => response.end('{}'));
    });
    const one = transport();
    for (let i = 0; i < 3; i++) {
      const request = new AbortController();
      await (await one.fetch(url, sent(request.signal))).bytes(100);
      // The connection is free in the next turn.
      await new Promise((resolve) => setImmediate(resolve));
      request.abort();
    }
    expect(sockets.size).toBe(1);
  },
);

test('a peer that does not answer is told of once, and then given up', async () => {
  const { url } = await silentServer();
  let told = 0;
  const options: RequestOptions = {
    clock: systemClock,
    timeoutMs: 40,
    stopped: new AbortController().signal,
    silence: { afterMs: 20, tell: () => (told += 1) },
  };
  const batch = { nodeId: 'a', introduction: 'id=a', body: new Uint8Array([123, 125]), count: 1, headers: {} };
  const failure = await postBatch(transport().fetch, url, batch, options).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(NoAnswer);
  expect(failure).toMatchObject({ message: 'no answer within 40 ms', withdrawn: false });
  expect(told).toBe(1);
});
