/**
 * Tells when rows may have advanced: at once for what came in here, by a notice for what came in at another hub of the
 * group, and by looking now and then, since a notice can be lost, and a pooler may not carry any.
 */
import type { Clock } from '../../clock.ts';
import type { Seq } from '../store.ts';
import { horizon } from './horizon.ts';
import type { Sessions } from './sessions.ts';

export interface AdvancesOptions {
  sessions: Sessions;
  clock: Clock;
  /** The name of this process: its own notices are no news to it. */
  instance: string;
}

const CHANNEL = 'rowcast_advanced';
/** Notices are sent no more often: each takes a lock that is one for the whole server. */
const NOTICE_MS = 5;
/** Something is there that is not settled yet: somebody is in the middle of a transaction with a lower place. */
const UNSETTLED_MS = 10;
const BUSY_MS = 25;
const IDLE_MS = 250;
const LISTEN_AGAIN_MS = 1_000;

export class Advances {
  readonly #o: AdvancesOptions;
  readonly #hints = new Set<() => void>();
  readonly #stop = new AbortController();
  /** Ends the pause before the next look. */
  #pause = new AbortController();
  #lookNow = false;
  #looking: Promise<void> | undefined;
  #listening: Promise<void> | undefined;
  #isHeard = false;
  #telling: Promise<void> | undefined;
  #tellAgain = false;
  /** The greatest settled place that was told of. */
  #told: Seq = -1;

  constructor(options: AdvancesOptions) {
    this.#o = options;
  }

  add(hint: () => void): void {
    this.#hints.add(hint);
  }

  start(): void {
    this.#looking = this.#look();
    this.#listening = this.#listen();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#pause.abort();
    await Promise.all([this.#looking, this.#listening, this.#telling]);
  }

  /** Rows have advanced here. */
  advanced(): void {
    this.#hint();
    this.#wake();
    this.#announce();
  }

  /** Another state of the store: what was told of says nothing. */
  forget(): void {
    this.#told = -1;
    this.#hint();
    this.#wake();
  }

  #hint(): void {
    for (const hint of this.#hints) hint();
  }

  #wake(): void {
    this.#lookNow = true;
    this.#pause.abort();
  }

  #announce(): void {
    this.#tellAgain = true;
    this.#telling ??= this.#tell().finally(() => {
      this.#telling = undefined;
    });
  }

  async #tell(): Promise<void> {
    const { sessions, clock, instance } = this.#o;
    while (this.#tellAgain && !this.#stop.signal.aborted) {
      this.#tellAgain = false;
      // Where it fails, the others look by themselves.
      await sessions.query('SELECT pg_notify($1, $2)', CHANNEL, instance).catch(() => {});
      await clock.sleep(NOTICE_MS, this.#stop.signal);
    }
  }

  async #look(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      this.#lookNow = false;
      const pause = await this.#lookOnce().catch(() => IDLE_MS);
      if (this.#lookNow) continue;
      this.#pause = new AbortController();
      await this.#o.clock.sleep(pause, this.#pause.signal);
    }
  }

  /** How long to wait before the next time. */
  async #lookOnce(): Promise<number> {
    // While nothing comes this is all that the server is asked.
    const [found] = await this.#o.sessions.query<{ last: Seq | null }>(LAST);
    if ((found?.last ?? -1) <= this.#told) return IDLE_MS;
    const [settled, all] = await this.#o.sessions.use(async (session) => {
      const below = await horizon(session);
      const [now] = await session.query<{ settled: Seq | null; last: Seq | null }>(SETTLED, below);
      return [now?.settled ?? -1, now?.last ?? -1];
    });
    const isNews = settled > this.#told;
    this.#told = Math.max(settled, this.#told);
    if (isNews) this.#hint();
    if (all > settled) return UNSETTLED_MS;
    return isNews && !this.#isHeard ? BUSY_MS : IDLE_MS;
  }

  async #listen(): Promise<void> {
    const { sessions, clock, instance } = this.#o;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        await new Promise<void>((lost, failed) => {
          const heard = (from: string): void => {
            this.#isHeard = true;
            if (from !== instance) this.#wake();
          };
          sessions.listen(CHANNEL, heard, lost).then((end) => {
            // A pooler takes the request, and brings nothing: notices count when one has come, be it one's own.
            this.#announce();
            const stop = (): void => void end().then(lost);
            if (signal.aborted) stop();
            else signal.addEventListener('abort', stop, { once: true });
          }, failed);
        });
      } catch {
        // Without notices it is looked more often.
      }
      this.#isHeard = false;
      await clock.sleep(LISTEN_AGAIN_MS, signal);
    }
  }
}

const LAST = 'SELECT max(seq) AS last FROM rowcast.rows';

const SETTLED =
  'SELECT (SELECT max(seq) FROM rowcast.rows WHERE seq < $1) AS settled, (SELECT max(seq) FROM rowcast.rows) AS last';
