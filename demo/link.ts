/** A link between two nodes that can be cut: each direction is a TCP port of ours that leads to the other node's port. */
import net, { type AddressInfo } from 'node:net';

export const LOOPBACK = '127.0.0.1';

export class Link {
  readonly name: string;
  readonly ends: [string, string];
  readonly #wires: Wire[];

  /** `wires` lead from the first end to the second, and back. */
  constructor(ends: [string, string], wires: Wire[]) {
    this.ends = ends;
    this.name = ends.join('-');
    this.#wires = wires;
  }

  get isCut(): boolean {
    return this.#wires.some((wire) => wire.isCut);
  }

  cut(): void {
    for (const wire of this.#wires) wire.cut();
  }

  heal(): void {
    for (const wire of this.#wires) wire.heal();
  }

  async close(): Promise<void> {
    await Promise.all(this.#wires.map((wire) => wire.close()));
  }
}

/** One direction. Cutting it breaks what is under way and every later attempt, as an unplugged cable would. */
export class Wire {
  isCut = false;
  readonly #server: net.Server;
  readonly #sockets = new Set<net.Socket>();

  constructor(targetPort: number) {
    this.#server = net.createServer((near) => this.#join(near, targetPort));
  }

  /** Listens on `port`, or on any free one, and says on which. */
  listen(port = 0): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, LOOPBACK, () => resolve((this.#server.address() as AddressInfo).port));
    });
  }

  cut(): void {
    this.isCut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  heal(): void {
    this.isCut = false;
  }

  close(): Promise<void> {
    this.cut();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  #join(near: net.Socket, targetPort: number): void {
    // Whoever resets a connection, the other half only has to end.
    near.on('error', () => {});
    if (this.isCut) {
      near.destroy();
      return;
    }
    const far = net.connect(targetPort, LOOPBACK);
    far.on('error', () => {});
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(socket);
      socket.pipe(other);
      socket.on('close', () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
    }
  }
}
