/** The operator's door: the socket beside the database, and -admin-listen. */
import { type Operation, refused } from './operation.ts';
import { any, byName, flag, list, object, ref, text, whole } from './schemas.ts';

type Paths = Record<string, Record<string, Operation>>;

const BOTH: Operation['by'] = ['node', 'hub'];
/** Without the token, from a page of another site, or while it stops. */
const DOOR = refused(401, 403, 503);

const letter = { name: 'id', in: 'path', required: true, schema: whole } as const;
const VERBS: Record<string, string> = {
  add: 'Ships to this one as well, until it is started again',
  remove: 'Keeps nothing for it any more',
  pause: 'Sends it nothing, until it is resumed',
  resume: 'Sends to it again',
  reseed: 'Gives it everything once more',
};

export const ADMIN_ROUTES: Paths = {
  '/_rowcast/openapi.json': {
    get: { summary: 'This document', by: BOTH, answers: { 200: byName(any), ...DOOR } },
  },
  '/_rowcast/': {
    get: {
      summary: 'The console; it holds no data, and needs no token',
      by: BOTH,
      answers: { 200: { content: 'text/html' } },
    },
  },
  '/_rowcast/api/status': {
    get: { summary: 'Its health, and all that is drawn beside it', by: BOTH, answers: { 200: ref('Status'), ...DOOR } },
  },
  '/_rowcast/api/routes': {
    get: { summary: 'What can be asked here, as `GET status`', by: BOTH, answers: { 200: list(text), ...DOOR } },
  },
  '/_rowcast/api/rates': {
    get: {
      summary: 'Rows that came and went in the last five minutes, step by step',
      by: BOTH,
      parameters: [{ name: 'from', in: 'query', schema: whole }],
      answers: { 200: ref('Rates'), ...refused(400), ...DOOR },
    },
  },
  '/_rowcast/api/log': {
    get: {
      summary: 'The last lines of the log, those after a number',
      by: BOTH,
      parameters: [{ name: 'after', in: 'query', schema: whole }],
      answers: { 200: ref('Log'), ...refused(400, 404), ...DOOR },
    },
  },
  '/_rowcast/api/peers': {
    get: { summary: 'The peers, or the edges of a hub', by: BOTH, answers: { 200: list(ref('Peer')), ...DOOR } },
  },
  ...Object.fromEntries(
    Object.entries(VERBS).map(([verb, summary]): [string, Record<string, Operation>] => [
      `/_rowcast/api/peers/${verb}`,
      {
        post: {
          summary,
          by: BOTH,
          body: object({ url: text }),
          answers: { 200: ref('Done'), ...refused(400), ...DOOR },
        },
      },
    ]),
  ),
  '/_rowcast/api/dead-letters': {
    get: {
      summary: 'What could not be delivered or applied, by number',
      by: BOTH,
      parameters: [
        { name: 'after', in: 'query', schema: whole },
        { name: 'limit', in: 'query', schema: whole },
        { name: 'code', in: 'query', description: 'only those of this code', schema: text },
        { name: 'cut', in: 'query', description: 'rows as text of at most so many characters', schema: whole },
      ],
      answers: { 200: list(ref('DeadLetter')), ...refused(400), ...DOOR },
    },
  },
  '/_rowcast/api/dead-letters/retry': {
    post: {
      summary: 'Tries all of them again, or those of one code; how many had which outcome',
      by: BOTH,
      body: object({ 'code?': text }),
      answers: { 200: byName(whole), ...refused(400), ...DOOR },
    },
  },
  '/_rowcast/api/dead-letters/{id}': {
    get: {
      summary: 'One of them',
      by: BOTH,
      parameters: [letter],
      answers: { 200: ref('DeadLetter'), ...refused(400, 404), ...DOOR },
    },
  },
  '/_rowcast/api/dead-letters/{id}/retry': {
    post: {
      summary: 'Tries it again',
      by: BOTH,
      parameters: [letter],
      answers: { 200: ref('Retried'), ...refused(400, 404), ...DOOR },
    },
  },
  '/_rowcast/api/dead-letters/{id}/discard': {
    post: {
      summary: 'Lets go of it',
      by: BOTH,
      parameters: [letter],
      answers: { 200: ref('Done'), ...refused(400, 404), ...DOOR },
    },
  },
  '/_rowcast/api/conflicts': {
    get: {
      summary: 'Edits that were replaced by one which had not seen them, the oldest first; after is a conflictId',
      by: ['node'],
      parameters: [
        { name: 'table', in: 'query', schema: text },
        { name: 'id', in: 'query', schema: text },
        { name: 'after', in: 'query', schema: whole },
        { name: 'limit', in: 'query', schema: whole },
      ],
      answers: { 200: list(ref('Conflict')), ...refused(400), ...DOOR },
    },
  },
  '/_rowcast/api/conflicts/{id}': {
    get: {
      summary: 'One of them, with the row that lost and the row as it stands',
      by: ['node'],
      parameters: [letter],
      answers: { 200: ref('ConflictDetail'), ...refused(400, 404), ...DOOR },
    },
  },
  '/_rowcast/api/conflicts/{id}/restore': {
    post: {
      summary: 'Writes the values that lost, or those of the named columns, as an edit of today',
      by: ['node'],
      parameters: [letter],
      body: object({ 'columns?': list(text) }),
      answers: { 200: ref('Restored'), ...refused(400, 404), ...DOOR },
    },
  },
  '/_rowcast/api/conflicts/{id}/dismiss': {
    post: {
      summary: 'Takes it off the list',
      by: ['node'],
      parameters: [letter],
      answers: { 200: ref('Done'), ...refused(400, 404), ...DOOR },
    },
  },
  '/_rowcast/api/why': {
    get: {
      summary: 'The story of one row: where it stands, since when, from whom, who lacks it, what waits',
      by: BOTH,
      parameters: [
        { name: 'table', in: 'query', required: true, schema: text },
        { name: 'id', in: 'query', required: true, schema: text },
      ],
      answers: { 200: ref('Why'), ...refused(400), ...DOOR },
    },
  },
  '/_rowcast/api/forget': {
    post: {
      summary: 'That node is gone for good: tombstones are no longer kept for it',
      by: ['node'],
      body: object({ id: text }),
      answers: { 200: ref('Done'), ...refused(400, 404), ...DOOR },
    },
  },
  '/_rowcast/api/verify': {
    get: { summary: 'Where the latest comparison is', by: BOTH, answers: { 200: ref('Verification'), ...DOOR } },
    post: {
      summary: 'Begins a comparison with the peers',
      by: BOTH,
      body: object({ 'peer?': text, 'tables?': list(text), 'repair?': flag, 'limit?': whole }),
      answers: { 200: ref('Verification'), ...refused(400), ...DOOR },
    },
  },
};
