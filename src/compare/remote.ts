/** What a peer holds, by asking it. Its answers are held to what was asked before anything is done with them. */
import { messageOf } from '../errors.ts';
import { APPLY_MS_HEADER, COMPARE_PATH, FETCH_PATH } from '../wire/protocol.ts';
import type { Tuple } from './answer.ts';
import type { Id, Range } from './ids.ts';
import type { Columns, Early, Entry, Nodes, Outline, Sight } from './ledger.ts';

export interface PeerReply {
  status: number;
  body: string;
  header(name: string): string | null;
}

/** Asks the peer at one of its paths; rejects where there is no complete answer, with `TooLarge` where it is for that. */
export type Ask = (path: string, body: string) => Promise<PeerReply>;

/** The peer cannot be compared with: at the moment, or at all. */
export class CannotCompare extends Error {
  /** It has no such page: it is no Rowcast, or an old one. */
  readonly isPlain: boolean;

  constructor(message: string, isPlain = false) {
    super(message);
    this.isPlain = isPlain;
  }
}

/** What was asked, or what is answered, is too large for one of the two, or for what is between: of less there may be an answer. */
export class TooLarge extends CannotCompare {}

const NO_SUCH_PAGE = [404, 405, 501];

export class Remote {
  readonly #ask: Ask;
  readonly #lacks: (path: string) => void;
  /** An earlier build does not: it is told both bounds of every range. */
  #readsRuns = false;
  /** Bytes both ways, questions, and the milliseconds that the peer says they took it: since the beginning. */
  bytes = 0;
  requests = 0;
  busyMs = 0;

  /** `lacks` hears of a path that the peer does not have. */
  constructor(ask: Ask, lacks: (path: string) => void) {
    this.#ask = ask;
    this.#lacks = lacks;
  }

  async outline(): Promise<Outline[]> {
    const { tables, runs } = await this.#compare({ want: 'tables' });
    if (!Array.isArray(tables) || !tables.every(isOutline)) throw notAnAnswer('tables');
    this.#readsRuns = runs === true;
    return tables;
  }

  hashes(table: string, columns: Columns, ranges: Range[], floor?: number): Promise<string[]> {
    const ask = (some: Range[]): Promise<string[]> => this.#hashes(table, columns, some, floor);
    return inHalves(ranges, ask, async (first, second) => [...first, ...(await second())]);
  }

  async #hashes(table: string, columns: Columns, ranges: Range[], floor?: number): Promise<string[]> {
    const { hashes } = await this.#compare({ table, columns, ...this.#told(ranges), want: 'hash', floor });
    const all =
      Array.isArray(hashes) && hashes.length === ranges.length && hashes.every((one) => typeof one === 'string');
    if (!all) throw notAnAnswer('hashes');
    return hashes as string[];
  }

  /** What is in these ranges; `upTo` where the answer breaks off before their end. */
  list(table: string, columns: Columns, ranges: Range[]): Promise<{ entries: Entry[]; upTo: Id | null }> {
    const ask = (some: Range[]): Promise<{ entries: Entry[]; upTo: Id | null }> => this.#list(table, columns, some);
    return inHalves(ranges, ask, async (first, second) => {
      if (first.upTo !== null) return first;
      const { entries, upTo } = await second();
      return { entries: [...first.entries, ...entries], upTo };
    });
  }

  async #list(table: string, columns: Columns, ranges: Range[]): Promise<{ entries: Entry[]; upTo: Id | null }> {
    const { rows, upTo } = await this.#compare({ table, columns, ...this.#told(ranges), want: 'rows' });
    if (upTo !== undefined && typeof upTo !== 'string') throw notAnAnswer('upTo');
    return { entries: entriesOf(rows), upTo: upTo ?? null };
  }

  look(table: string, columns: Columns, ids: Id[]): Promise<Omit<Sight, 'rest'>> {
    const ask = (some: Id[]): Promise<Omit<Sight, 'rest'>> => this.#look(table, columns, some);
    return inHalves(ids, ask, async (first, second) => {
      const then = await second();
      const both = <T>(of: (one: Omit<Sight, 'rest'>) => T[]): T[] => [...of(first), ...of(then)];
      return {
        ...then,
        entries: both(({ entries }) => entries),
        undelivered: both(({ undelivered }) => undelivered),
        parked: both(({ parked }) => parked),
        early: both(({ early }) => early),
      };
    });
  }

  async #look(table: string, columns: Columns, ids: Id[]): Promise<Omit<Sight, 'rest'>> {
    const answer = await this.#compare({ table, columns, ids, want: 'rows' });
    const { rows, undelivered, parked, early, floor, nodes } = answer;
    if (!isFloor(floor)) throw notAnAnswer('floor');
    const known = { entries: entriesOf(rows), undelivered: idsOf(undelivered), parked: idsOf(parked) };
    return { ...known, early: earlyOf(early), floor, nodes: nodesOf(nodes) };
  }

  /** The first of these rows, as many as fit, as the body of a batch. */
  async fetch(table: string, ids: Id[]): Promise<string> {
    return (await this.#post(FETCH_PATH, { table, ids })).body;
  }

  #told(ranges: Range[]): object {
    return this.#readsRuns ? { runs: runsOf(ranges) } : { ranges: ranges.map(({ after, upTo }) => [after, upTo]) };
  }

  async #compare(question: object): Promise<Record<string, unknown>> {
    const { body } = await this.#post(COMPARE_PATH, question);
    try {
      const value: unknown = JSON.parse(body);
      if (typeof value === 'object' && value !== null) return value as Record<string, unknown>;
    } catch {
      // Said below, whatever it was.
    }
    throw notAnAnswer('JSON');
  }

  async #post(path: string, question: object): Promise<PeerReply> {
    const text = JSON.stringify(question);
    let reply: PeerReply;
    try {
      reply = await this.#ask(path, text);
    } catch (error) {
      throw error instanceof TooLarge ? error : new CannotCompare(messageOf(error));
    }
    this.requests += 1;
    this.bytes += Buffer.byteLength(text) + Buffer.byteLength(reply.body);
    this.busyMs += Number(reply.header(APPLY_MS_HEADER) ?? 0) || 0;
    if (reply.status === 200) return reply;
    const said = reply.body.slice(0, 200).replace(/\s+/g, ' ').trim();
    if (reply.status === 413) throw new TooLarge(`HTTP 413 to ${path}: ${said}`);
    const plain = NO_SUCH_PAGE.includes(reply.status);
    if (plain) this.#lacks(path);
    throw new CannotCompare(
      plain ? `the peer cannot be compared with: it has no ${path}` : `HTTP ${reply.status} to ${path}: ${said}`,
      plain,
    );
  }
}

/** What is too large together is asked in halves, the second as far as it is wanted. */
async function inHalves<T, A>(
  items: T[],
  ask: (some: T[]) => Promise<A>,
  join: (first: A, second: () => Promise<A>) => Promise<A>,
): Promise<A> {
  try {
    return await ask(items);
  } catch (error) {
    if (!(error instanceof TooLarge) || items.length < 2) throw error;
    const middle = items.length >> 1;
    const first = await inHalves(items.slice(0, middle), ask, join);
    return join(first, () => inHalves(items.slice(middle), ask, join));
  }
}

/** The bounds of ranges, those that follow each other in one array: where one ends and the next begins is said once. */
export function runsOf(ranges: Range[]): (Id | null)[][] {
  const runs: (Id | null)[][] = [];
  for (const { after, upTo } of ranges) {
    const run = runs.at(-1);
    if (run && after !== null && run.at(-1) === after) run.push(upTo);
    else runs.push([after, upTo]);
  }
  return runs;
}

function entriesOf(rows: unknown): Entry[] {
  if (!Array.isArray(rows)) throw notAnAnswer('rows');
  return rows.map((row): Entry => {
    if (!isTuple(row)) throw notAnAnswer('rows');
    const [id, version, deleted, hash] = row;
    return { id, version, deleted: deleted === 1, hash: hash ?? '' };
  });
}

function isTuple(row: unknown): row is Tuple {
  return (
    Array.isArray(row) &&
    typeof row[0] === 'string' &&
    Number.isInteger(row[1]) &&
    (row[2] === 1 || (row[2] === 0 && typeof row[3] === 'string'))
  );
}

function idsOf(ids: unknown): Id[] {
  if (!Array.isArray(ids) || !ids.every((id) => typeof id === 'string')) throw notAnAnswer('ids');
  return ids;
}

/** A hub, and an earlier build, say nothing of them. */
function nodesOf(nodes: unknown): Nodes | undefined {
  if (nodes === undefined) return undefined;
  const { self, heard, awaited } = (nodes ?? {}) as Record<string, unknown>;
  if (typeof self !== 'string') throw notAnAnswer('nodes');
  return { self, heard: idsOf(heard), awaited: idsOf(awaited) };
}

/** An earlier build says nothing of these. */
function earlyOf(early: unknown): Early[] {
  if (early === undefined) return [];
  const isPair = (one: unknown): one is [Id, number] =>
    Array.isArray(one) && typeof one[0] === 'string' && Number.isInteger(one[1]);
  if (!Array.isArray(early) || !early.every(isPair)) throw notAnAnswer('early');
  return early.map(([id, version]) => ({ id, version }));
}

function isOutline(value: unknown): value is Outline {
  const { name, columns, last, floor } = (value ?? {}) as Record<string, unknown>;
  const isNamed = typeof name === 'string' && typeof columns === 'object';
  return isNamed && (last === null || typeof last === 'string') && isFloor(floor);
}

function isFloor(floor: unknown): floor is number | undefined {
  return floor === undefined || Number.isSafeInteger(floor);
}

function notAnAnswer(what: string): CannotCompare {
  return new CannotCompare(`the peer's answer has no ${what} that can be read`);
}
