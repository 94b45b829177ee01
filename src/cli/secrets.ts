/**
 * Where secrets come from: a file, or the environment. There is no flag with a secret in it, since every user of a machine
 * can read the command lines of all others.
 */
import { statSync } from 'node:fs';
import { readText } from './config-file.ts';
import { type Environment, UsageError } from './flags.ts';

export interface SecretSource {
  /** The flag that names the file, as it is typed. */
  flag: string;
  path: string | undefined;
  /** The variable that may hold the secrets themselves. */
  variable: string;
  env: Environment;
}

export interface Secrets {
  text: string;
  kind: 'file' | 'environment';
  /** For messages: the flag and its file, or the variable. Never what is in it. */
  where: string;
}

/** Undefined where there are none. */
export function readSecrets({ flag, path, variable, env }: SecretSource): Secrets | undefined {
  const value = env[variable]?.trim();
  if (path !== undefined && value) throw new UsageError(`${flag} and ${variable} are both given: use one of them`);
  if (path !== undefined) return { text: readText(flag, path), kind: 'file', where: `${flag} ${path}` };
  return value ? { text: value, kind: 'environment', where: variable } : undefined;
}

/** A file of secrets that others than its owner may read is told of, and taken all the same: in a container it may have to be. */
export function readableByOthers(flag: string, path: string): { code: string; message: string }[] {
  // Windows has no such bits.
  if (process.platform === 'win32') return [];
  const mode = statSync(path, { throwIfNoEntry: false })?.mode ?? 0;
  if ((mode & 0o077) === 0) return [];
  const message = `${flag} ${path} can be read by others than its owner: chmod 600 ${path}`;
  return [{ code: 'secret-readable', message }];
}
