/** The shapes of requests and answers, as JSON Schema. An object has the keys that are named, and no others. */

export type Schema = Record<string, unknown>;

export const text: Schema = { type: 'string' };
export const whole: Schema = { type: 'integer' };
export const flag: Schema = { type: 'boolean' };
export const any: Schema = {};

export function list(items: Schema): Schema {
  return { type: 'array', items };
}

export function orNull(schema: Schema): Schema {
  return { anyOf: [schema, { type: 'null' }] };
}

export function oneOf(...words: string[]): Schema {
  return { enum: words };
}

/** Anything by any name. */
export function byName(values: Schema): Schema {
  return { type: 'object', additionalProperties: values };
}

/** A key that ends in a question mark may be missing. */
export function object(keys: Record<string, Schema>): Schema {
  const name = (key: string): string => key.replace(/\?$/, '');
  return {
    type: 'object',
    properties: Object.fromEntries(Object.entries(keys).map(([key, schema]) => [name(key), schema])),
    required: Object.keys(keys).filter((key) => !key.endsWith('?')),
    additionalProperties: false,
  };
}

export function ref(name: keyof typeof SCHEMAS): Schema {
  return { $ref: `#/components/schemas/${name}` };
}

const summary = {
  equal: flag,
  differences: whole,
  repaired: whole,
  pending: whole,
  'error?': text,
};

const peerHealth = {
  url: text,
  state: oneOf('unknown', 'up', 'down'),
  pending: whole,
  last_acked: whole,
  paused: flag,
  lag_ms: whole,
  last_acked_at: orNull(whole),
  last_error: orNull(text),
  verified: orNull(object({ ...summary, at: whole, tables: byName(whole) })),
  'snapshot?': flag,
  'stale?': flag,
  'seeds?': byName(whole),
  'node_id?': orNull(text),
  'pinned?': orNull(text),
  'signed?': oneOf('yes', 'not-yet', 'exempt'),
  'clock_offset_ms?': whole,
};

const health = {
  ok: flag,
  node_id: text,
  item_count: whole,
  pending_changes: whole,
  dead_letter: whole,
  peers: list(text),
  peer_states: list(object(peerHealth)),
  lag_ms: whole,
  problems: list(text),
  'tombstones_held_by?': list(text),
  'at_least?': list(text),
  'certificates?': any,
};

const conflict = {
  conflictId: whole,
  at: whole,
  table: text,
  id: text,
  lostVersion: whole,
  lostBy: orNull(oneOf('self')),
  wonVersion: whole,
  wonBy: orNull(text),
  base: whole,
};

const version = orNull(object({ updatedAt: whole, deleted: flag, 'hash?': text }));

export const SCHEMAS = {
  Error: object({ error: text, 'code?': text }),
  Change: object({
    op: oneOf('INSERT', 'UPDATE', 'DELETE'),
    table: text,
    row: orNull(byName(any)),
    'old_id?': orNull(text),
    'base?': whole,
    'origin?': text,
  }),
  Batch: object({ batch_id: whole, changes: list({ $ref: '#/components/schemas/Change' }) }),
  TabularBatch: object({
    batch_id: whole,
    op: oneOf('INSERT', 'UPDATE'),
    table: text,
    columns: list(text),
    'base?': flag,
    rows: list(list(any)),
  }),
  Ack: object({
    applied: whole,
    ack: { anyOf: [whole, text] },
    'rejected?': list(object({ index: whole, code: text, message: text })),
  }),
  Health: object(health),
  HealthInShort: object({ ok: flag }),
  Status: object({
    ...health,
    inc: text,
    build: object({ version: text, runtime: text, sqlite: text }),
    letters: list(object({ direction: oneOf('in', 'out'), code: text, count: whole, 'at_least?': list(text) })),
    file: object({ bytes: whole, wal_bytes: whole }),
    'captured?': whole,
    'conflicts?': whole,
    'tables?': list(object({ name: text, rows: whole, tombstones: whole, 'at_least?': list(text) })),
  }),
  Rates: object({
    began: whole,
    stepMs: whole,
    last: whole,
    from: whole,
    received: list(whole),
    acked: list(whole),
    peers: byName(list(whole)),
  }),
  Log: object({
    began: whole,
    last: whole,
    lines: list(object({ n: whole, time: text, level: text, event: text, fields: byName(any) })),
  }),
  Ready: object({ ready: flag, 'problems?': list(text) }),
  Peer: object({
    url: text,
    state: oneOf('unknown', 'up', 'down'),
    paused: flag,
    'stale?': flag,
    'snapshot?': flag,
    'node_id?': orNull(text),
  }),
  DeadLetter: object({
    id: whole,
    direction: oneOf('in', 'out'),
    op: orNull(text),
    table: orNull(text),
    rowId: orNull(text),
    row: orNull(text),
    peer: orNull(text),
    code: orNull(text),
    reason: orNull(text),
    failedAt: whole,
    retryCount: whole,
    dueAt: orNull(whole),
    'rowLength?': whole,
  }),
  Conflict: object(conflict),
  ConflictDetail: object({ ...conflict, lost: orNull(byName(any)), current: orNull(byName(any)), columns: list(text) }),
  Restored: object({ columns: list(text) }),
  Why: object({
    table: text,
    id: text,
    state: oneOf('live', 'hidden', 'deleted', 'absent'),
    version: orNull(whole),
    row: orNull(byName(any)),
    tombstone: orNull(whole),
    floor: orNull(whole),
    hiddenBy: orNull(object({ id: text, version: whole })),
    lastFrom: orNull(object({ node: orNull(text), 'via?': text, at: orNull(whole) })),
    pending: list(object({ changeId: whole, op: text, version: orNull(whole), peersMissing: list(text) })),
    letters: list({ $ref: '#/components/schemas/DeadLetter' }),
    conflicts: list({ $ref: '#/components/schemas/Conflict' }),
  }),
  Retried: object({ outcome: text, 'reason?': text }),
  Verification: object({
    number: whole,
    running: flag,
    'at?': object({ peer: text, table: text, rows: whole, differences: whole }),
    'results?': list(
      object({
        ...summary,
        peer: text,
        requests: whole,
        bytes: whole,
        ms: whole,
        tables: list(
          object({
            table: text,
            'only?': oneOf('here'),
            rows: whole,
            differences: whole,
            repaired: whole,
            pending: whole,
            list: list(object({ id: text, here: version, there: version, 'repaired?': flag, 'pending?': flag })),
          }),
        ),
      }),
    ),
    'error?': text,
  }),
  Item: object({ id: text, name: text, value: orNull(whole), created_at: whole, updated_at: whole, 'node_id?': any }),
  NewItem: object({ 'id?': text, name: { type: 'string', maxLength: 1_000 }, 'value?': orNull(whole) }),
  Changes: object({
    reset: flag,
    changes: list(
      object({
        position: text,
        local: flag,
        'from?': text,
        rows: list(
          object({
            op: oneOf('INSERT', 'UPDATE', 'DELETE'),
            table: text,
            id: text,
            'row?': orNull(byName(any)),
          }),
        ),
      }),
    ),
    position: text,
    more: flag,
  }),
  Done: object({ ok: flag }),
} satisfies Record<string, Schema>;
