/**
 * One measured process. It is told what to do by lines of JSON on its standard input and answers with lines of JSON, so
 * that the same program runs on Node and on Bun: `node worker.mjs <binding> <URL of dist/>`.
 *
 * What is measured here is measured by this process itself: its own CPU time, all threads included, and its own clock.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import http from 'node:http';
import { sharedClock } from './clock.mjs';
import { Heartbeat } from './heartbeat.mjs';
import { obey } from './lines.mjs';
import { bindingVersion, openFile } from './open.mjs';
import { columnNames, createTable, makeRow, rowId } from './rows.mjs';

const [binding, dist] = process.argv.slice(2);

/** Everything this process has open. */
let file;
let manager;
let server;
let arrivals;
let heartbeat;
/** What the manager has reported as failed; a figure with one of these is not a figure. */
const troubles = [];
/** The batches that were acknowledged, by whichever peer, and how many changes that makes. */
let acks = [];
let acked = 0;
let onAck = () => {};

const ID_SQL = {
  v4: "printf('%08x-%08x', i * 2654435761 % 4294967296, i)",
  v7: "printf('%08x-%08x', i, i * 2654435761 % 4294967296)",
};

const commands = {
  async open({ path, columns, check }) {
    file = { ...(await openFile(path, binding, dist)), columns };
    file.db.exec(createTable(columns, check));
    return { sqlite: file.sqlite, binding: bindingVersion(binding), runtime: runtimeName() };
  },

  async attach({ id, peers = [], options = {}, asleep = false, expectLetters = false }) {
    const { attach } = await import(new URL('index.js', dist));
    // A loop that is to do nothing is given an hour until its first tick.
    const seams = asleep ? { random: () => 1, batchMs: 3_600_000 } : {};
    const began = performance.now();
    manager = attach(file.handle, { id, peers, ...options, ...seams }, ['items']);
    const attachMs = performance.now() - began;
    manager.on('error', (error) => troubles.push(`${error.code}: ${error.message}`));
    for (const event of expectLetters ? ['peer-down'] : ['dead-letter', 'peer-down']) {
      manager.on(event, (detail) => troubles.push(`${event}: ${JSON.stringify(detail)}`));
    }
    try {
      // What earlier builds said of a received change that could not be applied; this one knows no such event.
      manager.on('parked', (detail) => troubles.push(`parked: ${JSON.stringify(detail)}`));
    } catch {}
    acks = [];
    acked = 0;
    manager.on('acked', ({ changes }) => {
      acks.push([changes, performance.now()]);
      acked += changes;
      heartbeat?.mark();
      onAck();
    });
    return { attachMs };
  },

  async listen({ port = 0, timed = false, silent = false, plain = false }) {
    const { createHandler, createListener } = await import(new URL('http/index.js', dist));
    // Without `answer` there is nothing beside /sync: it cannot be compared with.
    const replica = plain ? receiving(manager) : timed ? marking(manager) : manager;
    if (process.versions.bun !== undefined) {
      const handler = silent ? silently(createHandler(replica)) : createHandler(replica);
      server = globalThis.Bun.serve({ port, hostname: '127.0.0.1', fetch: handler });
      return { port: server.port };
    }
    server = http.createServer();
    if (silent) server.on('request', (_, response) => hideAnnouncement(response));
    server.on('request', createListener(replica));
    await new Promise((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', resolve));
    return { port: server.address().port };
  },

  /**
   * In place of any number of peers: takes whatever comes and acknowledges it at once, so that only the sender works. Each
   * introduces itself, as a node does, by the number in its address.
   */
  async acknowledge() {
    let tick = 0;
    const answer = ({ url }, response, body) => {
      const batchId = /^\{"batch_id":(\d+)/.exec(body)?.[1];
      const number = Number(/^\/(\d+)\//.exec(url)?.[1]);
      const inc = number.toString(16).padStart(16, '0');
      const low = Date.now() - 1_000;
      tick += 1;
      response.writeHead(batchId === undefined ? 404 : 200, {
        'content-type': 'application/json',
        'x-node-id': `peer-${number}`,
        'x-rowcast': `id=peer-${number}; inc=${inc}; boot=1-01234567; t0=0; t=${tick}; low=${low}; reads=tabular`,
        'x-any-order': '1',
        'x-apply-ms': '4',
      });
      response.end(`{"applied":0,"ack":${batchId ?? 0}}`);
    };
    server = http.createServer((request, response) => {
      let begin = '';
      request.on('data', (chunk) => {
        begin ||= chunk.toString('latin1', 0, 40);
      });
      request.on('end', () => answer(request, response, begin));
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    return { port: server.address().port };
  },

  async detachLoops() {
    await manager.stop();
    manager = undefined;
  },

  /** Writes rows and nothing else. Making the rows is not counted. */
  write: (work) => writeRows(work),

  /** Writes rows as fast as it can, a turn of the event loop after every transaction, until all peers have everything. */
  async writeAndShip({ rows, perTransaction, peers, ...shape }) {
    const chunks = [];
    for (let from = 0; from < rows; from += perTransaction) {
      chunks.push(makeRows(from, Math.min(perTransaction, rows - from), shape));
    }
    const insert = statementFor('insert');
    const cpu = process.cpuUsage();
    const began = performance.now();
    for (const chunk of chunks) {
      runAll(insert, chunk);
      await nextTurn();
    }
    const written = performance.now();
    await delivered(rows, peers);
    return { seconds: since(began), writing: (written - began) / 1_000, cpu: cpuSince(cpu) };
  },

  /** Attaches with a backlog in place; then the clock runs until the peers have all of it. */
  async drain({ id, peers, rows, options, beat }) {
    const { attachMs } = await commands.attach({ id, peers, options });
    if (beat) startHeartbeat();
    const cpu = process.cpuUsage();
    const began = performance.now();
    manager.nudge();
    await delivered(rows, peers.length);
    const result = { seconds: since(began), cpu: cpuSince(cpu), attachMs };
    return { ...result, batches: acks.map(([changes, at]) => [changes, at - began]), blocks: heartbeat?.stop() };
  },

  /** Writes one row at a time, 100 a second on average, never in step with the ship loop. */
  async trickle({ rows, nudge }) {
    const insert = statementFor('insert');
    const times = [];
    for (let i = 0; i < rows; i++) {
      await new Promise((resolve) => setTimeout(resolve, 5 + ((i * 7) % 11)));
      const row = makeRow(i, { now: Date.now() });
      const at = sharedClock();
      insert.run(...row);
      if (nudge) manager.nudge();
      times.push([row[0], at]);
    }
    await delivered(rows, 1);
    return times;
  },

  watchArrivals() {
    arrivals = [];
    manager.on('applied', ({ rows }) => {
      const at = sharedClock();
      for (const { id } of rows) arrivals.push([id, at]);
    });
  },

  arrivals: () => arrivals,

  /** Hands ready request bodies to the manager. Making the bodies is not counted. */
  async receive({ kind, rows, batch, expectLetters = false, ...shape }) {
    let applied = 0;
    let rejected = 0;
    let seconds = 0;
    let cpu = 0;
    for (let from = 0; from < rows; from += batch) {
      const body = makeBody(kind, from, Math.min(batch, rows - from), shape);
      const before = process.cpuUsage();
      const began = performance.now();
      const { status, body: answer } = manager.receive(body, { from: 'bench', said: 'id=bench' });
      seconds += since(began);
      cpu += cpuSince(before);
      if (status !== 200 || (answer.rejected && !expectLetters))
        throw new Error(`refused: ${status} ${JSON.stringify(answer)}`);
      applied += answer.applied;
      rejected += answer.rejected?.length ?? 0;
      await nextTurn();
    }
    return { applied, rejected, seconds, cpu };
  },

  /** Calls health() again and again, with time for its own background work in between. */
  async health({ calls, pauseMs }) {
    startHeartbeat();
    const durations = [];
    let last;
    for (let i = 0; i < calls; i++) {
      const began = performance.now();
      last = manager.health();
      durations.push(performance.now() - began);
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
    return { durations, blocks: heartbeat.stop(), last };
  },

  /** The same rows wherever it is asked for, seen by nobody. */
  fill({ rows, ids }) {
    unseen(
      `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ${rows - 1}) INSERT INTO items ` +
        `SELECT ${ID_SQL[ids]}, 'name ' || i, i, 1, 1600000000000 + i FROM n`,
    );
  },

  unseen: ({ sql }) => unseen(sql),

  /** Compares with the peer; what it costs, and what was found. */
  compare: ({ url, repair = false }) =>
    measured(async () => {
      const [{ differences, repaired, requests, bytes, error }] = await manager.verify(url, { repair });
      return { differences, repaired, requests, bytes, error };
    }),

  /** Gives the peer everything once more, by a comparison where it can be compared with. */
  seed: ({ url }) =>
    measured(async () => {
      manager.peers.reseed(url);
      await manager.flush();
    }),

  /** What another's introduction costs: batches of one row, by turns with it and without; and batches of a thousand. */
  identity({ batches, rows }) {
    const times = { with: [], without: [], large: [] };
    const take = (list, at, count, said) => {
      const body = makeBody('insert', at, count, {});
      const before = process.cpuUsage();
      manager.receive(body, { from: 'bench', ...(said && { said }) });
      list.push(cpuSince(before) * 1e6);
    };
    for (let i = 0; i < batches; i++) {
      const said = `id=bench; inc=5f0c1e9a77b2d310; boot=1-21d0b7e4; t0=0; t=${i + 1}`;
      take(times.without, 2 * i, 1);
      take(times.with, 2 * i + 1, 1, said);
    }
    for (let i = 0; i < rows / 1_000; i++) take(times.large, 2 * batches + 1_000 * i, 1_000);
    return times;
  },

  beat: () => startHeartbeat(),
  cpuBlock: () => ({ cpuBlock: heartbeat.cpu, cpuBlock99: heartbeat.percentile(0.99) }),
  blocks: () => heartbeat.stop(),
  cpu: () => cpuSince({ user: 0, system: 0 }),

  /** Resident memory now, and the most it ever was, in MiB. */
  memory() {
    if (!existsSync('/proc/self/status')) {
      return { now: process.memoryUsage().rss / 2 ** 20, peak: process.resourceUsage().maxRSS / 1_024 };
    }
    // Not getrusage: a child inherits the peak of whoever started it.
    const status = readFileSync('/proc/self/status', 'utf8');
    const of = (name) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)[1]) / 1_024;
    return { now: of('VmRSS'), peak: of('VmHWM') };
  },

  /** What the database holds, so that two can be compared: every value of every row, and what is left to do. */
  state() {
    const names = columnNames(file.columns);
    const page = `SELECT max(id) AS last, count(*) AS n, group_concat(${names.map((name) => `quote(${name})`).join(" || ',' || ")}) AS text FROM (SELECT * FROM items WHERE id > ? ORDER BY id LIMIT 20000)`;
    const hash = createHash('sha256');
    const select = file.db.prepare(page);
    let rows = 0;
    for (let last = ''; last !== null; ) {
      const found = select.get(last);
      rows += found.n;
      hash.update(found.text ?? '');
      last = found.last;
    }
    const count = (table) => {
      const there = file.db.prepare("SELECT count(*) AS n FROM sqlite_schema WHERE type = 'table' AND name = ?");
      return there.get(table).n ? file.db.prepare(`SELECT count(*) AS n FROM ${table}`).get().n : 0;
    };
    return {
      rows,
      digest: hash.digest('hex'),
      pending: count('_changes'),
      deadLetters: count('_dead_letter'),
      tombstones: count('_tombstones'),
      troubles,
    };
  },

  async close() {
    if (process.versions.bun !== undefined) await server?.stop(true);
    else server?.closeAllConnections();
    if (process.versions.bun === undefined) server?.close();
    await manager?.stop();
    file?.db.close();
  },
};

await obey(commands);

function writeRows({ op = 'insert', rows, from = 0, perTransaction, ...shape }) {
  const statement = statementFor(op);
  let seconds = 0;
  let cpu = 0;
  // Single-row transactions are made by SQLite itself, without BEGIN; they are counted in portions, not one by one.
  const portion = Math.max(perTransaction, 100);
  for (let at = from; at < from + rows; at += portion) {
    const values = parametersFor(op, makeRows(at, Math.min(portion, from + rows - at), shape));
    const before = process.cpuUsage();
    const began = performance.now();
    if (perTransaction === 1) for (const row of values) statement.run(...row);
    else runAll(statement, values);
    seconds += since(began);
    cpu += cpuSince(before);
  }
  return { seconds, cpu };
}

function runAll(statement, rows) {
  file.db.exec('BEGIN');
  for (const row of rows) statement.run(...row);
  file.db.exec('COMMIT');
}

function statementFor(op) {
  const places = columnNames(file.columns).map(() => '?');
  return file.db.prepare(
    {
      insert: `INSERT INTO items VALUES (${places.join(', ')})`,
      update: 'UPDATE items SET name = ?, updated_at = ? WHERE id = ?',
      'update without updated_at': 'UPDATE items SET name = ? WHERE id = ?',
      delete: 'DELETE FROM items WHERE id = ?',
    }[op],
  );
}

function parametersFor(op, rows) {
  if (op === 'insert') return rows;
  if (op === 'update') return rows.map(([id, name, , , updated]) => [`${name}, again`, updated, id]);
  if (op === 'delete') return rows.map(([id]) => [id]);
  return rows.map(([id, name]) => [`${name}, once more`, id]);
}

function makeRows(from, count, shape) {
  const now = Date.now();
  return Array.from({ length: count }, (_, i) => makeRow(from + i, { columns: file.columns, ...shape, now }));
}

/**
 * A batch as a peer sends it. `stale` is older than what `insert` has brought, `update` and `delete` are newer. `columns` are
 * those that the sender has, and `bad` is a value in one row of each batch.
 */
function makeBody(kind, from, count, { ids, bytes, foreign, columns = file.columns, bad }) {
  const names = columnNames(columns);
  const order = foreign ? names.toReversed() : names;
  const time =
    { stale: 1_749_999_999_000, update: 1_750_000_001_000, delete: 1_750_000_001_000 }[kind] ?? 1_750_000_000_000;
  const changes = Array.from({ length: count }, (_, i) => {
    const values = makeRow(from + i, { columns, ids, bytes, now: time });
    if (bad !== undefined && i === Math.floor(count * 0.6)) values[2] = bad;
    if (kind === 'update') values[1] += ', again';
    const row = Object.fromEntries(order.map((name) => [name, values[names.indexOf(name)]]));
    const op = { delete: 'DELETE', update: 'UPDATE', stale: 'UPDATE' }[kind] ?? 'INSERT';
    return { op, table: 'items', row, old_id: op === 'DELETE' ? rowId(from + i, ids) : null };
  });
  return Buffer.from(JSON.stringify({ batch_id: from + count, changes }));
}

/** Resolves when `peers` peers have acknowledged `rows` changes each and nothing is left in `_changes`. */
async function delivered(rows, peers) {
  const deadline = performance.now() + 240_000 + rows / 20;
  const onTime = (problem) => {
    if (troubles.length > 0) throw new Error(`${problem}: ${troubles[0]}`);
    if (performance.now() > deadline) throw new Error(`${problem}: time is up`);
  };
  while (acked < rows * peers) {
    onTime(`${acked} of ${rows * peers} changes delivered`);
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, 500);
      onAck = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
  const left = file.db.prepare('SELECT 1 AS n FROM _changes LIMIT 1');
  while (left.get()) {
    onTime('acknowledged changes were not pruned');
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

function unseen(sql) {
  file.db.exec("UPDATE _meta SET value = 1 WHERE key = 'syncing'");
  file.db.exec(sql);
  file.db.exec("UPDATE _meta SET value = 0 WHERE key = 'syncing'");
}

async function measured(work) {
  startHeartbeat();
  const cpu = process.cpuUsage();
  const began = performance.now();
  const found = await work();
  const result = { seconds: since(began), cpu: cpuSince(cpu), ...found };
  return { ...result, block: Math.max(...heartbeat.stop()), ...commands.cpuBlock() };
}

function receiving(target) {
  return {
    receive: target.receive.bind(target),
    health: target.health.bind(target),
    maxBodyBytes: target.maxBodyBytes,
  };
}

/** The same manager, except that the end of every received batch is marked; only the figure that asks for it pays. */
function marking(target) {
  const receive = (...args) => {
    const result = target.receive(...args);
    heartbeat?.mark();
    return result;
  };
  return new Proxy(target, {
    get: (_, name) => {
      if (name === 'receive') return receive;
      const value = target[name];
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

function startHeartbeat() {
  heartbeat = new Heartbeat();
  heartbeat.start();
}

function nextTurn() {
  return new Promise((resolve) => setImmediate(resolve));
}

function since(began) {
  return (performance.now() - began) / 1_000;
}

function cpuSince(before) {
  const { user, system } = process.cpuUsage();
  return (user + system - before.user - before.system) / 1e6;
}

function runtimeName() {
  return process.versions.bun !== undefined ? `Bun ${process.versions.bun}` : `Node ${process.versions.node}`;
}

/** A receiver that does not say that it reads gzip, as one that knows nothing of it: then nobody compresses. */
function hideAnnouncement(response) {
  const { writeHead } = response;
  response.writeHead = (status, { 'accept-encoding': _, ...headers }) => writeHead.call(response, status, headers);
}

function silently(handler) {
  return async (request) => {
    const response = await handler(request);
    response.headers.delete('accept-encoding');
    return response;
  };
}
