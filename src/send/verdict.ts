/** What a peer's answer means for the batch: one table, and the only place where a status code is looked at. */
import { acknowledges } from '../wire/protocol.ts';

export type Verdict =
  | { kind: 'acked'; applyMs?: number }
  /** Nothing is known about the changes: the peer was not reached, or was in no state to judge. Never dead-lettered. */
  | { kind: 'unreachable'; reason: string }
  /** The peer took the request and did not acknowledge it. */
  | { kind: 'refused'; reason: string }
  | { kind: 'too-large' };

/** A complete answer; a torn one is an error of the transport and never gets here. */
export interface Answer {
  status: number;
  body: string;
  /** What the peer says of how long it took; anything else is as good as nothing. */
  applyMs?: string | null | undefined;
}

/** Client errors that say something about the moment or the route, not about the changes. */
const NOT_ABOUT_THE_CHANGES = new Set([401, 403, 404, 408, 425, 429]);

export function judge(answer: Answer, batchId: number): Verdict {
  const { status } = answer;
  if (status >= 200 && status < 300) return judgeBody(answer, batchId);
  if (status === 413) return { kind: 'too-large' };
  if (status < 400 || status >= 500 || NOT_ABOUT_THE_CHANGES.has(status)) {
    return { kind: 'unreachable', reason: `HTTP ${status}${excerpt(answer.body)}` };
  }
  return { kind: 'refused', reason: `HTTP ${status}${excerpt(answer.body)}` };
}

function judgeBody(answer: Answer, batchId: number): Verdict {
  let ack: unknown;
  try {
    ack = (JSON.parse(answer.body) as { ack?: unknown } | null)?.ack;
  } catch {
    return { kind: 'refused', reason: `HTTP ${answer.status} without JSON${excerpt(answer.body)}` };
  }
  if (acknowledges(ack, batchId)) return { kind: 'acked', ...milliseconds(answer.applyMs) };
  return { kind: 'refused', reason: `ack ${JSON.stringify(ack)} instead of ${batchId}` };
}

function milliseconds(text: string | null | undefined): { applyMs?: number } {
  return text && /^\d{1,9}(\.\d{1,9})?$/.test(text) ? { applyMs: Number(text) } : {};
}

function excerpt(body: string): string {
  const text = body.slice(0, 200).replace(/\s+/g, ' ').trim();
  return text === '' ? '' : `: ${text}`;
}
