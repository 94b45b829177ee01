/** What a hub holds, for comparisons with it and by it: `_hub_rows` by table and id, which is the order of the wire already. */
import type { Id, Range } from '../compare/ids.ts';
import {
  type Columns,
  type Entry,
  firstThatFit,
  type Outline,
  type Parcel,
  type Portion,
  type Spelt,
} from '../compare/ledger.ts';
import { hashOf, jsonLines, rowLine, tombstoneLines } from '../compare/lines.ts';
import type { Connection, Value } from '../sqlite/connection.ts';
import { type Body, batchSql, batchText } from '../wire/body.ts';
import { exactText } from '../wire/exact-text.ts';
import { WIRE_LINE } from '../wire/values.ts';
import { CHANGE } from './sqlite-read.ts';
import type { HubLedger, Seq } from './store.ts';

/** Rows by ids, of a range or of a list; the name of the table is bound first. */
interface Choice {
  where: string;
  params: Value[];
}

export class SqliteHubLedger implements HubLedger {
  readonly #db: Connection;
  readonly #tables: () => Promise<string[]>;

  constructor(db: Connection, tables: () => Promise<string[]>) {
    this.#db = db;
    this.#tables = tables;
  }

  async outline(): Promise<Outline[]> {
    const names = await this.#tables();
    return names.map((name) => {
      const sql = 'SELECT max(row_id) AS id FROM _hub_rows WHERE table_name = ?';
      return { name, columns: null, last: this.#db.get<{ id: Id | null }>(sql, name)?.id ?? null };
    });
  }

  async cut(table: string, range: Range, portion: Portion): Promise<Id | null> {
    const { where, params } = within(table, range);
    const sql =
      `SELECT max(row_id) AS "end", count(*) AS rows, coalesce(sum(octet_length(row_data)), 0) AS bytes ` +
      `FROM (SELECT row_id, row_data FROM _hub_rows ${where} ORDER BY row_id LIMIT CAST(? AS INTEGER))`;
    for (let rows = portion.rows; ; ) {
      const found = this.#db.get<Measured>(sql, ...params, rows) as Measured;
      if (found.rows > 1 && found.bytes > portion.bytes) {
        rows = Math.max(1, Math.min(found.rows >> 1, Math.floor((found.rows * portion.bytes) / found.bytes)));
        continue;
      }
      return found.rows === rows ? found.end : null;
    }
  }

  async spell(table: string, columns: Columns, range: Range, floor?: number): Promise<Spelt> {
    const choice = within(table, range);
    const found = this.#db.get<{ n: number; text: Uint8Array | null }>(
      `SELECT count(*) AS n, CAST(group_concat(line, '') AS BLOB) AS text FROM (${lines(columns, choice, floor)})`,
      ...twice(choice),
    );
    return found?.text ? { rows: found.n, texts: [found.text] } : { rows: 0, texts: [] };
  }

  async list(table: string, columns: Columns, range: Range): Promise<Entry[]> {
    return this.#entries(columns, within(table, range));
  }

  async entries(table: string, columns: Columns, ids: Id[]): Promise<Entry[]> {
    return this.#entries(columns, among(table, ids));
  }

  async after(table: string, ids: Id[], position: Seq): Promise<Id[]> {
    const { where, params } = among(table, ids);
    const rows = this.#db.all<{ id: Id }>(
      `SELECT row_id AS id FROM _hub_rows ${where} AND seq > ?`,
      ...params,
      position,
    );
    return rows.map(({ id }) => id);
  }

  async changes(table: string, ids: Id[], batchId: number, portion: Portion): Promise<Parcel> {
    const { where, params } = among(table, ids);
    const sized = this.#db.all<{ id: Id; bytes: number }>(
      `SELECT row_id AS id, octet_length(row_data) + 100 AS bytes FROM _hub_rows ${where} ORDER BY row_id`,
      ...params,
    );
    const { fitting, rest } = firstThatFit(sized, portion);
    const chosen = among(table, fitting);
    const found = this.#db.get<{ body: Body | null; n: number }>(
      `SELECT ${batchSql('CAST(? AS INTEGER)')} AS body, count(*) AS n ` +
        `FROM (SELECT ${CHANGE} AS change FROM _hub_rows ${chosen.where} ORDER BY row_id)`,
      batchId,
      ...chosen.params,
    );
    if (!found?.body) return { body: new TextEncoder().encode(batchText(batchId, '')), count: 0, rest };
    return { body: exactText(found.body), count: found.n, rest };
  }

  #entries(columns: Columns, choice: Choice): Entry[] {
    const rows = this.#db.all<{ k: Id; version: number; deleted: number; line: string }>(
      lines(columns, choice),
      ...twice(choice),
    );
    return rows.map(({ k, version, deleted, line }) => ({
      id: k,
      version: Number(version),
      deleted: deleted === 1,
      hash: deleted === 1 ? '' : hashOf(line),
    }));
  }
}

interface Measured {
  end: Id | null;
  rows: number;
  bytes: number;
}

function within(table: string, { after, upTo }: Range): Choice {
  const bounds = [...(after === null ? [] : ['row_id > ?']), ...(upTo === null ? [] : ['row_id <= ?'])];
  return {
    where: `WHERE ${['table_name = ?', ...bounds].join(' AND ')}`,
    params: [table, after, upTo].filter((one) => one !== null),
  };
}

function among(table: string, ids: Id[]): Choice {
  const where = 'WHERE table_name = ? AND row_id IN (SELECT value FROM json_each(?))';
  return { where, params: [table, JSON.stringify(ids)] };
}

function twice({ params }: Choice): Value[] {
  return [...params, ...params];
}

/** `k`, `version`, `deleted` and `line` of the live rows and of the tombstones, in the order of the ids. */
function lines(columns: Columns, { where }: Choice, floor?: number): string {
  const source = 'SELECT row_id AS k, updated_at AS version, row_data AS r FROM _hub_rows';
  const live = `${source} ${where} AND op <> 'DELETE'`;
  const rows =
    columns === null
      ? `SELECT k, version, 0 AS deleted, ${rowLine(WHOLE)} AS line FROM (${live})`
      : jsonLines(columns, live);
  const above = floor === undefined ? '' : ` AND updated_at > ${floor}`;
  const tombstones = tombstoneLines(`${source} ${where} AND op = 'DELETE'${above}`, 'k');
  return `${rows} UNION ALL ${tombstones} ORDER BY k`;
}

/** Between two that know no schema: all that a row has, by name. */
const WHOLE =
  "(SELECT group_concat(line, '') FROM (SELECT json_quote(lower(e.key)) || ':' || " +
  `${WIRE_LINE} AS line FROM json_each(r) AS e WHERE e.type <> 'null' ORDER BY lower(e.key), e.id))`;
