/** The files of a program's configuration: `-config`, whose keys are the flags, and `-peers-file`, a URL a line. */
import { readFileSync, statSync } from 'node:fs';
import { messageOf, suggest } from '../errors.ts';
import { shownUrl } from '../wire/peer-url.ts';
import { type FileValues, type Flags, flagName, UsageError } from './flags.ts';

/** Flags that say where the files are: a file cannot say where it is. */
const NOT_IN_FILE = ['config'];

export function readConfigFile(path: string, flags: Flags): FileValues {
  const refuse = (problem: string, hint: string): UsageError => new UsageError(`-config ${path}: ${problem}; ${hint}`);
  const text = readText('-config', path);
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    throw refuse(`not JSON: ${unquoted(error)}`, 'write {"peer": ["http://10.0.0.2:9001"], "batch-ms": 50}');
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) {
    throw refuse('not an object', 'write {"flag": value, ...}');
  }
  const names = new Map(Object.keys(flags).map((key) => [flagName(key), key]));
  for (const key of NOT_IN_FILE) names.delete(key);
  return new Map(
    Object.entries(parsed).map(([name, value]): [string, string[]] => {
      const key = names.get(name);
      const known = [...names.keys()];
      if (key === undefined) {
        throw refuse(`unknown key "${name}"${suggest(name, known)}`, `the keys are ${known.join(', ')}`);
      }
      const isList = flags[key]?.repeatable === true;
      const texts = (isList && Array.isArray(value) ? value : [value]).map(textOf);
      if (texts.includes(undefined)) {
        const allowed = isList ? 'a list of texts' : 'a text, a number or a boolean';
        throw refuse(`"${name}" is ${JSON.stringify(value, withoutSecrets)}`, `it must be ${allowed}`);
      }
      return [key, texts as string[]];
    }),
  );
}

/** One URL a line; empty lines, and what follows a #, say nothing. */
export function readPeersFile(flag: string, path: string, parse: (url: string) => string): string[] {
  const text = readText(flag, path);
  // Somebody may be about to write it. Whoever wants no peers can say so.
  if (text.trim() === '') throw new UsageError(`${flag} ${path}: the file is empty; for no URL at all, write # none`);
  const urls = text.split(/\r?\n/).flatMap((line, index) => {
    const url = line.replace(/(^|\s)#.*$/, '').trim();
    if (url === '') return [];
    try {
      return [parse(url)];
    } catch (error) {
      throw new UsageError(`${flag} ${path}, line ${index + 1}: ${messageOf(error)}`);
    }
  });
  return [...new Set(urls)];
}

/** What changes when somebody writes the file, or puts another in its place; undefined where there is none. */
export function signatureOf(path: string): string | undefined {
  try {
    const { mtimeMs, size, ino } = statSync(path);
    return `${mtimeMs} ${size} ${ino}`;
  } catch {
    return undefined;
  }
}

/** More than any list of peers or keys; a device may have no end. */
const FILE_BYTES_MAX = 64 * 1024 * 1024;

/** A file that a flag names, without a byte order mark. Reading a pipe that nobody writes to would stop the whole program. */
export function readText(flag: string, path: string): string {
  const refuse = (problem: string): UsageError =>
    new UsageError(`${flag} ${path}: ${problem}; put the file there, readable`);
  try {
    const found = statSync(path);
    if (!found.isFile()) throw refuse('is not a regular file');
    if (found.size > FILE_BYTES_MAX) throw refuse(`has ${found.size} bytes, and ${FILE_BYTES_MAX} are allowed`);
    const text = readFileSync(path, 'utf8').replace(/^\uFEFF/, '');
    // What a power cut leaves of a file that was being written. A URL would end there, perhaps within its port.
    if (text.includes('\0')) throw refuse('has NUL characters in it, as a file has that was not written to its end');
    return text;
  } catch (error) {
    throw error instanceof UsageError ? error : refuse(`cannot be read (${messageOf(error)})`);
  }
}

/** What the parser says goes on with a piece of the text, in which there may be a password. */
function unquoted(error: unknown): string {
  return (messageOf(error).split('"')[0] as string).replace(/[\s,.]+$/, '');
}

function withoutSecrets(_: string, value: unknown): unknown {
  return typeof value === 'string' ? shownUrl(value) : value;
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? `${value}` : undefined;
}
