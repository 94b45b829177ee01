/** `rowcast conflicts` and `rowcast why`: an edit that vanished is found, and the story of a row is told. */
import { systemClock } from '../clock.ts';
import { RowcastError } from '../errors.ts';
import type { Conflict, ConflictDetail } from '../journal/conflicts.ts';
import type { Why } from '../journal/why.ts';
import { asker, askFlags, Refused } from './ask.ts';
import { integer, text, UsageError, type Values } from './flags.ts';
import { conflictOffline, conflictsOffline, whyOffline } from './offline.ts';
import { command, fileOf, json, lines, neededFor, offline, refuseWords, say } from './operate.ts';
import { bindingFlag } from './shared-flags.ts';
import { aligned, count, duration } from './show.ts';

function given(placeholder: string, help: string) {
  return { ...text(placeholder, help), optional: true, parse: (value: string): string | undefined => value };
}

const CONFLICT_FLAGS = {
  ...askFlags,
  binding: bindingFlag,
  offline,
  json,
  table: given('name', 'List those of this table.'),
  id: given('id', 'List those of rows with this id.'),
  column: text('name', 'With restore: only this column.', { repeatable: true }),
  limit: integer('How many are listed.', { default: 100, min: 1, max: 1_000 }),
  after: integer('List those with a greater number.', { default: 0, min: 0, max: Number.MAX_SAFE_INTEGER }),
};

const VERBS = ['list', 'show', 'restore', 'dismiss'];

export const conflicts = command({
  name: 'conflicts',
  usage: `edits that were replaced by one which had not seen them, the oldest first

  rowcast conflicts -db a.db
  rowcast conflicts -db a.db -table items -id 0190a7
  rowcast conflicts -db a.db show 7
  rowcast conflicts -db a.db restore 7 -column name      (without -column: all that differ)
  rowcast conflicts -db a.db dismiss 7

What is restored is written as an edit of today, and goes to every node. It stays listed until it is dismissed.`,
  flags: CONFLICT_FLAGS,
  async run(flags, [verb = 'list', number, ...more]) {
    refuseWords(more);
    if (!VERBS.includes(verb)) {
      throw new UsageError(`conflicts can be: ${VERBS.join(', ')}, not ${JSON.stringify(verb)}`);
    }
    if (flags.column.length > 0 && verb !== 'restore') throw new UsageError('-column is for restore');
    if (verb === 'list') {
      if (number !== undefined) refuseWords([number]);
      return list(flags);
    }
    if (number === undefined || !/^\d{1,15}$/.test(number)) {
      throw new UsageError(`rowcast conflicts ${verb} needs the number of a conflict, as "rowcast conflicts" lists it`);
    }
    if (verb === 'show') return show(flags, Number(number));
    return act(flags, verb as 'restore' | 'dismiss', number);
  },
});

type ConflictValues = Values<typeof CONFLICT_FLAGS>;

async function list(flags: ConflictValues): Promise<number> {
  const { table, id, limit, after } = flags;
  const query = new URLSearchParams({ limit: String(limit), after: String(after) });
  if (table !== undefined) query.set('table', table);
  if (id !== undefined) query.set('id', id);
  const found = flags.offline
    ? fromFile(() => conflictsOffline(fileOf(flags), flags.binding, { table, id, limit, after }))
    : await asker(flags).get<Conflict[]>(`conflicts?${query}`);
  if (flags.json) return say(`${JSON.stringify(found)}\n`);
  if (found.length === 0) return say('no conflicts\n');
  const more = found.length === limit ? `more: -after ${found.at(-1)?.conflictId}\n` : '';
  return say(`${lines(aligned(found.map(conflictLine)))}${more}`);
}

function conflictLine({ conflictId, table, id, at, lostBy, wonBy }: Conflict): string[] {
  const lost = lostBy === 'self' ? 'written here' : '';
  const won = wonBy === null ? 'overwritten' : `overwritten by ${wonBy}`;
  return [String(conflictId), `${table} ${JSON.stringify(id)}`, `${duration(systemClock.now() - at)} ago`, won, lost];
}

async function show(flags: ConflictValues, number: number): Promise<number> {
  const found = flags.offline
    ? fromFile(() => conflictOffline(fileOf(flags), flags.binding, number))
    : await asker(flags).get<ConflictDetail>(`conflicts/${number}`);
  return say(flags.json ? `${JSON.stringify(found)}\n` : detailText(found));
}

function detailText(found: ConflictDetail): string {
  const { conflictId, table, id, lostVersion, lostBy, wonVersion, wonBy, base, lost, current, columns } = found;
  const head = [
    [`conflict ${conflictId}:`, `${table} ${JSON.stringify(id)}`],
    ['lost:', `${timeText(lostVersion)}${lostBy === 'self' ? ', written here' : ''}${lost ? '' : ', a deletion'}`],
    ['won:', `${timeText(wonVersion)}${wonBy === null ? '' : `, by ${wonBy}`}, which had seen ${timeText(base)}`],
    ['now:', current === null ? 'the row is not there' : 'below, where it differs from what was lost'],
  ];
  const values = columns.map((name) => [
    `  ${name}`,
    JSON.stringify(lost?.[name] ?? null),
    current === null ? '' : JSON.stringify(current[name] ?? null),
  ]);
  const table_ = values.length === 0 ? [] : aligned([['  column', 'lost', current === null ? '' : 'now'], ...values]);
  return lines([...aligned(head), ...table_]);
}

async function act(flags: ConflictValues, verb: 'restore' | 'dismiss', number: string): Promise<number> {
  const body = verb === 'restore' && flags.column.length > 0 ? { columns: flags.column } : {};
  const ask = asker(neededFor(verb, flags));
  const said = await ask.post<{ columns?: string[] }>(`conflicts/${number}/${verb}`, body);
  if (flags.json) return say(`${JSON.stringify(said)}\n`);
  if (verb === 'dismiss') return say(`${number}: dismissed\n`);
  const written = said.columns ?? [];
  if (written.length > 0) return say(`${number}: restored: ${written.join(', ')}\n`);
  const { lost } = await ask.get<ConflictDetail>(`conflicts/${number}`);
  if (lost === null) return say(`${number}: restored: the row is deleted\n`);
  return say(`${number}: nothing was written: the row has what was lost, in all columns that are there\n`);
}

export const why = command({
  name: 'why',
  usage: `the story of one row: where it stands, since when, from whom, who lacks it, what it has beaten, what waits

  rowcast why -db a.db items 0190a7
  rowcast why -url http://127.0.0.1:9101 items 0190a7 --json

Exit codes: 0 it is known, 1 nothing is known of it, 2 a wrong command line, 3 nobody answers.`,
  flags: { ...askFlags, binding: bindingFlag, offline, json },
  async run(flags, [table, id, ...more]) {
    refuseWords(more);
    if (table === undefined || id === undefined) {
      throw new UsageError('rowcast why needs a table and the id of a row: rowcast why -db a.db items 0190a7');
    }
    const query = new URLSearchParams({ table, id });
    const found = flags.offline
      ? fromFile(() => whyOffline(fileOf(flags), flags.binding, table, id))
      : await asker(flags).get<Why>(`why?${query}`);
    say(flags.json ? `${JSON.stringify(found)}\n` : storyText(found));
    return isKnown(found) ? 0 : 1;
  },
});

function isKnown({ state, letters, conflicts: lost }: Why): boolean {
  return state !== 'absent' || letters.length > 0 || lost.length > 0;
}

function storyText(found: Why): string {
  const {
    table,
    id,
    state,
    version,
    row,
    lastFrom,
    hiddenBy,
    tombstone,
    floor,
    pending,
    letters,
    conflicts: lost,
  } = found;
  const parts: string[][] = [
    [`${table} ${JSON.stringify(id)}:`, isKnown(found) ? STATES[state] : 'nothing is known of it'],
  ];
  if (version !== null) parts.push(['since:', `${timeText(version)}, by its writer's clock`]);
  if (state !== 'absent') parts.push(['from:', fromText(lastFrom)]);
  if (hiddenBy) parts.push(['hidden by:', `${JSON.stringify(hiddenBy.id)}, of ${timeText(hiddenBy.version)}`]);
  if (state === 'live' && tombstone !== null) parts.push(['deleted before:', timeText(tombstone)]);
  if (state === 'absent' && floor !== null) parts.push(['deletions:', `forgotten up to ${timeText(floor)}`]);
  if (row) parts.push(['row:', JSON.stringify(row)]);
  for (const { op, version: at, peersMissing } of pending) {
    const lacking = peersMissing.length === 0 ? 'nobody lacks it' : `lacking: ${peersMissing.join(', ')}`;
    parts.push(['waits:', `${op} of ${at === null ? '?' : timeText(at)}, ${lacking}`]);
  }
  for (const { id: number, code, reason, direction } of letters) {
    parts.push(['dead letter:', `${number}, ${direction}, ${code}: ${(reason ?? '').slice(0, 100)}`]);
  }
  for (const { conflictId, lostVersion, wonBy } of lost) {
    const by = wonBy === null ? '' : ` by ${wonBy}`;
    parts.push(['lost edit:', `${count(conflictId)}, of ${timeText(lostVersion)}, overwritten${by}`]);
  }
  return lines(aligned(parts));
}

const STATES: Record<Why['state'], string> = {
  live: 'live',
  hidden: 'hidden: another row with the same UNIQUE value keeps it out of its table',
  deleted: 'deleted',
  absent: 'not in its table',
};

function fromText(from: Why['lastFrom']): string {
  if (from === null) return 'not known any more: that was too long ago';
  const who = from.node === 'self' ? 'written here' : (from.node ?? 'somebody');
  const unknown = from.node === null ? ', which does not know who wrote it' : '';
  const via = from.via === undefined ? '' : `, by way of ${from.via}${unknown}`;
  return `${who}${via}${from.at === null ? '' : `, it came ${duration(systemClock.now() - from.at)} ago`}`;
}

function timeText(version: number): string {
  const time = new Date(version);
  return Number.isNaN(time.getTime()) ? String(version) : `${version} (${time.toISOString()})`;
}

/** What the file says no to is said as the program would say it. */
function fromFile<T>(look: () => T): T {
  try {
    return look();
  } catch (error) {
    throw error instanceof RowcastError ? new Refused(error.message) : error;
  }
}
