/** What a batch is about, for a store that has the rows elsewhere. */
import { storedRow } from './sqlite-merge.ts';

export interface Examined {
  batchId: number | string;
  count: number;
  /** Those that it is about. */
  rows(): { table: string; id: string }[];
  /** Its changes, where all of them are regular and the sender may make them. */
  regular: RegularChange[] | undefined;
}

/** A change as its row would be stored. */
export interface RegularChange {
  idx: number;
  op: string;
  tbl: string;
  id: string;
  ua: number;
  base: number | null;
  row: string;
}

type Spelt = [idx: number, op: string, tbl: string, id: string, ua: number, base: number | null, row: string];

/**
 * All of them as one text: to make an object of each change takes a binding of SQLite longer than all else about it. A row is
 * the text that it is, and must not become a part of the JSON around it.
 */
export function speltSql(regular: string): string {
  const change = `json_array(idx, op, tbl, id, ua, base, '' || ${storedRow('s')})`;
  return `SELECT json_group_array(${change}) AS list FROM (${regular}) AS s`;
}

export function readSpelt(found: { list: string } | undefined): RegularChange[] {
  const list: Spelt[] = JSON.parse(found?.list ?? '[]');
  return list.map(([idx, op, tbl, id, ua, base, row]) => ({ idx, op, tbl, id, ua, base, row }));
}
