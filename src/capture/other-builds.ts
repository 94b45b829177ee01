/**
 * Two builds of Rowcast on one file want triggers of different texts, and each, finding others in place of its own, would put
 * its own back, as fast as it looks: an idle file was written to hundreds of times a second.
 *
 * So the record of a table's triggers says of which form they are (TRIGGER_FORM), and who finds a newer form where it had its
 * own leaves it. It puts its own there by an attach, and where the table has changed for it: whoever has the newer form and is
 * alive answers by putting that back, and whoever was stopped for good does not. So nobody has to say that he is alive.
 *
 * A build from before there were forms knows nothing of that, nor does one whose triggers differ within a form (those of a
 * connection that has temporary triggers). Against these, who has put its own back three times within seconds does so once a
 * second from then on, and says so. Writes are captured by whichever are there. Only triggers: where the internal tables of the
 * other build have another shape, it and this one go on giving them their own.
 */
import type { Connection } from '../sqlite/connection.ts';
import type { Table } from '../sqlite/schema.ts';
import { formOf } from './capture-record.ts';
import { othersFireFirst, sameTriggers, type Warning, wantedOn } from './installed-triggers.ts';
import type { Time } from './named.ts';
import { TRIGGER_FORM, type Trigger } from './triggers.ts';

/** So often within so long is no upgrade any more, in which one program ends while the next begins. */
const TIMES = 3;
const WITHIN_MS = 10_000;
const PUT_BACK_MS = 1_000;

export class OtherBuilds {
  readonly #db: Connection;
  readonly #time: Pick<Time, 'now'> | undefined;
  /** When its own were put back in place of another's, the latest of it. */
  #putBack: number[] = [];
  /** Another's are in place, and its own are to be put back when it is time. */
  #isHeld = false;
  /** The tables that it was about, for a person. */
  #tables: string[] = [];
  /** They were of our own form. */
  #isSameForm = false;
  /** What the look that is under way has found: it counts when that is committed. */
  #look: Look = { held: new Set(), put: new Set() };

  /** Whoever is not attached looks once, and has nothing to say of a while. */
  constructor(db: Connection, time: Pick<Time, 'now'> | undefined) {
    this.#db = db;
    this.#time = time;
  }

  /** A look begins; the one before may have been taken back. */
  begin(): void {
    this.#look = { held: new Set(), put: new Set() };
  }

  /** In the transaction of a look: are `there` another build's, and to be left? `before` is the table at the look before. */
  leaves(before: Table | undefined, table: Table, there: Trigger[]): boolean {
    if (!this.#time || !before) return false;
    const wanted = wantedOn(table);
    // Where the table is another than it was, nobody knows whether who made these has seen that.
    if (sameTriggers(wanted, there) || !sameTriggers(wanted, wantedOn(before))) return false;
    const form = formOf(this.#db, table, there);
    // A person's work, and no build's; or such as miss what a trigger of the application's, made since, takes from them.
    if (form === undefined || othersFireFirst(this.#db, table)) return false;
    if (form > TRIGGER_FORM) return true;
    // An older build that knows forms will leave ours.
    if (form > 0 && form < TRIGGER_FORM) return false;
    this.#isSameForm = form === TRIGGER_FORM;
    const isHeld = this.#goesOn() && !this.#isTime();
    this.#look[isHeld ? 'held' : 'put'].add(table.name);
    return isHeld;
  }

  /** The look is committed: what there is to say of it. */
  settle(): Warning[] {
    const { held, put } = this.#look;
    this.begin();
    const didGoOn = this.#goesOn();
    this.#isHeld = held.size > 0;
    if (put.size > 0) this.#putBack = [...this.#putBack, this.#now()].slice(-TIMES);
    if (put.size + held.size > 0) this.#tables = [...new Set([...put, ...held])];
    return this.#goesOn() && !didGoOn ? [['two-builds', this.#text()]] : [];
  }

  /** Nobody may touch the file between the look that has left another's there and the moment to put its own back. */
  isDue(): boolean {
    return this.#isHeld && this.#isTime();
  }

  /** For as long as it goes on: it is over some seconds after the other has left ours in place. */
  get problem(): string | undefined {
    return this.#goesOn() ? this.#text() : undefined;
  }

  #goesOn(): boolean {
    const [first] = this.#putBack;
    const isOften = this.#putBack.length === TIMES && Math.abs(this.#now() - (first as number)) < WITHIN_MS;
    return this.#isHeld || isOften;
  }

  #isTime(): boolean {
    return Math.abs(this.#now() - (this.#putBack.at(-1) ?? -Infinity)) >= PUT_BACK_MS;
  }

  #now(): number {
    return this.#time?.now() ?? 0;
  }

  #text(): string {
    const which = this.#isSameForm
      ? 'one of the two has temporary triggers on the table, or it is another build of Rowcast. Every write is captured by the triggers of one ' +
        'or the other. Make no temporary triggers on a table that is synced, and run one build on a file; then this ends by itself'
      : 'it is another build of Rowcast, most likely an older one. Every write is captured by the triggers of one or the ' +
        'other, but what only the newer ones notice is not noticed meanwhile. Run one build on a file: stop the other ' +
        'program, or start it with this build; then this ends by itself';
    const whose = `another process puts its own capture triggers in place of ours, again and again (on "${this.#tables.join('", "')}")`;
    return `${whose}: ${which}`;
  }
}

/** Are the triggers on it ours, or another build's as that has made them? Those capture everything as well. */
export function isWhole(db: Connection, table: Table, there: Trigger[]): boolean {
  return sameTriggers(wantedOn(table), there) || formOf(db, table, there) !== undefined;
}

/** Tables on which another's triggers were left for now, and those that have got ours back. */
interface Look {
  held: Set<string>;
  put: Set<string>;
}
