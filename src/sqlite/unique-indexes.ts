/** What is unique in a table, by its constraints and by CREATE UNIQUE INDEX: columns, expressions and conditions. */
import type { Connection } from './connection.ts';
import { COMMENT, QUOTED, reused, TEXT, WORD } from './reused.ts';

export interface UniqueConstraint {
  /** Each column, or an expression over columns instead, with the collation under which it is unique. */
  columns: { name: string; expression?: string; collation: string }[];
  /** The condition of a partial index. */
  where?: string;
}

interface UniqueIndex extends UniqueConstraint {
  primary: boolean;
}

/** `columns` are the names of all columns of the table, in lower case. */
export function uniqueIndexes(db: Connection, table: string, columns: ReadonlySet<string>): UniqueIndex[] {
  const indexes = db.all<{ name: string; origin: string; sql: string | null }>(
    "SELECT l.name AS name, l.origin AS origin, m.sql AS sql FROM pragma_index_list(?, 'main') AS l LEFT JOIN main.sqlite_schema AS m " +
      'ON m.type = \'index\' AND m.name = l.name WHERE l."unique" = 1',
    table,
  );
  const asOurs = (sql: string): string => reused(sql, table, columns);
  return indexes.map((index) => {
    const parts = db.all<{ name: string | null; coll: string }>(
      "SELECT name, coll FROM pragma_index_xinfo(?, 'main') WHERE key = 1 ORDER BY seqno",
      index.name,
    );
    const { terms, where } = index.sql === null ? { terms: [], where: undefined } : partsOfIndex(index.sql);
    return {
      primary: index.origin === 'pk',
      columns: parts.map((part, i) =>
        part.name === null
          ? { name: 'an expression', expression: asOurs(terms[i] ?? 'NULL'), collation: part.coll }
          : { name: part.name, collation: part.coll },
      ),
      ...(where !== undefined && { where: asOurs(where) }),
    };
  });
}

const TOKEN = new RegExp(String.raw`(${COMMENT})|${TEXT}|${QUOTED}|${WORD}|\S`, 'gu');

/** The terms and the condition of CREATE INDEX: SQLite's pragmas tell neither what an expression nor what WHERE says. */
function partsOfIndex(sql: string): { terms: string[]; where: string | undefined } {
  const terms: string[] = [];
  let depth = 0;
  let start = 0;
  let term: Token[] = [];
  for (const { 0: text, 1: comment, index } of sql.matchAll(TOKEN)) {
    if (comment !== undefined) continue;
    if (text === ')') depth--;
    const isEnd = (text === ',' && depth === 1) || (text === ')' && depth === 0);
    if (isEnd) terms.push(sql.slice(start, orderOf(term) ?? index));
    if (isEnd && text === ')') return { terms, where: CONDITION.exec(sql.slice(index + 1))?.[1] };
    if (text === '(') depth++;
    if (isEnd || (text === '(' && depth === 1)) {
      start = index + 1;
      term = [];
    } else term.push({ text, index });
  }
  return { terms, where: undefined };
}

interface Token {
  text: string;
  index: number;
}

/** Where ASC or DESC stands behind a term. After an operator it would be a column that is called so. */
function orderOf(term: Token[]): number | undefined {
  const [before, last] = term.slice(-2);
  return before && last && /^(?:asc|desc)$/i.test(last.text) && OPERAND.test(before.text) ? last.index : undefined;
}

const OPERAND = /[\w$)'"`\]\x80-\u{10ffff}]$/u;

/** SQLite keeps a comment that stands before it. */
const CONDITION = /^(?:\s|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/)*where\b([\s\S]*)$/i;
