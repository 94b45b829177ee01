/** The port that peers and clients use. */
import { type Operation, refused } from './operation.ts';
import { any, flag, list, object, oneOf, ref, text, whole } from './schemas.ts';

type Paths = Record<string, Record<string, Operation>>;

const BOTH: Operation['by'] = ['node', 'hub'];
const NODE: Operation['by'] = ['node'];
const TOKEN = refused(401, 403);
const BODY = refused(400, 413, 415, 503);

const item = { name: 'id', in: 'path', required: true, schema: text } as const;

export const DATA_ROUTES: Paths = {
  '/sync': {
    post: {
      summary: 'Applies a batch of changes; 200 says that it is on disk',
      by: BOTH,
      body: { anyOf: [ref('Batch'), ref('TabularBatch')] },
      answers: { 200: ref('Ack'), ...BODY, ...refused(401, 403, 405, 429) },
    },
  },
  '/sync/compare': {
    post: {
      summary: 'What is here: its tables, hashes of ranges of rows, or versions of rows',
      by: BOTH,
      body: object({
        want: oneOf('tables', 'hash', 'rows'),
        'table?': text,
        'columns?': any,
        'ranges?': list(any),
        'runs?': list(list(any)),
        'ids?': list(text),
        'floor?': whole,
      }),
      answers: {
        200: object({
          'tables?': list(any),
          'runs?': flag,
          'hashes?': list(text),
          'rows?': list(any),
          'undelivered?': list(any),
          'parked?': list(any),
          'early?': list(any),
          'nodes?': object({ self: text, heard: list(text), awaited: list(text) }),
          'upTo?': text,
          'floor?': whole,
        }),
        ...BODY,
        ...refused(401, 403, 404, 405, 429),
      },
    },
  },
  '/sync/fetch': {
    post: {
      summary: 'Rows and deletions by their ids, as a batch',
      by: BOTH,
      body: object({ table: text, ids: list(text) }),
      answers: { 200: ref('Batch'), ...BODY, ...refused(401, 403, 404, 405, 429) },
    },
  },
  '/health': {
    get: {
      summary: 'How it is; `ok` alone to whoever has not the token, or no key',
      by: BOTH,
      answers: {
        200: { anyOf: [ref('Health'), ref('HealthInShort')] },
        503: { anyOf: [ref('Health'), ref('HealthInShort'), ref('Error')] },
        ...refused(401, 403, 405),
      },
    },
  },
  '/livez': {
    get: {
      summary: 'Whether the process turns; no look at the database',
      by: BOTH,
      answers: { 200: object({ ok: flag }), ...refused(405) },
    },
  },
  '/readyz': {
    get: {
      summary: 'Whether it is ready for work',
      by: BOTH,
      parameters: [{ name: 'peers', in: 'query', description: '1: every peer must be up, too', schema: oneOf('1') }],
      answers: { 200: ref('Ready'), 503: ref('Ready'), ...refused(401, 403, 405) },
    },
  },
  '/metrics': {
    get: {
      summary: 'Its figures, in the text format of Prometheus; not with -metrics off',
      by: BOTH,
      answers: { 200: { content: 'text/plain' }, ...TOKEN, ...refused(405, 503) },
    },
  },
  '/api/items': {
    get: { summary: 'The latest 100', by: NODE, answers: { 200: list(ref('Item')), ...TOKEN, ...refused(405) } },
    post: {
      summary: 'Creates one',
      by: NODE,
      body: ref('NewItem'),
      answers: { 201: ref('Item'), ...BODY, ...TOKEN },
    },
  },
  '/api/items/batch': {
    post: {
      summary: 'Creates several, or none',
      by: NODE,
      body: { anyOf: [list(ref('NewItem')), object({ items: list(ref('NewItem')) })] },
      answers: { 201: object({ created: whole, items: list(ref('Item')) }), ...BODY, ...TOKEN, ...refused(405) },
    },
  },
  '/api/items/{id}': {
    get: {
      summary: 'One',
      by: NODE,
      parameters: [item],
      answers: { 200: ref('Item'), ...TOKEN, ...refused(404, 405) },
    },
    put: {
      summary: 'Changes some of its fields',
      by: NODE,
      parameters: [item],
      body: object({ 'name?': text, 'value?': any }),
      answers: { 200: ref('Item'), ...BODY, ...TOKEN, ...refused(404) },
    },
    delete: {
      summary: 'Deletes it',
      by: NODE,
      parameters: [item],
      answers: { 200: object({ deleted: text }), ...TOKEN, ...refused(404, 503) },
    },
  },
  '/_rowcast/changes': {
    get: {
      summary: 'What has changed since a position; with -feed-keep. As events where text/event-stream is accepted',
      by: NODE,
      parameters: [
        { name: 'since', in: 'query', description: 'a position, or now, or 0', schema: text },
        { name: 'tables', in: 'query', description: 'with commas between them', schema: text },
        { name: 'include', in: 'query', schema: oneOf('row') },
        { name: 'feed', in: 'query', schema: oneOf('normal', 'longpoll', 'eventsource') },
        { name: 'Last-Event-ID', in: 'header', description: 'as since, and before it', schema: text },
      ],
      answers: { 200: ref('Changes'), ...TOKEN, ...refused(400, 404, 405, 503) },
      alsoAs: 'text/event-stream',
    },
  },
};
