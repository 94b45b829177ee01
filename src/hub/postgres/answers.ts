/**
 * What edges have answered. Most say nothing but that they go on, and how far they are: those are noted together, by as many
 * statements as one of them would take. Whatever else one says is heard by itself, one after the other.
 */
import type { EdgeAnswer, EdgeRow, Noted } from '../store.ts';
import type { PostgresCompany } from './company.ts';
import type { Move, PostgresEdges } from './edges.ts';
import { Gathered } from './gathered.ts';
import { byDatabase } from './parts.ts';
import type { Session, Sessions } from './sessions.ts';

export class PostgresAnswers {
  readonly #sessions: Sessions;
  readonly #edges: PostgresEdges;
  readonly #company: PostgresCompany;
  readonly #goingOn: Gathered<EdgeAnswer, Noted | undefined>;
  readonly #others: Gathered<EdgeAnswer, Noted>;
  readonly #moves: Gathered<Move, Move>;

  constructor(sessions: Sessions, edges: PostgresEdges, company: PostgresCompany) {
    this.#sessions = sessions;
    this.#edges = edges;
    this.#company = company;
    this.#goingOn = new Gathered((all) => this.#inTransaction((session) => this.#noteGoingOn(session, all)));
    this.#others = new Gathered((all) => this.#inTransaction((session) => this.#noteEach(session, all)));
    this.#moves = new Gathered((all) => this.#inTransaction((session) => this.#move(session, all)));
  }

  async note(answers: EdgeAnswer[]): Promise<Noted[]> {
    const noted = await this.#goingOn.do(answers);
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
  async #noteGoingOn(session: Session, answers: EdgeAnswer[]): Promise<(Noted | undefined)[]> {
    const rows = await this.#rowsOf(session, answers);
    const heard = await this.#company.goOn(session, answers, rows);
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
