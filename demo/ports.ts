/** Ports that are easy to remember where they are free, and any others where they are not. */
import net from 'node:net';
import { LOOPBACK } from './link.ts';

/** Node i listens on base + i, its console on base + 100 + i, the way from i to j on base + 10 i + j: 9001, 9101, 9012. */
export const PORT_BASE = 9000;

export interface Ports {
  node(index: number): number;
  console(index: number): number;
  /** 0 stands for any free one. */
  wire(from: number, to: number): number;
}

/** From `base` on; with 0, or where one of those is taken, any free ones. */
export async function choosePorts(count: number, base: number): Promise<Ports> {
  const numbers = Array.from({ length: count }, (_, index) => index + 1);
  const wanted: Ports = {
    node: (index) => base + index + 1,
    console: (index) => base + 101 + index,
    wire: (from, to) => base + 10 * (from + 1) + to + 1,
  };
  const all = numbers.flatMap((_, i) => [
    wanted.console(i),
    ...numbers.map((_, j) => (i === j ? wanted.node(i) : wanted.wire(i, j))),
  ]);
  if (base !== 0 && (await Promise.all(all.map(isFree))).every(Boolean)) return wanted;
  const free = await freePorts(2 * count);
  return { node: (i) => free[i] as number, console: (i) => free[count + i] as number, wire: () => 0 };
}

async function isFree(port: number): Promise<boolean> {
  const server = await listen(port).catch(() => undefined);
  if (server) await new Promise((resolve) => server.close(resolve));
  return server !== undefined;
}

/**
 * Below those that systems give to outgoing connections and to whoever asks for any port (32768 on Linux, 49152 elsewhere):
 * between a look and its use, and while a program is dead, nobody is given one of these by chance. A node that asks for its
 * dead peer's port again and again could otherwise be given that very port, and talk to itself.
 */
const QUIET = { first: 10_000, count: 22_000 };
/** Processes that run at the same time have numbers that lie close together: each begins elsewhere. */
const APART = 101;
let taken = 0;

/** Ports on which nothing listens, none of them twice. */
export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = [];
  for (let tried = 0; ports.length < count; tried++) {
    if (tried > QUIET.count) throw new Error(`no port from ${QUIET.first} on is free`);
    const port = QUIET.first + ((process.pid * APART + taken++) % QUIET.count);
    if (await isFree(port)) ports.push(port);
  }
  return ports;
}

function listen(port: number): Promise<net.Server> {
  return new Promise((resolve, reject) => {
    const server = net.createServer();
    server.once('error', reject);
    server.listen(port, LOOPBACK, () => resolve(server));
  });
}
