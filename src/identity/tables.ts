/** The tables of identity, the same in a node's database and in a hub's. */

/**
 * Every database that was ever heard of, this one included (`self`): its latest attach, those before it, the tick at which
 * that attach began, and the latest tick, with its seal. `back` is an attach that was found to be an earlier state of it.
 * `seal` of this one is the secret that it seals with; `heard` is the tick here at which something new was last heard of it.
 * `claim` is what else it has said, and may not know any more: see claim.ts.
 */
export const IDENTITY_TABLES = {
  _nodes:
    '(inc TEXT PRIMARY KEY, id TEXT, boot TEXT, before TEXT, t0 INTEGER, tick INTEGER, back TEXT, self INTEGER, ' +
    'seal TEXT, heard INTEGER, claim TEXT) WITHOUT ROWID',
  // Which database has an id at present.
  _names: '(id TEXT PRIMARY KEY, inc TEXT) WITHOUT ROWID',
};
