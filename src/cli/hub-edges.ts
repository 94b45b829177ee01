/** `rowcast hub-edges`: whom a running group of hubs serves. The processes hear of a change within a second. */
import { messageOf } from '../errors.ts';
import { type EdgeList, openEdgeList } from '../hub/postgres/edge-list.ts';
import { asked } from './asked.ts';
import { readPeersFile } from './config-file.ts';
import { describeFlags, type Environment, file, parseFlags, takeWords, UsageError } from './flags.ts';
import { StartError } from './listen.ts';
import { FLAGS_HELP } from './program.ts';
import { peersFlag } from './shared-flags.ts';
import { loadDriver, shownStore, storeFlags, storeOf } from './store.ts';

const FLAGS = asked({
  ...storeFlags,
  file: file('A file with a URL a line, besides those that are named. # begins a comment.'),
});

const HELP = `rowcast hub-edges: whom a group of hubs serves

  rowcast hub-edges -store postgres://rowcast@db/rowcast list
  rowcast hub-edges -store postgres://rowcast@db/rowcast add http://n1:9001 http://n2:9001
  rowcast hub-edges -store postgres://rowcast@db/rowcast forget -file gone.txt

An edge that is added is given everything. One that is forgotten is sent nothing more, and is a new one when it is added
again. The processes of the group hear of it within a second; none of them has to be started anew.

${FLAGS_HELP}

${describeFlags(FLAGS)}

Exit codes: 0 done, 1 the store cannot be used, 2 a wrong command line.
`;

const ACTIONS = ['list', 'add', 'forget'] as const;
type Action = (typeof ACTIONS)[number];

export async function hubEdges(args: string[], env: Environment): Promise<number> {
  const { words, rest } = takeWords(FLAGS, args);
  const flags = parseFlags(FLAGS, rest, env);
  if (flags === 'help') {
    process.stdout.write(HELP);
    return 0;
  }
  const [action, ...named] = words;
  if (!isAction(action)) throw new UsageError(`say what to do: ${ACTIONS.join(', ')}`);
  const parse = peersFlag('').parse;
  const listed = flags.file === undefined ? [] : readPeersFile('-file', flags.file, parse);
  const urls = [...new Set([...named.map((url) => parse(url)), ...listed])];
  if (action === 'list' && urls.length > 0) throw new UsageError('list takes no URLs: it lists all');
  if (action !== 'list' && urls.length === 0) throw new UsageError(`${action} needs URLs, or -file`);
  const store = storeOf(flags, args);
  if (store === undefined) throw new UsageError('-store is required: -store <url>, -store-file or ROWCAST_STORE');
  const driver = loadDriver();
  let edges: EdgeList;
  try {
    edges = await openEdgeList(driver, store);
  } catch (error) {
    throw new StartError(`store ${shownStore(store)}: ${messageOf(error)}`, { cause: error });
  }
  try {
    process.stdout.write(await done(edges, action, urls));
    return 0;
  } finally {
    await edges.close();
  }
}

async function done(edges: EdgeList, action: Action, urls: string[]): Promise<string> {
  if (action === 'add') return `${await edges.add(urls)} added, ${(await edges.list()).length} in all\n`;
  if (action === 'forget') return `${await edges.forget(urls)} forgotten, ${(await edges.list()).length} left\n`;
  const all = await edges.list();
  const lines = all.map(({ url, nodeId, paused }) => `${url}  ${nodeId ?? '-'}${paused ? '  paused' : ''}\n`);
  return lines.join('');
}

function isAction(word: string | undefined): word is Action {
  return ACTIONS.some((action) => action === word);
}
