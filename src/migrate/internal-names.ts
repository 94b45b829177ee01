/** What Rowcast's own tables say of a table or a column, brought in line with the names that these have now. */
import { moveCapture } from '../capture/capture-record.ts';
import { moveFloor } from '../capture/floors.ts';
import { forgetNames, keepNames, Names, renamed } from '../capture/names.ts';
import type { Connection } from '../sqlite/connection.ts';
import { fold, literal } from '../sqlite/sql.ts';

/** Tables that know a synced table by its name here. What travels has the name that it travels under. */
const BY_NAME = ['_tombstones', '_stamps', '_replaced', '_hidden', '_unsaid', '_conflicts'];

/** Letters that know a table by its name here; the others hold a change as it came. */
const OF_TABLE = "direction = 'in' AND code IN ('unknown-column', 'unique')";

/** The table has another name now: everything that is known of it goes along. In the transaction of the migration. */
export function moveTable(db: Connection, from: string, to: string): void {
  for (const table of BY_NAME) {
    db.run(`UPDATE OR REPLACE main.${table} SET table_name = ? WHERE table_name = ? COLLATE NOCASE`, to, from);
  }
  db.run(
    `UPDATE main._dead_letter_info SET fingerprint = replace(fingerprint, char(10) || table_name || char(10), ?) ` +
      `WHERE table_name = ? COLLATE NOCASE AND ${OF_TABLE} AND fingerprint IS NOT NULL`,
    `\n${to}\n`,
    from,
  );
  db.run(
    `UPDATE main._dead_letter_info SET table_name = ? WHERE table_name = ? COLLATE NOCASE AND ${OF_TABLE}`,
    to,
    from,
  );
  moveWalks(db, from, to);
  moveCapture(db, from, to);
  moveFloor(db, from, to);
  const names = Names.read(db);
  const [before, there] = [names.of(from), names.of(to)];
  const { was, sentAs } = renamed({ ...before, name: from }, to);
  forgetNames(db, from);
  keepNames(db, {
    name: to,
    was: [...new Set([...there.was, ...was])],
    sentAs,
    columns: [...before.columns, ...there.columns],
    dropped: [...new Set([...before.dropped, ...there.dropped])],
    lost: [...new Set([...before.lost, ...there.lost])],
  });
}

/** Walks go through the tables in the order of their names, so one that is under way begins again. */
function moveWalks(db: Connection, from: string, to: string): void {
  db.run(
    'UPDATE main._peer_state SET snapshot_table = NULL, snapshot_after = NULL, snapshot_run = snapshot_run + 1 ' +
      'WHERE tail_from IS NOT NULL',
  );
  const scopes = db.all<{ url: string; scope: string }>(
    'SELECT peer_url AS url, snapshot_of AS scope FROM main._peer_state WHERE snapshot_of IS NOT NULL',
  );
  for (const { url, scope } of scopes) {
    db.run('UPDATE main._peer_state SET snapshot_of = ? WHERE peer_url = ?', withName(scope, from, to), url);
  }
  const asked = db.get("SELECT value FROM main._meta WHERE key = 'asked_for'")?.value;
  if (typeof asked !== 'string') return;
  db.run("UPDATE main._meta SET value = ? WHERE key = 'asked_for'", withName(asked, from, to));
}

/** A list of names as JSON, with one of them replaced. */
function withName(json: string, from: string, to: string): string {
  try {
    const names: unknown = JSON.parse(json);
    if (!Array.isArray(names)) return json;
    return JSON.stringify(names.map((name) => (typeof name === 'string' && fold(name) === fold(from) ? to : name)));
  } catch {
    return json;
  }
}

/** Changes that wait, of a table that travels under another name from now on. */
export function respellTable(db: Connection, from: string, to: string): void {
  if (from === to) return;
  db.run('UPDATE main._changes SET table_name = ? WHERE table_name = ?', to, from);
}

/** Rows that wait to be sent or are hidden, one of whose columns travels under another name from now on. */
export function respellColumn(
  db: Connection,
  table: { name: string; wireName: string },
  from: string,
  to: string,
): void {
  if (from === to) return;
  respellRows(db, 'main._changes', 'row_data', table.wireName, [from, to]);
  respellRows(db, 'main._hidden', 'row_data', table.name, [from, to]);
}

/** Edits in the journal of conflicts that know a column by a name that is not understood any more. */
export function respellLost(db: Connection, tableName: string, from: string, to: string): void {
  respellRows(db, 'main._conflicts', 'lost_row', tableName, [from, to]);
}

function respellRows(
  db: Connection,
  where: string,
  json: string,
  tableName: string,
  [from, to]: [string, string],
): void {
  // Each value in the very bytes in which it stands there, and in its place.
  const row =
    `(SELECT '{' || group_concat(json_quote(iif(key = ${literal(from)}, ${literal(to)}, key)) || ':' || value, ',') || '}' FROM ` +
    `(SELECT e.key AS key, coalesce(${json} -> e.fullkey, json_quote(e.value)) AS value ` +
    `FROM json_each(${json}) AS e ORDER BY e.id))`;
  const has = (key: string): string => `EXISTS (SELECT 1 FROM json_each(${json}) AS e WHERE e.key = ${literal(key)})`;
  db.run(
    `UPDATE ${where} SET ${json} = ${row} WHERE table_name = ? AND json_valid(${json}) ` +
      `AND ${has(from)} AND NOT ${has(to)}`,
    tableName,
  );
}
