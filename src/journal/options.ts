/** The option `conflicts`, declared once: for attach, and for the flags of the program. */

import { EVERY_RULE, parseEvery } from '../clock.ts';
import { RowcastError, suggest } from '../errors.ts';
import type { JournalLimits } from './journal.ts';

export interface ConflictOptions {
  /** Most of them. Default 10,000. */
  keep?: number;
  /** Most bytes of rows that lost. Default 64 MiB. */
  bytes?: number;
  /** For how long, such as `30d`, or milliseconds; up to a year. Default 30 days. */
  age?: string | number;
}

export const CONFLICTS = {
  keep: { default: 10_000, min: 1, max: 1_000_000, help: 'Most conflicts that the journal keeps.' },
  bytes: {
    default: 64 * 1024 * 1024,
    min: 1_024,
    max: 64 * 1024 * 1024 * 1024,
    help: 'Most bytes of rows that lost.',
  },
  age: { default: '30d', help: 'How long a conflict is kept, such as 36h or 30d.' },
} as const;

/** Undefined: off. */
export function checkConflicts(given: unknown): JournalLimits | undefined {
  if (given === false) return undefined;
  if (given !== undefined && (typeof given !== 'object' || given === null || Array.isArray(given))) {
    throw wrong('option "conflicts" must be an object {keep, bytes, age}, or false');
  }
  const known = Object.keys(CONFLICTS);
  const options = (given ?? {}) as Record<string, unknown>;
  const stranger = Object.keys(options).find((key) => !known.includes(key));
  if (stranger !== undefined) throw wrong(`option "conflicts" has no "${stranger}"${suggest(stranger, known)}`);
  const { age = CONFLICTS.age.default } = options;
  const ageMs = parseEvery(age);
  if (ageMs === undefined) throw wrong(`option "conflicts.age" ${EVERY_RULE}, not ${JSON.stringify(age)}`);
  return { keep: number('keep', options.keep), bytes: number('bytes', options.bytes), ageMs };
}

function number(name: 'keep' | 'bytes', value: unknown): number {
  const { default: otherwise, min, max } = CONFLICTS[name];
  if (value === undefined) return otherwise;
  if (Number.isInteger(value) && (value as number) >= min && (value as number) <= max) return value as number;
  throw wrong(`option "conflicts.${name}" must be an integer from ${min} to ${max}, not ${String(value)}`);
}

function wrong(message: string): RowcastError {
  return new RowcastError('INVALID_OPTION', message);
}
