/**
 * `pg` with something in its way: statements that are held until the test lets them go, or that are replaced. With nothing in
 * its way it is `pg` on a server that waits for long: a machine on which tests run may stand still.
 */
import pg from 'pg';
import type { PostgresDriver } from '../../src/hub/postgres/driver.ts';

export interface Statement {
  text: string;
  /** It ends a transaction that waits for the disk. */
  isDurable: boolean;
}

export interface Planted {
  /** What is sent in its place. */
  replace?(statement: Statement): string;
  /** Resolves when it may be sent. */
  hold?(statement: Statement): Promise<void> | undefined;
  /** Answers itself, by what it sends on that connection. */
  answer?(
    statement: Statement,
    send: (text: string, values?: unknown[]) => Promise<pg.QueryResult>,
  ): Promise<pg.QueryResult> | undefined;
}

export function plantedDriver({ replace, hold, answer }: Planted): PostgresDriver {
  class Client extends pg.Client {
    #isDurable = false;

    // biome-ignore lint/suspicious/noExplicitAny: one signature of many
    override query(given: any, values?: any): any {
      // biome-ignore lint/suspicious/noExplicitAny: see above
      const send = (text: any, params?: any): Promise<pg.QueryResult> => (super.query as any)(text, params);
      if (typeof given !== 'string') return send(given, values);
      if (given.startsWith('BEGIN')) this.#isDurable = given.includes('synchronous_commit = on');
      const statement = { text: given, isDurable: this.#isDurable };
      // Whatever is held may be held for long: the machine may stand still as well.
      const patient = given.replace(
        /(idle_in_transaction_session_timeout|statement_timeout) = '\d+s'/g,
        "$1 = '10min'",
      );
      const text = replace?.({ ...statement, text: patient }) ?? patient;
      const held = hold?.(statement);
      const run = (): Promise<pg.QueryResult> => answer?.(statement, send) ?? send(text, values);
      return held === undefined ? run() : held.then(run);
    }
  }
  return { Client } as unknown as PostgresDriver;
}

/** Something that waits is let go once. */
export class Gate {
  #open!: () => void;
  #arrive!: () => void;
  readonly #opened = new Promise<void>((resolve) => {
    this.#open = resolve;
  });
  /** Resolves when something waits here. */
  readonly arrived = new Promise<void>((resolve) => {
    this.#arrive = resolve;
  });

  pass(): Promise<void> {
    this.#arrive();
    return this.#opened;
  }

  open(): void {
    this.#open();
  }
}
