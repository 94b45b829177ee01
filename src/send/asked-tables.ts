/** How tables are named that somebody is asked to send: in a header, and in the file. A node and a hub read it alike. */
import type { Table } from '../sqlite/schema.ts';
import { fold } from '../sqlite/sql.ts';

/** A header must stay short, or servers refuse the request. */
const HEADER_MAX = 2_000;
export const ALL_TABLES = '*';

/** `asks` of `_peer_state` as the value of a header. */
export function askHeader(asks: string): string {
  const value = encodeURIComponent(asks);
  return value.length > HEADER_MAX ? ALL_TABLES : value;
}

/** The tables that a header asks for, folded. Whatever else it may hold asks for nothing. */
export function namesAsked(header: string): string[] | typeof ALL_TABLES {
  if (header === ALL_TABLES) return ALL_TABLES;
  try {
    return namesIn(decodeURIComponent(header)).map(fold);
  } catch {
    return [];
  }
}

/** Those of these tables that a header asks for. */
export function askedFor(tables: Table[], header: string): Table[] {
  const asked = namesAsked(header);
  if (asked === ALL_TABLES) return tables;
  return tables.filter(({ name, was }) => [name, ...was].some((one) => asked.includes(fold(one))));
}

/** A JSON array of names, written by us; of anything else, nothing. */
export function namesIn(json: string): string[] {
  try {
    const names: unknown = JSON.parse(json);
    return Array.isArray(names) ? names.filter((name) => typeof name === 'string') : [];
  } catch {
    return [];
  }
}
