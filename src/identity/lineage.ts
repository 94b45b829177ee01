/**
 * Whether the file under this process is still the one that it knows. SQLite's backup API, and whoever else copies pages,
 * puts another state under a connection that stays open. Nothing is attached anew then, so what is told of the file looks
 * like a late message to everybody else.
 *
 * What a file says of itself only grows: its tick, and its attaches, each of which notes those before it. What does not go
 * on from where it was last seen is an earlier state, or another file.
 */
export interface Place {
  inc: string;
  boot: string;
  /** The attaches before that, the latest first. */
  before: string[];
  tick: number;
}

export class Lineage {
  /** As last seen, committed. */
  #last: Place | undefined;

  /** Does it go on from where it was last seen? */
  goesOn({ boot, before, tick }: Omit<Place, 'inc'>): boolean {
    const last = this.#last;
    if (!last) return true;
    return tick >= last.tick && (boot === last.boot || before.includes(last.boot));
  }

  /** Whoever is there now, it is the one to go on from. */
  beginAnew(): void {
    this.#last = undefined;
  }

  /**
   * The file is there now, committed. `renewed`: it goes on, and has another identity than it had; another process on it may
   * have done that.
   */
  see(place: Place): 'same' | 'renewed' | 'another' {
    const found = !this.goesOn(place) ? 'another' : (this.#last?.inc ?? place.inc) === place.inc ? 'same' : 'renewed';
    this.#last = place;
    return found;
  }
}
