/**
 * Batches for all edges. Edges at the same position share one that is read and serialised once; an edge whose own
 * changes are among them gets the same bytes without those. A few of the latest batches are kept, so that memory does
 * not depend on how many edges there are or how slow.
 */
import { isUtf8 } from 'node:buffer';
import type { Shipment } from '../send/shipment.ts';
import type { Connection } from '../sqlite/connection.ts';
import {
  BATCH_END,
  type BatchLimit,
  type Body,
  batchHead,
  batchSql,
  changeSql,
  fitting,
  STORED_BYTES,
  wellFormed,
} from '../wire/body.ts';

/** Neighbouring changes that came from one node: where they are in the body. */
interface Run {
  origin: string | null;
  start: number;
  end: number;
  count: number;
}

type HubShipment = Shipment<RowPosition>;

interface Batch {
  shipment: HubShipment;
  runs: Run[];
}

/** Where a shipment of the hub ends. */
export interface RowPosition {
  seq: number;
}

const BATCHES_KEPT = 8;
const BYTES_KEPT = 32 * 1024 * 1024;

export class FanOut {
  readonly #db: Connection;
  /** The limits all edges normally have; only such batches are worth keeping. */
  readonly #common: BatchLimit;
  /** By the position they begin after, the least recently used first. */
  readonly #kept = new Map<number, Batch>();
  /** How often a batch was read from the database, and how often one was handed out: what sharing saves. */
  reads = 0;
  served = 0;

  constructor(db: Connection, common: BatchLimit) {
    this.#db = db;
    this.#common = common;
  }

  /** The next changes after `position` that did not come from `except`; undefined where there are none. */
  next(position: number, limit: BatchLimit, except: string | undefined): HubShipment | undefined {
    // A shorter batch than usual is asked for while refused changes are searched for. It must have its full number.
    const usual = limit.changes === this.#common.changes && limit.bytes === this.#common.bytes;
    if (!usual) return this.#read(position, limit, except)?.shipment;
    for (let from = position; ; ) {
      const batch = this.#batch(from, limit);
      if (!batch) return undefined;
      this.served += 1;
      const own = except !== undefined && batch.runs.some(({ origin }) => origin === except);
      const rest = own ? without(batch, except) : batch.shipment;
      if (rest) return rest;
      from = batch.shipment.end.seq;
    }
  }

  /**
   * Where to go on after whole batches that came from `except` alone. Serialising these, only to leave them out, would
   * double the cost of an edge that is the only one to write; going further than that, it would leave the others behind
   * and no longer share with them.
   */
  skip(position: number, except: string | undefined): number {
    if (except === undefined) return position;
    for (let from = position; ; ) {
      // One row first: mostly it is somebody else's.
      if (!this.#ownSlice(from, except, 1)) return from;
      const last = this.#ownSlice(from, except, this.#common.changes);
      if (last === undefined) return from;
      from = last;
    }
  }

  /** The last seq of the next `count` rows, where there are any and all of them came from `except`. */
  #ownSlice(from: number, except: string, count: number): number | undefined {
    const slice = this.#db.get<{ last: number | null; others: number | null }>(
      'SELECT max(seq) AS last, sum(origin IS NOT ?) AS others FROM ' +
        '(SELECT seq, origin FROM _hub_rows WHERE seq > ? ORDER BY seq LIMIT CAST(? AS INTEGER))',
      except,
      from,
      count,
    );
    return slice?.others === 0 ? (slice.last as number) : undefined;
  }

  #batch(from: number, limit: BatchLimit): Batch | undefined {
    const kept = this.#kept.get(from);
    this.#kept.delete(from);
    if (kept && this.#isCurrent(from, kept.shipment)) {
      this.#kept.set(from, kept);
      return kept;
    }
    const batch = this.#read(from, limit, undefined);
    if (batch) this.#keep(from, batch);
    return batch;
  }

  /**
   * Rows leave their place only by advancing; an edge that is behind is not to be led through versions that are over.
   */
  #isCurrent(from: number, { end, count }: HubShipment): boolean {
    const sql = 'SELECT count(*) AS n FROM _hub_rows WHERE seq > ? AND seq <= ?';
    return this.#db.get<{ n: number }>(sql, from, end.seq)?.n === count;
  }

  #keep(from: number, batch: Batch): void {
    this.#kept.set(from, batch);
    let bytes = 0;
    for (const { shipment } of this.#kept.values()) bytes += shipment.body.byteLength;
    for (const [oldest, { shipment }] of this.#kept) {
      if (this.#kept.size <= BATCHES_KEPT && bytes <= BYTES_KEPT) break;
      this.#kept.delete(oldest);
      bytes -= shipment.body.byteLength;
    }
  }

  #read(after: number, limit: BatchLimit, except: string | undefined): Batch | undefined {
    const others = except === undefined ? '' : 'AND origin IS NOT ?';
    const line = {
      from: `FROM _hub_rows WHERE seq > ? ${others} ORDER BY seq LIMIT CAST(? AS INTEGER)`,
      params: except === undefined ? [after] : [after, except],
      place: 'seq',
      change: CHANGE,
      bytes: STORED_BYTES,
    };
    const params = [...line.params, fitting(this.#db, line, limit)];
    const found = this.#db.get<{ body: Body; last: number | null; n: number; origin: string | null; mixed: number }>(
      `SELECT ${batchSql('max(seq)')} AS body, max(seq) AS last, count(*) AS n, ` +
        `max(origin) AS origin, ${MIXED} AS mixed ` +
        `FROM (SELECT seq, origin, ${CHANGE} AS change ${line.from})`,
      ...params,
    );
    if (!found || found.last === null) return undefined;
    this.reads += 1;
    const end = { seq: found.last };
    const shipment: HubShipment = { batchId: found.last, body: wellFormed(found.body), count: found.n, end };
    const head = batchHead(found.last).length;
    const whole = { origin: found.origin, start: head, end: found.body.byteLength - BATCH_END.length, count: found.n };
    if (found.mixed === 0) return { shipment, runs: [whole] };
    // Where bytes had to be mended, sizes no longer fit; such a batch goes to every edge whole.
    if (!isUtf8(found.body)) return { shipment, runs: [] };
    const parts = this.#db.get<{ origins: string; sizes: string }>(
      'SELECT json_group_array(origin) AS origins, json_group_array(size) AS sizes ' +
        `FROM (SELECT origin, octet_length(${CHANGE}) AS size ${line.from})`,
      ...params,
    );
    return { shipment, runs: runsOf(head, JSON.parse(parts?.origins ?? '[]'), JSON.parse(parts?.sizes ?? '[]')) };
  }
}

/**
 * The batch without the changes of one node, copied out of the bytes that are there; undefined where nothing is left.
 */
function without({ shipment, runs }: Batch, except: string): HubShipment | undefined {
  const others = runs.filter(({ origin }) => origin !== except);
  if (others.length === 0) return undefined;
  const head = shipment.body.subarray(0, (runs[0] as Run).start);
  const size = others.reduce((sum, { start, end }) => sum + end - start + 1, head.byteLength + 1);
  const body = new Uint8Array(size);
  body.set(head);
  let at = head.byteLength;
  others.forEach(({ start, end }, i) => {
    if (i > 0) body[at++] = COMMA;
    body.set(shipment.body.subarray(start, end), at);
    at += end - start;
  });
  body.set(TAIL, at);
  return { ...shipment, body, count: others.reduce((sum, { count }) => sum + count, 0) };
}

function runsOf(head: number, origins: (string | null)[], sizes: number[]): Run[] {
  const runs: Run[] = [];
  let at = head;
  origins.forEach((origin, i) => {
    const end = at + (sizes[i] as number);
    const run = runs.at(-1);
    if (run?.origin === origin) Object.assign(run, { end, count: run.count + 1 });
    else runs.push({ origin, start: at, end, count: 1 });
    at = end + 1;
  });
  return runs;
}

const COMMA = 0x2c;
const TAIL = new TextEncoder().encode(BATCH_END);

/** The rows of a batch came from more than one node. */
const MIXED = '(min(origin) <> max(origin) OR count(origin) NOT IN (0, count(*))) IS 1';

/** A stored row as the change it came as. */
const CHANGE = changeSql({
  op: 'op',
  table: 'table_name',
  row: 'row_data',
  oldId: "iif(op = 'DELETE', json_quote(row_id), 'null')",
});
