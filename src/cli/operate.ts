/** The commands of an operator: they ask a running node or hub, or look at its file. */
import type { RatesSince } from '../admin/rates.ts';
import type { VerifyState } from '../admin/verify-job.ts';
import { systemClock } from '../clock.ts';
import type { DeadLetter } from '../letters/dead-letters.ts';
import { shownUrl } from '../wire/peer-url.ts';
import { type Ask, asker, askFlags, Refused, type Target, Unreachable } from './ask.ts';
import { asked, placed } from './asked.ts';
import { backupFile, refuseIfHidden } from './backup.ts';
import {
  describeFlags,
  type Environment,
  type Flags,
  integer,
  parseFlags,
  takeWords,
  text,
  toggle,
  UsageError,
  type Values,
} from './flags.ts';
import { letterOffline, lettersOffline, statusOffline } from './offline.ts';
import { isMissing } from './open.ts';
import { bindingFlag } from './shared-flags.ts';
import { aligned, bytes, count, duration, harmless, type ShownStatus, statusText, whileShowing } from './show.ts';

export const json = toggle('Print JSON instead of text.');
export const offline = toggle('Look at the database file alone, whether or not somebody runs on it.');
const EXIT_CODES = 'Exit codes: 0 well, 1 not well, 2 a wrong command line, 3 nobody answers.';

/** A command: its flags, its help, and what it does with the words besides. Returns the exit code. */
interface Command<F extends Flags> {
  name: string;
  usage: string;
  flags: F;
  run(flags: Values<F>, words: string[]): Promise<number>;
  /** The exit code where the program says no; 1 unless that means something else. */
  refused?: number;
}

export function command<F extends Flags>({ name, usage, run, refused, ...described }: Command<F>) {
  const flags = asked(described.flags);
  return async (args: string[], env: Environment): Promise<number> => {
    const { words, rest } = takeWords(flags, args);
    const values = parseFlags(flags, rest, placed(rest, env));
    if (values === 'help') return say(`rowcast ${name}: ${usage}\n\n${describeFlags(flags)}\n\n${EXIT_CODES}\n`);
    try {
      return await run(values, words);
    } catch (error) {
      if (!(error instanceof Unreachable || error instanceof Refused)) throw error;
      process.stderr.write(harmless(`rowcast ${name}: ${error.message}\n`));
      return error instanceof Unreachable ? 3 : (refused ?? 1);
    }
  };
}

const STATUS_FLAGS = { ...askFlags, binding: bindingFlag, offline, json };

export const status = command({
  name: 'status',
  usage: `how a node or hub is, on one screen

  rowcast status -db a.db
  rowcast status -url http://127.0.0.1:9101 --json`,
  flags: STATUS_FLAGS,
  async run(flags, words) {
    refuseWords(words);
    const found = flags.offline
      ? statusOffline(fileOf(flags), flags.binding)
      : await asker(flags).get<ShownStatus>('status');
    say(flags.json ? `${JSON.stringify(found)}\n` : statusText(found, systemClock.now()));
    return found.ok ? 0 : 1;
  },
});

export const top = command({
  name: 'top',
  usage: `status again every second, with the rows that were written and acknowledged since the last time; Ctrl-C ends it

  rowcast top -db a.db
  rowcast top -db a.db --json        (a line a second)`,
  flags: {
    ...askFlags,
    json,
    rounds: integer('End after so many; 0: never.', { default: 0, min: 0, max: 1_000_000 }),
  },
  async run(flags, words) {
    refuseWords(words);
    const ask = asker(flags);
    let before: { at: number; status: ShownStatus } | undefined;
    // Which one it is by the clock over there is learnt with the first answer.
    let step = LATEST_STEP;
    for (let round = 1; ; round++) {
      const now = { at: systemClock.now(), status: await ask.get<ShownStatus>('status') };
      const flow: RatesSince = await ask.get<RatesSince>(`rates?from=${step}`);
      step = flow.last - 1;
      if (flags.json) say(`${JSON.stringify({ ...now.status, rates: flow })}\n`);
      else {
        if (process.stdout.isTTY) process.stdout.write('\x1b[2J\x1b[H');
        say(`${statusText(now.status, now.at)}${rates(before, now)}${flowText(flow)}`);
      }
      if (round === flags.rounds) return now.status.ok ? 0 : 1;
      before = now;
      await systemClock.sleep(1_000);
    }
  },
});

function rates(
  before: { at: number; status: ShownStatus } | undefined,
  now: { at: number; status: ShownStatus },
): string {
  if (!before || now.at <= before.at || now.status.captured === undefined) return '';
  const a = ((now.status.captured - (before.status.captured ?? 0)) * 1_000) / (now.at - before.at);
  return `  written: ${count(Math.round(a))} changes a second\n`;
}

const LATEST_STEP = 999_999_999_999;

/** What came in and went out in the latest step that is over. */
function flowText({ received, acked, stepMs }: RatesSince): string {
  if (received.length < 2) return '';
  const aSecond = (steps: number[]): string => count(Math.round(((steps.at(-2) ?? 0) * 1_000) / stepMs));
  return `  in: ${aSecond(received)} changes a second; out, to all together: ${aSecond(acked)}\n`;
}

const VERBS = ['add', 'remove', 'pause', 'resume', 'reseed'];

export const peers = command({
  name: 'peers',
  usage: `the peers of a node, or the edges of a hub, while it runs

  rowcast peers -db a.db
  rowcast peers -db a.db pause http://10.0.0.2:9001      (add, remove, pause, resume, reseed)

What is added and removed lasts until the program is started again: its configuration is not changed. A pause lasts.`,
  flags: { ...askFlags, binding: bindingFlag, offline, json },
  async run(flags, [verb, url, ...more]) {
    refuseWords(more);
    if (verb !== undefined) {
      if (!VERBS.includes(verb))
        throw new UsageError(`peers can be: ${VERBS.join(', ')}, not ${JSON.stringify(shownUrl(verb))}`);
      if (url === undefined) throw new UsageError(`rowcast peers ${verb} needs the URL of a peer`);
      await asker(neededFor(verb, flags)).post(`peers/${verb}`, { url });
    }
    const found = flags.offline
      ? statusOffline(fileOf(flags), flags.binding).peer_states
      : await asker(flags).get<Peer[]>('peers');
    if (flags.json) return say(`${JSON.stringify(found)}\n`);
    return say(found.length === 0 ? 'no peers\n' : lines(aligned(found.map((one) => [one.url, wordsOf(one)]))));
  },
});

interface Peer {
  url: string;
  state: string;
  paused: boolean;
  stale?: boolean;
  snapshot?: boolean;
}

function wordsOf({ state, paused, stale, snapshot }: Peer): string {
  return [state, paused && 'paused', stale && 'stale', snapshot && 'being given everything'].filter(Boolean).join(', ');
}

const LETTER_FLAGS = {
  ...askFlags,
  binding: bindingFlag,
  offline,
  json,
  all: toggle('With retry: all letters, or all of one -code.'),
  code: {
    ...text('code', 'Only letters of this code.'),
    optional: true,
    parse: (value: string): string | undefined => value,
  },
  limit: integer('How many are listed.', { default: 100, min: 1, max: 1_000 }),
  after: integer('List those with a greater number.', { default: 0, min: 0, max: Number.MAX_SAFE_INTEGER }),
};

export const deadLetters = command({
  name: 'dead-letters',
  usage: `changes that could not be delivered or applied

  rowcast dead-letters -db a.db
  rowcast dead-letters -db a.db show 7        (retry 7, discard 7)
  rowcast dead-letters -db a.db retry --all -code constraint

Exit code 1 also where one that was tried again is still kept.`,
  flags: LETTER_FLAGS,
  async run(flags, [verb = 'list', number, ...more]) {
    refuseWords(more);
    if (flags.all && (verb !== 'retry' || number !== undefined)) {
      throw new UsageError('--all is for retry, and without a number');
    }
    if (verb === 'list') {
      if (number !== undefined) refuseWords([number]);
      return listLetters(flags);
    }
    if (verb === 'retry' && flags.all) {
      const outcomes = await asker(neededFor(verb, flags)).post<Record<string, number>>(
        'dead-letters/retry',
        flags.code === undefined ? {} : { code: flags.code },
      );
      say(flags.json ? `${JSON.stringify(outcomes)}\n` : `${outcomesText(outcomes)}\n`);
      return outcomes.kept || outcomes.refused ? 1 : 0;
    }
    if (!['show', 'retry', 'discard'].includes(verb)) {
      throw new UsageError(`dead letters can be: list, show, retry, discard, not ${JSON.stringify(verb)}`);
    }
    if (number === undefined || !/^\d+$/.test(number)) {
      throw new UsageError(
        `rowcast dead-letters ${verb} needs the number of a letter${verb === 'retry' ? ', or --all' : ''}`,
      );
    }
    if (verb === 'show') {
      const letter = flags.offline
        ? letterOffline(fileOf(flags), flags.binding, Number(number))
        : await asker(flags).get<DeadLetter>(`dead-letters/${number}`);
      return say(flags.json ? `${JSON.stringify(letter)}\n` : letterText(letter));
    }
    const said = await asker(neededFor(verb, flags)).post<{ outcome?: string; reason?: string }>(
      `dead-letters/${number}/${verb}`,
    );
    const outcome = `${number}: ${said.outcome ?? 'discarded'}${said.reason === undefined ? '' : `: ${said.reason}`}`;
    say(`${flags.json ? JSON.stringify(said) : outcome}\n`);
    return said.outcome === 'kept' ? 1 : 0;
  },
});

async function listLetters(flags: Values<typeof LETTER_FLAGS>): Promise<number> {
  const { limit, after, code } = flags;
  const query = new URLSearchParams({
    limit: String(limit),
    after: String(after),
    ...(code !== undefined && { code }),
  });
  const letters = flags.offline
    ? lettersOffline(fileOf(flags), flags.binding, { limit, after, code })
    : await asker(flags).get<DeadLetter[]>(`dead-letters?${query}`);
  if (flags.json) return say(`${JSON.stringify(letters)}\n`);
  if (letters.length === 0) return say(code === undefined ? 'no dead letters\n' : `no dead letters of code ${code}\n`);
  const now = systemClock.now();
  const table = letters.map((one) => [
    String(one.id),
    one.direction,
    one.code ?? '',
    `${one.table ?? ''} ${JSON.stringify(one.rowId)}`,
    one.peer ?? '',
    `${duration(now - one.failedAt)} ago`,
    (one.reason ?? '').slice(0, 100),
  ]);
  const more = letters.length === limit ? `more: -after ${letters.at(-1)?.id}\n` : '';
  return say(`${lines(aligned(table))}${more}`);
}

function letterText(letter: DeadLetter): string {
  const parts = Object.entries(letter).map(([key, value]) => [`${key}:`, value === null ? '' : String(value)]);
  return lines(aligned(parts));
}

function outcomesText(outcomes: Record<string, number>): string {
  const told = Object.entries(outcomes).map(([outcome, n]) => `${count(n)} ${outcome}`);
  return told.length === 0 ? 'there was none to try' : told.join(', ');
}

export const verify = command({
  name: 'verify',
  usage: `compare every row with the peers, and tell what differs: a line a row, "table id here there"

  rowcast verify -db a.db
  rowcast verify -db a.db -peer http://10.0.0.2:9001 -table items --repair

Exit codes: 0 equal, 1 it differs, 2 a wrong command line, 3 it could not be compared.`,
  refused: 3,
  flags: {
    ...askFlags,
    peer: {
      ...text('url', 'Only with this peer.'),
      optional: true,
      parse: (value: string): string | undefined => value,
    },
    table: text('name', 'Only this table.', { repeatable: true }),
    repair: toggle('Put right what differs, by the version order.'),
    limit: integer('How many rows of a table are listed.', { default: 100, min: 0, max: 1_000_000 }),
    json,
  },
  async run(flags, words) {
    refuseWords(words);
    const ask = asker(flags);
    const { peer, repair, limit, table } = flags;
    const question = { repair, limit, ...(peer !== undefined && { peer }), ...(table.length > 0 && { tables: table }) };
    const { results = [], error } = await compared(ask, question);
    if (error !== undefined) throw new Refused(error);
    if (flags.json) say(`${JSON.stringify(results)}\n`);
    else for (const one of results) say(resultText(one));
    if (results.some((one) => one.error !== undefined)) return 3;
    return results.every((one) => one.equal) ? 0 : 1;
  },
});

/** Begins it and waits for its end; a terminal sees where it is. */
async function compared(ask: Ask, question: Record<string, unknown>): Promise<VerifyState> {
  const { number } = await ask.post<VerifyState>('verify', question);
  const terminal = process.stderr.isTTY;
  for (;;) {
    const state = await ask.get<VerifyState>('verify');
    if (state.number !== number)
      throw new Refused('the program was started again, or somebody else has begun another one');
    if (terminal && state.at) {
      const { peer, table, rows, differences } = state.at;
      process.stderr.write(`\r\x1b[K${peer} ${table}: ${count(rows)} rows, ${count(differences)} differ`);
    }
    if (!state.running) {
      if (terminal) process.stderr.write('\r\x1b[K');
      return state;
    }
    await systemClock.sleep(200);
  }
}

type Result = NonNullable<VerifyState['results']>[number];

function resultText({ peer, equal, differences, repaired, pending, tables, ms, error }: Result): string {
  const rows = tables.flatMap(({ table, list }) =>
    list.map((one) => [
      table,
      JSON.stringify(one.id),
      versionText(one.here),
      versionText(one.there),
      one.repaired ? 'repaired' : '',
    ]),
  );
  const verdict =
    error ??
    (equal && differences === 0
      ? 'equal'
      : `${count(differences)} rows differ, ${count(repaired)} repaired, ${count(pending)} on their way`);
  const compared = tables.reduce((sum, table) => sum + table.rows, 0);
  const absent = tables
    .filter(({ only }) => only === 'here')
    .map(({ table }) => `${table} is not at the peer: not compared`);
  const more = lines(absent) + (rows.length === 0 ? '' : lines(aligned(rows)));
  return `${peer}: ${verdict}; ${count(compared)} rows in ${duration(ms)}\n${more}`;
}

function versionText(version: { updatedAt: number; deleted: boolean } | null): string {
  return version === null ? '-' : `${version.updatedAt}${version.deleted ? ' deleted' : ''}`;
}

export const backup = command({
  name: 'backup',
  usage: `a copy of a database, made while it is in use, and checked

  rowcast backup -db a.db /backups/a-monday.db

A copy that is put back is noticed by the other nodes and brought up to date by itself.`,
  flags: { db: text('file', 'The database file.'), binding: bindingFlag, json },
  async run({ db, binding, json: asJson }, [target, ...more]) {
    refuseWords(more);
    if (!target) throw new UsageError('rowcast backup needs the name of a file that does not exist yet');
    await refuseIfHidden(db);
    const made = whileShowing((at) => backupFile(db, target, binding, at));
    return say(asJson ? `${JSON.stringify(made)}\n` : `${made.file}: ${bytes(made.bytes)}, checked\n`);
  },
});

export function fileOf({ db }: Pick<Target, 'db'>): string {
  if (db === undefined) throw new UsageError('--offline needs -db <file>');
  if (isMissing(db)) throw new UsageError(`there is no file ${db}`);
  return db;
}

/** The program that this needs: to whom nobody answers, --offline is not advised. */
export function neededFor(verb: string, { offline: isOffline, db, url, adminTokenFile }: Target): Target {
  if (isOffline) throw new UsageError(`${verb} needs the running program: without --offline`);
  return { db, url, adminTokenFile };
}

export function refuseWords([word]: string[]): void {
  if (word !== undefined) throw new UsageError(`unexpected argument ${JSON.stringify(word)}`);
}

export function lines(of: string[]): string {
  return `${of.join('\n')}\n`;
}

export function say(message: string): number {
  process.stdout.write(harmless(message));
  return 0;
}
