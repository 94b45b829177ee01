/** Virtual time: events in the order of their moment, one after the other, with nothing left over in between. */

interface Event {
  at: number;
  /** Events of one moment happen in the order in which they were planned. */
  order: number;
  run: (() => void) | undefined;
}

export interface Planned {
  cancel(): void;
}

export class Timeline {
  /** Milliseconds since the simulation began. */
  now = 0;
  /** How many events have happened. */
  happened = 0;
  #order = 0;
  readonly #heap: Event[] = [];

  in(ms: number, run: () => void): Planned {
    const event: Event = { at: this.now + Math.max(0, ms), order: this.#order++, run };
    this.#push(event);
    return {
      cancel: () => {
        event.run = undefined;
      },
    };
  }

  /** Lets time pass until `done` says so or the moment `until` has come; `after` looks at the world after every event. */
  async run(until: number, done: () => boolean, after: () => void): Promise<boolean> {
    for (;;) {
      if (done()) return true;
      const next = this.#heap[0];
      if (!next || next.at > until) break;
      this.#pop();
      if (!next.run) continue;
      this.now = next.at;
      this.happened += 1;
      next.run();
      await settled();
      after();
    }
    this.now = Math.max(this.now, until);
    return done();
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let i = heap.push(event) - 1;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (!before(event, heap[parent] as Event)) break;
      heap[i] = heap[parent] as Event;
      i = parent;
    }
    heap[i] = event;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop() as Event;
    if (heap.length === 0) return;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && before(heap[child + 1] as Event, heap[child] as Event)) child += 1;
      if (!before(heap[child] as Event, last)) break;
      heap[i] = heap[child] as Event;
      i = child;
    }
    heap[i] = last;
  }
}

function before(a: Event, b: Event): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}

/** Resolves when everything that waits for nothing but its turn has had it: microtasks run out before an immediate. */
function settled(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
