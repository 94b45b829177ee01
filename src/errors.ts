/** Every way in which Rowcast itself says no. Branch on the code; show the message and the hint to a person. */
export type ErrorCode =
  | 'INVALID_OPTION'
  | 'INVALID_DATABASE'
  | 'INVALID_TABLE'
  | 'INVALID_PEER'
  | 'INVALID_BATCH'
  | 'BODY_TOO_LARGE'
  | 'DATABASE_BUSY'
  | 'DATABASE_CLOSED'
  | 'DATABASE_FAILED'
  | 'IN_TRANSACTION'
  | 'LISTENER_FAILED'
  | 'NO_SUCH_LETTER'
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
