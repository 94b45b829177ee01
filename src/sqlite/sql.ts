/** Spelling SQL: names, literals, and expressions of many terms. */

export function quote(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/**
 * The table of that name in the application's database, and not a temporary one that hides it. Every statement of our own
 * says so; the body of a trigger cannot, and need not: there SQLite looks in the trigger's own database alone.
 */
export function inMain(name: string): string {
  return `main.${quote(name)}`;
}

export function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/**
 * A path into JSON, as the argument of a function or of `->>`. To a call with a constant argument SQLite gives registers of
 * its own, and these hold a copy of the JSON until the statement ends: of a row of 20 MB in 60 columns, 60 copies. What a
 * subquery gives is no constant, and one copy serves them all. That takes some time, so it is for what is large alone.
 */
export function pathOf(path: string, large: boolean): string {
  return large ? `(SELECT ${literal(path)})` : literal(path);
}

/**
 * A number that is bound to LIMIT, or to OFFSET where rows come from a function such as json_each. SQLite looks at a bare one when
 * it prepares the statement, and so prepares it anew with every run: for a long statement that is most of what it costs.
 */
export const BOUND_NUMBER = 'CAST(? AS INTEGER)';

/** Names compare as SQLite compares them: ASCII letters without case, everything else byte for byte. */
export function fold(name: string): string {
  return /[A-Z]/.test(name) ? name.replace(/[A-Z]/g, (letter) => letter.toLowerCase()) : name;
}

/** Terms per bracket: SQLite limits the depth of an expression to 1,000, and `a AND b AND c` nests one level per term. */
const TERMS_PER_BRACKET = 100;

/** The terms joined by an operator, in brackets that keep the expression shallow however many columns a table has. */
export function shallow(terms: string[], operator: string): string {
  if (terms.length <= TERMS_PER_BRACKET) return terms.join(operator);
  const groups: string[] = [];
  for (let i = 0; i < terms.length; i += TERMS_PER_BRACKET) {
    groups.push(`(${terms.slice(i, i + TERMS_PER_BRACKET).join(operator)})`);
  }
  return groups.join(operator);
}

/** True where every term is. */
export function conjunction(terms: string[]): string {
  return `(${shallow(terms, ' AND ')})`;
}
