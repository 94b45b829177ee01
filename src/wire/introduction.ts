/**
 * The header by which Rowcast introduces itself, spelt and read here and nowhere else:
 *
 *   id=a; inc=5f0c1e9a77b2d310; boot=7-21d0b7e4; t0=812; t=840; low=1794742802116; you=9be0aa10c2f4d871.1290.3-aa11cc22
 *
 * Keys that are not known are ignored, so that a later build may say more. An id has no spaces, so none can hold a key.
 */

/** What a database says of itself. */
export interface Self {
  /** Drawn once for each database: the id is a person's choice, and may be given to another one tomorrow. */
  inc: string;
  /** Which attach it is: a number that grows, and chance. */
  boot: string;
  /** The tick at that attach. */
  t0: number;
  /** A number that grows with each transaction that others can know of. */
  tick: number;
}

/** What the sender remembers of the one to whom it speaks. */
export interface Remembered {
  inc: string;
  tick: number;
  boot: string;
}

export interface Introduction extends Self {
  id: string;
  /** All that it captured before this time, by its own clock, has reached every peer of its own. */
  low?: number | undefined;
  you?: Remembered | undefined;
}

export function introduce({ id, inc, boot, t0, tick, low, you }: Introduction): string {
  const remembered = you === undefined ? '' : `; you=${you.inc}.${you.tick}.${you.boot}`;
  const lowest = low === undefined ? '' : `; low=${Math.max(0, Math.floor(low))}`;
  return `id=${id}; inc=${inc}; boot=${boot}; t0=${t0}; t=${tick}${lowest}${remembered}`;
}

/** Undefined where it says no more than an id, or what no build of ours would say: then it is a plain peer's. */
export function readIntroduction(header: string | null | undefined): Introduction | undefined {
  if (!header || header.length > LENGTH_MAX) return undefined;
  const said = new Map<string, string>();
  for (const part of header.split('; ')) {
    const at = part.indexOf('=');
    if (at > 0) said.set(part.slice(0, at), part.slice(at + 1));
  }
  const [id, inc, boot, t0, tick] = ['id', 'inc', 'boot', 't0', 't'].map((key) => said.get(key) ?? '');
  if (!id || !isInc(inc) || !isBoot(boot) || !isCount(t0) || !isCount(tick)) return undefined;
  const you = readRemembered(said.get('you'));
  const low = said.get('low');
  const lowest = isCount(low) ? { low: Number(low) } : {};
  return { id, inc, boot, t0: Number(t0), tick: Number(tick), ...lowest, ...(you && { you }) };
}

/** The number of a boot: each attach to a file has one above the last. */
export function numberOf(boot: string): number {
  return Number.parseInt(boot, 10);
}

const LENGTH_MAX = 1_000;

function readRemembered(text: string | undefined): Remembered | undefined {
  const [inc, tick, boot, ...rest] = text?.split('.') ?? [];
  if (!isInc(inc) || !isCount(tick) || !isBoot(boot) || rest.length > 0) return undefined;
  return { inc, tick: Number(tick), boot };
}

function isInc(text: string | undefined): text is string {
  return text !== undefined && /^[0-9a-f]{16}$/.test(text);
}

function isBoot(text: string | undefined): text is string {
  return text !== undefined && /^\d{1,10}-[0-9a-f]{8}$/.test(text);
}

function isCount(text: string | undefined): text is string {
  return text !== undefined && /^\d{1,15}$/.test(text);
}
