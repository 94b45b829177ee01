/**
 * What a hub does about who it hears: an edge that was replaced, or has gone back, begins at the beginning, with what it
 * brought itself. What came from a database that is gone needs nothing: a hub passes on whatever it is given.
 */
import type { Clock } from '../clock.ts';
import { type Finding, Identity, type IdentityOptions, isNews } from '../identity/identity.ts';
import { ANOTHER_DATABASE, EARLIER_STATE, isEarlierState, Turns, TWO_DATABASES } from '../identity/turns.ts';
import type { Connection } from '../sqlite/connection.ts';
import { yielding } from '../sqlite/yielding.ts';
import { readIntroduction } from '../wire/introduction.ts';
import { LATEST } from './sqlite-edges.ts';
import { SqliteHubLow } from './sqlite-low.ts';
import type { Found, HubCompany, Seq } from './store.ts';

/** What it needs of the store that it is a part of. */
export interface CompanyParts {
  generationOf(url: string): number;
  /** What is under way to this URL, or to any, is worth nothing from now on. */
  nextGeneration(url?: string): void;
}

export class SqliteHubCompany implements HubCompany {
  readonly #db: Connection;
  readonly #identity: Identity;
  readonly #low: SqliteHubLow;
  readonly #clock: Clock;
  readonly #parts: CompanyParts;
  readonly #turns = new Turns();
  readonly #listeners = new Set<(found: Found) => void>();
  /** What is to be told when the transaction is committed. */
  #found: Found[] = [];

  constructor(db: Connection, options: Omit<IdentityOptions, 'atUrls' | 'low'>, parts: CompanyParts) {
    this.#db = db;
    this.#clock = options.clock;
    this.#low = new SqliteHubLow(db, { clock: options.clock, saidBy: (inc) => this.#identity.saidBy(inc) });
    this.#identity = new Identity(db, { ...options, atUrls: AT_URLS, low: (to) => this.#low.toldTo(to) });
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
    await this.look();
    return this.#identity.introduction(this.#edge(url)?.inc);
  }

  async toSender(said: string): Promise<string | undefined> {
    const sender = readIntroduction(said);
    return sender && this.#identity.introduction(sender.inc);
  }

  /**
   * A request says who sends it. In the transaction of what it brings. False where it is not of the present attach of that
   * database: it has been under way, and its sender may have been put back meanwhile to what it was before. Nor where that
   * database is known under another id: what somebody brings in the name of an edge, that edge would never be sent.
   */
  requested(said: string): boolean {
    this.#found = [];
    const isItsOwn = this.#identity.isNamed(said);
    const finding = this.#identity.hear(said, { answer: false, brings: false });
    if (finding && isNews(finding)) this.#doubt(finding);
    if (finding?.wentBack && !finding.doubtful) this.#wentBack(finding.id, finding.inc);
    if (!isItsOwn) return false;
    return finding === undefined || finding.kind === 'new' || finding.kind === 'same' || finding.kind === 'restarted';
  }

  async hello(said: string): Promise<void> {
    this.#found = [];
    const sender = this.#identity.greet(said);
    if (sender && isNews(sender)) this.#doubt(sender);
    await yielding(this.#db, () => this.settle());
  }

  /** Answers follow, in this transaction; false where they are to what was read from another state of the file. */
  beginAnswers(): boolean {
    this.#found = [];
    return this.#identity.isSameFile;
  }

  /** An answer to what was sent in that generation says who gives it; false where it acknowledges nothing. */
  answered(url: string, generation: number, said: string): boolean {
    const finding = this.#identity.hear(said, { answer: true, brings: false });
    if (finding?.wentBack) this.#wentBack(finding.id, finding.inc);
    const edge = this.#edge(url);
    // An edge that is this hub itself is told of by its id.
    if (finding && finding.kind !== 'self' && edge && generation === this.#parts.generationOf(url)) {
      this.#answeredBy(url, edge, finding);
    }
    return finding?.kind !== 'late' && generation === this.#parts.generationOf(url);
  }

  async look(): Promise<void> {
    await yielding(this.#db, () => this.#look());
  }

  async another(url: string, said: string): Promise<string | undefined> {
    if (this.#isOther(url, said)) return ANOTHER_DATABASE;
    return isEarlierState(this.#identity.look(said)) ? EARLIER_STATE : undefined;
  }

  async objection(url: string, said: string): Promise<string | undefined> {
    // Mostly it is the one that is known there, and nothing else has to be looked up.
    const finding = this.#isOther(url, said) ? this.#identity.look(said) : undefined;
    return finding && this.#turns.isOneOfTwo(url, finding, this.#clock.now()) ? TWO_DATABASES : undefined;
  }

  /** Whoever says so is another one than is known at that URL. */
  #isOther(url: string, said: string): boolean {
    const speaker = readIntroduction(said);
    const inc = speaker && this.#edge(url)?.inc;
    return inc != null && inc !== speaker?.inc;
  }

  problems(told: ReadonlySet<string>): string[] {
    return this.#identity.problems(told);
  }

  left(inc: string): void {
    this.#identity.usedTwice.forget(inc);
  }

  /** After the transaction in which something was heard, and before anything more is said. */
  settle(): void {
    const found = this.#found;
    this.#found = [];
    for (const one of found) this.#tell(one);
    this.#look();
  }

  /** Takes another identity where it has to, and lets go of what is not true of this file. */
  #look(): void {
    const renewal = this.#identity.renew();
    if (renewal === 'none') return;
    if (renewal !== 'renewed') {
      this.#db.forgetDamage();
      this.#low.forget();
      this.#parts.nextGeneration();
      this.#tell({ kind: 'another-file' });
    }
    if (renewal !== 'elsewhere') this.#tell({ kind: 'restored' });
  }

  /** Is the file what it was when this process last saw it? In a transaction, of which that is then true. */
  get isSameFile(): boolean {
    return this.#identity.isSameFile;
  }

  #tell(found: Found): void {
    for (const listener of this.#listeners) listener(found);
  }

  #answeredBy(url: string, { inc: before, position }: StoredEdge, finding: Finding): void {
    const { id, inc } = finding;
    const now = this.#clock.now();
    if (before === inc || (before !== null && this.#turns.isOneOfTwo(url, finding, now))) return;
    this.#db.run('UPDATE _hub_edges SET inc = ? WHERE url = ?', inc, url);
    if (before !== null) this.#turns.replace(url, before, inc, now);
    // Whoever has acknowledged without a word of who it is was another, as far as anybody knows.
    const isReplaced = before !== null || position > 0;
    if (isReplaced) this.#found.push({ kind: 'peer-replaced', id, url });
    if (isReplaced || finding.wentBack) this.#seed(url);
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

  #edge(url: string): StoredEdge | undefined {
    return this.#db.get<StoredEdge & Record<string, never>>('SELECT inc, position FROM _hub_edges WHERE url = ?', url);
  }
}

interface StoredEdge {
  inc: string | null;
  position: Seq;
}

/** The databases that have acknowledged at an edge's URL. */
const AT_URLS = 'SELECT inc FROM _hub_edges WHERE inc IS NOT NULL';
