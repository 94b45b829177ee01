/** One way to ask, and everything that may be answered. */
import { ref, type Schema } from './schemas.ts';

export interface Operation {
  summary: string;
  /** Who answers it. */
  by: ('node' | 'hub')[];
  parameters?: Parameter[];
  body?: Schema;
  /** By status: what comes, as JSON unless it is said otherwise. */
  answers: Record<number, Schema | Other>;
  /** What is answered with 200 may also come as this. */
  alsoAs?: string;
}

export interface Parameter {
  name: string;
  in: 'query' | 'path' | 'header';
  required?: boolean;
  description?: string;
  schema: Schema;
}

/** Another content than JSON. */
export interface Other {
  content: string;
}

/** What is said when something is wrong. */
const REASONS: Record<number, string> = {
  200: 'Done',
  201: 'Created',
  400: 'The request is wrong; `error` says how',
  401: 'It needs a token, a key or a certificate',
  403: 'It may not ask this, or not so',
  404: 'There is none',
  405: 'Another method; `Allow` names those that there are',
  413: 'The body is too large',
  415: 'Another content type, or another encoding, than it takes',
  429: 'Too many requests of this key at a time',
  500: 'It failed; the log says why',
  503: 'Not now, or not well',
};

export function refused(...statuses: number[]): Record<number, Schema> {
  return Object.fromEntries(statuses.map((status) => [status, ref('Error')]));
}

/** As OpenAPI has it. */
export function described(operation: Operation, tag: string): object {
  const { summary, by, parameters = [], body, answers, alsoAs } = operation;
  return {
    summary,
    tags: [tag],
    'x-served-by': by,
    ...(parameters.length > 0 && { parameters }),
    ...(body && { requestBody: { required: true, content: { 'application/json': { schema: body } } } }),
    responses: Object.fromEntries(
      Object.entries(answers).map(([status, answer]) => [
        status,
        {
          description: REASONS[Number(status)] ?? '',
          content: {
            ...(isOther(answer) ? asText(answer.content) : { 'application/json': { schema: answer } }),
            ...(status === '200' && alsoAs !== undefined && asText(alsoAs)),
          },
        },
      ]),
    ),
  };
}

function asText(content: string): object {
  return { [content]: { schema: { type: 'string' } } };
}

function isOther(answer: Schema | Other): answer is Other {
  return typeof (answer as Other).content === 'string';
}
