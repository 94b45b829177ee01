/** Edges in this process that note when a row arrives at each of them, and acknowledge what they are sent. */
import http from 'node:http';

export async function watchingEdges(count) {
  const edges = [];
  for (let number = 0; number < count; number++) {
    const edge = { number, at: new Map(), tick: 1, asked: false };
    edge.server = http.createServer((request, response) => void take(edge, request, response));
    await new Promise((resolve) => edge.server.listen(0, '127.0.0.1', resolve));
    edge.url = `http://127.0.0.1:${edge.server.address().port}`;
    edges.push(edge);
  }
  const close = () => {
    for (const { server } of edges) {
      server.closeAllConnections();
      server.close();
    }
  };
  return { edges, urls: edges.map(({ url }) => url), close };
}

async function take(edge, request, response) {
  const chunks = [];
  try {
    for await (const chunk of request) chunks.push(chunk);
  } catch {
    return; // Whoever sent it was killed.
  }
  const id = `e${edge.number}`;
  const inc = edge.number.toString(16).padStart(16, '0');
  response.setHeader('x-node-id', id);
  response.setHeader('x-any-order', '1');
  response.setHeader('x-rowcast', `id=${id}; inc=${inc}; boot=1-01234567; t0=0; t=${++edge.tick}`);
  if (request.method !== 'POST') {
    edge.asked = true;
    return void response.end(JSON.stringify({ node_id: id }));
  }
  // It does not compare.
  if (!request.url.endsWith('/sync')) return void response.writeHead(404).end();
  const { batch_id, changes } = JSON.parse(Buffer.concat(chunks).toString());
  const now = performance.now();
  for (const { row } of changes) if (!edge.at.has(row.id)) edge.at.set(row.id, now);
  response.end(JSON.stringify({ applied: changes.length, ack: batch_id }));
}

/** One row, which nobody has seen before. */
export function oneRow(id) {
  const row = { id, name: `row ${id}`, updated_at: 1_700_000_000_000 };
  return JSON.stringify({ batch_id: 1, changes: [{ op: 'INSERT', table: 'items', row, old_id: null }] });
}
