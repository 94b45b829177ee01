/** Expressions of the application's schema, as they can stand in a statement of ours in which its table has another name. */
import { fold } from './sql.ts';

/** Patterns of what SQL is made of. */
const COMMENT = String.raw`--[^\n]*(?:\n|$)|/\*[\s\S]*?\*/`;
export const GAP = String.raw`(?:\s|${COMMENT})*`;
export const QUOTED = String.raw`"(?:[^"]|"")*"|\x60(?:[^\x60]|\x60\x60)*\x60|\[[^\]]*\]`;
export const TEXT = `'(?:[^']|'')*'`;

const NAME = String.raw`(?:${QUOTED}|[A-Za-z_\x80-\u{10ffff}][\w$\x80-\u{10ffff}]*)`;

/** A comment, a text, or a name; the group is a name that a dot follows, with or without the one of the database before it. */
const PART = new RegExp(
  String.raw`${COMMENT}|${TEXT}|(?:["\x60[]?main["\x60\]]?${GAP}\.${GAP})?(${NAME})${GAP}\.(?!\d)|${QUOTED}|[\w$\x80-\u{10ffff}]+`,
  'giu',
);

/** Without the name of the table before the names of its columns: `items.name` and `main.items.name` become `name`. */
export function unqualified(sql: string, table: string): string {
  return sql.replace(PART, (part, name?: string) =>
    name !== undefined && fold(bare(name)) === fold(table) ? '' : part,
  );
}

function bare(name: string): string {
  const [first] = name;
  if (first === '[') return name.slice(1, -1);
  return first === '"' || first === '`' ? name.slice(1, -1).replaceAll(first + first, first) : name;
}
