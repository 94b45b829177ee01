/**
 * A TCP proxy that behaves like a bad network, from a seed: connections are held up, trickle, arrive in tiny segments, are
 * cut in the middle of a request or of an answer, are reset, are accepted and never answered, and overtake each other.
 * TCP keeps the bytes of one connection in order, so they are never mixed up; `swap` does it all the same, where asked for.
 */
import net from 'node:net';
import { Random } from './model.ts';

/** What happens to a connection. */
export const FAULTS = [
  'none',
  'delay',
  'trickle',
  'segments',
  'cut request',
  'cut answer',
  'reset',
  'silence',
  'late request',
  'late answer',
] as const;
export type Fault = (typeof FAULTS)[number] | 'swap';

export class TcpProxy {
  /** How often each fault was given to a connection. */
  readonly dealt = new Map<Fault, number>();
  readonly #random: Random;
  readonly #target: number;
  readonly #server = net.createServer({ pauseOnConnect: true }, (socket) => this.#accept(socket));
  readonly #sockets = new Set<net.Socket>();
  #faults: readonly Fault[];
  /** Dealt like cards, so that each fault has its turn. */
  #deck: Fault[] = [];

  constructor(target: number, seed: number, faults: readonly Fault[] = FAULTS) {
    this.#target = target;
    this.#random = new Random(seed);
    this.#faults = faults;
  }

  /** Resolves to the URL under which the target is reached. */
  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`;
  }

  /** From now on it only passes on; what hangs in it is cut, as a network that comes back does with old connections. */
  heal(): void {
    this.#faults = [];
    this.#deck = [];
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.heal();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #accept(client: net.Socket): void {
    this.#keep(client);
    if (this.#deck.length === 0) this.#deck = this.#random.shuffle([...this.#faults]);
    const fault = this.#deck.pop();
    if (fault === undefined) this.#passOn(client);
    else this.#deal(client, fault);
  }

  #passOn(client: net.Socket): void {
    const target = this.#keep(net.connect(this.#target, '127.0.0.1'));
    client.pipe(target).pipe(client);
    client.on('close', () => target.destroy());
    target.on('close', () => client.destroy());
  }

  #deal(client: net.Socket, fault: Fault): void {
    this.dealt.set(fault, (this.dealt.get(fault) ?? 0) + 1);
    // Accepted, and then nothing: only the sender's own timeout ends it.
    if (fault === 'silence') return void client.resume();
    const target = this.#keep(net.connect(this.#target, '127.0.0.1'));
    const end = (): void => {
      client.destroy();
      target.destroy();
    };
    const cut = fault === 'reset' ? (): void => void client.resetAndDestroy() : end;
    const request = new Course(this.#random, client, target, cut);
    const answer = new Course(this.#random, target, client, cut);
    // Senders keep a good connection for as long as it lasts; then the other faults would never have their turn.
    answer.cutAfter = 200 + this.#random.below(1_500);
    switch (fault) {
      case 'delay':
        request.pause = this.#random.below(120);
        answer.pause = this.#random.below(60);
        break;
      case 'late request':
        request.pause = 250 + this.#random.below(500);
        break;
      case 'late answer':
        answer.pause = 50 + this.#random.below(250);
        break;
      case 'trickle':
        request.most = 1 + this.#random.below(400);
        request.gap = 1 + this.#random.below(3);
        break;
      case 'segments':
        request.most = 1 + this.#random.below(40);
        answer.most = 1 + this.#random.below(10);
        break;
      case 'cut request':
        request.cutAfter = this.#random.below(2_000);
        break;
      case 'cut answer':
        answer.cutAfter = this.#random.below(300);
        break;
      case 'reset':
        (this.#random.chance(0.5) ? request : answer).cutAfter = this.#random.below(600);
        break;
      case 'swap':
        (this.#random.chance(0.5) ? request : answer).swaps = true;
    }
    // A late request arrives after its sender has given up, and after what was sent on other connections since.
    client.on('close', fault === 'late request' ? () => request.finish() : end);
    target.on('close', end);
    request.start();
    answer.start();
  }

  #keep(socket: net.Socket): net.Socket {
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    // A connection that breaks is what this is for; the other side is told by 'close'.
    socket.on('error', () => {});
    socket.on('close', () => this.#sockets.delete(socket));
    return socket;
  }
}

/** The bytes that go one way: each piece after the one before, as slowly and as finely as it was drawn. */
class Course {
  /** Milliseconds before what arrives is passed on, and between two segments. */
  pause = 0;
  gap = 0;
  /** The largest segment. */
  most = Number.POSITIVE_INFINITY;
  /** Bytes after which the connection is cut. */
  cutAfter = Number.POSITIVE_INFINITY;
  /** The two halves of the first piece change places: no network does this. */
  swaps = false;
  readonly #random: Random;
  readonly #from: net.Socket;
  readonly #to: net.Socket;
  readonly #cut: () => void;
  #passed = 0;
  #passing: Promise<void> = Promise.resolve();

  constructor(random: Random, from: net.Socket, to: net.Socket, cut: () => void) {
    this.#random = random;
    this.#from = from;
    this.#to = to;
    this.#cut = cut;
  }

  start(): void {
    this.#from.on('data', (data: Buffer) => {
      const piece = this.swaps ? swapped(data, 1 + this.#random.below(data.length - 1)) : data;
      this.swaps = false;
      this.#passing = this.#passing.then(() => this.#pass(piece));
    });
    this.#from.on('end', () => this.finish());
    this.#from.resume();
  }

  /** Nothing more will come; what has come is still passed on. */
  finish(): void {
    this.#passing = this.#passing.then(() => void this.#to.end());
  }

  async #pass(data: Buffer): Promise<void> {
    if (this.pause > 0) await sleep(this.pause);
    for (let at = 0; at < data.length && !this.#to.destroyed; ) {
      const room = Math.min(this.most, this.cutAfter - this.#passed);
      const segment = data.subarray(at, at + room);
      at += segment.length;
      this.#passed += segment.length;
      if (segment.length > 0) await new Promise<void>((resolve) => this.#to.write(segment, () => resolve()));
      if (this.#passed >= this.cutAfter) return this.#cut();
      if (this.gap > 0) await sleep(this.gap);
    }
  }
}

function swapped(data: Buffer, at: number): Buffer {
  return Buffer.concat([data.subarray(at), data.subarray(0, at)]);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
