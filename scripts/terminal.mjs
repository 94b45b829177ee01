/** As much of a terminal as the demo uses. Anything else is an error, so that the picture cannot be wrong in silence. */

const ESCAPE = '\x1b';
const SEQUENCE = /\[(\??)([\d;]*)([A-Za-z])/y;
const UNFINISHED = /^(\[\??[\d;]*)?$/;
const STYLES = { 1: 'bold', 2: 'dim', 31: 'red', 32: 'green', 33: 'yellow' };
/** The other screen, the cursor: nothing that a picture shows. */
const UNSEEN = new Set(['?1049h', '?1049l', '?25h', '?25l']);

export class Terminal {
  #size;
  /** Rows of cells, each `{ character, style }`. */
  #cells;
  #row = 0;
  #column = 0;
  #style = '';
  /** The beginning of a sequence whose end has not arrived yet. */
  #rest = '';

  constructor(size) {
    this.#size = size;
    this.#clear();
  }

  /** Lines of spans, each `{ style, text }`, without what is empty at the end. */
  lines() {
    const lines = this.#cells.map(spansOf);
    while (lines.length > 0 && lines.at(-1).length === 0) lines.pop();
    return lines;
  }

  text() {
    return this.lines()
      .map((spans) => spans.map(({ text }) => text).join(''))
      .join('\n');
  }

  write(text) {
    const all = this.#rest + text;
    this.#rest = '';
    for (let at = 0; at < all.length; ) {
      if (all[at] !== ESCAPE) {
        this.#put(all[at]);
        at += 1;
        continue;
      }
      SEQUENCE.lastIndex = at + 1;
      const found = SEQUENCE.exec(all);
      if (found) {
        this.#obey(found);
        at = SEQUENCE.lastIndex;
      } else if (UNFINISHED.test(all.slice(at + 1))) {
        this.#rest = all.slice(at);
        return;
      } else throw new Error(`no terminal sequence that is known here: ${JSON.stringify(all.slice(at, at + 12))}`);
    }
  }

  #obey([sequence, mark, parameters, letter]) {
    const numbers = parameters.split(';').map(Number);
    if (UNSEEN.has(`${mark}${parameters}${letter}`)) return;
    if (letter === 'J' && parameters === '2') this.#clear();
    else if (letter === 'H') [this.#row, this.#column] = numbers.map((number) => number - 1);
    else if (letter === 'K' && parameters === '') this.#cells[this.#row].splice(this.#column);
    else if (letter === 'm' && (numbers[0] === 0 || numbers[0] in STYLES)) this.#style = STYLES[numbers[0]] ?? '';
    else throw new Error(`no terminal sequence that is known here: ${JSON.stringify(sequence)}`);
  }

  #put(character) {
    if (character === '\r') this.#column = 0;
    else if (character === '\n') this.#row = Math.min(this.#row + 1, this.#size.rows - 1);
    else if (this.#column < this.#size.columns) {
      const line = this.#cells[this.#row];
      while (line.length < this.#column) line.push({ character: ' ', style: '' });
      line[this.#column] = { character, style: this.#style };
      this.#column += 1;
    }
  }

  #clear() {
    this.#cells = Array.from({ length: this.#size.rows }, () => []);
  }
}

function spansOf(cells) {
  const spans = [];
  for (const { character, style } of cells) {
    if (spans.at(-1)?.style === style) spans.at(-1).text += character;
    else spans.push({ style, text: character });
  }
  return spans;
}
