#!/usr/bin/env node
/** The `rowcast` program: finds the command, and turns whatever goes wrong into a message and an exit code. */
import { createRequire } from 'node:module';
import { suggest } from '../errors.ts';
import { shownUrl } from '../wire/peer-url.ts';
import { type Environment, UsageError } from './flags.ts';
import { endWhenUnread, report } from './program.ts';

type Command = (args: string[], env: Environment) => Promise<number>;

/** Each is loaded when it is asked for: a node has no use for a hub, nor a question to one for either. */
const COMMANDS: Record<string, { summary: string; load: () => Promise<Command> }> = {
  serve: {
    summary: 'run one node: database, item routes, replication',
    load: async () => (await import('./serve.ts')).serve,
  },
  hub: { summary: 'run a hub: relays between any number of nodes', load: async () => (await import('./hub.ts')).hub },
  'hub-edges': {
    summary: 'list, add or forget the edges of a running group of hubs',
    load: async () => (await import('./hub-edges.ts')).hubEdges,
  },
  status: { summary: 'how a node or hub is, on one screen', load: async () => (await import('./operate.ts')).status },
  top: { summary: 'the same every second', load: async () => (await import('./operate.ts')).top },
  peers: {
    summary: 'list, add, remove, pause, resume or seed again the peers of a running node',
    load: async () => (await import('./operate.ts')).peers,
  },
  'dead-letters': {
    summary: 'list, show, retry or discard what could not be delivered or applied',
    load: async () => (await import('./operate.ts')).deadLetters,
  },
  conflicts: {
    summary: 'list, show, restore or dismiss edits that were overwritten unseen',
    load: async () => (await import('./journal.ts')).conflicts,
  },
  why: {
    summary: 'the story of one row: rowcast why -db a.db items 0190a7',
    load: async () => (await import('./journal.ts')).why,
  },
  verify: {
    summary: 'compare with the peers, and put right what differs',
    load: async () => (await import('./operate.ts')).verify,
  },
  identity: {
    summary: 'which database this is to the others; --new makes a copy one of its own',
    load: async () => (await import('./identity.ts')).identity,
  },
  backup: {
    summary: 'a checked copy of a database that is in use',
    load: async () => (await import('./operate.ts')).backup,
  },
  migrate: {
    summary: "change the schema of a node's database: rowcast migrate -db a.db file.sql",
    load: async () => (await import('./migrate.ts')).migrate,
  },
  aliases: {
    summary: 'the names that tables and columns had before; -drop sends the new ones, -forget frees a former one',
    load: async () => (await import('./migrate.ts')).aliases,
  },
  keygen: {
    summary: 'print a new key, as the content of a file for -keys-file: rowcast keygen k1',
    load: async () => (await import('./keys.ts')).keygen,
  },
  forget: {
    summary: 'a node is gone for good: rowcast forget -db a.db c',
    load: async () => (await import('./forget.ts')).forget,
  },
  openapi: {
    summary: 'print the OpenAPI document of all routes',
    load: async () => (await import('./openapi.ts')).openapi,
  },
  demo: {
    summary: 'run three nodes on this machine: write, kill, cut links, and watch',
    load: async () => (await import('../../demo/main.ts')).demo,
  },
  help: { summary: 'this text, or the help of a command: rowcast help serve', load: async () => help },
  version: { summary: 'print the version', load: async () => version },
};

/** Those go on although nobody reads their log any more. */
const RUNNING = ['serve', 'hub', 'demo'];

const ALIASES: Record<string, string> = {
  '-h': 'help',
  '-help': 'help',
  '--help': 'help',
  '-v': 'version',
  '-version': 'version',
  '--version': 'version',
};

process.exit(await written(await main(process.argv.slice(2), process.env)));

/** What was said is out when this resolves; where it cannot be, the program has ended before. */
function written(code: number): Promise<number> {
  process.exitCode = code;
  return new Promise((resolve) => process.stdout.write('', () => resolve(code)));
}

async function main([word, ...args]: string[], env: Environment): Promise<number> {
  if (word === undefined) {
    process.stderr.write(overview());
    return 2;
  }
  const name = ALIASES[word] ?? word;
  if (!RUNNING.includes(name)) endWhenUnread(`rowcast ${name}`);
  try {
    const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
    if (!command) throw unknownCommand(word);
    return await (await command.load())(args, env);
  } catch (error) {
    return report(Object.hasOwn(COMMANDS, name) ? `rowcast ${name}` : 'rowcast', error);
  }
}

async function help([name]: string[], env: Environment): Promise<number> {
  const command = name !== undefined && name !== 'help' && Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (command) return (await command.load())(['--help'], env);
  if (name !== undefined && name !== 'help') throw unknownCommand(name);
  process.stdout.write(overview());
  return 0;
}

async function version(): Promise<number> {
  process.stdout.write(`${createRequire(import.meta.url)('../../../package.json').version}\n`);
  return 0;
}

function overview(): string {
  const width = Math.max(...Object.keys(COMMANDS).map((name) => name.length));
  const lines = Object.entries(COMMANDS).map(([name, { summary }]) => `  rowcast ${name.padEnd(width)}  ${summary}`);
  return `rowcast: multi-writer replication for SQLite\n\n${lines.join('\n')}\n\nrowcast <command> --help says more.\n`;
}

function unknownCommand(word: string): UsageError {
  const known = Object.keys(COMMANDS);
  return new UsageError(
    `unknown command ${JSON.stringify(shownUrl(word))}${suggest(word, known)}\nallowed: ${known.join(' ')}`,
  );
}
