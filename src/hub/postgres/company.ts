/**
 * Who the group is, and what it remembers of others: src/identity, whose tables are in the scratch database. What is needed
 * of them is brought there first, and what has changed is written back, in the transaction of what was heard.
 *
 * The group is one database to everybody: its processes have one identity and one attach, which a server that was started
 * anew, promoted or restored begins another one of. The tick is a sequence: nobody waits for anybody to count.
 */
import { type Finding, Identity, isNews } from '../../identity/identity.ts';
import type { Known } from '../../identity/nodes.ts';
import { ANOTHER_DATABASE, EARLIER_STATE, isEarlierState, Turns, TWO_DATABASES } from '../../identity/turns.ts';
import { type Introduction, readIntroduction } from '../../wire/introduction.ts';
import type { EdgeAnswer, EdgeRow, Found, HubCompany } from '../store.ts';
import { isUnused, type PostgresEdges } from './edges.ts';
import { EPOCH } from './epoch.ts';
import { Gathered } from './gathered.ts';
import { GroupLow } from './low.ts';
import { Memories, type Node, REMEMBERED } from './memories.ts';
import { type Base, type CompanyInTransaction, Detached, type Tick } from './parts.ts';
import { PLACE } from './schema.ts';
import type { Session } from './sessions.ts';

/** To find out whether there are too many strangers takes a look at all: it is done when so many have come. */
const NEWCOMERS = 100;

export class PostgresCompany implements HubCompany, CompanyInTransaction {
  readonly #base: Base;
  readonly #edges: PostgresEdges;
  readonly #memories: Memories;
  readonly #identity: Identity;
  readonly #low: GroupLow;
  readonly #turns = new Turns();
  readonly #listeners = new Set<(found: Found) => void>();
  /** What is to be told when the transaction is committed. */
  #found: Found[] = [];
  /** The databases at URLs, as far as they were heard or asked for. */
  readonly #incs = new Map<string, string | null>();
  readonly #asked = new Gathered<string, string>((urls) => this.#learn(urls));
  /** Who the group is, is being changed, by one after the other: nothing is said of it before that is committed. */
  #changing: Promise<void> = Promise.resolve();

  constructor(base: Base, edges: PostgresEdges) {
    const { scratch, clock, options } = base;
    const { id, random, maxAheadMs } = options;
    this.#base = base;
    this.#edges = edges;
    this.#memories = new Memories(scratch, () => this.#identity.forgetHeard());
    this.#low = new GroupLow(base);
    // Of those that are at edges the scratch database has but a few: who is a stranger is for the store to say.
    const strangersKept = 2 * REMEMBERED;
    const low = (to: string | null | undefined): number | undefined => this.#low.toldTo(to);
    const goingOn = (inc: string): Known | undefined => this.#memories.goingOn(inc);
    const shared = { id, random, clock, maxAheadMs, othersHear: true };
    this.#identity = new Identity(scratch, { ...shared, atUrls: AT_URLS, strangersKept, low, goingOn });
  }

  /** A process of the group has been started. */
  async begin(): Promise<void> {
    await this.attach();
    await this.#low.look();
  }

  onFound(listener: (found: Found) => void): void {
    this.#listeners.add(listener);
  }

  /** Another state of the store was found: see epoch.ts. */
  tell(found: Found): void {
    for (const listener of this.#listeners) listener(found);
  }

  async toEdge(url: string): Promise<string> {
    if (!this.#incs.has(url)) await this.#asked.do([url]);
    await this.#changing;
    return this.#identity.introduction(this.#incs.get(url) ?? null);
  }

  /** Who is at these, and what is known of that. */
  async #learn(urls: string[]): Promise<string[]> {
    const rows = await this.#edges.among(this.#base.sessions, urls);
    const incs = urls.map((url) => rows.get(url)?.inc ?? null);
    await this.#memories.load(
      this.#base.sessions,
      incs.filter((inc) => inc !== null),
    );
    // Meanwhile somebody may have answered there.
    for (const [i, url] of urls.entries()) if (!this.#incs.has(url)) this.#incs.set(url, incs[i] as string | null);
    return urls;
  }

  async toSender(said: string): Promise<string | undefined> {
    const sender = readIntroduction(said);
    await this.#changing;
    return sender && this.#identity.introduction(sender.inc);
  }

  async hello(said: string): Promise<void> {
    const intro = readIntroduction(said);
    if (!intro) return;
    await this.#memories.look(this.#base.sessions, intro, () => {
      const sender = this.#identity.greet(said);
      if (sender && isNews(sender)) this.#doubt(sender);
    });
    await this.settle();
  }

  async another(url: string, said: string): Promise<string | undefined> {
    const finding = await this.#seenAt(url, said);
    return finding && (isEarlierState(finding) ? EARLIER_STATE : ANOTHER_DATABASE);
  }

  async objection(url: string, said: string): Promise<string | undefined> {
    // Where another process knows better by now, what it says does not count: see `answered`.
    if (readIntroduction(said)?.inc === this.#incs.get(url)) return undefined;
    const finding = await this.#seenAt(url, said);
    return finding && this.#turns.isOneOfTwo(url, finding, this.#base.clock.now()) ? TWO_DATABASES : undefined;
  }

  /** Who the group is may have been changed by another process, and the server may have been started anew. */
  async look(): Promise<void> {
    const [state] = await this.#base.sessions.query<State>(STATE);
    const own = this.#memories.own();
    if (!own || state?.isAttached !== true || state.inc !== own.inc || state.boot !== own.boot) await this.attach();
    await this.#low.look();
    if (this.#memories.newcomers >= NEWCOMERS) {
      await this.#base.sessions.transaction((session) => this.#memories.forgetStrangers(session), 'lazy');
    }
    await this.settle();
  }

  problems(told: ReadonlySet<string>): string[] {
    return this.#identity.problems(told);
  }

  left(inc: string): void {
    this.#identity.usedTwice.forget(inc);
  }

  async requested(session: Session, said: string): Promise<boolean> {
    const intro = readIntroduction(said);
    if (!intro) return true;
    let isItsOwn = true;
    const hear = (): Finding | undefined => {
      isItsOwn = this.#identity.isNamed(said);
      const heard = this.#identity.hear(said, { answer: false, brings: false });
      if (heard && isNews(heard)) this.#doubt(heard);
      return heard;
    };
    const finding = await this.#memories.note(session, intro, hear, isNewsTo);
    if (finding?.wentBack && !finding.doubtful) await this.#wentBack(session, finding);
    if (!isItsOwn) return false;
    return finding === undefined || finding.kind === 'new' || finding.kind === 'same' || finding.kind === 'restarted';
  }

  async answered(session: Session, url: string, generation: number, said: string): Promise<boolean> {
    const intro = readIntroduction(said);
    if (!intro) return true;
    const hear = (): Finding | undefined => this.#identity.hear(said, { answer: true, brings: false });
    const finding = await this.#memories.note(session, intro, hear, isNewsTo);
    this.#noteLow(intro, finding);
    if (finding?.wentBack) await this.#wentBack(session, finding);
    const edge = await this.#edges.find(url, session);
    const isPresent = edge?.generation === generation;
    // An edge that is this group itself is told of by its id.
    const speaks = finding && finding.kind !== 'self' && isPresent;
    if (speaks && !(await this.#answeredBy(session, edge, finding))) return false;
    return finding?.kind !== 'late' && isPresent;
  }

  /**
   * Those of these answers of which the edge's own database says that it goes on, or where one that is new to everybody is
   * the first at its edge, and which say nothing else, are heard: which they are. The others are for `answered`.
   */
  async hearAll(session: Session, answers: EdgeAnswer[], rows: Map<string, EdgeRow>): Promise<boolean[]> {
    const heard = answers.map(() => false);
    const [known, first] = speakersOf(answers, rows);
    let own: Known | undefined;
    await this.#memories.noteGoingOn(session, introsOf(known), (intro, node) => {
      own ??= this.#identity.self();
      const goesOn = this.#identity.goesOn(intro, node, own);
      if (!goesOn) return undefined;
      const { at, url } = known.get(intro.inc) as Speaker;
      if (intro.low !== undefined) this.#low.note(intro.inc, intro.low);
      this.#incs.set(url, intro.inc);
      heard[at] = true;
      return goesOn;
    });
    const added = await this.#memories.noteNew(session, introsOf(first), (intro) => {
      const { said } = first.get(intro.inc) as Speaker;
      if (this.#identity.look(said)?.kind !== 'new') return false;
      this.#noteLow(intro, this.#identity.hear(said, { answer: true, brings: false }));
      return true;
    });
    const begun = await this.#edges.beginAt(
      session,
      [...added].map((inc) => first.get(inc) as Speaker),
    );
    for (const { at, url, intro } of begun) {
      (rows.get(url) as EdgeRow).inc = intro.inc;
      this.#incs.set(url, intro.inc);
      heard[at] = true;
    }
    return heard;
  }

  async tick(session: Session): Promise<Tick> {
    const { inc, boot } = this.#memories.own() ?? { inc: '', boot: '' };
    const [next] = await session.query<Pick<Tick, 'tick'>>(TICK, inc, boot);
    if (!next) throw new Detached();
    return { boot, tick: next.tick };
  }

  ticked({ boot, tick }: Tick): void {
    if (this.#memories.own()?.boot === boot) this.#memories.tick(tick);
  }

  async settle(): Promise<void> {
    const found = this.#found;
    this.#found = [];
    for (const one of found) this.tell(one);
    // What is here of who the group is may be from before its last attach: the store has the last word.
    if (this.#identity.isInDoubt) await this.attach();
    if (await this.#inTurn(() => this.#renew())) this.tell({ kind: 'restored' });
  }

  /** Takes the group's identity as it is; where the server is another one than it was attached to, attaches anew. */
  attach(): Promise<void> {
    return this.#inTurn(() => this.#change((session) => this.#attach(session), this.#memories.line()));
  }

  async #attach(session: Session): Promise<void> {
    const state = await lock(session);
    const before = this.#memories.own()?.inc;
    await this.#memories.loadOwn(session);
    if (before !== undefined && this.#memories.own()?.inc !== before) this.#identity.follow();
    if (state.isAttached && this.#memories.own()) return;
    // Whatever was told of it before is not above this.
    this.#memories.setTick(state.tick);
    this.#identity.begin();
    await this.#memories.saveOwn(session, undefined);
    await session.run(`UPDATE rowcast.meta SET attached = ${EPOCH}, place = ${PLACE}`);
  }

  /** Whether it has become another database. */
  async #renew(): Promise<boolean> {
    const before = this.#memories.line();
    const renewal = this.#identity.renew();
    // Another process has given it another identity, and has told of that.
    if (renewal === 'none' || renewal === 'elsewhere') return false;
    return this.#change((session) => this.#publish(session, before?.inc), before).catch((error) => {
      this.#identity.renewNext();
      throw error;
    });
  }

  /** It has another identity here; false where another process has been faster. */
  async #publish(session: Session, before: string | undefined): Promise<boolean> {
    const state = await lock(session);
    if (state.inc === before) {
      await this.#memories.saveOwn(session, before);
      return true;
    }
    await this.#memories.loadOwn(session);
    this.#identity.follow();
    return false;
  }

  #inTurn<T>(change: () => Promise<T>): Promise<T> {
    const turn = this.#changing.then(change);
    this.#changing = turn.then(
      () => {},
      () => {},
    );
    return turn;
  }

  /** `before` is who it was: that it is again where the store does not take the change. */
  async #change<T>(work: (session: Session) => Promise<T>, before: Node | undefined): Promise<T> {
    try {
      return await this.#base.sessions.transaction(work);
    } catch (error) {
      this.#memories.putBack(before);
      throw error;
    }
  }

  /** Who answers, where it is another one than is known to be at that URL, or an earlier state of it. */
  async #seenAt(url: string, said: string): Promise<Pick<Finding, 'inc' | 'kind'> | undefined> {
    const intro = readIntroduction(said);
    const inc = (await this.#edges.find(url))?.inc;
    if (!intro || inc === undefined) return undefined;
    const finding = await this.#memories.look(this.#base.sessions, intro, () => this.#identity.look(said));
    return finding && (finding.inc !== inc || isEarlierState(finding)) ? finding : undefined;
  }

  /** False where it is one of two that answer there by turns. */
  async #answeredBy(session: Session, edge: EdgeRow, finding: Finding): Promise<boolean> {
    const { id, inc } = finding;
    const { url, inc: before = null } = edge;
    const now = this.#base.clock.now();
    this.#incs.set(url, before);
    if (before === inc) return true;
    if (before !== null && this.#turns.isOneOfTwo(url, finding, now)) return false;
    await session.run('UPDATE rowcast.edges SET inc = $2 WHERE url = $1', url, inc);
    this.#incs.set(url, inc);
    if (before !== null) this.#turns.replace(url, before, inc, now);
    if (!isUnused(edge)) this.#found.push({ kind: 'peer-replaced', id, url });
    if (!isUnused(edge) || finding.wentBack) await this.#edges.seed(session, url);
    return true;
  }

  async #wentBack(session: Session, { id, inc }: Finding): Promise<void> {
    const sql = 'SELECT url FROM rowcast.edges WHERE inc = $1 ORDER BY url';
    const urls = (await session.query<{ url: string }>(sql, inc)).map(({ url }) => url);
    for (const url of urls) await this.#edges.seed(session, url);
    this.#found.push({ kind: 'peer-restored', id, urls });
  }

  /** Somebody says that it is one of the edges, or was: that is asked where these are. */
  #doubt({ id, inc }: Pick<Finding, 'id' | 'inc'>): void {
    const urls = this.#memories.edgesOf(inc, id);
    if (urls.length > 0) this.#found.push({ kind: 'doubted', urls });
  }

  #noteLow({ inc, low }: Introduction, finding: Finding | undefined): void {
    if (low !== undefined && finding !== undefined && finding.kind !== 'late') this.#low.note(inc, low);
  }
}

/** Who says something of its own at an edge. */
interface Speaker {
  /** Among the answers. */
  at: number;
  url: string;
  said: string;
  intro: Introduction;
}

/** By their databases: those that are known at their edges, and those at edges where nobody is. */
function speakersOf(answers: EdgeAnswer[], rows: Map<string, EdgeRow>): [Map<string, Speaker>, Map<string, Speaker>] {
  const [known, first] = [new Map<string, Speaker>(), new Map<string, Speaker>()];
  const ids = new Set<string>();
  const urls = new Set<string>();
  for (const [at, { url, generation, said }] of answers.entries()) {
    const row = rows.get(url);
    const intro = said === undefined ? undefined : readIntroduction(said);
    if (!said || !intro || row?.generation !== generation) continue;
    const speaker = { at, url, said, intro };
    // What one says twice, or two say of one id or at one edge, is heard one after the other.
    if (known.has(intro.inc) || first.has(intro.inc)) continue;
    if (row.inc === intro.inc) known.set(intro.inc, speaker);
    else if (isUnused(row) && !ids.has(intro.id) && !urls.has(url)) first.set(intro.inc, speaker);
    ids.add(intro.id);
    urls.add(url);
  }
  return [known, first];
}

function introsOf(speakers: Map<string, Speaker>): Introduction[] {
  return [...speakers.values()].map(({ intro }) => intro);
}

/** What it said before, of what it still has to send, was another's word. */
function isNewsTo(finding: Finding | undefined): boolean {
  return finding !== undefined && isNews(finding) && finding.kind !== 'restarted';
}

/** The databases that have acknowledged at an edge's URL, as far as they are in the scratch database. */
const AT_URLS = 'SELECT inc FROM _hub_edges WHERE inc IS NOT NULL';

interface State {
  inc: string | null;
  boot: string | null;
  isAttached: boolean | null;
  tick: number;
}

const STATE =
  'SELECT n.inc, n.boot, coalesce((SELECT max(t.tick) FROM rowcast.ticked AS t), 0) AS tick, ' +
  `coalesce(m.attached = ${EPOCH} AND m.place = ${PLACE}, false) AS "isAttached" FROM rowcast.meta AS m ` +
  'LEFT JOIN rowcast.nodes AS n ON n.self';

/**
 * Nothing is counted in another attach than the present one: in a server that has gone back, as many as were lost could be
 * counted before that is begun, and nobody would see that they are others.
 */
const TICK =
  'WITH next AS MATERIALIZED (SELECT CASE WHEN ' +
  `m.attached = ${EPOCH} AND m.place = ${PLACE} AND n.inc = $1 AND n.boot = $2 THEN nextval('rowcast.ticks') END AS tick ` +
  'FROM rowcast.meta AS m LEFT JOIN rowcast.nodes AS n ON n.self) ' +
  'INSERT INTO rowcast.ticked AS t (slot, tick) SELECT pg_backend_pid() % 64, tick FROM next WHERE tick IS NOT NULL ' +
  'ON CONFLICT (slot) DO UPDATE SET tick = greatest(t.tick, excluded.tick) RETURNING tick';

/** For us alone until the end of the transaction. */
async function lock(session: Session): Promise<State> {
  await session.query('SELECT 1 FROM rowcast.meta FOR UPDATE');
  const [state] = await session.query<State>(STATE);
  return state ?? { inc: null, boot: null, isAttached: false, tick: 0 };
}
