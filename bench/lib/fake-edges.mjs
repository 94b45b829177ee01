/**
 * Thousands of edges in one process, as cheap as they can be: each has an address of its own on loopback, introduces
 * itself as a node does, and acknowledges whatever it is sent without reading it. What is measured is whoever sends.
 */
import net from 'node:net';
import { obey } from './lines.mjs';

const edges = [];

await obey({ open, state, close });

/** `first` is the number of the first of them; `deaf` of them take connections and never answer. */
async function open({ first, count, deaf }) {
  for (let i = 0; i < count; i++) {
    const number = first + i;
    const edge = { number, acked: 0, asked: 0, requests: 0, tick: 1, server: undefined };
    edge.server = net.createServer((socket) => serve(edge, socket, i >= count - deaf));
    edges.push(edge);
    const host = `127.1.${number >> 8}.${number & 255}`;
    await new Promise((resolve, reject) => {
      edge.server.once('error', reject).listen(0, host, resolve);
    });
    edge.url = `http://${host}:${edge.server.address().port}`;
  }
  return edges.map(({ url }) => url);
}

/** How many were asked who they are, how many have acknowledged up to a batch, and the requests to all of them. */
async function state({ batch }) {
  return {
    asked: edges.filter(({ asked }) => asked > 0).length,
    done: edges.filter(({ acked }) => acked >= batch).length,
    requests: edges.reduce((sum, { requests }) => sum + requests, 0),
  };
}

async function close() {
  for (const { server } of edges) server.close();
}

function serve(edge, socket, isDeaf) {
  socket.on('error', () => socket.destroy());
  if (isDeaf) return void socket.resume();
  let head = '';
  let left = 0;
  socket.on('data', (chunk) => {
    if (left === 0) {
      head += chunk.toString('latin1', 0, 2_000);
      const end = head.indexOf('\r\n\r\n');
      if (end < 0) return;
      const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
      left = length - (chunk.length - end - 4);
    } else {
      left -= chunk.length;
    }
    if (left > 0) return;
    answer(edge, socket, head);
    head = '';
    left = 0;
  });
}

function answer(edge, socket, head) {
  edge.requests += 1;
  // Now and then a hub compares with an edge, which is a POST as well: that acknowledges nothing.
  const isBatch = head.startsWith('POST /sync ');
  if (head.startsWith('POST') && !isBatch) {
    socket.write('HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n');
    return;
  }
  if (isBatch) {
    edge.acked = Number(/"batch_id":(\d+)/.exec(head)?.[1]);
    edge.tick += 1;
  } else {
    edge.asked += 1;
  }
  const id = `e${edge.number}`;
  // As any others, they do not come in the order of their databases.
  const inc = (2 ** 48 - edge.number).toString(16).padStart(16, '0');
  const body = isBatch ? `{"applied":0,"ack":${edge.acked}}` : `{"node_id":"${id}"}`;
  socket.write(
    `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nx-node-id: ${id}\r\n` +
      `x-rowcast: id=${id}; inc=${inc}; boot=1-01234567; t0=0; t=${edge.tick}; low=${Date.now() - 1_000}; reads=tabular\r\n` +
      `x-any-order: 1\r\nx-apply-ms: 4\r\naccept-encoding: gzip\r\nkeep-alive: timeout=5\r\n\r\n${body}`,
  );
}
