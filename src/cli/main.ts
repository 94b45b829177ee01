#!/usr/bin/env node
/** The `rowcast` program: finds the command, and turns whatever goes wrong into a message and an exit code. */
import { createRequire } from 'node:module';
import { suggest } from '../errors.ts';
import { type Environment, UsageError } from './flags.ts';
import { forget } from './forget.ts';
import { hub } from './hub.ts';
import { keygen } from './keys.ts';
import { aliases, migrate } from './migrate.ts';
import { backup, deadLetters, peers, status, top, verify } from './operate.ts';
import { report } from './program.ts';
import { serve } from './serve.ts';

type Command = (args: string[], env: Environment) => Promise<number>;

const COMMANDS: Record<string, { summary: string; run: Command }> = {
  serve: { summary: 'run one node: database, item routes, replication', run: serve },
  hub: { summary: 'run a hub: relays between any number of nodes', run: hub },
  status: { summary: 'how a node or hub is, on one screen', run: status },
  top: { summary: 'the same every second', run: top },
  peers: { summary: 'list, add, remove, pause, resume or seed again the peers of a running node', run: peers },
  'dead-letters': { summary: 'list, show, retry or discard what could not be delivered or applied', run: deadLetters },
  verify: { summary: 'compare with the peers, and put right what differs', run: verify },
  backup: { summary: 'a checked copy of a database that is in use', run: backup },
  migrate: { summary: "change the schema of a node's database: rowcast migrate -db a.db file.sql", run: migrate },
  aliases: { summary: 'the names that tables and columns had before; -drop sends the new ones', run: aliases },
  keygen: { summary: 'print a new key, as the content of a file for -keys-file: rowcast keygen k1', run: keygen },
  forget: { summary: 'a node is gone for good: rowcast forget -db a.db c', run: forget },
  demo: { summary: 'run three nodes on this machine: write, kill, cut links, and watch', run: demo },
  help: { summary: 'this text, or the help of a command: rowcast help serve', run: help },
  version: { summary: 'print the version', run: version },
};

const ALIASES: Record<string, string> = {
  '-h': 'help',
  '-help': 'help',
  '--help': 'help',
  '-v': 'version',
  '-version': 'version',
  '--version': 'version',
};

process.exit(await main(process.argv.slice(2), process.env));

async function main([word, ...args]: string[], env: Environment): Promise<number> {
  if (word === undefined) {
    process.stderr.write(overview());
    return 2;
  }
  const name = ALIASES[word] ?? word;
  try {
    const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
    if (!command) throw unknownCommand(word);
    return await command.run(args, env);
  } catch (error) {
    return report(Object.hasOwn(COMMANDS, name) ? `rowcast ${name}` : 'rowcast', error);
  }
}

/** Loaded when it is asked for: a node has no use for it. */
async function demo(args: string[], env: Environment): Promise<number> {
  const { demo: run } = await import('../../demo/main.ts');
  return run(args, env);
}

async function help([name]: string[], env: Environment): Promise<number> {
  const command = name !== undefined && name !== 'help' && Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (command) return command.run(['--help'], env);
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
  return new UsageError(`unknown command ${JSON.stringify(word)}${suggest(word, known)}\nallowed: ${known.join(' ')}`);
}
