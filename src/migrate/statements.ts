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
      if (isInBody(words)) words.push(token);
      else end(index);
    } else if (/^[A-Za-z_]/.test(token)) words.push(token.toUpperCase());
  }
  end(sql.length);
  return found;
}

/** BEGIN, COMMIT and END, which frame a file; what SAVEPOINT and ROLLBACK do is more than that. */
export function isFrame(statement: string): boolean {
  return FRAME.test(withoutComments(statement));
}

/** It takes everything back, and ends the transaction that the rest is to be in. To a savepoint it may go back. */
export function isRollback(statement: string): boolean {
  return ROLLBACK.test(withoutComments(statement));
}

function withoutComments(statement: string): string {
  return statement.replace(COMMENT, ' ').trim();
}

/** A transaction may have a name, which SQLite reads and forgets. */
const TRANSACTION = /(\s+TRANSACTION(\s*(\w+|"[^"]*"|'[^']*'|`[^`]*`|\[[^\]]*\]))?)?$/.source;
const FRAME = new RegExp(`^(BEGIN|COMMIT|END)(\\s+(DEFERRED|IMMEDIATE|EXCLUSIVE))?${TRANSACTION}`, 'i');
const ROLLBACK = new RegExp(`^ROLLBACK(?!\\s+(TRANSACTION\\s+)?TO\\b)${TRANSACTION}`, 'i');

const COMMENT = /--[^\n]*|\/\*[\s\S]*?\*\//g;
const LEADING = /^(?:\s|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/)+/;

/**
 * The statements of a trigger end in semicolons of their own, and the trigger with an END that comes right after one. CASE
 * ends in END as well, and a column may be called begin or end.
 */
function isInBody(words: string[]): boolean {
  const [first, second, third] = words;
  const isTrigger =
    first === 'CREATE' && (second === 'TRIGGER' || (/^TEMP(ORARY)?$/.test(second ?? '') && third === 'TRIGGER'));
  return isTrigger && !(words.at(-2) === ';' && words.at(-1) === 'END');
}
