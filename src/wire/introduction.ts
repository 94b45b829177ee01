/**
 * The header by which Rowcast introduces itself, spelt and read here and nowhere else:
 *
 *   id=a; inc=5f0c1e9a77b2d310; boot=7-21d0b7e4; t0=812; t=840; seal=1b9e44f03ac2d857; low=1794742802116;
 *   reads=tabular; you=9be0aa10c2f4d871.1290.3-aa11cc22.60f1c2d09be3aa75
 *
 * Keys that are not known are ignored, so that a later build may say more. An id has no spaces, so none can hold a key.
 */

import { isNodeId } from './protocol.ts';

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
  /** Of inc, boot and tick, by a secret of its file: by that it knows its own words when others repeat them. */
  seal?: string | undefined;
}

/** What the sender remembers of the one to whom it speaks. */
export interface Remembered {
  inc: string;
  tick: number;
  boot: string;
  /** As that one has sealed it. */
  seal?: string | undefined;
}

export interface Introduction extends Self {
  id: string;
  /** All that it captured before this time, by its own clock, has reached every peer of its own. */
  low?: number | undefined;
  /** Of an answer: batches may be sent to it in this form as well. */
  reads?: Form | undefined;
  you?: Remembered | undefined;
  /** What else that one has said, or somebody in its name, and may not know any more. */
  claims?: Remembered[] | undefined;
}

/** A form of a batch beside the plain one: see tabular.ts. */
export type Form = 'tabular';

export function introduce({ id, inc, boot, t0, tick, seal, low, reads, you, claims }: Introduction): string {
  const sealed = seal === undefined ? '' : `; seal=${seal}`;
  const lowest = low === undefined ? '' : `; low=${Math.max(0, Math.floor(low))}`;
  const form = reads === undefined ? '' : `; reads=${reads}`;
  const remembered = you === undefined ? '' : `; you=${spelt(you)}`;
  const claimed = claims === undefined || claims.length === 0 ? '' : `; claim=${claims.map(spelt).join(',')}`;
  return `id=${id}; inc=${inc}; boot=${boot}; t0=${t0}; t=${tick}${sealed}${lowest}${form}${remembered}${claimed}`;
}

function spelt({ inc, tick, boot, seal }: Remembered): string {
  return `${inc}.${tick}.${boot}${seal === undefined ? '' : `.${seal}`}`;
}

/** Undefined where it says no more than an id, or what no build of ours would say: then it is a plain peer's. */
export function readIntroduction(header: string | null | undefined): Readonly<Introduction> | undefined {
  if (!header || header.length > LENGTH_MAX) return undefined;
  const known = read.get(header);
  if (known) return known.said;
  const one = { said: parse(header) };
  if (read.size >= READ_MAX) read.clear();
  read.set(header, one);
  return one.said;
}

/** One is read when it comes, when it is taken note of and when it is answered; those of other peers may come in between. */
const read = new Map<string, { said: Readonly<Introduction> | undefined }>();
/** A hub takes note of many at once. */
const READ_MAX = 1_000;

function parse(header: string): Introduction | undefined {
  const said = new Map<string, string>();
  for (const part of header.split('; ')) {
    const at = part.indexOf('=');
    if (at > 0) said.set(part.slice(0, at), part.slice(at + 1));
  }
  const [id, inc, boot, t0, tick] = ['id', 'inc', 'boot', 't0', 't'].map((key) => said.get(key) ?? '');
  if (!id || !isNodeId(id) || !isHex(inc) || !isBoot(boot) || !isCount(t0) || !isCount(tick)) return undefined;
  const you = readRemembered(said.get('you'));
  const claims = said
    .get('claim')
    ?.split(',')
    .map(readRemembered)
    .filter((claim) => claim !== undefined);
  const [seal, low] = [said.get('seal'), said.get('low')];
  const reads = said.get('reads') === 'tabular' ? ({ reads: 'tabular' } as const) : {};
  const more = { ...(isHex(seal) && { seal }), ...(isCount(low) && { low: Number(low) }) };
  const remembered = { ...(you && { you }), ...(claims && { claims }) };
  return { id, inc, boot, t0: Number(t0), tick: Number(tick), ...more, ...reads, ...remembered };
}

/** The number of a boot: each attach to a file has one above the last. */
export function numberOf(boot: string): number {
  return Number.parseInt(boot, 10);
}

/**
 * Nothing of ours is longer, or it would be taken for a plain peer's: to a URL that has never answered go the words of eight
 * databases, four of each (identity/told-claims.ts), which are some 2,300 characters, beside 400 of its own.
 */
const LENGTH_MAX = 3_000;

export function readRemembered(text: string | undefined): Remembered | undefined {
  const [inc, tick, boot, seal, ...rest] = text?.split('.') ?? [];
  if (!isHex(inc) || !isCount(tick) || !isBoot(boot) || rest.length > 0) return undefined;
  return { inc, tick: Number(tick), boot, ...(isHex(seal) && { seal }) };
}

function isHex(text: string | undefined): text is string {
  return text !== undefined && /^[0-9a-f]{16}$/.test(text);
}

function isBoot(text: string | undefined): text is string {
  return text !== undefined && /^\d{1,10}-[0-9a-f]{8}$/.test(text);
}

function isCount(text: string | undefined): text is string {
  return text !== undefined && /^\d{1,15}$/.test(text);
}
