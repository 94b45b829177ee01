/** The tables of a group of hubs, in a schema of their own; and what a server has to be for them. */

/** Another number, another format: an older hub refuses it. */
export const SCHEMA_VERSION = 4;

/** Everything is in here, and nothing else is. */
export const SCHEMA = 'rowcast';

/** Which database, and which tables in it. None before they are made. */
export const PLACE =
  "((SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())::text || '-' || " +
  `coalesce(to_regclass('${SCHEMA}.meta')::oid::text, ''))`;

/**
 * `seq` is the id of the transaction that wrote the row last, counted from `base`, and the change's index in it: unique,
 * without a counter that every writer would have to wait for. `tkey` is the table's name, folded. `shape` tells apart rows
 * of different columns. Text is compared by its bytes; U+0000 is spelt as in driver.ts.
 */
export const TABLES: string[] = [
  `rows (seq bigint NOT NULL UNIQUE, tkey ${bytes('NOT NULL')}, row_id ${bytes('NOT NULL')}, op text NOT NULL, ` +
    `updated_at bigint NOT NULL, origin ${bytes()}, writer ${bytes()}, base bigint, shape uuid NOT NULL, ` +
    `table_name ${bytes('NOT NULL')}, row_data ${bytes('NOT NULL')}, PRIMARY KEY (tkey, row_id))`,
  `edges (url ${bytes('PRIMARY KEY')}, position bigint NOT NULL DEFAULT 0, node_id ${bytes()}, inc ${bytes()}, ` +
    `anew_upto bigint NOT NULL DEFAULT 0, pinned ${bytes()}, paused boolean NOT NULL DEFAULT false, ` +
    `generation bigint NOT NULL DEFAULT nextval('${SCHEMA}.generations')) WITH (fillfactor = 50)`,
  `hubs (instance ${bytes('PRIMARY KEY')}, boot ${bytes('NOT NULL')}, seen timestamptz NOT NULL)`,
  `meta (one boolean PRIMARY KEY DEFAULT true CHECK (one), schema_version integer NOT NULL, hub_id ${bytes('NOT NULL')}, ` +
    // Sessions of other roles are not seen, so nobody may write as another one: see horizon.ts.
    'role name NOT NULL DEFAULT session_user, ' +
    'system_identifier text NOT NULL, base bigint NOT NULL, roster bigint NOT NULL DEFAULT 0, ' +
    'attached text, place text)',
  `asked (tkey ${bytes('PRIMARY KEY')})`,
  // The greatest tick that was committed: of a few lines, so that those who write at once seldom wait for each other.
  'ticked (slot integer PRIMARY KEY, tick bigint NOT NULL) WITH (fillfactor = 50)',
  'clock (noted bigint NOT NULL)',
  `verified (url ${bytes('PRIMARY KEY')}, note text NOT NULL)`,
  `nodes (inc ${bytes('PRIMARY KEY')}, id ${bytes()}, boot text, before text, t0 bigint, tick bigint, back text, ` +
    'self boolean, seal text, heard bigint, low bigint, claim text)',
  `names (id ${bytes('PRIMARY KEY')}, inc ${bytes()})`,
  `letters (dead_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, op text, row_id ${bytes()}, row_data text, ` +
    `failed_at bigint, retry_count integer NOT NULL DEFAULT 0, direction text, table_name ${bytes()}, peer ${bytes()}, ` +
    'code text, reason text, change text, fingerprint text UNIQUE, version bigint)',
];

export const INDEXES: string[] = [
  'edges_inc ON edges (inc)',
  'edges_node ON edges (node_id)',
  'nodes_id ON nodes (id)',
  "letters_due ON letters (version, dead_id) WHERE code = 'future-stamp'",
  // Of any length, as what is set aside may be.
  'letters_row ON letters USING hash (row_id)',
  'letters_code ON letters (code, dead_id)',
];

/**
 * What leads from each version to the one after it, the first being 1. Processes of the version before may still be running
 * while it is done, and go on.
 */
export const UPGRADES: string[] = [
  `ALTER TABLE ${SCHEMA}.nodes ADD COLUMN claim text`,
  `CREATE INDEX edges_node ON ${SCHEMA}.edges (node_id); CREATE INDEX nodes_id ON ${SCHEMA}.nodes (id)`,
  `DROP INDEX ${SCHEMA}.letters_row; CREATE INDEX letters_row ON ${SCHEMA}.letters USING hash (row_id); ` +
    // What those of the version before write leaves it as it is: they and these are in one attach.
    `ALTER TABLE ${SCHEMA}.meta ADD COLUMN place text; UPDATE ${SCHEMA}.meta SET place = ${PLACE}`,
];

/**
 * Generations of edges: a number never comes again. Ticks: what the group says of itself only grows. How far it has come is
 * not asked of the sequence, which may be ahead of what is left after a failover: see `ticked`.
 */
export const SEQUENCES: string[] = ['generations', 'ticks'];

function bytes(more = ''): string {
  return `text COLLATE "C"${more && ` ${more}`}`;
}
