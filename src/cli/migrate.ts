/** `rowcast migrate` and `rowcast aliases`: a change of the schema from the command line, with the node stopped or running. */
import { readFileSync } from 'node:fs';
import { systemClock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { listAliases } from '../migrate/aliases.ts';
import { detached } from '../migrate/detached.ts';
import { forgetNames, migrate as run, type Subject, sendNewNames } from '../migrate/migrate.ts';
import type { MigrateOptions } from '../migrate/options.ts';
import { asked } from './asked.ts';
import { describeFlags, type Environment, parseFlags, takeArgument, text, toggle, UsageError } from './flags.ts';
import { type Binding, openDatabase } from './open.ts';
import { FLAGS_HELP } from './program.ts';
import { bindingFlag, processFlags } from './shared-flags.ts';
import { whileShowing } from './show.ts';

const COMMON = {
  db: text('file', "The node's database file."),
  binding: bindingFlag,
  busyMs: { ...processFlags.busyMs, help: "How long to wait for another process's lock on the database." },
};

const MIGRATE_FLAGS = asked({
  ...COMMON,
  rename: text('table.old=new', 'A column that has another name afterwards.', { repeatable: true }),
  renameTable: text('old=new', 'A table that has another name afterwards.', { repeatable: true }),
  drop: text(
    'table.column',
    'A column that is gone for good; only needed where the table gets others at the same time.',
    { repeatable: true },
  ),
});

const ALIASES_FLAGS = asked({
  ...COMMON,
  drop: toggle('From now on send the new names. For when every node is migrated; the old ones are still understood.'),
  forget: text(
    'name',
    'A former name, "orders" or "items.name", under which nobody has anything any more: it is no longer understood, ' +
      'and free. On every node, before one of them uses it again.',
    { repeatable: true },
  ),
});

const MIGRATE_HELP = `rowcast migrate: change the schema of a node's database

  rowcast migrate -db a.db 0007_title.sql -rename items.name=title

Runs the file in one transaction, with all that replication has to do about it: rows that it changes are sent, columns
and tables that it renames are known to other nodes by their old names until "rowcast aliases -drop". Nodes may be
migrated one after the other, in any order. A node that runs on the database need not be stopped; it waits meanwhile.
Without a file, only what the flags say is noted: for a schema that another tool has changed, or that is new.

${FLAGS_HELP}

${describeFlags(MIGRATE_FLAGS)}

Exit codes: 0 done, 1 it failed and nothing was changed, 2 a wrong command line.
`;

const ALIASES_HELP = `rowcast aliases: the names that tables and columns of a node's database had before

  rowcast aliases -db a.db
  rowcast aliases -db a.db -drop
  rowcast aliases -db a.db -forget orders -forget items.name

A former name is taken: what a hub, an old backup or a node that is not migrated has under it belongs to the table or column
that had it. So a new one cannot have it until it is forgotten here. A hub loses the old names when it is begun anew, with an
empty file, once every node has dropped its aliases and has nothing pending; docs/migrations.md says how.

${FLAGS_HELP}

${describeFlags(ALIASES_FLAGS)}
`;

export async function migrate(args: string[], env: Environment): Promise<number> {
  const { argument: file, rest } = takeArgument(args);
  const flags = parseFlags(MIGRATE_FLAGS, rest, env);
  if (flags === 'help') return say(MIGRATE_HELP);
  const options = optionsOf(flags);
  const said = flags.rename.length + flags.renameTable.length + flags.drop.length;
  if (file === undefined && said === 0) throw new UsageError('there is nothing to do: name a file of SQL');
  const sql = file === undefined ? '' : read(file);
  if (file !== undefined && !hasStatement(sql)) {
    throw new UsageError(`${file} holds no statement; to note only what the flags say, name no file`);
  }
  return on(flags, (subject) => {
    whileShowing((at) => run({ ...subject, at }, sql, options));
    return say(`migrated ${flags.db}\n`);
  });
}

export async function aliases(args: string[], env: Environment): Promise<number> {
  const flags = parseFlags(ALIASES_FLAGS, args, env);
  if (flags === 'help') return say(ALIASES_HELP);
  return on(flags, (subject) => {
    if (flags.drop) sendNewNames(subject);
    if (flags.forget.length > 0) forgetNames(subject, flags.forget);
    const lines = listAliases(subject.db).map(({ table, column, was, sent }) => {
      const name = column === undefined ? table : `${table}.${column}`;
      return `${name} was ${was}${sent ? ', and still travels so' : ''}\n`;
    });
    return say(lines.join('') || 'no table or column had another name\n');
  });
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new UsageError(`cannot read ${file}: ${messageOf(error)}`);
  }
}

/** What was cut off on its way here, or never saved, is no migration. */
function hasStatement(sql: string): boolean {
  return sql.replace(/--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|[\s;\uFEFF]/g, '') !== '';
}

interface Given {
  rename: string[];
  renameTable: string[];
  drop: string[];
}

function optionsOf(given: Given): MigrateOptions {
  const rename: Record<string, Record<string, string>> = {};
  const renameTable: Record<string, string> = {};
  const drop: Record<string, string[]> = {};
  for (const one of given.rename) {
    const [, table, from, to] = /^([^.=]+)\.([^=]+)=(.+)$/.exec(one) ?? wrong('rename', 'table.old=new', one);
    rename[table as string] = { ...rename[table as string], [from as string]: to as string };
  }
  for (const one of given.renameTable) {
    const [, from, to] = /^([^=]+)=(.+)$/.exec(one) ?? wrong('rename-table', 'old=new', one);
    renameTable[from as string] = to as string;
  }
  for (const one of given.drop) {
    const [, table, column] = /^([^.]+)\.(.+)$/.exec(one) ?? wrong('drop', 'table.column', one);
    drop[table as string] = [...(drop[table as string] ?? []), column as string];
  }
  return { rename, renameTable, drop };
}

function wrong(flag: string, form: string, given: string): never {
  throw new UsageError(`-${flag} must be ${form}, not ${JSON.stringify(given)}`);
}

function on(
  flags: { db: string; binding: Binding | undefined; busyMs: number },
  action: (subject: Subject) => number,
): number {
  const opened = openDatabase(flags.db, { binding: flags.binding, busyMs: flags.busyMs, existing: true });
  try {
    const subject = detached(opened.db, systemClock, (message) => process.stderr.write(`warning: ${message}\n`));
    const code = action(subject);
    subject.db.release();
    return code;
  } finally {
    opened.close();
  }
}

function say(message: string): number {
  process.stdout.write(message);
  return 0;
}
