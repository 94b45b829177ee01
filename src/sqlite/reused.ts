/**
 * Expressions and declarations of the application's schema, as they can stand in a statement of ours: in which its table has
 * another name, and on a connection that may take what is in double quotes for a name alone.
 */
import { fold, literal } from './sql.ts';

/** Patterns of what SQL is made of. */
export const COMMENT = String.raw`--[^\n]*(?:\n|$)|/\*[\s\S]*?\*/`;
export const GAP = String.raw`(?:\s|${COMMENT})*`;
export const QUOTED = String.raw`"(?:[^"]|"")*"|\x60(?:[^\x60]|\x60\x60)*\x60|\[[^\]]*\]`;
export const TEXT = `'(?:[^']|'')*'`;
export const WORD = String.raw`[\w$\x80-\u{10ffff}]+`;

const NAME = String.raw`(?:${QUOTED}|[A-Za-z_\x80-\u{10ffff}][\w$\x80-\u{10ffff}]*)`;

/** A comment, a text, or a name; the group is a name that a dot follows, with or without the one of the database before it. */
const PART = new RegExp(
  String.raw`${COMMENT}|${TEXT}|(?:["\x60[]?main["\x60\]]?${GAP}\.${GAP})?(${NAME})${GAP}\.(?!\d)|${QUOTED}|${WORD}`,
  'giu',
);

/** Of a function, or of what has columns in brackets behind it. */
const BRACKET = new RegExp(`${GAP}\\(`, 'uy');

/** Each is a column wherever there is none of that name. */
const ROWIDS = ['rowid', 'oid', '_rowid_'];

/**
 * Without the name of the table before the names of its columns: `items.name` and `main.items.name` become `name`. And with
 * single quotes around what stands in double quotes and is no name of `columns`, which are in lower case: SQLite takes that for
 * a text when it reads a schema, whatever the connection makes of it in a statement.
 */
export function reused(sql: string, table: string, columns: ReadonlySet<string>): string {
  return sql.replace(PART, (part: string, qualifier: string | undefined, offset: number) => {
    if (qualifier !== undefined) return fold(bare(qualifier)) === fold(table) ? '' : part;
    if (!part.startsWith('"')) return part;
    const name = fold(bare(part));
    if (columns.has(name) || ROWIDS.includes(name)) return part;
    BRACKET.lastIndex = offset + part.length;
    return BRACKET.test(sql) ? part : literal(bare(part));
  });
}

function bare(name: string): string {
  const [first] = name;
  if (first === '[') return name.slice(1, -1);
  return first === '"' || first === '`' ? name.slice(1, -1).replaceAll(first + first, first) : name;
}
