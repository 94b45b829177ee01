/** What one connection may ask for before it has its answers. */
import http from 'node:http';
import http2 from 'node:http2';
import { type AddressInfo, connect } from 'node:net';
import { expect, test } from 'vitest';
import { type Answer, toListener } from '../../src/http/bridge.ts';
import { cleanUp } from '../support/nodes.ts';

const ASK = 'GET / HTTP/1.1\r\nhost: x\r\n\r\n';

/** What comes back to a client that sends this in one write, until the server ends the connection or has said `wanted`. */
async function exchange(answer: Answer, sent: string[], wanted: number): Promise<{ answers: number; ended: boolean }> {
  const server = http.createServer(toListener(answer));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanUp(() => void server.close());
  cleanUp(() => server.closeAllConnections());
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  let [said, asked] = ['', 1];
  const answers = (): number => said.split('HTTP/1.1 200').length - 1;
  socket.write(sent[0] as string);
  return await new Promise((resolve) => {
    socket.on('data', (chunk) => {
      said += chunk;
      if (answers() === wanted) resolve({ answers: wanted, ended: false });
      else if (answers() === asked && asked < sent.length) socket.write(sent[asked++] as string);
    });
    socket.on('error', () => {});
    socket.on('close', () => resolve({ answers: answers(), ended: true }));
  });
}

const ok = { status: 200, headers: { 'content-type': 'text/plain' }, body: 'ok' };

test('a few requests in one write are answered, and any number of them one after the other', async () => {
  expect(await exchange(async () => ok, [ASK.repeat(8)], 8)).toEqual({ answers: 8, ended: false });
  const many = Array.from({ length: 30 }, () => ASK);
  expect(await exchange(async () => ok, many, 30)).toEqual({ answers: 30, ended: false });
});

// Bun hands on the next request when it has the answer to the one before.
test.skipIf(process.versions.bun !== undefined)(
  'more than that ends the connection, and costs no more work than those',
  async () => {
    let worked = 0;
    const answer: Answer = async () => {
      worked++;
      return ok;
    };
    expect((await exchange(answer, [ASK.repeat(500)], 500)).ended).toBe(true);
    expect(worked).toBeLessThanOrEqual(8);
  },
);

test('HTTP/2, where all requests share a connection, is left alone', async () => {
  const server = http2.createServer(toListener(async () => ok) as never);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  cleanUp(() => void server.close());
  cleanUp(() => client.destroy());
  const asked = Array.from({ length: 30 }, () => client.request({ ':path': '/' }));
  const statuses = await Promise.all(
    asked.map((one) => new Promise((resolve) => one.on('response', (headers) => resolve(headers[':status'])))),
  );
  expect(statuses).toEqual(asked.map(() => 200));
});
