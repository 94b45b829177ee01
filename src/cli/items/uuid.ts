/** UUIDv7: the time in milliseconds, a counter that only rises, and chance. Ids of one process sort as they were made. */
import { randomBytes } from 'node:crypto';
import type { Clock } from '../../clock.ts';

const COUNTER_MAX = 2 ** 26;
const COUNTER_ROOM = 2 ** 16;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function isUuid(text: string): boolean {
  return UUID.test(text);
}

export function uuidv7(clock: Clock, random: (bytes: number) => Buffer = randomBytes): () => string {
  let time = 0;
  let counter = 0;
  return () => {
    const now = clock.now();
    counter += 1;
    // A clock that was set back leaves the time where it was; the counter goes on.
    if (now > time || counter >= COUNTER_MAX) {
      time = Math.max(now, time + 1);
      // Below the end, so that there is room to count in however the dice fall.
      counter = random(4).readUInt32BE() % (COUNTER_MAX - COUNTER_ROOM);
    }
    const ms = time.toString(16).padStart(12, '0');
    const high = (0x7000 | (counter >>> 14)).toString(16);
    const low = (0x8000 | (counter & 0x3fff)).toString(16);
    return `${ms.slice(0, 8)}-${ms.slice(8)}-${high}-${low}-${random(6).toString('hex')}`;
  };
}
