/**
 * Connections to the server, a few, and transactions on them. Nothing relies on what a session was told before: between
 * the hub and the server there may be a pooler that hands out another one for each transaction.
 */
import { messageOf, RowcastError } from '../../errors.ts';
import { type Param, type PostgresClient, type PostgresDriver, TYPES } from './driver.ts';

export interface SessionsOptions {
  driver: PostgresDriver;
  /** `postgres://user@host/database` */
  url: string;
  /** What the server's list of sessions says. */
  name: string;
}

/** Where statements run: in a transaction, or each by itself. */
export interface Session {
  /** In which state of the server, of those that this process has seen: see `renew`. */
  readonly era: number;
  query<T = Record<string, unknown>>(sql: string, ...params: Param[]): Promise<T[]>;
  /** How many rows it has changed. */
  run(sql: string, ...params: Param[]): Promise<number>;
}

/** Two write, one reads for the edges, one is for all else, and one to spare. */
const CONNECTIONS = 5;
/** A server that has much to do takes seconds to start a process for a connection, and so may this one to hear of it. */
const CONNECT_MS = 15_000;
/** Longer than the server takes to give up by itself. */
const ANSWER_MS = 40_000;

const LOCALS = [
  // Whoever hangs in the middle holds up the readers of the whole group: the server ends that.
  "SET LOCAL idle_in_transaction_session_timeout = '5s'",
  "SET LOCAL statement_timeout = '30s'",
  'SET LOCAL jit = off',
].join('; ');

/** What holds a lock sees what was committed by whoever had it before: so each statement looks anew. */
const BEGIN_READ_COMMITTED = `BEGIN ISOLATION LEVEL READ COMMITTED; ${LOCALS}`;

/** What must not be lost waits for the disk, and for a synchronous standby where there is one. */
const BEGIN = {
  durable: `${BEGIN_READ_COMMITTED}; SET LOCAL synchronous_commit = on`,
  lazy: `${BEGIN_READ_COMMITTED}; SET LOCAL synchronous_commit = off`,
};

/** Two that wait for each other, or a lock that was not to be had: nothing was written. */
const AGAIN = new Set(['40001', '40P01', '55P03']);
const ATTEMPTS = 5;

export class Sessions {
  readonly #o: SessionsOptions;
  readonly #free: PostgresClient[] = [];
  readonly #broken = new WeakSet<PostgresClient>();
  /** When each was made: see `renew`. */
  readonly #eras = new WeakMap<PostgresClient, number>();
  #era = 0;
  readonly #waiting: (() => void)[] = [];
  #used = 0;
  #closed = false;
  /** Called on each new connection, before anything else is done with it. */
  greet: (session: Session) => Promise<void> = async () => {};

  constructor(options: SessionsOptions) {
    this.#o = options;
  }

  /** The present one. */
  get era(): number {
    return this.#era;
  }

  /** By itself, and without a transaction around it. */
  query<T = Record<string, unknown>>(sql: string, ...params: Param[]): Promise<T[]> {
    return this.use((session) => session.query<T>(sql, ...params));
  }

  run(sql: string, ...params: Param[]): Promise<number> {
    return this.use((session) => session.run(sql, ...params));
  }

  /** One connection for several statements, each a transaction of its own. */
  use<T>(work: (session: Session) => Promise<T>): Promise<T> {
    return this.#with((client) => work(this.#sessionOn(client)));
  }

  /**
   * Resolves after the commit, which is flushed unless it is `lazy`. `work` is done again where the server asks for that,
   * and so does nothing outside of the session.
   */
  transaction<T>(work: (session: Session) => Promise<T>, kind: 'durable' | 'lazy' = 'durable'): Promise<T> {
    return this.#again((client) => this.#inTransaction(client, work, kind, false));
  }

  /**
   * The same, flushed, for what many wait for: what `work` asks first is sent with the beginning, whose answer would wait for
   * whatever this process does meanwhile. Where it could not begin, that is done by itself, and all else is not.
   */
  promptly<T>(work: (session: Session) => Promise<T>): Promise<T> {
    return this.#again((client) => this.#inTransaction(client, work, 'durable', true));
  }

  /** All connections that there are belong to another server: they are used no more. */
  renew(): void {
    this.#era += 1;
    for (const client of this.#free.splice(0)) cut(client);
  }

  /** A connection that is nobody else's, to listen on. `onLost` is called when it has ended. */
  async listen(channel: string, onNotice: (payload: string) => void, onLost: () => void): Promise<() => Promise<void>> {
    const client = await this.#connect();
    client.on('notification', ({ payload }: { payload?: string }) => onNotice(payload ?? ''));
    client.on('end', onLost);
    client.on('error', onLost);
    try {
      await client.query(`LISTEN ${channel}`);
    } catch (error) {
      await ended(client);
      throw unreachable(error);
    }
    return () => ended(client);
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const wake of this.#waiting.splice(0)) wake();
    await Promise.all(this.#free.splice(0).map(ended));
  }

  async #again<T>(work: (client: PostgresClient) => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#with(work);
      } catch (error) {
        if (!AGAIN.has(codeOf(error)) || attempt === ATTEMPTS) throw error;
      }
    }
  }

  async #with<T>(work: (client: PostgresClient) => Promise<T>): Promise<T> {
    const client = await this.#take();
    try {
      return await work(client);
    } catch (error) {
      // Where the server has not said what is wrong, nobody knows what the connection is in the middle of.
      if (error instanceof RowcastError && error.cause !== undefined && codeOf(error) === '') this.#broken.add(client);
      throw error;
    } finally {
      this.#giveBack(client);
    }
  }

  async #inTransaction<T>(
    client: PostgresClient,
    work: (session: Session) => Promise<T>,
    kind: 'durable' | 'lazy',
    isPrompt: boolean,
  ): Promise<T> {
    const session = this.#sessionOn(client);
    try {
      const begun = session.script(BEGIN[kind]);
      if (!isPrompt) await begun;
      const [, result] = await Promise.all([begun, work(isPrompt ? after(begun, session) : session)]);
      await session.script('COMMIT');
      return result;
    } catch (error) {
      try {
        await client.query('ROLLBACK');
      } catch {
        this.#broken.add(client);
      }
      throw error;
    }
  }

  async #take(): Promise<PostgresClient> {
    while (this.#used >= CONNECTIONS && !this.#closed) await new Promise<void>((wake) => this.#waiting.push(wake));
    if (this.#closed) throw new RowcastError('DATABASE_CLOSED', 'the store is closed');
    this.#used += 1;
    try {
      for (let free = this.#free.pop(); free; free = this.#free.pop()) if (!this.#broken.has(free)) return free;
      const client = await this.#connect();
      await this.greet(this.#sessionOn(client)).catch(async (error) => {
        await ended(client);
        throw error;
      });
      this.#eras.set(client, this.#era);
      return client;
    } catch (error) {
      this.#release();
      throw asStoreError(error);
    }
  }

  async #connect(): Promise<PostgresClient> {
    const { driver, url, name } = this.#o;
    const client = new driver.Client({
      connectionString: url,
      connectionTimeoutMillis: CONNECT_MS,
      query_timeout: ANSWER_MS,
      application_name: name,
      keepAlive: true,
      pipeline: true,
      types: TYPES,
    });
    const lost = (): void => {
      this.#broken.add(client);
    };
    client.on('error', lost);
    client.on('end', lost);
    try {
      await client.connect();
    } catch (error) {
      await ended(client);
      throw unreachable(error);
    }
    return client;
  }

  /** A connection is of the era in which it was made, whatever has been seen on others since. */
  #sessionOn(client: PostgresClient): ReturnType<typeof sessionOn> {
    return sessionOn(client, this.#eras.get(client) ?? this.#era);
  }

  #giveBack(client: PostgresClient): void {
    const isBroken = this.#broken.has(client) || this.#eras.get(client) !== this.#era || this.#closed;
    if (!isBroken) this.#free.push(client);
    this.#release();
    if (isBroken) cut(client);
  }

  #release(): void {
    this.#used -= 1;
    this.#waiting.shift()?.();
  }
}

/** What the server says is wrong, five characters; empty where it is not the server that says so. */
export function codeOf(error: unknown): string {
  if (error instanceof RowcastError) return error.cause === undefined ? '' : codeOf(error.cause);
  const { code, severity } = (error ?? {}) as { code?: unknown; severity?: unknown };
  return typeof code === 'string' && severity !== undefined ? code : '';
}

/**
 * It may be otherwise in a moment, without anybody's doing: the server cannot be reached, is being started or stopped, has no
 * room, or has ended what took too long. Not so where it says what is wrong with a name, a password or a right.
 */
export function isPassing(error: RowcastError): boolean {
  return error.code === 'DATABASE_FAILED' && error.cause !== undefined && /^($|08|40|53|57|25P03)/.test(codeOf(error));
}

function sessionOn(client: PostgresClient, era: number): Session & { script(sql: string): Promise<void> } {
  const ask: PostgresClient['query'] = (sql, params) =>
    client.query(sql, params).catch((error) => {
      throw asStoreError(error);
    });
  return {
    era,
    query: async (sql, ...params) => (await ask(sql, params)).rows,
    run: async (sql, ...params) => (await ask(sql, params)).rowCount ?? 0,
    script: async (sql) => void (await ask(sql)),
  };
}

/** What is asked when it is known that it did not begin fails for that reason: answers come in the order of questions. */
function after(begun: Promise<unknown>, session: Session): Session {
  let failed: { reason: unknown } | undefined;
  begun.catch((reason) => {
    failed = { reason };
  });
  const unless = <T>(ask: () => Promise<T>): Promise<T> => (failed ? Promise.reject(failed.reason) : ask());
  return {
    era: session.era,
    query: (sql, ...params) => unless(() => session.query(sql, ...params)),
    run: (sql, ...params) => unless(() => session.run(sql, ...params)),
  };
}

/** Without a last word: who does not answer any more would never hear it. */
function cut(client: PostgresClient): void {
  void ended(client);
  client.connection?.stream?.destroy?.();
}

async function ended(client: PostgresClient): Promise<void> {
  await client.end().catch(() => {});
}

function asStoreError(error: unknown): unknown {
  if (error instanceof RowcastError) return error;
  return new RowcastError('DATABASE_FAILED', `PostgreSQL: ${messageOf(error)}`, { cause: error });
}

function unreachable(error: unknown): RowcastError {
  if (error instanceof RowcastError) return error;
  return new RowcastError('DATABASE_FAILED', `PostgreSQL cannot be reached: ${messageOf(error)}`, { cause: error });
}
