/** Two clients around a running system: one that writes on A and one that looks at B. */
import { end, Worker } from '../lib/processes.mjs';

export class Pair {
  /** `program` is a script that calls serveClient; `a` and `b` say to each what to connect to. */
  static async start({ program, a, b, command = process.execPath, servers = { a: [], b: [] } }) {
    const writer = new Worker({ command }, '', program);
    const reader = new Worker({ command }, '', program);
    const pair = new Pair(writer, reader, servers);
    pair.addressOfB = await reader.ask('connect', b);
    await writer.ask('connect', { ...a, other: pair.addressOfB });
    return pair;
  }

  /**
   * A pair around two servers, each with its `port` and its `child`, that end with it. A signal is enough: everything that
   * they have is thrown away, and there is nothing to shut down in order.
   */
  static async startAround(a, b, { program, signal = 'SIGKILL' }) {
    const pair = await Pair.start({
      program,
      a: { port: a.port },
      b: { port: b.port },
      servers: { a: [a.child.pid], b: [b.child.pid] },
    });
    pair.#endServers = () => Promise.all([b, a].map(({ child }) => end(child, signal)));
    return pair;
  }

  #endServers = async () => {};

  constructor(writer, reader, servers) {
    this.writer = writer;
    this.reader = reader;
    this.written = 0;
    /** Whose CPU time and memory is the system's: its servers, and the clients, without which it does nothing. */
    this.groups = { a: [writer.pid, ...servers.a], b: [reader.pid, ...servers.b] };
  }

  async prepare(count, perTransaction) {
    const work = { count, perTransaction, from: this.written };
    await Promise.all([this.writer.ask('prepare', work), this.reader.ask('prepare', work)]);
    this.written += count;
  }

  /** Seconds from the first INSERT on A until the last row is there on B. */
  async endToEnd() {
    const [began, ended] = await Promise.all([this.writer.ask('writeAll'), this.reader.ask('awaitAll')]);
    return (ended - began) / 1_000;
  }

  /** Milliseconds of each row. */
  async latency() {
    const [written, arrived] = await Promise.all([this.writer.ask('trickle'), this.reader.ask('awaitEach')]);
    const at = new Map(arrived);
    return written.map(([id, began]) => at.get(id) - began);
  }

  async verify() {
    const [a, b] = await Promise.all([this.writer.ask('digest'), this.reader.ask('digest')]);
    if (a.rows !== this.written || b.rows !== this.written) {
      throw new Error(`wrong result: ${a.rows} and ${b.rows} rows instead of ${this.written}`);
    }
    if (a.digest !== b.digest) throw new Error('wrong result: the two sides hold different rows');
  }

  async end() {
    await Promise.all([this.writer.end(), this.reader.end()]);
    await this.#endServers();
  }
}
