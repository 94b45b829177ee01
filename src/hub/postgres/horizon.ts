/**
 * Up to where the order of rows is settled (I3). A row's place is made of the id of its transaction, and transactions do not
 * end in the order of their ids: what may be read ends below the least one that is still under way. Three steps, and their
 * order is the proof:
 *
 * 1. x, above which no id was given to a transaction that has ended;
 * 2. m, the least id among the sessions of this role in this database;
 * 3. in a later statement, the rows below both.
 *
 * Whoever is below x and not among those of step 2 has ended before the statement of step 3 takes its snapshot, which
 * therefore shows what he did. Sessions of anybody else do not matter: they write no rows.
 *
 * Steps 1 and 2 are one statement: its snapshot, of which x is a part, is taken before it reads the list of sessions.
 */
import { messageOf, RowcastError } from '../../errors.ts';
import type { Seq } from '../store.ts';
import type { Session, Sessions } from './sessions.ts';

/** Changes that one transaction can place. */
export const PLACES = 2 ** 14;

/** The first place of the present transaction. */
export const FIRST_PLACE = '((pg_current_xact_id()::text::bigint - (SELECT m.base FROM rowcast.meta AS m)) << 14)';

export const HORIZON =
  'SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS x, (SELECT m.base FROM rowcast.meta AS m) AS base, ' +
  // What pg_stat_activity is made of. To plan that view, with its joins for names, takes twice the time of all else.
  "(SELECT coalesce(string_agg(a.backend_xid::text, ' '), '') FROM pg_stat_get_activity(NULL) AS a " +
  'WHERE a.backend_xid IS NOT NULL AND a.usesysid = quote_ident(session_user)::regrole ' +
  'AND a.datid = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())) AS busy';

/** Places below it are settled. The statement that reads them comes after this. */
export async function horizon(session: Session): Promise<Seq> {
  const [found] = await session.query<{ x: string; base: number; busy: string }>(HORIZON);
  if (!found) throw new RowcastError('DATABASE_FAILED', 'PostgreSQL does not tell its snapshot');
  return (leastOf(Number(found.x), found.busy) - found.base) * PLACES;
}

/** Ids in the list of sessions have 32 bits, and so are near x: above it or below it. */
function leastOf(x: number, busy: string): number {
  const low = x % 2 ** 32;
  const ids = busy === '' ? [] : busy.split(' ').map((id) => x + ((Number(id) - low) | 0));
  return Math.min(x, ...ids);
}

/** Refuses a server, or a role, of which step 2 would not see what the group has under way. */
export async function testHorizon(sessions: Sessions): Promise<void> {
  const seen = await sessions
    .transaction(async (session) => {
      const [own] = await session.query<{ id: string }>('SELECT pg_current_xact_id()::xid::text AS id');
      const [list] = await sessions.query<{ busy: string }>(HORIZON);
      return (list?.busy ?? '').split(' ').includes(own?.id ?? '-');
    }, 'lazy')
    .catch((error) => {
      throw refused(`it cannot be told which transactions are under way: ${messageOf(error)}`, error);
    });
  if (!seen) throw refused('the role does not see its own transactions in pg_stat_activity');
}

function refused(problem: string, cause?: unknown): RowcastError {
  return new RowcastError('INVALID_DATABASE', problem, {
    hint:
      'all hubs of a group log in as one role, to one database, of a server with track_activities on; ' +
      'a pooler must let each have several connections',
    ...(cause !== undefined && { cause }),
  });
}
