/**
 * A text of SQL taken apart into its statements, as far as a migration needs it: so that the error can name the one that
 * failed, and a transaction around them, which a file for another tool may have, is left out. There is one already.
 */

/** Strings, names in quotes, comments, words, and the semicolon; everything else says nothing here. */
const TOKEN = /'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|\/\*[\s\S]*?\*\/|[A-Za-z_]\w*|;/g;

/** Every statement, without its semicolon and without comments before it. */
export function statementsIn(sql: string): string[] {
  const found: string[] = [];
  let start = 0;
  let words: string[] = [];
  const end = (at: number): void => {
    if (words.length > 0) found.push(sql.slice(start, at).replace(LEADING, '').trim());
    start = at + 1;
    words = [];
  };
  for (const { 0: token, index } of sql.matchAll(TOKEN)) {
    if (token === ';') {
      if (!isInBody(words)) end(index);
    } else if (/^[A-Za-z_]/.test(token)) words.push(token.toUpperCase());
  }
  end(sql.length);
  return found;
}

/** BEGIN, COMMIT and END, which frame a file; SAVEPOINT and ROLLBACK do more than that, and are not taken for it. */
export function isFrame(statement: string): boolean {
  return /^(BEGIN|COMMIT|END)(\s+(DEFERRED|IMMEDIATE|EXCLUSIVE))?(\s+TRANSACTION)?$/i.test(statement);
}

const LEADING = /^(?:\s|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/)+/;

/** The statements of a trigger end in semicolons of their own, and the trigger with END. CASE ends in END as well. */
function isInBody(words: string[]): boolean {
  const [first, second, third] = words;
  const isTrigger =
    first === 'CREATE' && (second === 'TRIGGER' || (/^TEMP(ORARY)?$/.test(second ?? '') && third === 'TRIGGER'));
  if (!isTrigger) return false;
  const opened = words.filter((word) => word === 'BEGIN' || word === 'CASE').length;
  const closed = words.filter((word) => word === 'END').length;
  return opened === 0 || closed < opened;
}
