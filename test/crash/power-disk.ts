/**
 * A disk on which the power can fail. Only what was synced is certain to be there afterwards: bytes of a file by a sync of
 * the file, its name and its removal by a sync of the folder. Of everything since, any part may have reached the disk, in
 * any order, down to single sectors.
 */
import { Buffer } from 'node:buffer';
import type { Random } from '../support/model.ts';
import type { DiskEvent, TraceEvent } from './power-trace.ts';

type Pending = Extract<DiskEvent, { kind: 'write' | 'truncate' }>;

interface Inode {
  durable: Buffer;
  pending: Pending[];
}

/** What became of the writes that were not synced. */
export const FATES = ['lost', 'kept', 'names lost', 'data lost', 'sectors', 'pages', 'early'] as const;
export type Fate = (typeof FATES)[number];

export class Disk {
  #names = new Map<string, Inode>();
  #durableNames = new Map<string, Inode>();
  /** Since the last sync of the folder: the name and what it stands for from then on. */
  #pendingNames: { name: string; inode: Inode | undefined }[] = [];

  apply(event: TraceEvent): void {
    switch (event.kind) {
      case 'create':
        if (!this.#names.has(event.file)) this.#rename(event.file, { durable: Buffer.alloc(0), pending: [] });
        return;
      case 'remove':
        this.#rename(event.file, undefined);
        return;
      case 'write':
      case 'truncate':
        // A file without a name is gone with the power.
        this.#names.get(event.file)?.pending.push(event);
        return;
      case 'sync': {
        const inode = this.#names.get(event.file);
        if (!inode) return;
        inode.durable = inode.pending.reduce(carryOut, inode.durable);
        inode.pending = [];
        return;
      }
      case 'sync-folder':
        this.#durableNames = new Map(this.#names);
        this.#pendingNames = [];
    }
  }

  /** Nothing is uncertain: every fate gives the same files. */
  get settled(): boolean {
    return this.#pendingNames.length === 0 && [...this.#names.values()].every(({ pending }) => pending.length === 0);
  }

  /** The files as they may be found when the power is back. */
  afterPowerCut(fate: Fate, random: Random): Map<string, Buffer> {
    const names = new Map(this.#durableNames);
    const drawn = new Map<string, boolean>();
    for (const { name, inode } of this.#pendingNames) {
      // What happened to one name happened in its order; two names have nothing to do with each other.
      if (!drawn.has(name) || drawn.get(name)) drawn.set(name, keepsName(fate, random));
      if (!drawn.get(name)) continue;
      if (inode) names.set(name, inode);
      else names.delete(name);
    }
    return new Map([...names].map(([name, inode]) => [name, remains(inode, fate, random)]));
  }

  #rename(name: string, inode: Inode | undefined): void {
    if (inode) this.#names.set(name, inode);
    else this.#names.delete(name);
    this.#pendingNames.push({ name, inode });
  }
}

function keepsName(fate: Fate, random: Random): boolean {
  if (fate === 'kept' || fate === 'data lost') return true;
  return fate !== 'lost' && fate !== 'names lost' && random.chance(0.5);
}

function remains({ durable, pending }: Inode, fate: Fate, random: Random): Buffer {
  if (fate === 'lost' || fate === 'data lost') return durable;
  if (fate === 'kept' || fate === 'names lost') return pending.reduce(carryOut, durable);
  const size = fate === 'pages' ? 4096 : 512;
  const rate = random.next();
  if (fate === 'early') {
    const whole = random.below(pending.length + 1);
    const started = pending.slice(0, whole).reduce(carryOut, durable);
    return pending.slice(whole, whole + 1).reduce((data, op) => carryOutPart(data, op, size, rate, random), started);
  }
  return pending.reduce((data, op) => carryOutPart(data, op, size, rate, random), durable);
}

function carryOut(data: Buffer, op: Pending): Buffer {
  return op.kind === 'truncate' ? resized(data, op.size) : written(data, op.at, op.data);
}

/** Some sectors of a write, the others as they were before; a truncation as a whole or not at all. */
function carryOutPart(data: Buffer, op: Pending, size: number, rate: number, random: Random): Buffer {
  if (op.kind === 'truncate') return random.chance(rate) ? resized(data, op.size) : data;
  const end = op.at + op.data.length;
  for (let from = op.at; from < end; ) {
    const to = Math.min(end, (Math.floor(from / size) + 1) * size);
    if (random.chance(rate)) data = written(data, from, op.data.subarray(from - op.at, to - op.at));
    from = to;
  }
  return data;
}

function written(data: Buffer, at: number, piece: Buffer): Buffer {
  const result = resized(data, Math.max(data.length, at + piece.length));
  piece.copy(result, at);
  return result;
}

/** Always a copy: a buffer that is durable stays as it is. */
function resized(data: Buffer, size: number): Buffer {
  const result = Buffer.alloc(size);
  data.copy(result, 0, 0, size);
  return result;
}
