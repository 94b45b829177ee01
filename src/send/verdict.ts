/** What a peer's answer means for the batch: one table, and the only place where a status code is looked at. */
import { shownUrl } from '../wire/peer-url.ts';
import { acknowledges, SYNC_PATH } from '../wire/protocol.ts';

export type Verdict =
  /** `said`: how the one who acknowledges introduces itself. */
  | { kind: 'acked'; applyMs?: number; said?: string; forbidden?: Forbidden[]; early?: Early }
  /**
   * Nothing is known about the changes: the peer was not reached, or was in no state to judge. Never a dead letter.
   * `isTooLarge`: somebody on the way says so, and a smaller batch may reach it.
   */
  | { kind: 'unreachable'; reason: string; isTooLarge?: boolean }
  /** The peer took the request and said that it will not have it. */
  | { kind: 'refused'; reason: string }
  | { kind: 'too-large' };

/** Of a single change, by somebody before the peer: that one waits, and everything behind it. */
export const TOO_LARGE_ON_THE_WAY =
  'HTTP 413 without a signature, for a single change: a proxy before the peer takes no body that large, and nothing gets ' +
  'past it until it does (nginx: client_max_body_size)';

/** A change that the peer has neither applied nor kept, because this node may not make it there. */
export interface Forbidden {
  index: number;
  reason: string;
}

/** Changes that the peer keeps until their time has come: its clock and the sender's, or the rows', differ by far. */
export interface Early {
  changes: number;
  /** What the peer says of the first of them. */
  message: string;
}

export type Acked = Extract<Verdict, { kind: 'acked' }>;

/** A complete answer; a torn one is an error of the transport and never gets here. */
export interface Answer {
  status: number;
  body: string;
  /** What the peer says of how long it took; anything else is as good as nothing. */
  applyMs?: string | null | undefined;
  header?(name: string): string | null;
}

/** Whether the same changes may get there in smaller batches. */
export function isTooLarge(verdict: Verdict): boolean {
  return verdict.kind === 'too-large' || (verdict.kind === 'unreachable' && verdict.isTooLarge === true);
}

/** Client errors that say something about the moment or the route, not about the changes. */
const NOT_ABOUT_THE_CHANGES = new Set([401, 403, 404, 408, 425, 429]);

/**
 * Only a peer's own word is a refusal: JSON with another `ack`, or JSON with a client error. What a captive portal, a
 * proxy or the wrong service says in its place says nothing about the changes. Which type an answer says that it has is not
 * asked: simple servers send JSON as text/plain (Go) or text/html (PHP), and a page is no JSON object whatever it claims.
 */
export function judge(answer: Answer, batchId: number): Verdict {
  const { status, body } = answer;
  const said = objectIn(body);
  if (status === 413) return { kind: 'too-large' };
  if (status >= 200 && status < 300) return judgeAck(answer, said, batchId);
  const elsewhere = status >= 300 && status < 400 ? answer.header?.('location') : null;
  if (elsewhere) return { kind: 'unreachable', reason: `HTTP ${status}, ${redirected(elsewhere)}` };
  const clientError = status >= 400 && status < 500 && !NOT_ABOUT_THE_CHANGES.has(status);
  return { kind: clientError && said ? 'refused' : 'unreachable', reason: `HTTP ${status}${excerpt(body)}` };
}

function judgeAck(answer: Answer, said: Record<string, unknown> | undefined, batchId: number): Verdict {
  const ack = said?.ack;
  if (acknowledges(ack, batchId)) {
    return { kind: 'acked', ...milliseconds(answer.applyMs), ...forbiddenIn(said), ...earlyIn(said?.rejected) };
  }
  if (isAck(ack)) return { kind: 'refused', reason: `ack ${JSON.stringify(ack)} instead of ${batchId}` };
  return { kind: 'unreachable', reason: `HTTP ${answer.status} without an acknowledgement${excerpt(answer.body)}` };
}

/** A batch goes where it was told to go, and nowhere else; whoever tells it can tell it that as well. */
function redirected(location: string): string {
  const [place = ''] = shownUrl(location)
    .slice(0, 200)
    .split(/[?#\s]/);
  const url = place.endsWith(SYNC_PATH) && place !== SYNC_PATH ? place.slice(0, -SYNC_PATH.length) : place;
  return `a redirect, which is not followed; if that is meant, change the URL of this peer to ${url}`;
}

/** Those of a batch are told apart by their indexes; what is told twice, or is no index, is as good as nothing. */
function forbiddenIn(said: Record<string, unknown> | undefined): { forbidden?: Forbidden[] } {
  const list: unknown[] = Array.isArray(said?.rejected) ? said.rejected : [];
  const found = new Map<number, string>();
  for (const one of list) {
    const { index, code, message } = (one ?? {}) as Record<string, unknown>;
    if (code !== 'forbidden' || !Number.isSafeInteger(index)) continue;
    found.set(index as number, typeof message === 'string' ? message.slice(0, 200) : '');
  }
  if (found.size === 0) return {};
  return { forbidden: [...found].map(([index, reason]) => ({ index, reason: `forbidden: ${reason}` })) };
}

/** An integer, or its decimal digits from a peer that prints 64-bit so. */
function isAck(ack: unknown): boolean {
  return Number.isInteger(ack) || (typeof ack === 'string' && /^\d{1,20}$/.test(ack));
}

function objectIn(body: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

/** What the operator of this node is told of it. */
export function earlyAt(peer: string, { changes, message }: Early): string {
  const what = `${peer} keeps ${changes} changes until their time has come: ${message}`;
  return `${what}; check the clocks of both, and the unit of "updated_at", which is milliseconds`;
}

function earlyIn(rejected: unknown): { early?: Early } {
  if (!Array.isArray(rejected)) return {};
  const early = rejected.filter((one) => one?.code === 'future-stamp');
  return early.length === 0
    ? {}
    : { early: { changes: early.length, message: String(early[0].message).slice(0, 200) } };
}

function milliseconds(text: string | null | undefined): { applyMs?: number } {
  return text && /^\d{1,9}(\.\d{1,9})?$/.test(text) ? { applyMs: Number(text) } : {};
}

/** A reason without what the peer has said, which may quote the rows that it was sent. */
export function withoutAnswer(reason: string): string {
  return (/^HTTP \d+[^:]*(?=: )/.exec(reason)?.[0] ?? reason).slice(0, 200);
}

function excerpt(body: string): string {
  const text = body.slice(0, 200).replace(/\s+/g, ' ').trim();
  return text === '' ? '' : `: ${text}`;
}
