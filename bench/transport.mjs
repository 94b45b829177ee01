/**
 * What asking a peer costs the sender: node:http with kept connections beside the global fetch, CPU time of the asking
 * process, by turns, medians of five. `node bench/transport.mjs`
 */
import { fork } from 'node:child_process';
import http from 'node:http';

const REPETITIONS = 5;
const REQUESTS = 1_000;
/** About a hundred and a thousand changes of five columns. */
const BODY_BYTES = [20_000, 200_000];

if (process.argv[2] === 'peer') bePeer();
else await measure();

async function measure() {
  const peer = fork(process.argv[1], ['peer']);
  const port = await new Promise((resolve) => peer.once('message', resolve));
  const agent = new http.Agent({ keepAlive: true });
  const ways = {
    'node:http': (body) => byHttp(port, agent, body),
    fetch: async (body) => (await fetch(`http://127.0.0.1:${port}/sync`, { method: 'POST', body })).text(),
  };
  for (const bytes of BODY_BYTES) {
    const body = Buffer.alloc(bytes, 'a');
    const taken = { 'node:http': [], fetch: [] };
    // The first round is for the compiler.
    for (let round = 0; round <= REPETITIONS; round++) {
      for (const [name, ask] of Object.entries(ways)) {
        const microseconds = await cpuOf(() => ask(body));
        if (round > 0) taken[name].push(microseconds);
      }
    }
    const [one, other] = Object.values(taken).map(median);
    console.log(
      `${bytes} bytes: node:http ${one.toFixed(0)} µs, fetch ${other.toFixed(0)} µs, ratio ${(other / one).toFixed(1)}`,
    );
  }
  agent.destroy();
  peer.kill();
}

async function cpuOf(ask) {
  const before = process.cpuUsage();
  for (let i = 0; i < REQUESTS; i++) await ask();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / REQUESTS;
}

function byHttp(port, agent, body) {
  return new Promise((resolve, reject) => {
    const headers = { 'content-length': body.length };
    const request = http.request({ host: '127.0.0.1', port, method: 'POST', path: '/sync', agent, headers });
    request.on('error', reject).on('response', async (response) => {
      let text = '';
      for await (const chunk of response.setEncoding('utf8')) text += chunk;
      resolve(text);
    });
    request.end(body);
  });
}

function bePeer() {
  const server = http.createServer(async (request, response) => {
    for await (const _ of request);
    response.end('{"applied":1000,"ack":1}');
  });
  server.listen(0, '127.0.0.1', () => process.send?.(server.address().port));
}

function median(values) {
  return values.sort((one, other) => one - other)[values.length >> 1];
}
