/** Makes what is missing, refuses what is no group's, and tells which state of the server this is. */
import { RowcastError } from '../../errors.ts';
import { rebase } from './epoch.ts';
import { PLACES } from './horizon.ts';
import type { Base } from './parts.ts';
import { INDEXES, SCHEMA, SCHEMA_VERSION, SEQUENCES, TABLES, UPGRADES } from './schema.ts';
import type { Session } from './sessions.ts';

const VERSION_MIN = 130_000;
/** Nine tenths of the transactions whose places are exact numbers. */
const TRANSACTIONS_MAX = (0.9 * Number.MAX_SAFE_INTEGER) / PLACES;
/** Whoever creates, or counts anew, does so alone. */
const LOCK = 'SELECT pg_advisory_xact_lock(7232661)';

/** Resolves to what an operator is to be warned of. */
export async function openStore({ sessions, options }: Base): Promise<{ code: string; message: string }[]> {
  await sessions.use(refuseOldServer);
  await sessions.transaction(async (session) => {
    await session.query(LOCK);
    const [found] = await session.query<{ tables: number; meta: string | null }>(
      `SELECT (SELECT count(*) FROM pg_class AS c WHERE c.relnamespace = to_regnamespace('${SCHEMA}')) AS tables, ` +
        `to_regclass('${SCHEMA}.meta')::text AS meta`,
    );
    if (found?.tables === 0) await create(session, options.id);
    else if (found?.meta === null) throw foreign();
    await rebase(session);
    await upgrade(session, await refuseAnother(session, options.id));
  });
  return sessions.use(warnings);
}

/** What is acknowledged is on one machine alone where another one may be promoted in its place. */
async function warnings(session: Session): Promise<{ code: string; message: string }[]> {
  const [found] = await session.query<{ standbys: number; names: string }>(
    'SELECT (SELECT count(*) FROM pg_stat_replication) AS standbys, ' +
      "current_setting('synchronous_standby_names') AS names",
  );
  if (!found || found.standbys === 0 || found.names !== '') return [];
  const message =
    'the server has a standby and waits for none: if that is promoted, the latest acknowledged changes may be missing ' +
    '(name it in synchronous_standby_names)';
  return [{ code: 'asynchronous-standby', message }];
}

async function refuseOldServer(session: Session): Promise<void> {
  const [server] = await session.query<Server>(
    "SELECT current_setting('server_version_num')::integer AS version, current_setting('server_version') AS shown, " +
      "current_setting('fsync') AS fsync, current_setting('server_encoding') AS encoding, " +
      'pg_is_in_recovery() AS standby',
  );
  if (!server) return;
  if (server.version < VERSION_MIN) throw refused(`PostgreSQL ${server.shown} is too old`, 'a group needs 13 or newer');
  if (server.standby) throw refused('the server is a standby', 'name the primary');
  if (server.fsync === 'off') {
    throw refused('the server has fsync = off', 'what is acknowledged must be on disk: turn it on');
  }
  if (server.encoding !== 'UTF8') {
    const hint = "make it with ENCODING 'UTF8' TEMPLATE template0";
    throw refused(`the database has the encoding ${server.encoding}, which cannot hold every text`, hint);
  }
}

interface Server {
  version: number;
  shown: string;
  fsync: string;
  encoding: string;
  standby: boolean;
}

async function create(session: Session, id: string): Promise<void> {
  const [schema] = await session.query<{ name: string | null }>(`SELECT to_regnamespace('${SCHEMA}')::text AS name`);
  // Whoever has made it for this role need not let it make others.
  if (schema?.name == null) await session.query(`CREATE SCHEMA ${SCHEMA}`);
  for (const name of SEQUENCES) await session.query(`CREATE SEQUENCE ${SCHEMA}.${name}`);
  for (const table of TABLES) await session.query(`CREATE TABLE ${SCHEMA}.${table}`);
  for (const index of INDEXES) await session.query(`CREATE INDEX ${index.replace(' ON ', ` ON ${SCHEMA}.`)}`);
  await session.query(
    `INSERT INTO ${SCHEMA}.meta (schema_version, hub_id, system_identifier, base) ` +
      'SELECT $1::integer, $2::text, system_identifier::text, pg_current_xact_id()::text::bigint FROM pg_control_system()',
    SCHEMA_VERSION,
    id,
  );
}

/** Resolves to the version of what is not refused. */
async function refuseAnother(session: Session, id: string): Promise<number> {
  const [version] = await session.query<{ version: number }>(`SELECT schema_version AS version FROM ${SCHEMA}.meta`);
  if (!version) throw foreign();
  if (version.version > SCHEMA_VERSION || version.version < 1) {
    throw refused(`the schema has version ${version.version}, not ${SCHEMA_VERSION}`, 'use the Rowcast that made it');
  }
  const [meta] = await session.query<{ hub: string; role: string; self: string; used: number }>(
    'SELECT hub_id AS hub, role::text AS role, session_user::text AS self, ' +
      `pg_current_xact_id()::text::bigint - base AS used FROM ${SCHEMA}.meta`,
  );
  if (!meta) throw foreign();
  if (meta.hub !== id) {
    throw refused(`it belongs to the group "${meta.hub}", not "${id}"`, 'use that id, or another database');
  }
  if (meta.role !== meta.self) {
    const hint = `the hubs of a group see what the others have under way only where all log in as "${meta.role}"`;
    throw refused(`it belongs to the role "${meta.role}", not "${meta.self}"`, hint);
  }
  if (meta.used > TRANSACTIONS_MAX) {
    throw refused('the server has used up nine tenths of the places that a group has', 'read a dump into a new server');
  }
  return version.version;
}

/** From the version that it has to this one. */
async function upgrade(session: Session, version: number): Promise<void> {
  const steps = UPGRADES.slice(version - 1);
  if (steps.length === 0) return;
  for (const step of steps) await session.query(step);
  await session.run(`UPDATE ${SCHEMA}.meta SET schema_version = $1`, SCHEMA_VERSION);
}

function foreign(): RowcastError {
  return refused(`the schema "${SCHEMA}" is not a group's`, 'give the group a database of its own');
}

function refused(problem: string, hint: string): RowcastError {
  return new RowcastError('INVALID_DATABASE', problem, { hint });
}
