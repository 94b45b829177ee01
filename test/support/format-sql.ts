/** Generated SQL in lines that a person can read. Only white space is changed: without it the text is the same. */

const WIDTH = 110;

/** A token with the space that stood before it, or everything between an opening and its closing one. */
type Item = { space: boolean; text: string } | { space: boolean; open: string; items: Item[]; close: string };

const TOKEN = /'(?:[^']|'')*'|"(?:[^"]|"")*"|[\w$]+|[<>=!|]+|\S/g;

/** Words that begin a line where the whole does not fit on one. */
const BREAKS = new Set('WHEN ELSE SELECT FROM WHERE LEFT VALUES AND OR UNION FOR ON'.split(' '));
/** Those that belong to the line before. */
const INDENTED = new Set(['AND', 'OR']);

export function formatSql(sql: string): string {
  return render(parse(sql), '').join('\n');
}

function parse(sql: string): Item[] {
  const stack: Item[][] = [[]];
  const opened: { space: boolean; open: string }[] = [];
  for (const { 0: text, index } of sql.matchAll(TOKEN)) {
    const space = /\s/.test(sql[index - 1] ?? '');
    if (text === '(' || text === 'CASE' || text === 'BEGIN') {
      opened.push({ space, open: text });
      stack.push([]);
    } else if ((text === ')' || text === 'END') && opened.length > 0) {
      const items = stack.pop() as Item[];
      stack.at(-1)?.push({ ...(opened.pop() as { space: boolean; open: string }), items, close: text });
    } else {
      stack.at(-1)?.push({ space, text });
    }
  }
  return stack[0] as Item[];
}

function flat(items: Item[]): string {
  return items.map((item, i) => (item.space && i > 0 ? ' ' : '') + flatItem(item)).join('');
}

function flatItem(item: Item): string {
  if ('text' in item) return item.text;
  const inner = flat(item.items);
  return item.open === '(' ? `(${inner})` : `${item.open} ${inner} ${item.close}`;
}

function render(items: Item[], indent: string): string[] {
  if (indent.length + flat(items).length <= WIDTH && !items.some(hasStatements)) {
    return [indent + flat(items)];
  }
  return segments(items).flatMap((segment) => {
    const [first] = segment;
    const deeper = first && 'text' in first && INDENTED.has(first.text) ? '  ' : '';
    return renderSegment(segment, indent + deeper);
  });
}

/** Each statement of a trigger is on a line of its own, at least. */
function hasStatements(item: Item): boolean {
  return 'text' in item ? item.text === ';' : item.open === 'BEGIN';
}

/** Cut before the words that begin a line, and after commas and semicolons. */
function segments(items: Item[]): Item[][] {
  const found: Item[][] = [[]];
  let between = false;
  let selecting = false;
  for (const item of items) {
    const word = 'text' in item ? item.text : '';
    if (BREAKS.has(word)) selecting = word === 'SELECT';
    const breaks = BREAKS.has(word) && !(word === 'AND' && between);
    if (word === 'BETWEEN') between = true;
    else if (word === 'AND') between = false;
    if (breaks && (found.at(-1)?.length ?? 0) > 0) found.push([]);
    found.at(-1)?.push(item);
    if ((word === ',' && !selecting) || word === ';') found.push([]);
  }
  return found.filter((segment) => segment.length > 0);
}

function renderSegment(segment: Item[], indent: string): string[] {
  if (indent.length + flat(segment).length <= WIDTH && !segment.some(hasStatements)) return [indent + flat(segment)];
  const lines: string[] = [];
  let line = indent;
  for (const [i, item] of segment.entries()) {
    const gap = item.space && i > 0 ? ' ' : '';
    if ('text' in item || (line.length + flatItem(item).length <= WIDTH && !hasStatements(item))) {
      line += gap + flatItem(item);
      continue;
    }
    lines.push(line + gap + item.open, ...render(item.items, `${indent}  `));
    line = indent + item.close;
  }
  return [...lines, line];
}
