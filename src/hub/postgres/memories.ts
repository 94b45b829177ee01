/** Lines of `nodes` and `names`, brought into the scratch database before src/identity is asked, and back after it. */
import { type GoneOn, type Known, knownAs } from '../../identity/nodes.ts';
import { STRANGERS_KEPT } from '../../identity/strangers.ts';
import type { Connection, Value } from '../../sqlite/connection.ts';
import type { Introduction } from '../../wire/introduction.ts';
import { fromText, integerArray, type Param, textArray, toText } from './driver.ts';
import type { Session } from './sessions.ts';

/** A line of `_nodes` in the scratch database. */
export interface Node extends Record<string, Value> {
  inc: string;
  id: string;
  boot: string;
  before: string;
  t0: number;
  tick: number;
  back: string | null;
  self: number | null;
  seal: string | null;
  heard: number | null;
  claim: string | null;
}

interface EdgeThere {
  url: string;
  inc: string | null;
  nodeId: string | null;
}

const COLUMNS = ['inc', 'id', 'boot', 'before', 't0', 'tick', 'back', 'self', 'seal', 'heard', 'claim'] as const;
const LIST = COLUMNS.join(', ');

/** Databases that are remembered here, of those that the store knows: it is asked again for the others. */
export const REMEMBERED = 20_000;

export class Memories {
  readonly #db: Connection;
  readonly #onForgotten: () => void;
  /** Those that are remembered here: what is known of one that goes on, and undefined where the scratch database has it. */
  readonly #remembered = new Map<string, Known | undefined>();
  /** Databases that were new to the group since strangers were last forgotten; before the first time there may be many. */
  newcomers = Number.POSITIVE_INFINITY;

  /** `onForgotten`: what was in the scratch database is there no more. */
  constructor(scratch: Connection, onForgotten: () => void) {
    this.#db = scratch;
    this.#onForgotten = onForgotten;
  }

  /**
   * `hear` is called when what is known of the one that speaks is in the scratch database, and before anything else is
   * awaited. It is not written down what has changed.
   */
  look<T>(session: Session, of: Pick<Introduction, 'inc' | 'id'>, hear: () => T): Promise<T> {
    return this.#load(session, of, false, hear);
  }

  /**
   * The same, and what has changed is written down. What is known of a database is locked meanwhile: another process may
   * hear it, too, and neither may undo what the other notes. `isAnother`: what it said of its own before counts no more.
   */
  async note<T>(session: Session, said: Introduction, hear: () => T, isAnother: (found: T) => boolean): Promise<T> {
    const { inc, id } = said;
    for (;;) {
      const heard = await this.#load(session, said, true, () => {
        const before = { node: this.#spelt(inc), holder: this.#holder(id) };
        const found = hear();
        const node = this.#db.get<Node>(`SELECT ${LIST} FROM _nodes WHERE inc = ? AND self IS NULL`, inc);
        const holder = this.#holder(id);
        return {
          found,
          node: this.#spelt(inc) === before.node ? undefined : node,
          holder: holder === before.holder ? undefined : holder,
          isNew: before.node === NOBODY,
        };
      });
      const { found, node, holder, isNew } = heard;
      if (node && isNew) {
        // Another process has heard it first, and that is committed: what it has noted counts.
        if ((await session.run(ADD_NODE, ...paramsOf(node))) === 0) continue;
        this.newcomers += 1;
      } else if (node) await session.run(SAVE_NODE, ...paramsOf(node), isAnother(found));
      if (holder !== undefined) await session.run(SAVE_NAME, toText(id), holder);
      return found;
    }
  }

  /**
   * Several at once, each of another database that has its id for itself. Where `goesOn` finds that it does, what it says is
   * written down with what the others say.
   */
  async noteGoingOn(
    session: Session,
    all: Introduction[],
    goesOn: (said: Introduction, known: Known) => { changed: GoneOn | undefined } | undefined,
  ): Promise<void> {
    if (all.length === 0) return;
    const found = await session.query<Node & { holder: string | null }>(KNOWN, textArray(all.map(({ inc }) => inc)));
    const known = new Map(found.map((node) => [node.inc, node]));
    const changed = all.flatMap((said): (GoneOn & { inc: string })[] => {
      const { holder, ...stored } = known.get(said.inc) ?? { holder: null };
      if (!('id' in stored) || fromText(stored.id) !== said.id || holder !== said.inc) return [];
      const node = knownAs(asRemembered(stored));
      const gone = goesOn(said, node);
      if (!gone) return [];
      this.#remember(said.inc, gone.changed ? { ...node, ...gone.changed } : node);
      return gone.changed ? [{ ...gone.changed, inc: said.inc }] : [];
    });
    if (changed.length === 0) return;
    await session.run(
      GO_ON,
      textArray(changed.map(({ inc }) => inc)),
      integerArray(changed.map(({ tick }) => tick)),
      textArray(changed.map(({ seal }) => seal)),
      integerArray(changed.map(({ heard }) => heard)),
      textArray(changed.map(({ claim }) => claim)),
    );
  }

  /**
   * Several at once that nobody has heard of, each with an id that nobody has. Where `hear` finds that it is new, it is
   * written down with the others; the databases that were.
   */
  async noteNew(session: Session, all: Introduction[], hear: (said: Introduction) => boolean): Promise<Set<string>> {
    if (all.length === 0) return new Set();
    const [incs, ids] = [all.map(({ inc }) => inc), all.map(({ id }) => id)];
    const found = await session.query<{ inc: string }>(TAKEN, textArray(incs), textArray(ids.map(toText)));
    const taken = new Set(found.map(({ inc }) => inc));
    const heard = all.flatMap((said): Node[] => {
      if (taken.has(said.inc)) return [];
      this.#place(said, undefined, undefined, []);
      if (!hear(said)) return [];
      const node = this.#db.get<Node>(`SELECT ${LIST} FROM _nodes WHERE inc = ? AND self IS NULL`, said.inc);
      return node && this.#holder(said.id) === said.inc ? [node] : [];
    });
    if (heard.length === 0) return new Set();
    const texts = (of: (node: Node) => string | null): Uint8Array => textArray(heard.map(of));
    const integers = (of: (node: Node) => number | null): Uint8Array => integerArray(heard.map(of));
    // Where another process has heard one first, what that has noted counts.
    const added = await session.query<{ inc: string }>(
      ADD_NODES,
      texts(({ inc }) => inc),
      texts(({ id }) => toText(id)),
      texts(({ boot }) => boot),
      texts(({ before }) => before),
      integers(({ t0 }) => t0),
      integers(({ tick }) => tick),
      texts(({ back }) => back),
      texts(({ seal }) => seal),
      integers((node) => node.heard),
      texts(({ claim }) => claim),
    );
    this.newcomers += added.length;
    const isAdded = new Set(added.map(({ inc }) => inc));
    const names = heard.filter(({ inc }) => isAdded.has(inc));
    await session.run(SAVE_NAMES, textArray(names.map(({ id }) => toText(id))), textArray(names.map(({ inc }) => inc)));
    return isAdded;
  }

  /** What is known of these is in the scratch database. */
  async load(session: Session, incs: string[]): Promise<void> {
    if (incs.length === 0) return;
    const nodes = await session.query<Node>(
      `${NODES} WHERE inc = ANY ($1::text[]) AND self IS NOT TRUE`,
      textArray(incs),
    );
    for (const node of nodes) this.#place({ inc: node.inc, id: '' }, node, undefined, []);
  }

  /** The group itself. */
  own(): { inc: string; boot: string } | undefined {
    return this.#db.get<{ inc: string; boot: string }>('SELECT inc, boot FROM _nodes WHERE self = 1');
  }

  /** The edges that were loaded last, of which it may be one. */
  edgesOf(inc: string, id: string): string[] {
    const sql = 'SELECT url FROM _hub_edges WHERE inc = ? OR node_id = ? ORDER BY url';
    return this.#db.all<{ url: string }>(sql, inc, id).map(({ url }) => url);
  }

  /** All of it. */
  line(): Node | undefined {
    return this.#db.get<Node>(OWN);
  }

  /** It is again who it was. */
  putBack(own: Node | undefined): void {
    this.#db.run('DELETE FROM _nodes WHERE self = 1');
    if (own) this.#insert(own);
  }

  async loadOwn(session: Session): Promise<void> {
    const [own] = await session.query<Node>(`${NODES} WHERE self`);
    const here = this.#db.get<Pick<Node, 'boot' | 'tick'>>('SELECT boot, tick FROM _nodes WHERE self = 1');
    // What this process has counted in the attach before may be more than is left of it.
    const tick = here && here.boot === own?.boot ? here.tick : 0;
    this.putBack(own && { ...own, id: fromText(own.id), self: 1, tick: Math.max(own.tick, tick) });
  }

  /** In the place of the one that it was before, where it was another. */
  async saveOwn(session: Session, before: string | undefined): Promise<void> {
    const own = this.line();
    if (!own) return;
    if (before !== undefined) await session.run('DELETE FROM rowcast.nodes WHERE inc = $1', before);
    await session.run(SAVE_NODE, ...paramsOf(own), false);
  }

  /** Of those that are at no URL of ours, the ones that were heard of longest ago: see Identity. */
  async forgetStrangers(session: Session): Promise<void> {
    this.newcomers = 0;
    await session.run(FORGET_STRANGERS);
    await session.run('DELETE FROM rowcast.names WHERE inc NOT IN (SELECT inc FROM rowcast.nodes)');
  }

  /** What others may know of only grows. */
  tick(tick: number): void {
    this.#db.run('UPDATE _nodes SET tick = CAST(? AS INTEGER) WHERE self = 1 AND tick < ?', tick, tick);
  }

  /** Of an attach: that of the server, be it less than it was. */
  setTick(tick: number): void {
    this.#db.run('UPDATE _nodes SET tick = CAST(? AS INTEGER) WHERE self = 1', tick);
  }

  async #load<T>(
    session: Session,
    { inc, id }: Pick<Introduction, 'inc' | 'id'>,
    isLocked: boolean,
    hear: () => T,
  ): Promise<T> {
    const node = (): Promise<Node[]> => session.query<Node>(isLocked ? LOCKED_NODE : NODE, inc);
    const name = (): Promise<{ inc: string }[]> => session.query(NAMES, toText(id));
    const edges = (): Promise<EdgeThere[]> => session.query(EDGES, inc, toText(id));
    // What locks is in a transaction, where they can be asked together: elsewhere a pooler may have another connection for each.
    const [[known], [holder], at] = isLocked
      ? await Promise.all([node(), name(), edges()])
      : [await node(), await name(), await edges()];
    this.#place({ inc, id }, known, holder?.inc, at);
    return hear();
  }

  #place(
    { inc, id }: Pick<Introduction, 'inc' | 'id'>,
    node: Node | undefined,
    holder: string | undefined,
    edges: EdgeThere[],
  ): void {
    this.#remember(inc, undefined);
    if (node) this.#insert(asRemembered(node));
    else this.#db.run('DELETE FROM _nodes WHERE inc = ? AND self IS NULL', inc);
    this.#db.run('DELETE FROM _names WHERE id = ?', id);
    if (holder !== undefined) this.#db.run('INSERT INTO _names (id, inc) VALUES (?, ?)', id, holder);
    this.#db.run('DELETE FROM _hub_edges');
    for (const edge of edges) {
      this.#db.run('INSERT INTO _hub_edges (url, inc, node_id) VALUES (?, ?, ?)', edge.url, edge.inc, edge.nodeId);
    }
  }

  /** What is known of one that goes on; undefined where the scratch database has it, or nobody. */
  goingOn(inc: string): Known | undefined {
    return this.#remembered.get(inc);
  }

  #remember(inc: string, known: Known | undefined): void {
    if (!this.#remembered.has(inc) && this.#remembered.size >= REMEMBERED) this.#forget();
    this.#remembered.set(inc, known);
  }

  #forget(): void {
    this.#remembered.clear();
    this.#db.run('DELETE FROM _nodes WHERE self IS NULL');
    this.#db.run('DELETE FROM _names');
    this.#onForgotten();
  }

  /** In the place of what was known of it. */
  #insert(node: Node): void {
    this.#db.run(PUT, ...COLUMNS.map((column) => node[column] ?? null));
  }

  #holder(id: string): string | undefined {
    return this.#db.get<{ inc: string }>('SELECT inc FROM _names WHERE id = ?', id)?.inc;
  }

  #spelt(inc: string): string {
    return JSON.stringify(this.#db.get(`SELECT ${LIST} FROM _nodes WHERE inc = ? AND self IS NULL`, inc) ?? null);
  }
}

/** Nobody knows which of the group's processes have told it what was heard of it: it is told again. */
function asRemembered(stored: Node): Node {
  return { ...stored, id: fromText(stored.id), self: null, heard: null };
}

function paramsOf(node: Node): Param[] {
  return COLUMNS.map((column) => {
    if (column === 'self') return node.self === 1 ? true : null;
    return column === 'id' ? toText(node.id) : (node[column] as Param);
  });
}

const PUT =
  `INSERT INTO _nodes (${LIST}) VALUES (${COLUMNS.map(() => '?').join(', ')}) ON CONFLICT (inc) DO UPDATE SET ` +
  `${COLUMNS.slice(1)
    .map((column) => `${column} = excluded.${column}`)
    .join(', ')} WHERE self IS NULL`;
const OWN = `SELECT ${LIST} FROM _nodes WHERE self = 1`;

/** As a line that is not there is spelt. */
const NOBODY = 'null';

const FORGET_STRANGERS =
  'DELETE FROM rowcast.nodes WHERE inc IN (SELECT n.inc FROM rowcast.nodes AS n WHERE n.self IS NOT TRUE ' +
  'AND NOT EXISTS (SELECT 1 FROM rowcast.edges AS e WHERE e.inc = n.inc) ' +
  `ORDER BY n.heard DESC NULLS LAST OFFSET ${STRANGERS_KEPT})`;

const NODES = `SELECT ${LIST} FROM rowcast.nodes`;
const NODE = `${NODES} WHERE inc = $1 AND self IS NOT TRUE`;
const LOCKED_NODE = `${NODE} FOR UPDATE`;
/** With the database that has its id. In one order, in which all take their locks. */
const KNOWN =
  `SELECT ${LIST}, (SELECT m.inc FROM rowcast.names AS m WHERE m.id = n.id) AS holder FROM rowcast.nodes AS n ` +
  'WHERE n.inc = ANY ($1::text[]) AND n.self IS NOT TRUE ORDER BY n.inc FOR UPDATE OF n';

/** Of one that goes on nothing else changes. These are locked. */
const GO_ON =
  'UPDATE rowcast.nodes AS n SET tick = g.tick, seal = g.seal, heard = coalesce(g.heard, n.heard), claim = g.claim ' +
  'FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::text[]) AS g (inc, tick, seal, heard, claim) ' +
  'WHERE n.inc = g.inc';

const NAMES = 'SELECT inc FROM rowcast.names WHERE id = $1';

/** Those where it is, or was, or where its id is: each by an index, since there may be thousands of others. */
const EDGES = [
  'e.inc = $1',
  'e.node_id = $2',
  'e.inc = ANY (ARRAY(SELECT n.inc FROM rowcast.nodes AS n WHERE n.id = $2))',
]
  .map((where) => `SELECT e.url, e.inc, e.node_id AS "nodeId" FROM rowcast.edges AS e WHERE ${where}`)
  .join(' UNION ');

/** Those of these databases that somebody has heard of, or whose id somebody has. */
const TAKEN =
  'SELECT g.inc FROM unnest($1::text[], $2::text[]) AS g (inc, id) WHERE ' +
  ['nodes AS t WHERE t.inc = g.inc', 'nodes AS t WHERE t.id = g.id', 'names AS t WHERE t.id = g.id']
    .concat('edges AS t WHERE t.inc = g.inc', 'edges AS t WHERE t.node_id = g.id')
    .map((rest) => `EXISTS (SELECT 1 FROM rowcast.${rest})`)
    .join(' OR ');

/** In one order, in which all take their locks. */
const ADD_NODES =
  'INSERT INTO rowcast.nodes (inc, id, boot, before, t0, tick, back, seal, heard, claim) SELECT * FROM unnest(' +
  '$1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::bigint[], ' +
  '$10::text[]) AS g (inc) ORDER BY g.inc ON CONFLICT (inc) DO NOTHING RETURNING inc';

const SAVE_NAMES =
  'INSERT INTO rowcast.names (id, inc) SELECT * FROM unnest($1::text[], $2::text[]) AS g (id) ORDER BY g.id ' +
  'ON CONFLICT (id) DO UPDATE SET inc = excluded.inc';

const INSERT_NODE =
  `INSERT INTO rowcast.nodes AS n (${LIST}) ` +
  `VALUES (${COLUMNS.map((_, i) => `$${i + 1}`).join(', ')}) ON CONFLICT (inc) DO`;

const ADD_NODE = `${INSERT_NODE} NOTHING`;

/** `heard` is not loaded, and where nothing new was heard it stays. */
const SAVE_NODE =
  `${INSERT_NODE} UPDATE SET ` +
  `${COLUMNS.slice(1)
    .map((column) =>
      column === 'heard' ? 'heard = coalesce(excluded.heard, n.heard)' : `${column} = excluded.${column}`,
    )
    .join(', ')}, low = CASE WHEN $${COLUMNS.length + 1}::boolean THEN NULL ELSE n.low END`;

const SAVE_NAME =
  'INSERT INTO rowcast.names (id, inc) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET inc = excluded.inc';
