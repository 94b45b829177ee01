/** The tables of the conflict journal: what was replaced by a change that had not seen it, and who has brought what. */
export const JOURNAL_TABLES = {
  // A line for each body that came, of the latest ones: see arrivals.ts.
  _arrivals: '(arrival_id INTEGER PRIMARY KEY, at INTEGER, sender TEXT, origins TEXT, brought TEXT)',
  // AUTOINCREMENT: a number that somebody has on a screen never means another conflict. lost_row is NULL for a deletion.
  _conflicts:
    '(conflict_id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER, table_name TEXT, row_id TEXT, lost_version INTEGER, ' +
    'lost_row TEXT, lost_by TEXT, won_version INTEGER, won_by TEXT, base INTEGER, sender TEXT)',
};

/** By which the ring knows who holds the most of it. */
export const JOURNAL_INDEXES = { _conflicts_sender: 'ON _conflicts (sender)' };
