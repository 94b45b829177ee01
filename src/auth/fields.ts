/**
 * The two headers of a signature (RFC 9421), read as narrowly as they are written: of all that RFC 8941 lets one spell,
 * one spelling is taken. What travels besides, such as the signature of a proxy, is passed over.
 */

/** The name of our member in both headers. */
const MEMBER = 'rowcast';
/** Longer headers are not looked at; a signature of ours has about 300 characters. */
const HEADER_LENGTH_MAX = 8_192;

/** What is wrong with a message, as a sentence for the log. */
export class Malformed extends Error {}

/** The member of ours, read. */
export interface SignatureInput {
  /** The covered components as they are written, such as `"@method"`, in their order. */
  components: string[];
  params: Map<string, string>;
  /** The whole member as it is written: the last line of what is signed. */
  text: string;
}

/** The value of our member; undefined where there is none. Throws Malformed where there are two, or no telling. */
export function memberIn(header: string | null | undefined): string | undefined {
  if (header == null) return undefined;
  if (header.length > HEADER_LENGTH_MAX) throw new Malformed('a signature header is too long');
  const own = membersOf(header).filter((member) => /^rowcast(?![a-z0-9_.*-])/.test(member));
  if (own.length > 1) throw new Malformed(`there are two signatures named ${MEMBER}`);
  const [member] = own;
  if (member === undefined) return undefined;
  if (!member.startsWith(`${MEMBER}=`)) throw new Malformed(`${MEMBER} has no value`);
  return member.slice(MEMBER.length + 1);
}

/** `name=value` at the top level of a dictionary: commas in quotes and in parentheses part nothing. */
function membersOf(header: string): string[] {
  const members: string[] = [];
  let start = 0;
  let depth = 0;
  let quoted = false;
  for (let i = 0; i < header.length; i++) {
    const c = header[i];
    if (quoted) {
      if (c === '\\') i += 1;
      else if (c === '"') quoted = false;
    } else if (c === '"') quoted = true;
    else if (c === '(') depth += 1;
    else if (c === ')') depth -= 1;
    else if (c === ',' && depth === 0) {
      members.push(header.slice(start, i).trim());
      start = i + 1;
    }
    if (depth < 0) break;
  }
  if (quoted || depth !== 0) throw new Malformed('a signature header breaks off');
  members.push(header.slice(start).trim());
  return members;
}

/** Throws Malformed. Which components and parameters there may be is for the caller to say. */
export function readInput(text: string): SignatureInput {
  const end = text.indexOf(')');
  if (!text.startsWith('(') || end < 0) throw new Malformed('the signature covers no list');
  const components = text.slice(1, end).split(' ');
  if (new Set(components).size !== components.length) throw new Malformed('a component is covered twice');
  const params = new Map<string, string>();
  const one = /;([a-z]+)=(\d{1,12}|"[^"\\]*")/y;
  one.lastIndex = end + 1;
  while (one.lastIndex < text.length) {
    const found = one.exec(text);
    if (!found) throw new Malformed('a parameter of the signature cannot be read');
    const [, name, value] = found as unknown as [string, string, string];
    if (params.has(name)) throw new Malformed(`the parameter ${name} is there twice`);
    params.set(name, value);
  }
  return { components, params, text };
}

/** `:<base64>:` as bytes; undefined where it is not that, or not the one spelling of so many bytes. */
export function readBytes(text: string, length: number): Buffer | undefined {
  if (!text.startsWith(':') || !text.endsWith(':') || text.length < 2) return undefined;
  const spelt = text.slice(1, -1);
  const bytes = Buffer.from(spelt, 'base64');
  return bytes.length === length && bytes.toString('base64') === spelt ? bytes : undefined;
}

export function writeBytes(bytes: Uint8Array): string {
  return `:${Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64')}:`;
}

/** A header's member of ours, written. */
export function writeMember(value: string): string {
  return `${MEMBER}=${value}`;
}
