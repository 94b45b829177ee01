/** A reader of Server-Sent Events. */
import http from 'node:http';
import { cleanUp } from './clean-up.ts';

interface Event {
  id?: string;
  event?: string;
  data?: string;
}

/** Reads events as a browser does, and remembers where it is. */
export class Reader {
  readonly events: Event[] = [];
  comments = 0;
  ended = false;
  #rest = '';
  #request: http.ClientRequest;

  constructor(url: string, headers: Record<string, string> = {}) {
    this.#request = http.get(
      url,
      { headers: { accept: 'text/event-stream', ...headers }, agent: false },
      (response) => {
        response.setEncoding('utf8');
        response.on('data', (text: string) => this.#take(text));
        response.on('close', () => {
          this.ended = true;
        });
      },
    );
    this.#request.on('error', () => {
      this.ended = true;
    });
    cleanUp(() => this.close());
  }

  get rows(): { op: string; id: string }[] {
    return this.events
      .filter(({ event }) => event === 'change')
      .flatMap(({ data }) => (JSON.parse(data as string) as { rows: { op: string; id: string }[] }).rows);
  }

  get ids(): string[] {
    return this.rows.map(({ id }) => id);
  }

  get position(): string {
    return this.events.findLast(({ id }) => id !== undefined)?.id as string;
  }

  close(): void {
    this.#request.destroy();
  }

  #take(text: string): void {
    const blocks = (this.#rest + text).split('\n\n');
    this.#rest = blocks.pop() as string;
    for (const block of blocks) {
      const lines = block.split('\n').map((line) => [line.slice(0, line.indexOf(':')), line.replace(/^[^:]*: ?/, '')]);
      if (lines.every(([key]) => key === '')) this.comments += 1;
      else this.events.push(Object.fromEntries(lines));
    }
  }
}
