/**
 * Which databases were at the edges' URLs, each from when until when, as they have said themselves: two that have one id and
 * were there at the same time are two that use it. No clock says that, and nobody has to have been quiet for a while: an edge
 * was there from its first answer until it was last asked, if it was the same one at both ends. So whoever has moved, was
 * replaced or put back was there before or after the other one, and a database with two URLs is one.
 */
import { type Clock, passedSince } from '../clock.ts';
import { isUsedTwice, TWICE_MS } from '../identity/twice.ts';

/** An edge, as far as this is about it. */
interface Place {
  readonly url: string;
}

/** A database at a URL. Moments are numbers that grow. */
interface Stay {
  id: string;
  inc: string;
  /** When it had first answered, and when it was asked for what it has answered last. */
  from: number;
  until: number;
  /** When that was, by the clock. */
  heardAt: number;
}

/** So many of one id are looked at and named: a thousand copies of one image are one mistake. */
const LOOKED_AT = 10;

export class SeenTogether {
  readonly #clock: Pick<Clock, 'now'>;
  readonly #stays = new Map<string, Stay>();
  #moment = 0;

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock;
  }

  /** Something is asked now. */
  ask(): number {
    return ++this.#moment;
  }

  /**
   * Who has answered to what was asked at that moment; `inc` is undefined where it has not introduced itself. Returns the
   * database that was there before, where it is another one.
   */
  note(place: Place, asked: number, id: string, inc: string | undefined): string | undefined {
    if (inc === undefined) return this.forget(place);
    const { url } = place;
    const before = this.#stays.get(url);
    const goesOn = before?.id === id && before.inc === inc;
    const from = goesOn ? before.from : ++this.#moment;
    this.#stays.set(url, { id, inc, from, until: asked, heardAt: this.#clock.now() });
    return before?.inc === inc ? undefined : before?.inc;
  }

  /** It is no edge any more, or a plain one. Returns the database that was there. */
  forget({ url }: Place): string | undefined {
    const inc = this.#stays.get(url)?.inc;
    this.#stays.delete(url);
    return inc;
  }

  /** Those of these that may use the id at the same time as this one, which is not known before they are asked again. */
  doubted<P extends Place>(place: P, group: Iterable<P>): P[] {
    const own = this.#stays.get(place.url);
    const others = own ? this.#heard(own.id, group).filter(({ stay }) => stay.inc !== own.inc) : [];
    return others.filter(({ stay }) => !wereTogether(own as Stay, stay)).map((other) => other.place);
  }

  /** What is wrong with an id that these edges have; undefined where nothing is. */
  problem(id: string, group: Iterable<Place>): string | undefined {
    const heard = this.#heard(id, group);
    const isTwo = ({ stay }: { stay: Stay }): boolean => heard.some((other) => wereTogether(stay, other.stay));
    const urls = heard.filter(isTwo).map(({ place }) => place.url);
    return urls.length === 0 ? undefined : `${isUsedTwice(id)} (edges ${urls.sort().join(', ')})`;
  }

  /** Those that were heard under that id not long ago. */
  #heard<P extends Place>(id: string, group: Iterable<P>): { place: P; stay: Stay }[] {
    const heard: { place: P; stay: Stay }[] = [];
    for (const place of group) {
      const stay = this.#stays.get(place.url);
      if (stay?.id === id && passedSince(this.#clock, stay.heardAt) < TWICE_MS) heard.push({ place, stay });
      if (heard.length === LOOKED_AT) break;
    }
    return heard;
  }
}

function wereTogether(one: Stay, other: Stay): boolean {
  return one.inc !== other.inc && Math.max(one.from, other.from) < Math.min(one.until, other.until);
}
