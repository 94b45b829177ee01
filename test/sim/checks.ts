/** What must be true at every moment, and what must be true in the end. The first violation stands. */
import { versionOf, type WireChange, type WireRow } from '../support/model.ts';
import type { Write } from './application.ts';
import type { TableName } from './disk.ts';
import type { Machine, Surroundings } from './machine.ts';
import { addsColumn, NEW_COLUMN, tableNamed, unsaidIn, withOldNames } from './migration.ts';
import { covers, hasFilledIn, isPutTogether, notAsGiven, versionEverOn, versionOnMachine } from './mixed.ts';
import {
  canonical,
  describe,
  idIn,
  isAbove,
  isAtLeast,
  type Key,
  keyOf,
  tableIn,
  type Version,
  Versions,
} from './oracle.ts';
import { isMixed, leavesTies, type Plan } from './plan.ts';
import { isInSeed, isToldToAWalk } from './roster.ts';
import {
  deletionsOn,
  exactRowsOn,
  hiddenOn,
  hubRow,
  rowsOn,
  tableOfRow,
  unstampedOn,
  withoutNewColumn,
} from './rows.ts';

/** A captured change that is still there. */
interface Pending {
  changeId: number;
  table: TableName;
  id: string;
  version: Version;
}

/** What was last seen of a machine. */
interface Seen {
  pending: Pending[];
  sequence: number;
  watermarks: Map<string, number>;
  cuts: number;
}

/** A state of a row that some machine was told. */
interface Told {
  key: Key;
  version: Version;
}

/** The greatest id that was given. SQLite notes it at the end of a statement, and not of one that has failed in the middle. */
const SEQUENCE =
  "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '_changes'), 0), " +
  'coalesce((SELECT max(change_id) FROM _changes), 0)) AS sequence';
const NODE_STATE =
  `${SEQUENCE}, (SELECT value FROM _meta WHERE key = 'syncing') AS syncing, ` +
  '(SELECT min(change_id) FROM _changes) AS low, ' +
  '(SELECT count(*) FROM _dead_letter) AS letters, ' +
  "(SELECT group_concat(peer_url || ' ' || last_acked, ' ') FROM _peer_state) AS watermarks";
const HUB_STATE =
  'SELECT (SELECT max(seq) FROM _hub_rows) AS sequence, (SELECT count(*) FROM _dead_letter) AS letters, ' +
  "(SELECT group_concat(url || ' ' || position, ' ') FROM _hub_edges) AS watermarks";

export class Checks {
  violation: string | undefined;
  /** Letters have been sent again by hand: changes appear that no write has made. */
  retried = false;
  /** Rows that somebody has said are not wanted, when they had been set aside for a floor. */
  readonly unwanted = new Set<Key>();
  readonly #world: Surroundings;
  readonly #seen = new Map<Machine, Seen>();
  /** Rows of which more than one outcome is right, because somebody has written to them where no trigger was. */
  readonly #loose = new Map<Key, 'deleted' | 'lowered'>();
  /** Where deletions are forgotten: up to which version each row was ever deleted by an application, whatever became of its disk. */
  readonly #deleted = new Map<Key, number>();
  /** Rows that somebody was sent by a request which its sender had given up. */
  readonly #broughtLate = new Set<Key>();

  /** Everything that was received, by what it says; only where schemas are mixed. */
  readonly #told = new Map<string, Told>();

  constructor(world: Surroundings) {
    this.#world = world;
  }

  /** May any of the versions of one time stand? */
  protected get leavesTies(): boolean {
    return leavesTies(this.#world.plan);
  }

  get #mixedSchemas(): boolean {
    return isMixed(this.#world.plan);
  }

  fail(message: string): void {
    this.violation ??= message;
  }

  /** Nobody has lost anything here: starts, kills, power cuts and late messages are not that. */
  alarm(machine: Machine, event: string): void {
    this.fail(`${machine.name} says ${event}, and nothing was lost`);
  }

  /** Everything that was applied since the last write is there, and nothing else. */
  beforeWrite(machine: Machine): void {
    if (this.#mixedSchemas) {
      const wrong = notAsGiven(machine);
      if (wrong) this.fail(`${machine.name} does not have what it has been given: ${wrong}`);
      return;
    }
    const isSeen = ([key]: [Key, unknown]): boolean => !machine.unseen.has(tableIn(key));
    const given = new Map([...machine.versions.rows()].filter(isSeen));
    const difference = differenceOf(given, new Map([...this.#livingOn(machine)].filter(isSeen)));
    if (difference) this.fail(`${machine.name} does not have what it has been given: ${difference}`);
  }

  /** Visible or hidden. A hidden row that was written or deleted since then goes with the next look at the table. */
  #livingOn({ disk, versions }: Machine): Map<Key, WireRow> {
    const visible = rowsOn(disk);
    const hidden = [...hiddenOn(disk)].filter(([key]) => !visible.has(key) && versions.get(key)?.isDelete !== true);
    return hidden.length === 0 ? visible : new Map([...visible, ...hidden]);
  }

  /**
   * A write that no trigger has seen. A deletion is not known to be one, and the row may come back from any peer; a
   * version that is not above the one that it has replaced loses to it wherever they meet.
   */
  unseen(machine: Machine, key: Key, version: Version): void {
    // What was taken away unseen counts as deleted where it is below a floor; its time may be none, and then it is what others have.
    const { updatedAt = Number.NaN } = machine.versions.get(key) ?? {};
    for (const one of [version, { ...version, updatedAt }]) this.counted(key, one);
    const deleted = version.isDelete || this.#loose.get(key) === 'deleted';
    if (deleted) this.#loose.set(key, 'deleted');
    else if (!isAbove(version, machine.versions.get(key)) || Number.isNaN(version.updatedAt)) {
      this.#loose.set(key, 'lowered');
    }
  }

  /** An application has committed this. */
  counted(key: Key, { isDelete, updatedAt }: Version): void {
    if (isDelete && !Number.isNaN(updatedAt))
      this.#deleted.set(key, Math.max(updatedAt, this.#deleted.get(key) ?? updatedAt));
  }

  /** Has an application deleted that version, or a newer one, seen or unseen, or has somebody said that it is not wanted? */
  protected isDeletedRightly(key: Key, version: number): boolean {
    return version <= (this.#deleted.get(key) ?? Number.NEGATIVE_INFINITY) || this.unwanted.has(key);
  }

  /** Is there a row that was written to unseen, came late to somebody, and is not the same everywhere? */
  isLooseStill(machines: Machine[]): boolean {
    if (this.hasOpenTies(machines)) return true;
    const taking = machines.filter(({ counts, ready }) => counts && ready);
    return [...this.#loose.keys()].some((key) => this.#broughtLate.has(key) && this.#isApart(key, taking));
  }

  #isApart(key: Key, machines: Machine[]): boolean {
    const found = machines.map((machine) => versionOnMachine(machine, tableIn(key), idIn(key)));
    return new Set(found.map((one) => (one && !one.isDelete ? canonical(this.whole(one).row) : 'nothing'))).size > 1;
  }

  /** Where nodes may choose differently of two versions of one time: have they, and were they not compared since? */
  protected hasOpenTies(machines: Machine[]): boolean {
    if (!this.leavesTies) return false;
    const taking = machines.filter(({ counts, ready }) => counts && ready);
    const keys = new Set(taking.flatMap(({ kind, disk }) => (kind === 'hub' ? [] : [...rowsOn(disk).keys()])));
    return [...keys].some((key) => {
      const found = taking.map((machine) => versionOnMachine(machine, tableIn(key), idIn(key)));
      return new Set(found.map((one) => (one && !one.isDelete ? canonical(this.whole(one).row) : 'nothing'))).size > 1;
    });
  }

  /** Have nodes been told of a row that others have forgotten, or set aside? That is found by comparing them. */
  protected isForgottenApart(machines: Machine[]): boolean {
    if (!this.#world.plan.forgets) return false;
    const nodes = machines.filter(({ kind, counts, ready }) => kind === 'node' && counts && ready);
    return new Set(nodes.map(({ disk }) => exactRowsOn(disk))).size > 1;
  }

  /** When the triggers are back, the rows are what they were; those without a version that can be sent have got one. */
  seenAgain(machine: Machine, table: TableName, before: Map<Key, WireRow>, now: Map<Key, WireRow>): void {
    const difference = differenceOf(withoutTime(before), withoutTime(now));
    if (difference) this.fail(`${machine.name}: putting the triggers back has changed rows: ${difference}`);
    for (const [key, { updated_at: time }] of now) {
      const was = before.get(key)?.updated_at;
      if (typeof time !== 'number' || (typeof was === 'number' && time < was)) {
        this.fail(`${machine.name}: putting the triggers back has left ${key} at ${time}, which was at ${was}`);
      }
    }
    for (const change of this.#newChanges(machine)) {
      // A letter that was sent again meanwhile is a change of its own.
      if (change.table === table || machine.unseen.has(change.table) || this.retried) continue;
      // The same start may find that another table has a column more, and tells its rows once more with it.
      if (this.#isToldAnew(machine, change)) machine.versions.merge(keyOf(change.table, change.id), change.version);
      else this.fail(`${machine.name}: putting the triggers of ${table} back has written to ${change.table}`);
    }
  }

  nothingWritten(machine: Machine, before: Map<Key, WireRow>): void {
    const difference = differenceOf(before, rowsOn(machine.disk));
    if (difference) this.fail(`${machine.name}: a transaction that was rolled back has left something: ${difference}`);
    if (this.#newChanges(machine).length > 0)
      this.fail(`${machine.name}: a transaction that was rolled back was captured`);
  }

  notAdvanced(machine: Machine, index: number, key: Key, had: Version | undefined, has: Version): void {
    this.fail(
      `${machine.name} write ${index}: ${key} is not above its last version: ${describe(had)}, now ${describe(has)}`,
    );
  }

  /**
   * A committed write has its change row, and the other way round. Triggers from before a migration do not know the new
   * column, and what they have recorded is recorded once more, above it: until then the row is told without the column.
   */
  captured(machine: Machine, index: number, written: Omit<Write, 'lost'>[]): void {
    machine.touched = true;
    const last = new Map<Key, Version>();
    for (const { key, version, behind } of written) last.set(key, behind ? withoutNewColumn(version) : version);
    const changes = new Map<Key, Pending>();
    for (const change of this.#newChanges(machine)) changes.set(keyOf(change.table, change.id), change);
    const where = `${machine.name} write ${index}`;
    const tell = ({ isDelete, updatedAt, row }: Version): string =>
      isDelete ? `deleted at ${updatedAt}` : canonical(row);
    for (const [key, version] of last) {
      const change = changes.get(key);
      const said = tell(version);
      const recorded = change ? tell(change.version) : 'nothing';
      if (said !== recorded) this.fail(`${where}: ${key} became ${said}, but what was captured is ${recorded}`);
    }
    for (const [key, change] of changes) {
      if (last.has(key) || this.#isToldAnew(machine, change)) continue;
      this.fail(`${where}: a change of ${key} was captured, which was not written`);
    }
  }

  /** After every event: the machines that have used their database. */
  afterEvent(machines: Machine[]): void {
    for (const machine of machines) {
      if (!machine.touched || machine.held || !machine.ready || machine.disk.inTransaction) continue;
      machine.touched = false;
      const seen = this.#seenOf(machine);
      const state = machine.disk.all(machine.kind === 'hub' ? HUB_STATE : NODE_STATE)[0] ?? {};
      this.#neverBack(machine, seen, state);
      if (Number(state.letters) > 0) this.#letters(machine);
      this.neverDeletedForNothing(machine);
      if (machine.kind === 'hub') continue;
      this.neverBack(machine);
      if (state.syncing === 1) this.fail(`${machine.name}: syncing is set outside of an apply`);
      this.#unasked(machine);
      if (machine.fillsIn && hasFilledIn(machine)) machine.fillsIn = false;
      this.#pruned(machine, seen, state.low as number | null);
    }
  }

  /** Whatever is brought to it, and whatever it has forgotten: what was deleted here does not come back. */
  protected neverBack(machine: Machine): void {
    if (!this.#world.plan.forgets) return;
    for (const [key, { updated_at: time }] of rowsOn(machine.disk)) {
      const known = machine.versions.get(key);
      // Where no trigger is, its application has inserted it: it has no version until there is one.
      if (machine.unseen.has(tableIn(key))) continue;
      if (known?.isDelete && Number(time) <= known.updatedAt)
        this.fail(`${machine.name}: ${key} was ${describe(known)}, and is back at ${time}`);
    }
  }

  /** What one has forgotten another one deletes when they are compared: only what somebody has deleted, or does not want. */
  protected neverDeletedForNothing(machine: Machine): void {
    if (!this.#world.plan.forgets) return;
    for (const { key, version } of deletionsOn(machine)) {
      if (!this.isDeletedRightly(key, version))
        this.fail(`${machine.name}: ${key} is deleted at ${version}, and nobody has deleted it`);
    }
  }

  /** Ids and watermarks; a power cut may take an acknowledgement back, which then comes again. */
  #neverBack(machine: Machine, seen: Seen, state: Record<string, unknown>): void {
    const sequence = Number(state.sequence ?? 0);
    const cut = seen.cuts !== machine.cuts;
    seen.cuts = machine.cuts;
    if (!cut && sequence < seen.sequence) {
      this.fail(`${machine.name}: ids go back from ${seen.sequence} to ${sequence}`);
    }
    const words = state.watermarks ? String(state.watermarks).split(' ') : [];
    // An edge that was removed is a new one when it is back.
    for (const peer of seen.watermarks.keys()) if (!words.includes(peer)) seen.watermarks.delete(peer);
    for (let i = 0; i + 1 < words.length; i += 2) {
      const [peer, position] = [words[i] as string, Number(words[i + 1])];
      const before = seen.watermarks.get(peer) ?? 0;
      const isAsked = position === 0 && machine.reseeds.delete(peer);
      if (!cut && !isAsked && position < before)
        this.fail(`${machine.name}: ${peer} goes back from ${before} to ${position}`);
      seen.watermarks.set(peer, position);
    }
    if (cut) seen.pending = seen.pending.filter(({ changeId }) => changeId <= sequence);
    if (cut || machine.kind === 'hub') seen.sequence = sequence;
  }

  /** What could not be delivered was refused; what could not be applied does not exist here. */
  #letters(machine: Machine): void {
    for (const { direction, peer, code, reason } of machine.disk.all('SELECT * FROM _dead_letter_info')) {
      if (direction === 'in') {
        const behind = this.#mixedSchemas && code === 'unknown-column';
        // Days pass here within a second, in which a walk's batch may be tried again that was read before a deletion.
        const { forgets, faults } = this.#world.plan;
        const isOld = forgets && faults.schema !== undefined && code === 'below-floor';
        if (code !== 'unique' && !behind && !isOld)
          this.fail(`${machine.name} has parked a change (${code}): ${reason}`);
      } else if (!this.#world.network.refusals.has(`${machine.name} ${String(peer).replace('http://', '')}`)) {
        this.fail(`${machine.name} has given up a change that ${peer} never refused: ${reason}`);
      }
    }
  }

  /** Where schemas are mixed, a row that was put together from two is told to all; and one that a walk would miss. */
  #isToldAnew(machine: Machine, change: Pending): boolean {
    return (this.#mixedSchemas && isPutTogether(machine, change)) || isToldToAWalk(machine, change);
  }

  /** Changes that appear without a write of the application would go round in circles, but for those that are told anew. */
  #unasked(machine: Machine): void {
    for (const change of this.#newChanges(machine)) {
      const key = keyOf(change.table, change.id);
      const isFine = this.retried || this.#isToldAnew(machine, change);
      if (!isFine)
        this.fail(`${machine.name} has captured a change of ${key} that it was sent: ${describe(change.version)}`);
      if (this.#mixedSchemas) machine.versions.merge(key, change.version);
    }
  }

  /**
   * Nothing leaves `_changes` before every configured peer has that version or a newer one, or a newer one is still there:
   * a row that was written behind the walk of a snapshot is not in the snapshot, but among the changes after it. To have it
   * is to have it after a power cut, too: the peer's acknowledgement has promised that.
   */
  #pruned(machine: Machine, seen: Seen, low: number | null): void {
    while (seen.pending.length > 0 && (low === null || (seen.pending[0] as Pending).changeId < low)) {
      const gone = seen.pending.shift() as Pending;
      if (machine.configured.length === 0)
        this.fail(`${machine.name} has dropped change ${gone.changeId} and has no peers`);
      for (const url of machine.configured) {
        const peer = this.#world.network.at(url);
        const missing = this.#missing(peer, gone);
        // Where no trigger looks, a peer can lose what it has acknowledged, and asks for it when it has noticed.
        if (
          !missing ||
          this.#loose.has(keyOf(gone.table, gone.id)) ||
          this.#isLetter(machine, url, gone) ||
          (this.#world.plan.faults.bound !== undefined && isInSeed(machine, url, gone.changeId)) ||
          isFollowed(gone, seen.pending) ||
          (hasNewcomers(this.#world.plan) && isOvertaken(machine, gone))
        )
          continue;
        this.fail(
          `${machine.name} has dropped change ${gone.changeId} of ${gone.table}/${gone.id} (${describe(gone.version)}) and ${peer.name} ${missing}`,
        );
      }
    }
  }

  /** Undefined where the peer has that version or a newer one and, where machines lose power, would still have it after that. */
  #missing(peer: Machine, { table, id, version }: Pending): string | undefined {
    const key = keyOf(table, id);
    if (!peer.ready || !covers(peer, key, versionEverOn(peer, table, id), version)) return 'does not have it';
    if (this.#world.plan.faults['power-cut'] === undefined) return undefined;
    const isSafe = peer.durableVersions(key).some((one) => covers(peer, key, one, version));
    return isSafe ? undefined : 'would lose it in a power cut';
  }

  #isLetter(machine: Machine, url: string, { table, id }: Pending): boolean {
    const sql =
      "SELECT 1 FROM _dead_letter_info AS i JOIN _dead_letter AS d USING (dead_id) WHERE i.direction = 'out' AND i.peer = ? AND i.table_name = ? AND d.row_id = ?";
    return machine.disk.all(sql, url, table, id).length > 0;
  }

  /** Whatever has been captured by now is known. */
  protected passOver(machine: Machine): void {
    const seen = this.#seenOf(machine);
    seen.pending = [];
    seen.sequence = Number(machine.disk.all(SEQUENCE)[0]?.sequence ?? 0);
  }

  #newChanges(machine: Machine): Pending[] {
    const seen = this.#seenOf(machine);
    const sql =
      'SELECT change_id, op, table_name, row_id, row_data FROM _changes WHERE change_id > ? ORDER BY change_id';
    const found = machine.disk.all(sql, seen.sequence).map((line): Pending => {
      const row = withOldNames(JSON.parse(line.row_data as string) as WireRow, machine.disk.migration);
      const table = line.table_name === null ? tableOfRow(row) : tableNamed(line.table_name as string);
      const version = versionOf({ op: line.op as 'DELETE', table, row, old_id: null });
      return { changeId: Number(line.change_id), table, id: String(line.row_id), version };
    });
    seen.pending.push(...found);
    seen.sequence = found.at(-1)?.changeId ?? seen.sequence;
    return found;
  }

  #seenOf(machine: Machine): Seen {
    const known = this.#seen.get(machine);
    if (known) return known;
    const seen: Seen = { pending: [], sequence: 0, watermarks: new Map(), cuts: 0 };
    this.#seen.set(machine, seen);
    return seen;
  }

  /**
   * Where schemas are mixed, a row may be put together from two writes, by a node or a hub that knows a column which the
   * sender of the newer one does not. Whoever does that tells everybody, so it counts like a write from then on.
   */
  received(changes: WireChange[], givenUp: boolean): void {
    for (const change of changes) {
      const key = keyOf(change.table, String(change.op === 'DELETE' ? change.old_id : change.row.id));
      if (givenUp) this.#broughtLate.add(key);
      if (!this.#mixedSchemas) continue;
      this.#told.set(`${change.op === 'DELETE'} ${key} ${canonical(change.row)}`, { key, version: versionOf(change) });
    }
  }

  /** In the end: every machine has exactly what the version order says, in the same storage classes. */
  final(machines: Machine[], writes: Write[]): void {
    const expected = new Versions();
    for (const { key, version, lost } of writes) if (!lost) expected.merge(key, this.whole(version));
    for (const told of this.#told.values()) {
      this.#putTogether(told, writes);
      expected.merge(told.key, this.whole(told.version));
    }
    const nodes = machines.filter(({ kind, counts }) => kind === 'node' && counts);
    const [first, ...others] = nodes as [Machine, ...Machine[]];
    for (const { name, disk } of nodes) {
      const unstamped = unstampedOn(disk);
      if (unstamped) this.fail(`${name}: the version of ${unstamped} was never written into the row`);
    }
    for (const other of others) {
      if (exactRowsOn(first.disk) === exactRowsOn(other.disk)) continue;
      const difference = differenceOf(rowsOn(first.disk), rowsOn(other.disk));
      this.fail(`${first.name} and ${other.name} differ: ${difference ?? 'in a storage class'}`);
    }
    for (const machine of machines) {
      const verdict = Object.values(machine.disk.all('PRAGMA integrity_check')[0] ?? {})[0];
      if (verdict !== 'ok') this.fail(`${machine.name}: integrity_check says ${verdict}`);
    }
    this.#settleLoose(expected, first, writes);
    if (this.leavesTies) this.#settleTies(expected, first, writes);
    for (const node of nodes) this.#asExpected(node, expected);
    for (const hub of machines.filter(({ kind }) => kind === 'hub')) {
      const live = hub.disk.all("SELECT table_name, row_id, row_data FROM _hub_rows WHERE op <> 'DELETE'");
      const rows = live.map((line): [Key, WireRow] => [
        keyOf(line.table_name as string, line.row_id as string),
        this.whole(versionOf({ op: 'UPDATE', table: '', row: hubRow(hub.disk, line.row_data), old_id: null })).row,
      ]);
      const difference = differenceOf(expected.rows(), new Map(rows));
      if (difference) this.fail(`${hub.name} is not what was written: ${difference}`);
    }
  }

  /**
   * Of a row that was written to unseen, several outcomes are right, and every machine must have the same one: a version
   * that somebody has written, or nothing where it was deleted. Which one is taken from the first node.
   */
  #settleLoose(expected: Versions, node: Machine, writes: Write[]): void {
    const found = rowsOn(node.disk);
    for (const [key, how] of this.#loose) {
      const row = found.get(key);
      const newest = expected.get(key);
      if (!row) {
        // A version that was lowered unseen may be one that somebody else has deleted.
        const deletedBySomebody = writes.some((write) => write.key === key && !write.lost && write.version.isDelete);
        if (how === 'deleted' || deletedBySomebody) expected.forget(key);
        continue;
      }
      const version = versionOf({ op: 'UPDATE', table: tableIn(key), row, old_id: null });
      const written = writes.some((write) => write.key === key && !write.lost && sameVersion(write.version, version));
      if (written && newest && (how === 'deleted' || !newest.isDelete)) expected.set(key, version);
    }
  }

  /**
   * Of versions of one time any may stand, if it is the same one everywhere: its columns are those of one of them, and what
   * is in the new column is the default, or what somebody has written there.
   */
  #settleTies(expected: Versions, node: Machine, writes: Write[]): void {
    const told = [...this.#told.values(), ...writes.filter(({ lost }) => !lost)].filter(
      ({ version }) => !version.isDelete,
    );
    for (const [key, row] of rowsOn(node.disk)) {
      const newest = expected.get(key);
      if (!newest || newest.isDelete || newest.updatedAt !== row.updated_at) continue;
      const of = told.filter((one) => one.key === key);
      const extra = row[NEW_COLUMN];
      const isSaid = extra === this.#unsaid || of.some(({ version }) => version.row[NEW_COLUMN] === extra);
      const known = (one: WireRow): string => canonical({ ...one, [NEW_COLUMN]: null });
      const isOne = of.some(({ version }) => version.updatedAt === row.updated_at && known(version.row) === known(row));
      if (isSaid && isOne) expected.set(key, versionOf({ op: 'UPDATE', table: tableIn(key), row, old_id: null }));
    }
  }

  #asExpected(node: Machine, expected: Versions): void {
    const difference = differenceOf(expected.visible(), rowsOn(node.disk));
    if (difference) {
      this.fail(`${node.name} is not what was written: ${difference}`);
      return;
    }
    const living = differenceOf(expected.rows(), new Map([...rowsOn(node.disk), ...hiddenOn(node.disk)]));
    if (living) this.fail(`${node.name} does not keep what it hides: ${living}`);
    for (const [key, version] of expected.entries()) {
      if (!version.isDelete) continue;
      const has = versionEverOn(node, tableIn(key), idIn(key));
      if (has?.updatedAt !== version.updatedAt) {
        this.fail(`${node.name} does not know that ${key} was ${describe(version)}: ${describe(has)}`);
      }
    }
  }

  get #unsaid(): string | null {
    return unsaidIn(this.#world.plan.migration);
  }

  /** A row of a node whose schema is behind: the default in the column that it does not have, mostly below everything. */
  protected whole(version: Version): Version {
    if (!this.#mixedSchemas || version.isDelete || tableOfRow(version.row) !== 'items') return version;
    if (!addsColumn(this.#world.plan.migration)) return version;
    return { ...version, row: { [NEW_COLUMN]: this.#unsaid, ...version.row } };
  }

  /**
   * The columns that all nodes know are those of one write, and the version is that write's, or above it by the steps in
   * which nodes fill in what they had kept; the new column is that write's own or, where it was told without the column,
   * one that somebody has written to that row.
   */
  #putTogether({ key, version }: Told, writes: Write[]): void {
    if (version.isDelete) return;
    const of = writes.filter((write) => write.key === key && !write.lost);
    const unsaid = this.#unsaid;
    const { [NEW_COLUMN]: extra = unsaid, ...known } = version.row;
    const steps = this.#world.plan.nodes;
    // By a node that does not have the column, and was asked for all that it has.
    const passedOn = [...this.#told.values()].some(
      (told) => told.key === key && !(NEW_COLUMN in told.version.row) && sameBut(told.version.row, known),
    );
    const from = of.find(({ version: { isDelete, updatedAt, row }, behind }) => {
      const { [NEW_COLUMN]: own, ...written } = row;
      // One that is below was recorded in the same transaction before it got its version, and loses to it everywhere.
      const near = version.updatedAt <= updatedAt + steps;
      // That is what a migration leaves, until the value is filled in.
      const fits = extra === unsaid || own === undefined || behind === true || own === extra || passedOn;
      return !isDelete && near && fits && sameBut(written, known);
    });
    if (!from) this.fail(`somebody has told ${key} as ${describe(version)}, which nobody has written`);
    if (extra !== unsaid && !of.some((write) => write.version.row[NEW_COLUMN] === extra))
      this.fail(`somebody has told ${key} with ${NEW_COLUMN} ${JSON.stringify(extra)}, which nobody has written`);
  }
}

/** Are there peers that are given the whole state, instead of every change? */
function hasNewcomers({ topology, faults }: Plan): boolean {
  return topology === 'join' || topology === 'return' || faults.roster !== undefined;
}

/** Somebody else has sent a newer one, which is then his to bring to all: behind the walk it is not seen again. */
function isOvertaken(machine: Machine, { table, id, version }: Pending): boolean {
  const has = versionOnMachine(machine, table, id);
  return has !== undefined && isAtLeast(has, version) && !sameVersion(has, version);
}

function isFollowed(gone: Pending, pending: Pending[]): boolean {
  return pending.some(
    ({ table, id, version }) => table === gone.table && id === gone.id && isAtLeast(version, gone.version),
  );
}

function sameVersion(a: Version, b: Version): boolean {
  return isAtLeast(a, b) && isAtLeast(b, a);
}

/** The same but for the time. */
function sameBut(a: WireRow, b: WireRow): boolean {
  return canonical({ ...a, updated_at: 0 }) === canonical({ ...b, updated_at: 0 });
}

function withoutTime(rows: Map<Key, WireRow>): Map<Key, WireRow> {
  return new Map([...rows].map(([key, { updated_at: _, ...row }]) => [key, row]));
}

/** Undefined where both are the same. */
export function differenceOf(expected: Map<Key, WireRow>, found: Map<Key, WireRow>): string | undefined {
  for (const key of new Set([...expected.keys(), ...found.keys()])) {
    const [a, b] = [expected.get(key), found.get(key)];
    const [left, right] = [a ? canonical(a) : 'nothing', b ? canonical(b) : 'nothing'];
    if (left !== right) return `${key}: expected ${left}, found ${right}`;
  }
  return undefined;
}
