/**
 * JSON as its specification has it (RFC 8259), read so that nothing is lost: keys that come twice, integers of any
 * length, the text of every number, half surrogate pairs. Written from the grammar, to judge those who read it otherwise.
 */
export type Json =
  | { kind: 'null' | 'true' | 'false' }
  /** The number as it is written. */
  | { kind: 'number'; text: string }
  | { kind: 'string'; value: string }
  | { kind: 'array'; items: Json[] }
  | { kind: 'object'; fields: [key: string, value: Json][] };

/** What was read, and the part of the text it was read from, without the white space between its tokens. */
export interface Read {
  json: Json;
  /** The same text with no white space outside of strings. */
  minified(node: Json): string;
}

/** SQLite reads no deeper. */
export const DEPTH_MAX = 1_000;

/** Undefined where the text is not JSON. */
export function readJson(text: string): Read | undefined {
  const reader = new Reader(text);
  try {
    const json = reader.document();
    return { json, minified: (node) => reader.minified(node) };
  } catch (error) {
    if (error instanceof NotJson) return undefined;
    throw error;
  }
}

/** The first field of that name: SQLite and Rowcast read the first of two. */
export function field(json: Json | undefined, key: string): Json | undefined {
  if (json?.kind !== 'object') return undefined;
  return json.fields.find(([name]) => name === key)?.[1];
}

/** A string token in which an escape that is half a surrogate pair is the replacement character instead. */
function wholePairs(token: string): string {
  const pieces = token.match(/\\u[0-9a-fA-F]{4}|\\.|[^\\]+/g) ?? [];
  const unitOf = (piece: string | undefined): number =>
    piece?.startsWith('\\u') ? Number.parseInt(piece.slice(2), 16) : 0;
  const isHigh = (unit: number): boolean => unit >= 0xd800 && unit < 0xdc00;
  const isLow = (unit: number): boolean => unit >= 0xdc00 && unit < 0xe000;
  let paired = -1;
  const whole = pieces.map((piece, i) => {
    const unit = unitOf(piece);
    if (isHigh(unit) && isLow(unitOf(pieces[i + 1]))) {
      paired = i + 1;
      return piece;
    }
    return (isHigh(unit) || isLow(unit)) && paired !== i ? '\\ufffd' : piece;
  });
  return whole.join('');
}

class NotJson extends Error {}

class Reader {
  readonly #text: string;
  readonly #spans = new Map<Json, [number, number]>();
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  document(): Json {
    this.#space();
    const json = this.#value();
    this.#space();
    if (this.#at < this.#text.length) throw new NotJson();
    return json;
  }

  minified(node: Json): string {
    const [start, end] = this.#spans.get(node) as [number, number];
    const token = /"(?:[^"\\]|\\.)*"|[ \t\r\n]+/g;
    return this.#text.slice(start, end).replace(token, (found) => (found.startsWith('"') ? wholePairs(found) : ''));
  }

  #value(): Json {
    const start = this.#at;
    const json = this.#bare();
    this.#spans.set(json, [start, this.#at]);
    return json;
  }

  #bare(): Json {
    switch (this.#text[this.#at]) {
      case '{':
        return this.#nested(() => this.#object());
      case '[':
        return this.#nested(() => this.#array());
      case '"':
        return { kind: 'string', value: this.#string() };
      case 'n':
        return this.#word('null');
      case 't':
        return this.#word('true');
      case 'f':
        return this.#word('false');
      default:
        return { kind: 'number', text: this.#match(/-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y) };
    }
  }

  #nested(read: () => Json): Json {
    this.#depth += 1;
    if (this.#depth > DEPTH_MAX) throw new NotJson();
    const json = read();
    this.#depth -= 1;
    return json;
  }

  #object(): Json {
    const fields: [string, Json][] = [];
    this.#list('{', '}', () => {
      const key = this.#string();
      this.#space();
      this.#take(':');
      this.#space();
      fields.push([key, this.#value()]);
    });
    return { kind: 'object', fields };
  }

  #array(): Json {
    const items: Json[] = [];
    this.#list('[', ']', () => items.push(this.#value()));
    return { kind: 'array', items };
  }

  #list(open: string, close: string, item: () => void): void {
    this.#take(open);
    this.#space();
    if (this.#text[this.#at] !== close) {
      item();
      this.#space();
      while (this.#text[this.#at] === ',') {
        this.#at += 1;
        this.#space();
        item();
        this.#space();
      }
    }
    this.#take(close);
  }

  #string(): string {
    const raw = this.#match(/"(?:[^"\\\p{Cc}]|[\x7f-\x9f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"/uy);
    if (!raw.includes('\\')) return raw.slice(1, -1);
    const escapes: Record<string, string> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };
    return raw
      .slice(1, -1)
      .replace(/\\(?:u([0-9a-fA-F]{4})|(.))/gs, (_, hex?: string, letter = '') =>
        hex === undefined ? (escapes[letter] ?? letter) : String.fromCharCode(Number.parseInt(hex, 16)),
      );
  }

  #word(kind: 'null' | 'true' | 'false'): Json {
    this.#take(kind);
    return { kind };
  }

  #match(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found === undefined) throw new NotJson();
    this.#at += found.length;
    return found;
  }

  #take(text: string): void {
    if (!this.#text.startsWith(text, this.#at)) throw new NotJson();
    this.#at += text.length;
  }

  #space(): void {
    this.#match(/[ \t\r\n]*/y);
  }
}
