/** Every way in which Rowcast itself says no. Branch on the code; show the message and the hint to a person. */
export type ErrorCode =
  | 'INVALID_OPTION'
  | 'INVALID_DATABASE'
  | 'INVALID_TABLE'
  | 'INVALID_PEER'
  | 'INVALID_BATCH'
  | 'INVALID_MIGRATION'
  | 'BODY_TOO_LARGE'
  | 'TOO_MANY_LETTERS'
  | 'CLOCK_BEHIND'
  | 'DATABASE_BUSY'
  | 'DATABASE_CLOSED'
  | 'DATABASE_FAILED'
  | 'IN_TRANSACTION'
  | 'LISTENER_FAILED'
  | 'NO_SUCH_CONFLICT'
  | 'NO_SUCH_LETTER'
  | 'NO_SUCH_NODE'
  | 'ROW_HIDDEN'
  | 'STOPPED';

/** One error class for the whole project: what is wrong in `message`, what to do about it in `hint`. */
export class RowcastError extends Error {
  readonly code: ErrorCode;
  readonly hint: string | undefined;

  constructor(code: ErrorCode, message: string, options: { hint?: string; cause?: unknown } = {}) {
    super(
      options.hint ? `${message} (${options.hint})` : message,
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.name = 'RowcastError';
    this.code = code;
    this.hint = options.hint;
  }
}

/** The text of whatever was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Whatever was thrown, as one of our own errors: a failure of the database, of which `what` says what it has prevented. */
export function asFailure(what: string, cause: unknown): RowcastError {
  if (cause instanceof RowcastError) return cause;
  return new RowcastError('DATABASE_FAILED', `${what}: ${messageOf(cause)}`, { cause });
}

/** A wrong value, for a message: whatever it is, and not at any length. */
export function named(value: unknown): string {
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'number' || typeof value === 'symbol') return String(value);
  if (typeof value === 'function') return 'a function';
  try {
    const text = JSON.stringify(value) ?? String(value);
    return text.length > NAMED_MAX ? `${text.slice(0, NAMED_MAX)}...` : text;
  } catch {
    return 'an object';
  }
}

const NAMED_MAX = 200;

/** The options of a call: an object, or nothing, with known keys alone. `call` says of which. */
export function checkOptions(call: string, given: unknown, known: readonly string[]): void {
  const wrong = (message: string): RowcastError => new RowcastError('INVALID_OPTION', message);
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw wrong(`the options of ${call} must be an object {${known.join(', ')}}, not ${named(given)}`);
  }
  const stranger = Object.keys(given).find((key) => !known.includes(key));
  if (stranger !== undefined) throw wrong(`${call} has no option "${stranger}"${suggest(stranger, known)}`);
}

/** `; did you mean ...?` where one of the known words is near, or begins with the given one. */
export function suggest(word: string, known: readonly string[]): string {
  const near = nearest(word, known);
  return near === undefined ? '' : `; did you mean ${near}?`;
}

export function nearest(word: string, known: readonly string[]): string | undefined {
  const given = word.toLowerCase();
  const near = known
    .map((candidate) => ({ candidate, distance: editDistance(given, candidate.toLowerCase()) }))
    .filter(({ candidate, distance }) => distance <= 2 && distance < candidate.length)
    .sort((a, b) => a.distance - b.distance)[0];
  return near?.candidate ?? known.find((candidate) => candidate.startsWith(word));
}

export function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row[b.length] as number;
}

/** A verb of somebody who may have been stopped: first it is asked whether that is so. */
export function unlessRefused<A extends unknown[], R>(refuse: () => void, verb: (...args: A) => R): (...args: A) => R {
  return (...args) => {
    refuse();
    return verb(...args);
  };
}
