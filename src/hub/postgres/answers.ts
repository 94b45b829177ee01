/**
 * What edges have answered. Most say nothing but that they go on, and how far they are, or for the first time who they are: those
 * are noted together, by as many statements as one of them would take. Whatever else one says is heard by itself, one after the other.
 */
import type { EdgeAnswer, EdgeRow, Noted } from '../store.ts';
import type { PostgresCompany } from './company.ts';
import type { Move, PostgresEdges } from './edges.ts';
import { Gathered } from './gathered.ts';
import { type Base, byDatabase } from './parts.ts';
import type { Session, Sessions } from './sessions.ts';

/** Who says no more than who it is, is waited for by nobody: a few are noted together. A crowd is, as soon as it is one. */
const UNHURRIED = { ms: 200, crowd: 16 };

export class PostgresAnswers {
  readonly #sessions: Sessions;
  readonly #edges: PostgresEdges;
  readonly #company: PostgresCompany;
  readonly #acknowledged: Gathered<EdgeAnswer, Noted | undefined>;
  readonly #said: Gathered<EdgeAnswer, Noted | undefined>;
  readonly #others: Gathered<EdgeAnswer, Noted>;
  readonly #moves: Gathered<Move, Move>;

  constructor({ sessions, clock }: Pick<Base, 'sessions' | 'clock'>, edges: PostgresEdges, company: PostgresCompany) {
    this.#sessions = sessions;
    this.#edges = edges;
    this.#company = company;
    const note = (all: EdgeAnswer[]) => this.#inTransaction((session) => this.#noteTogether(session, all));
    this.#acknowledged = new Gathered(note);
    this.#said = new Gathered(note, { ...UNHURRIED, clock });
    this.#others = new Gathered((all) => this.#inTransaction((session) => this.#noteEach(session, all)));
    this.#moves = new Gathered((all) => this.#inTransaction((session) => this.#move(session, all)));
  }

  async note(answers: EdgeAnswer[]): Promise<Noted[]> {
    const isSaid = answers.map(({ position }) => position === undefined);
    const [acknowledged, said] = await Promise.all([
      this.#note(this.#acknowledged, answers, (i) => !isSaid[i]),
      this.#note(this.#said, answers, (i) => isSaid[i] === true),
    ]);
    return isSaid.map((one) => (one ? said.shift() : acknowledged.shift()) as Noted);
  }

  async #note(
    together: Gathered<EdgeAnswer, Noted | undefined>,
    all: EdgeAnswer[],
    isMeant: (i: number) => boolean,
  ): Promise<Noted[]> {
    const answers = all.filter((_, i) => isMeant(i));
    if (answers.length === 0) return [];
    const noted = await together.do(answers);
    const others = await this.#noteOthers(answers.filter((_, i) => noted[i] === undefined));
    return noted.map((one) => one ?? (others.shift() as Noted));
  }

  async advance(moves: Move[]): Promise<void> {
    await this.#moves.do(moves);
  }

  async #noteOthers(answers: EdgeAnswer[]): Promise<Noted[]> {
    return answers.length === 0 ? [] : this.#others.do(answers);
  }

  async #inTransaction<R>(work: (session: Session) => Promise<R>): Promise<R> {
    const result = await this.#sessions.transaction(work, 'lazy');
    await this.#company.settle();
    return result;
  }

  /** Undefined where there is more to it. */
  async #noteTogether(session: Session, answers: EdgeAnswer[]): Promise<(Noted | undefined)[]> {
    const rows = await this.#rowsOf(session, answers);
    const heard = await this.#company.hearAll(session, answers, rows);
    const noted = answers.map(({ url, generation, said }, i): Noted | undefined => {
      const row = rows.get(url);
      return said === undefined || heard[i] ? { counts: row?.generation === generation, row } : undefined;
    });
    await this.#advance(session, answers, noted, rows);
    return noted;
  }

  async #noteEach(session: Session, answers: EdgeAnswer[]): Promise<Noted[]> {
    const heeded: boolean[] = [];
    for (const i of byDatabase(answers.map(({ said }) => said))) {
      const { url, generation, said } = answers[i] as EdgeAnswer;
      heeded[i] = said === undefined || (await this.#company.answered(session, url, generation, said));
    }
    const rows = await this.#rowsOf(session, answers);
    const noted = answers.map(({ url, generation }, i): Noted => {
      const row = rows.get(url);
      return { counts: heeded[i] === true && row?.generation === generation, row };
    });
    await this.#advance(session, answers, noted, rows);
    return noted;
  }

  /** Those that count, as far as they acknowledge more than is known. */
  async #advance(
    session: Session,
    answers: EdgeAnswer[],
    noted: (Noted | undefined)[],
    rows: Map<string, EdgeRow>,
  ): Promise<void> {
    const moves = answers.filter(({ position }, i) => {
      const { counts, row } = noted[i] ?? {};
      return counts && row && position !== undefined && position > row.position;
    }) as Move[];
    await this.#edges.advance(session, moves);
    for (const { url, position } of moves) {
      const row = rows.get(url) as EdgeRow;
      row.position = Math.max(row.position, position);
    }
  }

  async #move(session: Session, moves: Move[]): Promise<Move[]> {
    await this.#edges.advance(session, moves);
    return moves;
  }

  #rowsOf(session: Session, answers: EdgeAnswer[]): Promise<Map<string, EdgeRow>> {
    return this.#edges.among(session, [...new Set(answers.map(({ url }) => url))]);
  }
}
