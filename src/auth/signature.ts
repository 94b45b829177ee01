/** What is signed, and how: the signature base of RFC 9421, under HMAC with SHA-256. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { Malformed, memberIn, readBytes, readInput, type SignatureInput, writeBytes, writeMember } from './fields.ts';
import type { Key } from './keys.ts';

export const SIGNATURE_INPUT_HEADER = 'signature-input';
export const SIGNATURE_HEADER = 'signature';
export const DIGEST_HEADER = 'content-digest';
export const ALGORITHM = 'hmac-sha256';

/** The value of a component, by the way it is written; undefined where the message has no such thing. */
export type ValueOf = (component: string) => string | undefined;

const MAC_BYTES = 32;

/** A signature as it was found on a message, not yet compared with anything. */
export interface Found {
  input: SignatureInput;
  mac: Buffer;
  /** As it is written, `:<base64>:`: what an answer to the message is bound to. */
  spelt: string;
}

/** The headers of a signature, and how the signature is written. */
export interface Signed {
  headers: Record<string, string>;
  spelt: string;
}

/** A parameter, written: a number as it is, a text in quotes. None of our texts has a quote or a backslash. */
export function paramsText(params: [string, string | number][]): string {
  return params.map(([name, value]) => `;${name}=${typeof value === 'number' ? value : `"${value}"`}`).join('');
}

/** Signs the components. Throws Malformed where the message lacks one of them, or it cannot be signed. */
export function sign(key: Key, components: string[], params: [string, string | number][], values: ValueOf): Signed {
  const text = `(${components.join(' ')})${paramsText(params)}`;
  const spelt = writeBytes(macOf(key, { components, params: new Map(), text }, values));
  return {
    headers: { [SIGNATURE_INPUT_HEADER]: writeMember(text), [SIGNATURE_HEADER]: writeMember(spelt) },
    spelt,
  };
}

/** The signature of ours on a message; undefined where it has none. Throws Malformed. */
export function findSignature(header: (name: string) => string | null | undefined): Found | undefined {
  const text = memberIn(header(SIGNATURE_INPUT_HEADER));
  const spelt = memberIn(header(SIGNATURE_HEADER));
  if (text === undefined && spelt === undefined) return undefined;
  if (text === undefined || spelt === undefined) throw new Malformed('one of the two signature headers is missing');
  const mac = readBytes(spelt, MAC_BYTES);
  if (!mac) throw new Malformed('the signature is not 32 bytes in base64');
  return { input: readInput(text), mac, spelt };
}

export function isSignedBy(key: Key, { input, mac }: Found, values: ValueOf): boolean {
  return timingSafeEqual(macOf(key, input, values), mac);
}

/** Throws Malformed where exactly these components are not covered, in whatever order. */
export function requireCovered({ components }: SignatureInput, expected: string[]): void {
  const missing = expected.find((one) => !components.includes(one));
  if (missing !== undefined) throw new Malformed(`the signature does not cover ${missing}`);
  if (components.length !== expected.length) throw new Malformed('the signature covers more than it should');
}

/** The parameters, each of which must be there, and no other. Throws Malformed. */
export function requireParams<K extends string>(
  { params }: SignatureInput,
  shapes: Record<K, RegExp>,
): Record<K, string> {
  const entries = Object.entries(shapes) as [K, RegExp][];
  const read = entries.map(([name, shape]) => {
    const value = params.get(name);
    if (value === undefined) throw new Malformed(`the signature has no parameter ${name}`);
    if (!shape.test(value)) throw new Malformed(`the parameter ${name} of the signature is not as it should be`);
    return [name, value.replaceAll('"', '')];
  });
  if (params.size !== entries.length) throw new Malformed('the signature has a parameter that it should not have');
  return Object.fromEntries(read);
}

function macOf(key: Key, { components, text }: SignatureInput, values: ValueOf): Buffer {
  const lines = components.map((component) => {
    const value = values(component)?.trim();
    if (value === undefined) throw new Malformed(`there is no ${component}`);
    // Whatever could end a line would let one message be read as another.
    if (!/^[\x20-\x7e]*$/.test(value)) throw new Malformed(`${component} has a character that cannot be signed`);
    return `${component}: ${value}\n`;
  });
  return createHmac('sha256', key.secret)
    .update(`${lines.join('')}"@signature-params": ${text}`)
    .digest();
}
