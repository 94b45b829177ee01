/** What the terminal shows: a pure function from what is true to lines. */
import type { Health } from '../src/health.ts';
import type { ProcessState } from './nodes.ts';
import { SCENES } from './scenes.ts';

export interface View {
  folder: string;
  nodes: {
    id: string;
    port: number;
    /** Where a browser finds its console. */
    console: string;
    state: ProcessState;
    pid: number | undefined;
    health: Health | undefined;
  }[];
  links: { name: string; isCut: boolean }[];
  /** Rows are being written without pause. */
  writing: boolean;
  /** Newest last. */
  log: { at: string; text: string }[];
  /** Which node a peer URL leads to. */
  peerName(url: string): string;
}

export interface Size {
  columns: number;
  rows: number;
}

type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow';
/** Text with a style, or without. */
type Span = string | [Style, string];

const CODES: Record<Style, number> = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33 };
/** In a lower window the log is worth more than the lines to copy. */
const ROWS_OUTSIDE = 24;
const UNKNOWN = '-';

/** As many lines as fit; the log takes what is left over. */
export function frame(view: View, size: Size, colour: boolean): string[] {
  const outside = size.rows < ROWS_OUTSIDE ? [] : [...toTry(view.nodes), ''];
  const fixed: Span[][] = [
    [['bold', 'Rowcast'], ': three processes, three SQLite databases, all of them take writes'],
    [['dim', `${view.folder}/{${view.nodes.map(({ id }) => id).join(',')}}.db`]],
    [],
    [['dim', ' node  address         process        rows  pending      lag  peers, last known']],
    ...view.nodes.map((node) => nodeLine(node, view.peerName)),
    [],
    [' links ', ...view.links.flatMap(linkSpans)],
    [],
    ...keyLines(view.writing),
    [],
    ...outside.map((line): Span[] => [line]),
  ];
  const room = Math.max(0, size.rows - fixed.length);
  const log = room > 0 ? view.log.slice(-room) : [];
  const lines = [...fixed.slice(0, size.rows), ...log.map(({ at, text }): Span[] => [['dim', `${at}  `], text])];
  return lines.map((line) => paint(line, size.columns, colour));
}

/** The same table without colours, for those who read lines. */
export function statusLines(view: View): string[] {
  const lines: Span[][] = [
    ...view.nodes.map((node) => nodeLine(node, view.peerName)),
    [' links ', ...view.links.flatMap(linkSpans)],
  ];
  return lines.map((line) => paint(line, 200, false).trimEnd());
}

/** What can be done from outside. */
export function toTry(nodes: { port: number; console: string }[]): string[] {
  const [a, b, c] = nodes.map(({ port }) => port);
  return [
    ` In a browser, the console of a: ${nodes[0]?.console}`,
    ' From another terminal: write on a, read it on b, ask c how it is',
    `   curl 127.0.0.1:${a}/api/items -H content-type:application/json \\`,
    `     -d '{"name":"hello","value":1}'`,
    `   curl 127.0.0.1:${b}/api/items     # and: curl 127.0.0.1:${c}/health`,
  ];
}

function keyLines(writing: boolean): Span[][] {
  const key = (name: string): Span => ['bold', name];
  return [
    [
      ' ',
      key('w'),
      ' write 10 rows on each   ',
      key('r'),
      writing ? ' stop writing      ' : ' write on and on   ',
      key('v'),
      ' compare all rows   ',
      key('q'),
      ' quit',
    ],
    [' ', key('a b c'), ' kill -9 that node, or bring it back   ', key('1 2 3'), ' cut that link, or heal it'],
    ...SCENES.map((scene): Span[] => [' ', key(scene.key), ` ${scene.summary}`]),
  ];
}

function nodeLine({ id, port, state, pid, health }: View['nodes'][number], peerName: View['peerName']): Span[] {
  const number = (value: number | undefined, width: number): string =>
    (value === undefined ? UNKNOWN : grouped(value)).padStart(width);
  return [
    ['bold', `  ${id}    `],
    `127.0.0.1:${port}`.padEnd(16),
    processSpan(state, pid),
    number(health?.item_count, 8),
    waiting(number(health?.pending_changes, 9), health?.pending_changes),
    (health ? duration(health.lag_ms) : UNKNOWN).padStart(9),
    '  ',
    ...(health?.peer_states ?? []).flatMap(({ url, state, pending, last_error }): Span[] => {
      const name = peerName(url);
      if (state === 'down') return [['red', `${name} down`.padEnd(9)]];
      if (last_error !== null && pending > 0) return [['yellow', `${name} retry`.padEnd(9)]];
      // Nothing was sent since it started, so it cannot know.
      if (state === 'unknown') return [['dim', `${name} ?`.padEnd(9)]];
      return [['green', `${name} up`.padEnd(9)]];
    }),
    health && !health.ok ? ['red', health.problems.join('; ')] : '',
    health && health.dead_letter > 0 ? ['red', `${health.dead_letter} put aside`] : '',
  ];
}

function processSpan(state: ProcessState, pid: number | undefined): Span {
  const text = (state === 'running' ? `pid ${pid}` : state).padEnd(11);
  if (state === 'running') return ['green', text];
  return [state === 'killed' || state === 'failed' ? 'red' : 'yellow', text];
}

function linkSpans({ name, isCut }: View['links'][number], index: number): Span[] {
  return [['bold', ` ${index + 1} `], `${name} `, isCut ? ['red', 'CUT   '] : ['green', 'intact'], '   '];
}

function waiting(text: string, pending: number | undefined): Span {
  return pending ? ['yellow', text] : text;
}

function grouped(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ',');
}

function duration(ms: number): string {
  if (ms < 1_000) return `${ms} ms`;
  return ms < 100_000 ? `${(ms / 1_000).toFixed(1)} s` : `${Math.round(ms / 60_000)} min`;
}

/** Cut to the width first, styled afterwards: an escape sequence has no width. */
function paint(line: Span[], columns: number, colour: boolean): string {
  let room = columns;
  let painted = '';
  for (const span of line) {
    const [style, full] = typeof span === 'string' ? [undefined, span] : span;
    const text = full.slice(0, room);
    room -= text.length;
    painted += colour && style && text ? `\x1b[${CODES[style]}m${text}\x1b[0m` : text;
  }
  return painted;
}
