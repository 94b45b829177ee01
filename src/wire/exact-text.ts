/**
 * Text that is not UTF-8: SQLite stores any bytes as TEXT, JSON has none of them, and JavaScript's strings would turn
 * each into U+FFFD, so that two ids become one.
 *
 * It is looked for where text leaves and where it comes in, and nowhere else: the triggers record such text with its
 * bytes as they are, whole bodies are checked by one native pass, and what fails it is spelt out here. So a write with
 * ordinary text costs nothing more.
 */
import { isUtf8 } from 'node:buffer';

const BYTES = '$bytes:';
const TEXT = '$text:';
/** How text begins that stands for something else. */
export const PREFIXES = ['$blob:', TEXT, '$int:', '$real:', BYTES];

/** JSON text with every string that is not UTF-8 spelt as `$bytes:<hex>`: the same array where there is none. */
export function exactText(json: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  if (isUtf8(json)) return json;
  const text = Buffer.from(json.buffer, json.byteOffset, json.byteLength).toString('latin1');
  return Buffer.from(
    replaceStrings(text, (token, isKey) => {
      if (isUtf8(Buffer.from(token, 'latin1'))) return token;
      // No column has such a name; a key is only ever kept for a person to look at.
      if (isKey) return Buffer.from(Buffer.from(token, 'latin1').toString()).toString('latin1');
      return `"${spelt(unescaped(token))}"`;
    }),
    'latin1',
  );
}

/** A row, or an id that SQLite has encoded, as a string that loses nothing; given as bytes. */
export function exactString(bytes: Uint8Array): string {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return isUtf8(text) ? text.toString() : spelt(text);
}

/** As `exactText`, for a document that goes on as a string. */
export function exactJson(bytes: Uint8Array): string {
  return Buffer.from(exactText(Uint8Array.from(bytes))).toString();
}

/** The bytes of an id on the wire, as SQLite compares them; BLOBs are above all text. */
export function idBytes(wire: string): { isBlob: boolean; bytes: Buffer } {
  if (wire.startsWith('$blob:')) return { isBlob: true, bytes: Buffer.from(wire.slice('$blob:'.length), 'hex') };
  if (wire.startsWith(BYTES)) return { isBlob: false, bytes: Buffer.from(wire.slice(BYTES.length), 'hex') };
  return { isBlob: false, bytes: Buffer.from(wire.startsWith(TEXT) ? wire.slice(TEXT.length) : wire) };
}

/**
 * A received id in its only spelling: bytes that are UTF-8 are the text that they spell, what is not hexadecimal is the
 * text that it is. Two ids are one row exactly if they are spelt alike.
 */
export function inOneSpelling(wire: string): string {
  return wire.startsWith(BYTES) ? canonical(wire) : wire;
}

function canonical(value: string): string {
  const hex = value.slice(BYTES.length);
  if (hex.length % 2 !== 0 || /[^0-9A-Fa-f]/.test(hex)) return TEXT + value;
  const bytes = Buffer.from(hex, 'hex');
  if (!isUtf8(bytes)) return BYTES + hex.toUpperCase();
  const text = bytes.toString();
  return PREFIXES.some((prefix) => text.startsWith(prefix)) ? TEXT + text : text;
}

/** Text that is not UTF-8, as SQLite has encoded it, in hexadecimal. */
function spelt(encoded: Buffer): string {
  const isEscaped = encoded.subarray(0, TEXT.length).toString('latin1') === TEXT;
  return (
    BYTES +
    encoded
      .subarray(isEscaped ? TEXT.length : 0)
      .toString('hex')
      .toUpperCase()
  );
}

/** Puts others in the place of the string tokens of JSON with one character per byte. */
function replaceStrings(text: string, replace: (token: string, isKey: boolean) => string): string {
  const parts: string[] = [];
  let done = 0;
  for (let at = text.indexOf('"'); at >= 0; at = text.indexOf('"', done)) {
    const end = endOfString(text, at);
    if (end < 0) break;
    parts.push(text.slice(done, at), replace(text.slice(at, end), isKeyAt(text, end)));
    done = end;
  }
  return parts.join('') + text.slice(done);
}

/** Behind the closing quote of the string that opens at `at`; -1 where there is none. */
function endOfString(text: string, at: number): number {
  let quote = text.indexOf('"', at + 1);
  while (quote >= 0 && isEscaped(text, quote)) quote = text.indexOf('"', quote + 1);
  return quote < 0 ? -1 : quote + 1;
}

/** An odd number of backslashes stands before it. */
function isEscaped(text: string, at: number): boolean {
  let first = at;
  while (text.charCodeAt(first - 1) === BACKSLASH) first -= 1;
  return (at - first) % 2 === 1;
}

const BACKSLASH = '\\'.charCodeAt(0);

function isKeyAt(text: string, end: number): boolean {
  let at = end;
  while (/\s/.test(text.charAt(at))) at += 1;
  return text.charAt(at) === ':';
}

/** The bytes that a string token stands for. */
function unescaped(token: string): Buffer {
  const inner = token.slice(1, -1);
  if (!inner.includes('\\')) return Buffer.from(inner, 'latin1');
  const plain = inner.replace(ESCAPE, (found) => Buffer.from(meaning(found)).toString('latin1'));
  return Buffer.from(plain, 'latin1');
}

/** Each escape in turn, a pair of surrogates as one. */
const ESCAPE = /\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)/gs;

/** Somebody else may have recorded what is no JSON at all. */
function meaning(found: string): string {
  try {
    return JSON.parse(`"${found}"`) as string;
  } catch {
    return found;
  }
}
