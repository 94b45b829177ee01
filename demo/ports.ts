/** Ports that are easy to remember where they are free, and any others where they are not. */
import net, { type AddressInfo } from 'node:net';
import { LOOPBACK } from './link.ts';

/** Node i listens on base + i, the way from i to j on base + 10 i + j: with base 9000, 9001 and 9012. */
export const PORT_BASE = 9000;

export interface Ports {
  node(index: number): number;
  /** 0 stands for any free one. */
  wire(from: number, to: number): number;
}

/** From `base` on; with 0, or where one of those is taken, any free ones. */
export async function choosePorts(count: number, base: number): Promise<Ports> {
  const numbers = Array.from({ length: count }, (_, index) => index + 1);
  const wanted: Ports = {
    node: (index) => base + index + 1,
    wire: (from, to) => base + 10 * (from + 1) + to + 1,
  };
  const all = numbers.flatMap((_, i) => numbers.map((_, j) => (i === j ? wanted.node(i) : wanted.wire(i, j))));
  if (base !== 0 && (await Promise.all(all.map(isFree))).every(Boolean)) return wanted;
  const free = await freePorts(count);
  return { node: (index) => free[index] as number, wire: () => 0 };
}

async function isFree(port: number): Promise<boolean> {
  const [server] = await listen([port]).catch(() => []);
  if (server) await close(server);
  return server !== undefined;
}

/** All held at once, so that they differ. */
async function freePorts(count: number): Promise<number[]> {
  const servers = await listen(new Array(count).fill(0));
  const ports = servers.map((server) => (server.address() as AddressInfo).port);
  await Promise.all(servers.map(close));
  return ports;
}

function listen(ports: number[]): Promise<net.Server[]> {
  return Promise.all(
    ports.map(
      (port) =>
        new Promise<net.Server>((resolve, reject) => {
          const server = net.createServer();
          server.once('error', reject);
          server.listen(port, LOOPBACK, () => resolve(server));
        }),
    ),
  );
}

function close(server: net.Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}
