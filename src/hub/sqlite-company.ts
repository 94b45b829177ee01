/**
 * What a hub does about who it hears: an edge that was replaced, or has gone back, begins at the beginning, with what it
 * brought itself. What came from a database that is gone needs nothing: a hub passes on whatever it is given.
 */
import type { Clock } from '../clock.ts';
import { type Finding, Identity, type IdentityOptions, isNews } from '../identity/identity.ts';
import { ANOTHER_DATABASE, Turns, TWO_DATABASES } from '../identity/turns.ts';
import type { Connection } from '../sqlite/connection.ts';
import { readIntroduction } from '../wire/introduction.ts';
import { SqliteHubLow } from './sqlite-low.ts';
import type { Found, HubCompany } from './store.ts';

/** What it needs of the store that it is a part of. */
export interface CompanyParts {
  generationOf(url: string): number;
  /** What is under way to this URL is worth nothing from now on. */
  nextGeneration(url: string): void;
}

export class SqliteHubCompany implements HubCompany {
  readonly #db: Connection;
  readonly #identity: Identity;
  readonly #clock: Clock;
  readonly #parts: CompanyParts;
  readonly #turns = new Turns();
  readonly #listeners = new Set<(found: Found) => void>();
  /** What is to be told when the transaction is committed. */
  #found: Found[] = [];

  constructor(db: Connection, options: Omit<IdentityOptions, 'atUrls' | 'low'>, parts: CompanyParts) {
    this.#db = db;
    this.#clock = options.clock;
    const low = new SqliteHubLow(db, { clock: options.clock, saidBy: (inc) => this.#identity.saidBy(inc) });
    this.#identity = new Identity(db, { ...options, atUrls: AT_URLS, low: (to) => low.toldTo(to) });
    this.#parts = parts;
  }

  begin(): void {
    this.#identity.begin();
  }

  tick(): void {
    this.#identity.tick();
  }

  onFound(listener: (found: Found) => void): void {
    this.#listeners.add(listener);
  }

  async toEdge(url: string): Promise<string> {
    return this.#identity.introduction(this.#edge(url)?.inc);
  }

  async toSender(said: string): Promise<string | undefined> {
    const sender = readIntroduction(said);
    return sender && this.#identity.introduction(sender.inc);
  }

  /**
   * A request says who sends it. In the transaction of what it brings. False where it is not of the present attach of that
   * database: it has been under way, and its sender may have been put back meanwhile to what it was before.
   */
  requested(said: string): boolean {
    this.#found = [];
    const finding = this.#identity.hear(said, { answer: false, brings: false });
    if (finding && isNews(finding)) this.#doubt(finding);
    if (finding?.wentBack && !finding.doubtful) this.#wentBack(finding.id, finding.inc);
    return finding === undefined || finding.kind === 'new' || finding.kind === 'same' || finding.kind === 'restarted';
  }

  async hello(said: string): Promise<void> {
    this.#found = [];
    const sender = this.#identity.greet(said);
    if (sender && isNews(sender)) this.#doubt(sender);
    this.settle();
  }

  async answered(url: string, generation: number, said: string): Promise<boolean> {
    const kind = this.#db.transaction(() => {
      this.#found = [];
      const finding = this.#identity.hear(said, { answer: true, brings: false });
      if (finding?.wentBack) this.#wentBack(finding.id, finding.inc);
      const edge = this.#edge(url);
      if (!finding || !edge || generation !== this.#parts.generationOf(url)) return finding?.kind;
      const { id, inc } = finding;
      // An edge that is this hub itself is told of by its id.
      if (finding.kind === 'self') return finding.kind;
      if (edge.inc === null) {
        this.#db.run('UPDATE _hub_edges SET inc = ? WHERE url = ?', inc, url);
        if (finding.wentBack) this.#seed(url);
      } else if (edge.inc !== inc && !this.#turns.isOneOfTwo(url, finding, this.#clock.now())) {
        this.#turns.replace(url, edge.inc, inc, this.#clock.now());
        this.#db.run('UPDATE _hub_edges SET inc = ? WHERE url = ?', inc, url);
        this.#seed(url);
        this.#found.push({ kind: 'peer-replaced', id, url });
      }
      return finding.kind;
    });
    this.settle();
    return kind !== 'late' && generation === this.#parts.generationOf(url);
  }

  async another(url: string, said: string): Promise<string | undefined> {
    const inc = this.#edge(url)?.inc ?? null;
    const finding = this.#identity.look(said);
    return inc === null || !finding || finding.inc === inc ? undefined : ANOTHER_DATABASE;
  }

  async objection(url: string, said: string): Promise<string | undefined> {
    const inc = this.#edge(url)?.inc ?? null;
    const finding = this.#identity.look(said);
    if (inc === null || !finding || finding.inc === inc) return undefined;
    return this.#turns.isOneOfTwo(url, finding, this.#clock.now()) ? TWO_DATABASES : undefined;
  }

  problems(): string[] {
    return this.#identity.problems();
  }

  /** After the transaction in which something was heard, and before anything more is said. */
  settle(): void {
    const found = this.#found;
    this.#found = [];
    if (this.#identity.renew()) found.push({ kind: 'restored' });
    for (const one of found) for (const listener of this.#listeners) listener(one);
  }

  #wentBack(id: string, inc: string): void {
    const urls = this.#db
      .all<{ url: string }>('SELECT url FROM _hub_edges WHERE inc = ? ORDER BY url', inc)
      .map(({ url }) => url);
    for (const url of urls) this.#seed(url);
    this.#found.push({ kind: 'peer-restored', id, urls });
  }

  /** Somebody says that it is one of the edges, or was: that is asked where these are. */
  #doubt({ id, inc }: Pick<Finding, 'id' | 'inc'>): void {
    const sql =
      'SELECT url FROM _hub_edges WHERE inc = ? OR node_id = ? OR inc IN (SELECT inc FROM _nodes WHERE id = ?)';
    const urls = this.#db.all<{ url: string }>(sql, inc, id, id).map(({ url }) => url);
    if (urls.length > 0) this.#found.push({ kind: 'doubted', urls });
  }

  #seed(url: string): void {
    this.#db.run(`UPDATE _hub_edges SET position = 0, anew_upto = ${LATEST} WHERE url = ?`, url);
    this.#parts.nextGeneration(url);
  }

  #edge(url: string): { inc: string | null } | undefined {
    return this.#db.get<{ inc: string | null }>('SELECT inc FROM _hub_edges WHERE url = ?', url);
  }
}

/** The databases that have acknowledged at an edge's URL. */
const AT_URLS = 'SELECT inc FROM _hub_edges WHERE inc IS NOT NULL';

/** Up to there an edge that begins anew is sent what it brought itself, too. */
export const LATEST = '(SELECT coalesce(max(seq), 0) FROM _hub_rows)';
