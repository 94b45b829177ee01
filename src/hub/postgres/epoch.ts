/**
 * Which state of the server this is (I8). After a failover that has lost the latest commits the ids of transactions come
 * again, and a position that was learnt before would skip what gets them now. A server that was promoted is on another
 * timeline, one that a dump was read into has another identifier, one whose files were put back was started anew, and where the
 * database, or its tables, were put back in the server that runs, they are others than before: then
 * everything that came from the one before is dropped. A mere restart costs what the edges have acknowledged since their
 * positions were last written.
 */
import { PLACE, SCHEMA } from './schema.ts';
import type { Session, Sessions } from './sessions.ts';

/** Fails on a standby, which cannot be written to either. */
export const EPOCH =
  "((SELECT c.system_identifier FROM pg_control_system() AS c)::text || '-' || " +
  "left(pg_walfile_name(pg_current_wal_lsn()), 8) || '-' || extract(epoch FROM pg_postmaster_start_time())::text)";

/** Both. */
export const PRESENT = `(${EPOCH} || '-' || ${PLACE})`;

export class Epoch {
  #seen: string | undefined;
  readonly #sessions: Sessions;
  /** Called after another one was found. */
  onChange: () => void = () => {};

  constructor(sessions: Sessions) {
    this.#sessions = sessions;
  }

  /** Counts those that this process has seen. */
  get number(): number {
    return this.#sessions.era;
  }

  /** As the server says it; undefined before anything was asked. */
  get text(): string | undefined {
    return this.#seen;
  }

  see(found: string): void {
    const before = this.#seen;
    this.#seen = found;
    if (before === undefined || before === found) return;
    this.#sessions.renew();
    this.onChange();
  }

  /** On a new connection: it may lead to another server than the ones before it. */
  async greet(session: Session): Promise<void> {
    const [found] = await session.query<{ epoch: string; known: string | null }>(
      `SELECT ${PRESENT} AS epoch, to_regclass('${SCHEMA}.meta')::text AS known`,
    );
    if (found?.known == null) return;
    await rebase(session);
    this.see(found.epoch);
  }
}

/**
 * In a server that a dump was read into, ids begin low again: places are counted from further below, so that the next one is
 * above all that there are. By whoever comes first.
 */
export async function rebase(session: Session): Promise<void> {
  await session.run(
    `UPDATE ${SCHEMA}.meta AS m SET system_identifier = c.system_identifier::text, ` +
      'base = pg_current_xact_id()::text::bigint - ' +
      `(SELECT coalesce(max(r.seq), 0) >> 14 FROM ${SCHEMA}.rows AS r) - 1 ` +
      'FROM pg_control_system() AS c WHERE m.system_identifier <> c.system_identifier::text',
  );
}
