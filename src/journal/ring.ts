/** The journal is a ring: a bounded number of conflicts and of bytes; the oldest of the largest part makes room. */
import type { Connection } from '../sqlite/connection.ts';
import type { JournalLimits } from './journal.ts';

interface Trimming {
  limits: JournalLimits;
  /** Bytes that it held before, as far as is known. */
  bytes: number | undefined;
  /** What is above it is new. */
  mark: number;
}

/** Of a journal that was too large so much stays, so that not every conflict has to look at all others. */
const SHARE = 0.9;

const SIZE = 'coalesce(octet_length(lost_row), 0) + 100';

/**
 * Returns how many bytes it holds now. That is added up as conflicts come, and counted anew when it seems to be too much:
 * a second process on the file, and what was dismissed, are noticed then.
 */
export function trimJournal(db: Connection, { limits, bytes, mark }: Trimming): number {
  const sum = (where: string, ...params: number[]): number =>
    Number(db.get(`SELECT coalesce(sum(${SIZE}), 0) AS n FROM main._conflicts ${where}`, ...params)?.n);
  const count = Number(db.get('SELECT count(*) AS n FROM main._conflicts')?.n);
  for (let excess = count - limits.keep; excess > 0; ) excess -= letGo(db, excess);
  const known = bytes === undefined ? sum('') : bytes + sum('WHERE conflict_id > ?', mark);
  if (known <= limits.bytes) return known;
  const held = sum('');
  if (held <= limits.bytes) return held;
  let left = held;
  while (left > Math.floor(limits.bytes * SHARE)) {
    if (letGo(db, Math.ceil(count / 20)) === 0) break;
    left = sum('');
  }
  return left;
}

/**
 * Lets go of some, and of no more than so many: the oldest of whoever has brought the most, and of that one no more than
 * leave it as many as the next. So one who overwrites everything cannot make others' deeds disappear. Returns how many.
 */
function letGo(db: Connection, most: number): number {
  const [first, second] = db.all<{ sender: string | null; n: number }>(
    'SELECT sender, count(*) AS n FROM main._conflicts GROUP BY sender ORDER BY n DESC, max(conflict_id) LIMIT 2',
  );
  if (!first) return 0;
  db.run(
    'DELETE FROM main._conflicts WHERE conflict_id IN ' +
      '(SELECT conflict_id FROM main._conflicts WHERE sender IS ? ORDER BY conflict_id LIMIT CAST(? AS INTEGER))',
    first.sender,
    Math.min(most, Math.max(1, first.n - (second?.n ?? 0))),
  );
  return db.changes();
}
