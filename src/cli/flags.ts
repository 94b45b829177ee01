/**
 * Flags for every command: `-id a`, `-id=a`, `--id a`, `--id=a`, or ROWCAST_ID in the environment, or "id" in the file of
 * `-config`. The command line wins over the environment, and that over the file.
 *
 * A command describes its flags once; parsing, checking and the help text all come from that description.
 */

import { editDistance, suggest } from '../errors.ts';
import { shownUrl } from '../wire/peer-url.ts';

/** What one flag means. `parse` returns the value or throws a UsageError that says what is allowed. */
export interface Flag<T> {
  /** Stands for the value in the help text: `-peer <url>`. */
  placeholder: string;
  help: string;
  parse(text: string): T;
  /** As text, the way a user would write it. A flag without one is required, or, when repeatable, empty. */
  default?: string;
  repeatable?: boolean;
  /** Stands alone: to name it is to say yes. */
  toggle?: boolean;
  /** May be left out, and has no value then. */
  optional?: boolean;
  /** Counts only where it is typed: no variable stands for it. */
  typed?: boolean;
}

export type Flags = Record<string, Flag<unknown>>;

export type Values<F extends Flags> = {
  [K in keyof F]: F[K] extends { repeatable: true }
    ? ReturnType<F[K]['parse']>[]
    : F[K] extends { parse(text: string): infer T }
      ? T
      : never;
};

/** The command line is wrong: told to the person who typed it, without a stack, with exit code 2. */
export class UsageError extends Error {}

export type Environment = Record<string, string | undefined>;

export function text<const O extends Partial<Flag<string>>>(placeholder: string, help: string, options?: O) {
  return { placeholder, help, parse: (value: string): string => value, ...(options as O) };
}

/** The path of a file, which may be left out. */
export function file(help: string) {
  return { placeholder: 'file', help, optional: true, parse: (value: string): string | undefined => value };
}

/** A whole number from 1, or one of some words. */
export function limit(
  help: string,
  { default: otherwise, words }: { default: number | string; words: readonly string[] },
) {
  return {
    placeholder: ['n', ...words].join('|'),
    help,
    default: String(otherwise),
    parse(value: string): number | string {
      const n = Number(value);
      if (words.includes(value)) return value;
      if (/^\d+$/.test(value) && n >= 1 && Number.isSafeInteger(n)) return n;
      throw new UsageError(`must be a whole number from 1, or ${words.join(' or ')}, not ${JSON.stringify(value)}`);
    },
  };
}

interface Range<D> {
  default: D;
  min: number;
  max: number;
  orZero?: boolean;
}

/** A whole number, or the word that is its default. */
export function integer<D extends number | 'auto'>(help: string, range: Range<D>) {
  const word: unknown = range.default;
  const isWord = (value: unknown): value is D & string => typeof word === 'string' && value === word;
  return {
    placeholder: typeof word === 'string' ? `n|${word}` : 'n',
    help,
    default: String(range.default),
    parse(value: string): number | (D & string) {
      const n = Number(value);
      if (isWord(value)) return value;
      if (/^\d+$/.test(value) && ((n >= range.min && n <= range.max) || (range.orZero && n === 0))) return n;
      const or = range.orZero ? '0, or ' : typeof word === 'string' ? `${word}, or ` : '';
      const rule = `${or}a whole number from ${range.min} to ${range.max}`;
      throw new UsageError(`must be ${rule}, not ${JSON.stringify(value)}`);
    },
  };
}

export function toggle(help: string) {
  return {
    ...choice(['false', 'true'], help),
    toggle: true,
    parse: (value: string): boolean => choice(['false', 'true'], help).parse(value) === 'true',
  };
}

export function choice<const C extends string>(choices: readonly C[], help: string) {
  return {
    placeholder: choices.join('|'),
    help,
    default: choices[0] as string,
    parse(value: string): C {
      const found = choices.find((one) => one === value);
      if (found !== undefined) return found;
      throw new UsageError(
        `must be one of ${choices.join(', ')}, not ${JSON.stringify(value)}${suggest(value, choices)}`,
      );
    },
  };
}

/** The texts that a file gives to flags, by the key of the flag. */
export type FileValues = Map<string, string[]>;

/** Reads the values of `flags`, or says `help` when that was asked for. `readFile` reads the file of `-config`. */
export function parseFlags<F extends Flags>(
  flags: F,
  args: string[],
  env: Environment,
  readFile?: (path: string, flags: Flags) => FileValues,
): Values<F> | 'help' {
  const names = new Map(Object.keys(flags).map((key) => [flagName(key), key]));
  const given = new Map<string, string[]>();
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] as string;
    if (/^--?(h|help)$/.test(arg)) return 'help';
    const [, name, inline] = /^--?([^-=][^=]*)(?:=(.*))?$/s.exec(arg) ?? [];
    if (name === undefined)
      throw new UsageError(`unexpected argument ${JSON.stringify(shownUrl(arg))}: every option is a flag`);
    const key = names.get(name);
    if (key === undefined) throw unknownFlag(name, [...names.keys()]);
    const value = inline ?? (flags[key]?.toggle ? 'true' : args[++i]);
    if (value === undefined || (inline === undefined && isFlag(value, names))) {
      throw new UsageError(`-${name} needs a value: -${name} <${flags[key]?.placeholder}>`);
    }
    const values = given.get(key) ?? [];
    if (values.length > 0 && !flags[key]?.repeatable) throw new UsageError(`-${name} is given twice`);
    given.set(key, [...values, value]);
  }
  const config = flags.config && readValue('config', flags.config, { given: given.get('config'), env });
  const inFile = typeof config === 'string' ? readFile?.(config, flags) : undefined;
  const values = Object.entries(flags).map(([key, flag]) => {
    const values = inFile?.get(key);
    const file = values && { path: config as string, values };
    return [key, readValue(key, flag, { given: given.get(key), env, file })];
  });
  return Object.fromEntries(values) as Values<F>;
}

/** Takes the words that are neither flags nor values of flags out of a command line. */
export function takeWords(flags: Flags, args: string[]): { words: string[]; rest: string[] } {
  const names = new Map(Object.keys(flags).map((key) => [flagName(key), key]));
  const words: string[] = [];
  const rest: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] as string;
    const [, name, inline] = /^--?([^-=][^=]*)(=.*)?$/s.exec(arg) ?? [];
    if (name === undefined) {
      words.push(arg);
      continue;
    }
    rest.push(arg);
    const flag = flags[names.get(name) ?? ''];
    if (flag && !flag.toggle && inline === undefined && i + 1 < args.length) rest.push(args[++i] as string);
  }
  return { words, rest };
}

/** The flags as aligned lines for the help text: name, meaning, default, environment name. */
export function describeFlags(flags: Flags): string {
  return Object.entries(flags)
    .map(([key, flag]) => {
      const notes = notesOf(key, flag).join('; ');
      const lines = `${flag.help}${notes && `\n(${notes})`}`.split('\n');
      const value = flag.toggle ? '' : ` <${flag.placeholder}>`;
      return `  -${flagName(key)}${value}\n${lines.map((line) => `        ${line}`).join('\n')}`;
    })
    .join('\n');
}

function notesOf(key: string, flag: Flag<unknown>): string[] {
  if (flag.toggle) return flag.typed ? [] : [`env ${envName(key)}=true`];
  const note = flag.default !== undefined ? `default ${flag.default}` : presence(flag);
  return flag.typed ? [note] : [note, `env ${envName(key)}${flag.repeatable ? ', comma separated' : ''}`];
}

function presence({ repeatable, optional }: Flag<unknown>): string {
  return repeatable ? 'repeatable' : optional ? 'optional' : 'required';
}

/** Where the value of a flag may come from, the first that has one. */
interface Sources {
  given: string[] | undefined;
  env: Environment;
  file?: { path: string; values: string[] } | undefined;
}

function readValue(key: string, flag: Flag<unknown>, { given, env, file }: Sources): unknown {
  const variable = flag.typed ? undefined : env[envName(key)];
  // An empty variable is an unset one: shells and service files make no difference either.
  const fromEnv = variable === undefined || variable.trim() === '' ? undefined : variable;
  const inFile = file && !given && fromEnv === undefined;
  const source = inFile ? `"${flagName(key)}" in ${file.path}` : given ? `-${flagName(key)}` : envName(key);
  const parse = (value: string): unknown => {
    if (value.trim() === '') throw new UsageError(`${source} is empty`);
    try {
      return flag.parse(value);
    } catch (error) {
      throw error instanceof UsageError ? new UsageError(`${source} ${error.message}`) : error;
    }
  };
  if (flag.repeatable) {
    const fromList = fromEnv
      ?.split(',')
      .map((one) => one.trim())
      .filter((one) => one !== '');
    return (given ?? fromList ?? file?.values ?? []).map(parse);
  }
  const value = given?.[0] ?? fromEnv ?? file?.values[0] ?? flag.default;
  if (value === undefined) {
    if (flag.optional) return undefined;
    const or = flag.typed ? '' : `, or ${envName(key)}`;
    throw new UsageError(`-${flagName(key)} is required: -${flagName(key)} <${flag.placeholder}>${or}`);
  }
  return parse(value);
}

function unknownFlag(name: string, known: string[]): UsageError {
  const hint = suggest(name, known).replace(/mean (\S+)\?/, 'mean -$1?');
  return new UsageError(`unknown flag -${name}${hint}\nallowed: ${known.map((one) => `-${one}`).join(' ')}`);
}

/** `-id -listen x`: the value was forgotten. A value that merely begins with a dash is still a value. */
function isFlag(arg: string, names: Map<string, string>): boolean {
  const name = /^--?([^=]+)/.exec(arg)?.[1];
  return name !== undefined && (names.has(name) || name === 'help');
}

export function flagName(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

const PREFIX = 'ROWCAST_';

function envName(key: string): string {
  return `${PREFIX}${flagName(key).replaceAll('-', '_').toUpperCase()}`;
}

/** Long names may have two letters wrong; of short ones, there are too many that mean something else: PORT is no HOST. */
const SHORT = 8;

/**
 * Refuses a variable that is one of ours but for a slip, like ROWCAST_PEERS: to overlook it is to run without peers, or without
 * keys, and to say that all is well. Others that begin with ROWCAST_ are somebody else's; Kubernetes makes some for a service of that name.
 */
export function refuseMisspelt(flags: Flags, env: Environment, besides: readonly string[]): void {
  const known = [...Object.keys(flags).map(envName), ...besides];
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith(PREFIX) || known.includes(name) || !value?.trim()) continue;
    const isNear = (one: string): boolean => {
      const length = one.length - PREFIX.length;
      return length > 2 && editDistance(name, one) <= (length < SHORT ? 1 : 2);
    };
    const meant = known.find(isNear);
    if (meant !== undefined)
      throw new UsageError(
        `${name} in the environment is none of the variables; did you mean ${meant}? Unset it otherwise`,
      );
  }
}

/** The one argument that is no flag and no flag's value. */
export function takeArgument(args: string[]): { argument: string | undefined; rest: string[] } {
  const isFree = (arg: string, i: number): boolean =>
    !arg.startsWith('-') && (i === 0 || !/^-[^=]*$/.test(args[i - 1] as string));
  const at = args.findIndex(isFree);
  if (at < 0) return { argument: undefined, rest: args };
  return { argument: args[at], rest: args.toSpliced(at, 1) };
}
