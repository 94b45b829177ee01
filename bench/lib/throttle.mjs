/** A slow link: a TCP proxy on loopback that lets through so many bits a second and holds everything for a while. */
import net from 'node:net';

/** What the kernel may hold of a connection beyond what the link has carried; small, so that the sender feels the link. */
const CHUNK_BYTES = 16 * 1024;

/** Timers are coarse and late: what was slept too long, up to this, is made up for by the next chunks. An idle link gains nothing. */
const CREDIT_MS = 4;

/**
 * Listens on `port` and passes everything on to `target`. Each direction has its own capacity, as a leased line has; all
 * connections share it. `latencyMs` is the time one way.
 */
export async function throttle({ port, target, bitsPerSecond, latencyMs }) {
  const up = new Pipe(bitsPerSecond, latencyMs);
  const down = new Pipe(bitsPerSecond, latencyMs);
  const sockets = new Set();
  // A side that has said everything may still be listening.
  const server = net.createServer({ allowHalfOpen: true }, (near) => {
    const far = net.connect({ port: target, host: '127.0.0.1', allowHalfOpen: true });
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on('close', () => sockets.delete(socket));
      socket.on('error', () => {
        near.destroy();
        far.destroy();
      });
    }
    up.carry(near, far);
    down.carry(far, near);
  });
  await new Promise((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', resolve));
  return {
    bytes: () => ({ up: up.bytes, down: down.bytes }),
    close: () => {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

/** One direction. Bytes leave one after the other, at the link's rate, and arrive `latencyMs` after they have left. */
class Pipe {
  bytes = 0;
  #bytesPerMs;
  #latencyMs;
  /** When the link is free again. */
  #freeAt = 0;

  constructor(bitsPerSecond, latencyMs) {
    this.#bytesPerMs = bitsPerSecond / 8_000;
    this.#latencyMs = latencyMs;
  }

  /** By events, because an async iterator destroys a socket when one half of it has ended. */
  carry(from, to) {
    // One after the other, whatever the timers do: a stream has an order.
    let delivered = Promise.resolve();
    const deliver = async (chunk, leaves) => {
      await sleepUntil(leaves + this.#latencyMs);
      if (!to.destroyed) to.write(chunk);
    };
    from.on('data', async (data) => {
      from.pause();
      for (let at = 0; at < data.length; at += CHUNK_BYTES) {
        const chunk = data.subarray(at, at + CHUNK_BYTES);
        const leaves = this.#take(chunk.length);
        delivered = delivered.then(() => deliver(chunk, leaves));
        // Until the link has taken the chunk the reader waits, and with it, by and by, the sender.
        await sleepUntil(leaves - 1);
      }
      from.resume();
    });
    from.on('end', () => void delivered.then(() => to.end()));
  }

  /** When the last of so many bytes has left. */
  #take(bytes) {
    const now = performance.now();
    this.#freeAt = (now - this.#freeAt > CREDIT_MS ? now : this.#freeAt) + bytes / this.#bytesPerMs;
    this.bytes += bytes;
    return this.#freeAt;
  }
}

function sleepUntil(time) {
  const ms = time - performance.now();
  return ms > 0 ? new Promise((resolve) => setTimeout(resolve, ms)) : undefined;
}
